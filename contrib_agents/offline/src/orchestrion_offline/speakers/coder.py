"""Play the roles of a code review: right, wrong and untidy code at known rates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from attrs import field, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import asked_text, system_text, words
from orchestrion_offline.speakers.habits import Habit, Share, effective

if TYPE_CHECKING:
    from orchestrion_code_review_agents import Script

_CODE = re.compile(r"^[ >]{0,5}(`{3,})(?:python|py)[^\n`]*\n(.*?)^[ >]{0,5}\1", re.M | re.S)


def script_in(text: str) -> Script | None:
    """Return the right and wrong solutions of the last problem in a text; None if none is known.

    Raises:
        ValueError: the task that has them is not installed.
    """
    try:
        from orchestrion_code_review_agents import script_in as known_script_in
    except ImportError:
        raise ValueError(
            "the speaker `coder` needs the task: pip install 'orchestrion-offline[code]'"
        ) from None
    return known_script_in(text)


def worth_of(text: str) -> float:
    """Return what the last code in a text is worth: 1 if it is right, 0.5 if nobody knows."""
    try:
        script = script_in(text)
    except ValueError:
        return 0.5
    if script is None:
        return 0.5
    code = blocks_of_code(text)
    if not code:
        return 0.0
    return 1.0 if script.is_right(code[-1][1]) else 0.25


def blocks_of_code(text: str) -> list[tuple[int, str]]:
    """Return the fenced blocks of Python, each with the position of its end."""
    return [(match.end(), match[2]) for match in _CODE.finditer(text)]


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
"""Helpful, harmful and useless habits."""


def _writer() -> dict[str, float]:
    return {"basic": 0.85, "intermediate": 0.6, "advanced": 0.35}


@frozen
class Coder(Speaker):
    """Plays a role on problems of the task code-review, whose solutions it has.

    Args:
        role: its role; `told` takes the first role that its instructions name.
        writer: chance that it writes a right solution, by level: `basic`, `intermediate`,
            `advanced`.
        tidy: chance that its code has types and no unused import.
        reviewer: chance that it sees the defect of a wrong version.
        false_alarm: chance that it sees a defect in a right version.
        refactorer: chance that it repairs a wrong version to which a review objects.
        unaided: chance that it repairs a wrong version without such a review.
        slip: chance that it breaks a right version to which a review objects.
        habits: sentences in its instructions that change the skill of any role.
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

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        text, instructions = asked_text(request), system_text(request)
        script = script_in(text)
        if script is None:
            raise ValueError(
                "this speaker knows only problems of the task 'code-review', and the request has "
                "none"
            )
        role = self._role(instructions)

        def skill(base: float) -> float:
            return effective({}, base, script.level, self.habits, instructions)

        if role == "writer":
            return self._write(script, skill(self.writer.get(script.level, 0.5)), draw)
        code = blocks_of_code(text)
        if not code:
            return Answer(f"There is nothing for a {role} to work on yet.")
        end, latest = code[-1]
        if role == "reviewer":
            chance = self.false_alarm if script.is_right(latest) else skill(self.reviewer)
            return Answer(_OBJECTION if draw.uniform() < chance else "I see no defect.")
        success, which = draw.uniforms(2)
        objected = _OBJECTION in text[end:]
        if script.is_right(latest):
            breaks = objected and success < self.slip
            return _fenced(_wrong(script, which) if breaks else script.right)
        repairs = success < skill(self.refactorer if objected else self.unaided)
        return _fenced(script.right if repairs else latest)

    def _role(self, instructions: str) -> Role:
        if self.role != "told":
            return self.role
        text = words(instructions)
        named = [(at, role) for role in _ROLES if (at := text.find(words(role))) >= 0]
        if named:
            return min(named)[1]
        # Instructions may say what to do and name no role.
        verbs: dict[Role, str] = {"reviewer": r" review", "refactorer": r" refactor| improve"}
        return next((role for role, verb in verbs.items() if re.search(verb, text)), "writer")

    def _write(self, script: Script, skill: float, draw: Key) -> Answer:
        from orchestrion_code_review_agents import untidy

        success, which, neat = draw.uniforms(3)
        code = script.right if success < skill else _wrong(script, which)
        return _fenced(code if neat < self.tidy else untidy(code))


def _wrong(script: Script, which: float) -> str:
    return script.wrong[int(which * len(script.wrong))]


def _fenced(code: str) -> Answer:
    return Answer(f"```python\n{code.rstrip()}\n```")
