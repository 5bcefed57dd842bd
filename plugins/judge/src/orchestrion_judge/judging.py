"""One judgement: several samples, perhaps in both orders, each read strictly or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Literal

from attrs import define, frozen

from orchestrion import JSON, Answer, Calls, Key, Model, Usage, ceiling_of, times
from orchestrion_judge.prompt import Block, Prompt, instructions, prompt, schema
from orchestrion_judge.rubric import Rubric
from orchestrion_judge.showing import Shown
from orchestrion_judge.verdict import UnusableError, parse_verdict

__all__ = ["Combine", "Judge", "Judgement", "Orders"]

Combine = Literal["median", "mean"]
Orders = Literal["given", "both"]
_PROBLEM = 600
"""Bytes of what is said to be wrong with an answer, at most."""


@frozen
class Judgement:
    """What the samples say together.

    Args:
        value: the rubric's value, 0 to 1; None where too few samples could be used.
        scores: of each criterion, on its own scale.
        by_order: the value in the given order, and in the reverse one if that was asked for.
        spread: the largest value of a sample minus the smallest.
        again: how many questions were asked again.
        problems: what was wrong with each answer that could not be used.
        usage: what it took.
    """

    value: float | None
    scores: Mapping[str, float]
    by_order: tuple[float, ...] = ()
    spread: float = 0.0
    again: int = 0
    problems: tuple[str, ...] = ()
    usage: Usage = Usage()


@define
class _Sample:
    """One question on its way to a verdict."""

    prompt: Prompt
    order: int
    key: Key
    messages: list[JSON]
    scores: dict[str, float] | None = None
    open: bool = True


@frozen
class Judge:
    """Asks a model, and takes only what it can read.

    Args:
        model: who judges.
        rubric: by what.
        key: what marks and samples are named by, with the content.
        samples: questions in each order.
        combine: samples of one order; orders are averaged.
        orders: the given one, or also its reverse.
        needed: how many samples of an order must be usable.
        retries: how often an unusable answer is asked for again.
        sampling: `temperature`, if set.
        structured: whether the model is given the answer's schema.
        unfinished: whether work is judged that is not done yet.
    """

    model: Model
    rubric: Rubric
    key: Key
    samples: int = 1
    combine: Combine = "median"
    orders: Orders = "given"
    needed: int = 1
    retries: int = 1
    sampling: Mapping[str, JSON] = {}
    structured: bool = True
    unfinished: bool = False

    async def judge(self, shown: Shown, calls: Calls) -> Judgement:
        """The judgement of a piece of work.

        Equal work has equal keys, so that a model with a cache is asked once for it.

        Raises:
            CallError: the model could not be asked.
        """
        samples = self._samples(shown)
        problems: list[str] = []
        usage, again = Usage(), 0
        for attempt in range(self.retries + 1):
            waiting = [one for one in samples if one.open]
            again += len(waiting) if attempt else 0
            # All of a round before the next one: calls are numbered in the order they are made,
            # which must not depend on who answers first.
            for one, answer in zip(waiting, await self._ask(waiting, attempt, calls), strict=True):
                usage += answer.usage
                if problem := self._read(one, answer):
                    problems.append(problem)
        return self._together(samples, again, tuple(problems), usage)

    def ceiling(self, tokens: int) -> Usage | None:
        """The most one judgement takes of material with so many tokens; None if that is not known.

        Bytes count as tokens, which they are at most.
        """
        asked = tokens + sum(len(text.encode()) for text in self._around())
        first = ceiling_of(self.model, asked)
        if first is None:
            return None
        reminded = asked + first.output_tokens + len(_reminder("", "").encode()) + _PROBLEM
        again = ceiling_of(self.model, reminded)
        if again is None:
            return None
        questions = self.samples * (1 + (self.orders == "both"))
        return times(first + times(again, self.retries), questions)

    def _around(self) -> Iterator[str]:
        """Everything a model reads with the material, except fences of turns."""
        empty = prompt(self.rubric, [Block("work"), *[Block("problem")] * 2], self.key)
        yield from (instructions(self.rubric, self.unfinished), empty.user)
        if self.structured:
            yield json.dumps(schema(self.rubric))

    def _samples(self, shown: Shown) -> list[_Sample]:
        found = []
        for order in range(1 + (self.orders == "both")):
            one = prompt(self.rubric, shown.blocks, self.key, self.unfinished, flip=order == 1)
            # The mark stands for the content.
            key = self.key.child("judgement", one.mark)
            found += [_Sample(one, order, key.child(n), one.messages) for n in range(self.samples)]
        return found

    async def _ask(self, waiting: Sequence[_Sample], attempt: int, calls: Calls) -> list[Answer]:
        request = {**self.sampling, **({"schema": schema(self.rubric)} if self.structured else {})}
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    _completed(
                        self.model,
                        {**request, "messages": one.messages},
                        one.key.child(attempt),
                        calls,
                    )
                )
                for one in waiting
            ]
        results = [task.result() for task in tasks]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Answer)]

    def _read(self, sample: _Sample, answer: Answer) -> str:
        """Take a sample's verdict, or say what is wrong with it."""
        data = answer.data
        text, stop = data["text"], data.get("stop", "end")
        if stop == "refused":
            sample.open = False  # asking again would be nagging
            return "the model refused"
        try:
            if stop == "length":
                raise UnusableError("it was cut off; shorten the reason")
            sample.scores = parse_verdict(text, self.rubric, sample.prompt.mark)
            sample.open = False
        except UnusableError as error:
            sample.messages = [
                *sample.prompt.messages,
                {"role": "assistant", "content": text or "(nothing)"},
                {
                    "role": "user",
                    "content": _reminder(str(error)[: _PROBLEM // 4], sample.prompt.mark),
                },
            ]
            return str(error)[:_PROBLEM]
        return ""

    def _together(
        self, samples: Sequence[_Sample], again: int, problems: tuple[str, ...], usage: Usage
    ) -> Judgement:
        orders: list[list[dict[str, float]]] = [[] for _ in range(1 + (self.orders == "both"))]
        for one in samples:
            if one.scores is not None:
                orders[one.order].append(one.scores)
        if any(len(found) < self.needed for found in orders):
            return Judgement(None, {}, (), 0.0, again, problems, usage)
        combine = median if self.combine == "median" else fmean
        by_order = [[self.rubric.value(scores) for scores in found] for found in orders]
        values = [value for found in by_order for value in found]
        names = [one.name for one in self.rubric.criteria]
        combined = tuple(float(combine(found)) for found in by_order)
        scores = {
            name: fmean(combine([one[name] for one in found]) for found in orders) for name in names
        }
        spread = max(values) - min(values)
        return Judgement(fmean(combined), scores, combined, spread, again, problems, usage)


async def _completed(
    model: Model, request: Mapping[str, JSON], key: Key, calls: Calls
) -> Answer | Exception:
    """An answer, or why there is none: as a value, so that the others are not cancelled."""
    try:
        return await model.complete(request, key, calls)
    except Exception as error:
        return error


def _reminder(problem: str, mark: str) -> str:
    return (
        f"That could not be used: {problem}. Answer again with one JSON object as described, whose "
        f'"mark" is {mark}, and nothing else.'
    )
