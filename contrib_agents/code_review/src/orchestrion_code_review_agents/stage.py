"""What the players know: the solutions that come with the task, and whether a program is one.

They are players, not solvers: each has the script, the right and some wrong solutions of a
problem, and acts with a stated skill. They never see a test. With problems of another origin they
have no script, and their turns fail.
"""

from __future__ import annotations

import ast
from functools import cache, lru_cache

from attrs import frozen
from orchestrion_code_review.blocks import ENDS, STEPS, Block
from orchestrion_code_review.challenge import Challenge
from orchestrion_code_review.generator import compose
from orchestrion_code_review.suite_files import builtin
from orchestrion_code_review.versions import versions
from orchestrion_repair.state import digest_of

from orchestrion import Output, Problem, Usage, View

__all__ = ["Script", "Seen", "latest", "played", "said", "script_of", "untidy"]


@frozen
class Script:
    """The programs a player can bring."""

    level: str
    right: str
    wrong: tuple[str, ...]

    def is_right(self, code: str) -> bool:
        """Whether a program is the right one, tidy or not."""
        return _core(code) == _core(self.right)


@frozen
class Seen:
    """The latest version, and whether a review of it says that it has a defect."""

    code: str
    on: str
    defect: bool


def script_of(problem: Problem) -> Script:
    """The script for a problem.

    Raises:
        RuntimeError: the problem did not come with the task.
    """
    challenge = _challenge(problem.id)
    if challenge is None:
        raise RuntimeError(
            f"no script for the problem {problem.id!r}: players know the built-in and composed "
            "problems of code-review; use agents with a model for others"
        )
    return Script(challenge.level, challenge.solution, challenge.wrong)


@lru_cache(maxsize=10_000)
def _challenge(name: str) -> Challenge | None:
    if name.startswith("composed/"):
        blocks = [_blocks().get(part) for part in name.removeprefix("composed/").split(".")]
        known = [block for block in blocks if block is not None]
        return compose(known) if len(known) == len(blocks) else None
    return next((one for one in builtin() if one.id == name), None)


@cache
def _blocks() -> dict[str, Block]:
    return {block.name: block for block in (*STEPS, *ENDS)}


def latest(view: View) -> Seen | None:
    """The latest version this agent may read, with what was said of it; None if there is none."""
    found = versions(view.turns)
    if not found:
        return None
    code = found[-1].code
    on = digest_of(code)
    reports = [turn.output.data for turn in view.turns]
    defect = any(
        isinstance(one, dict)
        and one.get("tool") == "review"
        and one.get("on") == on
        and one.get("defect") is True
        for one in reports
    )
    return Seen(code, on, defect)


def said(view: View, text: str, data: dict[str, object], cost: float) -> Output:
    """A turn with the tokens that a model would have read and written, four characters each."""
    read = len(view.problem.text) + sum(len(turn.output.content) for turn in view.turns)
    return Output(text, data, Usage(0, read // 4, len(text) // 4, 0.0, cost))


def played(agent: object, tokens: int) -> Usage:
    """What a turn states at most: no call, and the tokens that a model would have taken.

    The programs that are played are generated, and far shorter.
    """
    return Usage(0, tokens, 2_000)


@lru_cache(maxsize=10_000)
def untidy(code: str) -> str:
    """The same program without types, and with an import that nothing uses."""
    tree = _Bare().visit(ast.parse(code))
    return f"import os\n{ast.unparse(ast.fix_missing_locations(tree))}\n"


@lru_cache(maxsize=10_000)
def _core(code: str) -> str:
    """A program without types and unused imports, in one layout."""
    try:
        tree = _Bare().visit(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError):
        return code
    kept = [node for node in tree.body if ast.unparse(node) != "import os"]
    return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in kept)


class _Bare(ast.NodeTransformer):
    """Takes types away."""

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
