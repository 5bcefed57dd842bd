"""The players of a code review, and their scripts: the solutions that come with the task.

They do not solve problems: each has the script, which is the right and some wrong solutions of a
problem, and acts with a stated skill. They never see a test. For other problems they have no
script, and their turns fail.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Annotated

from attrs import frozen
from orchestrion_code_review import Challenge, Version, challenge_in, challenge_of, versions_of

from orchestrion import Agent, Calls, Key, Meta, Output, Problem, Usage, View

Chance = Annotated[float, Meta(ge=0, le=1)]


@frozen
class Script:
    """The programs that a player can write.

    Args:
        level: of the problem.
        right: a right program.
        wrong: wrong programs.
    """

    level: str
    right: str
    wrong: tuple[str, ...]

    @classmethod
    def of(cls, challenge: Challenge) -> Script:
        """Return the script of a problem that comes with the task."""
        return cls(challenge.level, challenge.solution, challenge.wrong)

    def is_right(self, code: str) -> bool:
        """Return whether a program is the right one, tidy or not."""
        return _core(code) == _core(self.right)


def script_of(problem: Problem) -> Script:
    """Return the script for a problem.

    Raises:
        RuntimeError: the problem does not come with the task.
    """
    challenge = challenge_of(problem.id)
    if challenge is None:
        raise RuntimeError(
            f"no script for the problem {problem.id!r}: players know the built-in and composed "
            "problems of code-review; use agents with a model for others"
        )
    return Script.of(challenge)


def script_in(text: str) -> Script | None:
    """Return the script for the last known problem in a text; None if there is none."""
    challenge = challenge_in(text)
    return Script.of(challenge) if challenge is not None else None


def latest(view: View) -> tuple[Version, bool] | None:
    """Return the latest version that an agent may read, and whether a review says it has a defect.

    None if there is no version.
    """
    versions = versions_of(view.turns)
    if not versions:
        return None
    latest_version, defect = versions[-1], False
    for turn in view.turns:
        match turn.output.data:
            case {"tool": "review", "on": on, "defect": True} if on == latest_version.digest:
                defect = True
    return latest_version, defect


def output_of(view: View, text: str, data: dict[str, object], cost: float) -> Output:
    """Return an output with the tokens of a model, counted as four characters each."""
    read = len(view.problem.text) + sum(len(turn.output.content) for turn in view.turns)
    return Output(text, data, Usage(0, read // 4, len(text) // 4, 0.0, cost))


def ceiling_of_turn(agent: object, tokens: int) -> Usage:
    """Return the most that a turn takes: no call, and the tokens of a model.

    All programs of scripts are far shorter than 2,000 tokens.
    """
    return Usage(0, tokens, 2_000)


@lru_cache(maxsize=10_000)
def untidy(code: str) -> str:
    """Return the same program without types, and with an import that nothing uses."""
    tree = _Bare().visit(ast.parse(code))
    return f"import os\n{ast.unparse(ast.fix_missing_locations(tree))}\n"


@lru_cache(maxsize=10_000)
def _core(code: str) -> str:
    """Return a program without types and unused imports, in one layout."""
    try:
        tree = _Bare().visit(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError):
        return code
    kept = [node for node in tree.body if ast.unparse(node) != "import os"]
    return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in kept)


class _Bare(ast.NodeTransformer):
    """Removes types."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


@frozen
class PlayWriter(Agent):
    """Writes a solution: a right one at the rate of its skill, else one of the wrong ones.

    Every turn is a new attempt, whatever other agents wrote.

    Args:
        basic: how often it is right on basic problems.
        intermediate: on intermediate ones.
        advanced: on advanced ones.
        tidy: how often its code has types and no unused import.
        cost: of a turn.
    """

    basic: Chance = 0.85
    intermediate: Chance = 0.6
    advanced: Chance = 0.35
    tidy: Chance = 0.5
    cost: Annotated[float, Meta(ge=0)] = 1.0

    role = "writes a solution"
    ceiling = ceiling_of_turn

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return one attempt."""
        script = script_of(view.problem)
        right, which, neat = key.uniforms(3)
        code = script.right
        if right >= getattr(self, script.level):
            code = script.wrong[int(which * len(script.wrong))]
        code = code if neat < self.tidy else untidy(code)
        return output_of(view, f"```python\n{code}```\n", {"code": code}, self.cost)


@frozen
class PlayReviewer(Agent):
    """Says whether the latest version has a defect; brings no version of its own.

    Args:
        skill: how often it sees the defect of a wrong version.
        false_alarm: how often it sees one in a right version.
        cost: of a turn.
    """

    skill: Chance = 0.85
    false_alarm: Chance = 0.05
    cost: Annotated[float, Meta(ge=0)] = 0.5

    role = "says whether the latest version has a defect"
    ceiling = ceiling_of_turn

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return a review of the latest version."""
        script, newest = script_of(view.problem), latest(view)
        if newest is None:
            return output_of(view, "There is nothing to review yet.", {"tool": "review"}, self.cost)
        version, _ = newest
        chance = self.false_alarm if script.is_right(version.code) else self.skill
        defect = key.uniform() < chance
        text = "I see a defect: it is not right for all inputs." if defect else "I see no defect."
        return output_of(
            view, text, {"tool": "review", "on": version.digest, "defect": defect}, self.cost
        )


@frozen
class PlayRefactorer(Agent):
    """Tidies the latest version, and mends it, mostly if a review says that it has a defect.

    Args:
        skill: how often it mends a wrong version that a review says has a defect.
        unaided: how often it mends one without such a review.
        slip: how often it breaks a right version that a review says has a defect.
        cost: of a turn.
    """

    skill: Chance = 0.9
    unaided: Chance = 0.05
    slip: Chance = 0.3
    cost: Annotated[float, Meta(ge=0)] = 0.8

    role = "tidies and mends the latest version"
    ceiling = ceiling_of_turn

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return a new version, if there is one to begin with."""
        script, newest = script_of(view.problem), latest(view)
        if newest is None:
            return output_of(view, "There is nothing to refactor yet.", {}, self.cost)
        version, defect = newest
        chance, which = key.uniforms(2)
        if script.is_right(version.code):
            breaks = defect and chance < self.slip
            code = script.wrong[int(which * len(script.wrong))] if breaks else script.right
        elif chance < (self.skill if defect else self.unaided):
            code = script.right
        else:
            code = version.code
        return output_of(view, f"```python\n{code}```\n", {"code": code}, self.cost)
