"""A task and its agents to try ensembles with: sums, and jurors that err at a known rate.

The accuracy of a vote of independent jurors is known exactly (`votes.vote_accuracy`), so an
ensemble can be checked against it. No model is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
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

Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
TOPICS = ("sums", "differences")


@frozen
class Jury(Task):
    """Asks for a sum or difference modulo `classes`; the last turn with content is the answer.

    Half of the problems have the category `sums`, half `differences`.

    Args:
        classes: number of possible answers: 0 to classes - 1.
        train: problems in the training split.
        validation: problems in the validation split.
        test: problems in the test split.
    """

    classes: Annotated[int, Meta(ge=2, le=26)] = 4
    train: Count = 64
    validation: Count = 512
    test: Count = 512

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split, drawn from keys that splits do not share."""
        return _problems(split, getattr(self, split), self.classes)

    ceiling = no_calls

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Score whether the last completed turn with content gives the right answer."""
        texts = [turn.output.content for turn in trajectory if turn.status == "completed"]
        answer = next((text for text in reversed(texts) if text), "")
        right = answer.strip() == str(solution(problem))
        return Scores(float(right), right)


@lru_cache(maxsize=8)
def _problems(split: str, count: int, classes: int) -> tuple[Problem, ...]:
    """Return the first problems of a split: trainers ask for them in every iteration."""
    key = Key(0).child("jury", split)
    return tuple(_problem(split, n, classes, key.child(n)) for n in range(count))


def _problem(split: str, n: int, classes: int, key: Key) -> Problem:
    numbers = [1 + int(99 * draw) for draw in key.uniforms(4)]
    topic = TOPICS[n % 2]
    data = {"numbers": numbers, "classes": classes}
    word = " + " if topic == "sums" else " - "
    text = f"({word.join(map(str, numbers))}) modulo {classes}"
    return Problem(f"{split}-{n}", text, data, topic)


def solution(problem: Problem) -> int:
    """Return the right answer, computed from the public part of the problem."""
    first, *others = problem.data["numbers"]
    result = first + sum(others) if problem.category == "sums" else first - sum(others)
    return int(result % problem.data["classes"])


@frozen
class Juror(Agent):
    """Computes the answer, and errs at a known rate; all wrong answers are equally likely.

    Args:
        accuracy: probability of being right.
        on: probability of being right on `sums` or `differences`, in place of `accuracy`.
        shares: probability that whether it is right is drawn in common with its `group`.
        group: the jurors with the same name here draw in common.
        abstains: probability of giving no answer.
        fails: probability that its turn fails.
        says: what its data holds beside the answer: nothing, `probabilities`, a `ranking`, or a
            `confidence`.
        boast: added to the stated confidence and probability, beyond its true accuracy.
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
        """Return an answer; raise RuntimeError if it is to fail, ValueError for other tasks."""
        problem = view.problem
        if not isinstance(problem.data, dict) or "numbers" not in problem.data:
            raise ValueError("a juror can only answer problems of the task jury")
        luck, common, error, mood, order = key.uniforms(5)
        if mood < self.fails:
            raise RuntimeError("this juror fails, as its setting `fails` says")
        if mood < self.fails + self.abstains:
            return Output("", usage=Usage(cost=self.cost))
        if common < self.shares:
            luck = Key(0).child("luck", self.group, problem.id).uniform()
        right, classes = solution(problem), problem.data["classes"]
        skill = self.on.get(problem.category, self.accuracy)  # type: ignore[call-overload]
        answer = right
        if luck >= skill:
            answer = (right + 1 + int(error * (classes - 1))) % classes
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
    """Reads the jurors' answers, and gives the most frequent one of those it trusts on the topic.

    It takes the place of a language model that integrates specialists' answers. If none of those
    it trusts answered, all count.

    Args:
        trusts: names of jurors, by `sums` or `differences`.
        cost: of a turn.
    """

    trusts: Mapping[Literal["sums", "differences"], tuple[str, ...]] = Factory(dict)
    cost: Annotated[float, Meta(ge=0)] = 0.0

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return the first of the most frequent answers."""
        answered = [turn for turn in view.turns if turn.output.content]
        trusted = self.trusts.get(view.problem.category, ())  # type: ignore[call-overload]
        counted = [turn for turn in answered if turn.agent in trusted] or answered
        answers = [turn.output.content for turn in counted]
        best = max(answers, key=answers.count, default="")
        data = {"heard": [turn.agent for turn in counted]}
        return Output(best, data, Usage(cost=self.cost))
