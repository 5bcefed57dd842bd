"""A task and its agent to try ensembles with: sums, and jurors that slip at a known rate.

How good a vote of independent jurors can be is known exactly (`vote_accuracy`), so this shows
whether an ensemble is as good as it should be. No model is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from attrs import Factory, frozen

from orchestrion import (
    Agent,
    Calls,
    Key,
    Meta,
    Output,
    Problem,
    Scores,
    Split,
    Task,
    Trajectory,
    Usage,
    View,
    no_calls,
)

__all__ = ["Foreman", "Juror", "Jury"]

Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
TOPICS = ("sums", "differences")


@frozen
class Jury(Task):
    """What is a sum, or a difference, modulo `classes`? The last turn with a content is the answer.

    Half of the problems are of the category `sums`, half of `differences`.

    Args:
        classes: how many answers there can be: 0 to classes - 1.
        train: problems in the training split.
        validation: problems in the validation split.
        test: problems in the test split.
    """

    classes: Annotated[int, Meta(ge=2, le=26)] = 4
    train: Count = 64
    validation: Count = 512
    test: Count = 512

    def problems(self, split: Split) -> Sequence[Problem]:
        """Drawn from keys that the splits do not share."""
        key = Key(0).child("jury", split)
        return [self._problem(split, n, key.child(n)) for n in range(getattr(self, split))]

    def _problem(self, split: str, n: int, key: Key) -> Problem:
        numbers = [1 + int(99 * draw) for draw in key.uniforms(4)]
        topic = TOPICS[n % 2]
        data = {"numbers": numbers, "classes": self.classes}
        word = " + " if topic == "sums" else " - "
        text = f"({word.join(map(str, numbers))}) modulo {self.classes}"
        return Problem(f"{split}-{n}", text, data, topic)

    ceiling = no_calls

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Whether the last completed turn with a content says what the rest is."""
        said = [turn.output.content for turn in trajectory if turn.status == "completed"]
        answer = next((text for text in reversed(said) if text), "")
        right = answer.strip() == str(solution(problem))
        return Scores(float(right), right)


def solution(problem: Problem) -> int:
    """The right answer, from what is public."""
    first, *others = problem.data["numbers"]
    result = first + sum(others) if problem.category == "sums" else first - sum(others)
    return int(result % problem.data["classes"])


@frozen
class Juror(Agent):
    """Works the answer out, and slips at a known rate; another answer is then equally likely.

    Args:
        accuracy: how often it is right.
        on: how often it is right on `sums` or `differences`, instead.
        shares: how much of its luck is drawn in common with others of the same `group`.
        group: whose luck it shares.
        abstains: how often it gives no answer.
        fails: how often its turn fails.
        says: what its data holds beside the answer: nothing, `probabilities`, a `ranking`, or a
            `confidence`.
        boast: added to the confidence and probability it states, beyond how often it is right.
        cost: of a turn.
    """

    accuracy: Share = 0.7
    on: Mapping[Literal["sums", "differences"], Share] = Factory(dict)
    shares: Share = 0.0
    group: str = ""
    abstains: Share = 0.0
    fails: Share = 0.0
    says: Literal["answer", "probabilities", "ranking", "confidence"] = "answer"
    boast: Share = 0.0
    cost: Annotated[float, Meta(ge=0)] = 1.0

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """One answer; which slip it makes is drawn from the key."""
        problem = view.problem
        if not isinstance(problem.data, dict) or "numbers" not in problem.data:
            raise ValueError("jurors judge the problems of the task jury only")
        luck, common, slip, mood, order = key.uniforms(5)
        if mood < self.fails:
            raise RuntimeError("this juror is ill")
        if mood < self.fails + self.abstains:
            return Output("", usage=Usage(cost=self.cost))
        if common < self.shares:
            luck = Key(0).child("luck", self.group, problem.id).uniform()
        right, classes = solution(problem), problem.data["classes"]
        skill = self.on.get(problem.category, self.accuracy)  # type: ignore[call-overload]
        answer = right
        if luck >= skill:
            answer = (right + 1 + int(slip * (classes - 1))) % classes
        data = self._data(answer, classes, min(skill + self.boast, 1.0), order)
        return Output(str(answer), data, Usage(cost=self.cost))

    def _data(self, answer: int, classes: int, sure: float, order: float) -> Any:
        if self.says == "confidence":
            return {"confidence": sure}
        others = [n for n in range(classes) if n != answer]
        if self.says == "probabilities":
            rest = (1 - sure) / len(others)
            return {"probabilities": {str(answer): sure, **{str(n): rest for n in others}}}
        if self.says == "ranking":
            turn = int(order * len(others))
            return {"ranking": [str(n) for n in [answer, *others[turn:], *others[:turn]]]}
        return None


@frozen
class Foreman(Agent):
    """Reads what jurors said, and goes with the most votes of those it trusts on this topic.

    It stands where a language model would integrate what specialists say. If none of those it
    trusts spoke, everybody counts.

    Args:
        trusts: names of jurors, by `sums` or `differences`.
        cost: of a turn.
    """

    trusts: Mapping[Literal["sums", "differences"], tuple[str, ...]] = Factory(dict)
    cost: Annotated[float, Meta(ge=0)] = 0.0

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """The first of the most frequent answers."""
        said = [turn for turn in view.turns if turn.output.content]
        trusted = self.trusts.get(view.problem.category, ())  # type: ignore[call-overload]
        heard = [turn for turn in said if turn.agent in trusted] or said
        answers = [turn.output.content for turn in heard]
        best = max(answers, key=answers.count, default="")
        data = {"heard": [turn.agent for turn in heard]}
        return Output(best, data, Usage(cost=self.cost))
