"""Who plays the roles of a code review: right, wrong and untidy code at known rates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from attrs import field, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Said, Speaker
from orchestrion_offline.reading import asked_text, system_text, words
from orchestrion_offline.speakers.code_known import blocks_of_code, script_in
from orchestrion_offline.speakers.skills import Habit, Share, effective

if TYPE_CHECKING:
    from orchestrion_code_review_agents import Script

__all__ = ["CODE_HABITS", "Coder"]

Role = Literal["writer", "reviewer", "refactorer"]
_ROLES: tuple[Role, ...] = ("writer", "reviewer", "refactorer")
_OBJECTION = "I see a defect: it is not right for all inputs."

CODE_HABITS: tuple[Habit, ...] = (
    Habit("Try the empty input and a single element before you answer.", 0.1),
    Habit("Walk through the examples by hand and compare.", 0.08),
    Habit("Answer with the first idea, without checking it.", -0.15),
    Habit("Leave out rare cases to keep the code short.", -0.2),
    Habit("Name variables after fruit."),
    Habit("Begin with a friendly sentence."),
)
"""Helpful, harmful and useless ones."""


def _writer() -> dict[str, float]:
    return {"basic": 0.85, "intermediate": 0.6, "advanced": 0.35}


@frozen
class Coder(Speaker):
    """Plays a role on problems of the task code-review, whose solutions it has.

    Args:
        role: which one; `told` goes by the first that its instructions name.
        writer: how often it writes a right solution, by level: `basic`, `intermediate`,
            `advanced`.
        tidy: how often its code has types and no unused import.
        reviewer: how often it sees the defect of a wrong version.
        false_alarm: how often it sees one in a right version.
        refactorer: how often it mends a wrong version in which a review saw a defect.
        unaided: how often it mends one without such a review.
        slip: how often it breaks a right version in which a review saw a defect.
        habits: sentences that change the skill of any role if its instructions have them.
    """

    role: Literal["told", "writer", "reviewer", "refactorer"] = "told"
    writer: Mapping[str, Share] = field(factory=_writer)
    tidy: Share = 0.5
    reviewer: Share = 0.85
    false_alarm: Share = 0.05
    refactorer: Share = 0.9
    unaided: Share = 0.05
    slip: Share = 0.3
    habits: tuple[Habit, ...] = CODE_HABITS

    def say(self, request: Mapping[str, JSON], draw: Key) -> Said:
        """See `Speaker.say`."""
        text, told = asked_text(request), system_text(request)
        script = script_in(text)
        if script is None:
            raise ValueError("this speaker knows the problems of the task 'code-review' only")
        role = self._role(told)
        if role == "writer":
            return self._write(script, told, draw)
        code = blocks_of_code(text)
        if not code:
            return Said(f"There is nothing for a {role} to work on yet.")
        end, latest = code[-1]
        if role == "reviewer":
            right = script.is_right(latest)
            chance = self.false_alarm if right else self._skill(self.reviewer, script, told)
            sees = draw.uniform() < chance
            return Said(_OBJECTION if sees else "I see no defect.")
        return self._refactor(script, latest, _OBJECTION in text[end:], told, draw)

    def _role(self, told: str) -> Role:
        if self.role != "told":
            return self.role
        shown = words(told)
        found = [(place, role) for role in _ROLES if (place := shown.find(words(role))) >= 0]
        if found:
            return min(found)[1]
        # Instructions may say what to do instead of who somebody is.
        verbs: dict[Role, str] = {"reviewer": r" review", "refactorer": r" refactor| improve"}
        return next((role for role, verb in verbs.items() if re.search(verb, shown)), "writer")

    def _skill(self, skill: float, script: Script, told: str) -> float:
        return effective({}, skill, script.level, self.habits, told)

    def _write(self, script: Script, told: str, draw: Key) -> Said:
        from orchestrion_code_review_agents import untidy

        luck, which, neat = draw.uniforms(3)
        code = script.right
        if luck >= self._skill(self.writer.get(script.level, 0.5), script, told):
            code = script.wrong[int(which * len(script.wrong))]
        return _brought(code if neat < self.tidy else untidy(code))

    def _refactor(self, script: Script, code: str, objected: bool, told: str, draw: Key) -> Said:
        luck, which = draw.uniforms(2)
        if script.is_right(code):
            breaks = objected and luck < self.slip
            return _brought(
                script.wrong[int(which * len(script.wrong))] if breaks else script.right
            )
        mends = self.refactorer if objected else self.unaided
        return _brought(script.right if luck < self._skill(mends, script, told) else code)


def _brought(code: str) -> Said:
    return Said(f"```python\n{code.rstrip()}\n```")
