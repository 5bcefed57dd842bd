"""Judgement by a model: several samples, in one or both orders, each of them read strictly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Literal

from attrs import define, frozen

from orchestrion import JSON, Answer, Calls, Key, Meta, Model, Usage, ceiling_of, supports, times
from orchestrion_judge.prompt import Block, Material, Prompt, Showing, instructions, prompt, schema
from orchestrion_judge.rubric import Rubric, ShippedRubric, read_rubric, shipped
from orchestrion_judge.verdict import UnusableError, parse_verdict

Combine = Literal["median", "mean"]
Orders = Literal["given", "both"]
_PROBLEM = 600
"""The maximum of bytes that describe what is wrong with an answer."""
_FENCE = 2 * (64 + 80)
"""The maximum of bytes of the two lines around a turn, for agent names of up to 80 bytes."""


@frozen
class Judgement:
    """The combined result of all samples."""

    value: float | None  # of the rubric, 0 to 1; None if too few samples could be read
    scores: Mapping[str, float]  # of each criterion, on its own scale
    by_order: tuple[float, ...]  # values in the given and, with `orders: both`, the reverse order
    spread: float  # the largest value of a sample minus the smallest
    again: int  # questions that were asked again
    problems: tuple[str, ...]  # what was wrong with each answer that could not be read
    usage: Usage  # of all calls


@define
class _Sample:
    """One question and, in the end, its scores."""

    prompt: Prompt
    order: int
    key: Key
    messages: list[JSON]
    scores: dict[str, float] | None = None
    open: bool = True


@frozen(kw_only=True)
class Judging(Showing):
    """Settings of components that let a model judge.

    Args:
        model: the judge; better not a model that takes part in the work.
        rubric: a shipped one, or one written here.
        rubric_file: a file with a rubric, instead.
        samples: independent judgements of one piece of work.
        combine: how the samples of one order are combined; orders are averaged.
        orders: with `both`, everything is judged again in the reverse order. That doubles the
            calls, cancels position bias, and reports it.
        needed: how many samples of an order must be readable; all by default.
        retries: how often an answer that cannot be read is requested again.
        temperature: of sampling; the model's own by default.
        structured: give the model a schema of the answer; set false for models that take none.
    """

    model: Model
    rubric: ShippedRubric | Rubric = "answer"
    rubric_file: Path | None = None
    samples: Annotated[int, Meta(ge=1, le=100)] = 1
    combine: Combine = "median"
    orders: Orders = "given"
    needed: Annotated[int, Meta(ge=1)] | None = None
    retries: Annotated[int, Meta(ge=0, le=5)] = 1
    temperature: Annotated[float, Meta(ge=0)] | None = None
    structured: bool = True

    def __attrs_post_init__(self) -> None:
        if self.needed is not None and self.needed > self.samples:
            raise ValueError(f"needed is {self.needed}, but there are {self.samples} samples")
        if self.structured and not supports(self.model, "schema"):
            raise ValueError("this model cannot be held to a schema; set `structured: false`")

    @property
    def criteria(self) -> Rubric:
        """Return the rubric that is judged by.

        Raises:
            UsageError: its file cannot be read or is wrong.
        """
        if self.rubric_file is not None:
            return read_rubric(self.rubric_file)
        return self.rubric if isinstance(self.rubric, Rubric) else shipped(self.rubric)

    def judge(self, key: Key, unfinished: bool = False) -> Judge:
        """Return the judge with these settings; `unfinished` work is judged by its prospects."""
        return Judge(self, self.criteria, key, unfinished)


@frozen
class Judge:
    """Asks a model, and accepts only answers that it can read."""

    settings: Judging
    rubric: Rubric
    key: Key  # marks and samples depend on it and on the content
    unfinished: bool = False  # whether the work is not finished yet

    @property
    def _orders(self) -> int:
        return 2 if self.settings.orders == "both" else 1

    async def judge(self, shown: Material, calls: Calls) -> Judgement:
        """Return the judgement of a piece of work.

        Equal work has equal keys, so that a model with a cache is called once for it.

        Raises:
            CallError: a call failed.
        """
        samples = self._samples(shown)
        problems: list[str] = []
        usage, again = Usage(), 0
        for attempt in range(self.settings.retries + 1):
            waiting = [sample for sample in samples if sample.open]
            again += len(waiting) if attempt else 0
            # A round ends before the next begins: calls are numbered in the order they are made,
            # which must not depend on the completion order.
            answers = await self._ask(waiting, attempt, calls)
            for sample, answer in zip(waiting, answers, strict=True):
                usage += answer.usage
                if problem := self._read(sample, answer):
                    problems.append(problem)
        return self._together(samples, again, tuple(problems), usage)

    def ceiling(self, tokens: int) -> Usage | None:
        """Return a bound of one judgement of work and problem with so many tokens, or None.

        Bytes count as tokens: a text has no more tokens than bytes.
        """
        settings = self.settings
        if settings.reference:
            return None  # it is part of the problem's data, which `tokens` need not cover
        if settings.show == "transcript":
            tokens += settings.last_turns * _FENCE
        tokens += sum(len(text.encode()) for text in self._around())
        first = ceiling_of(settings.model, tokens)
        if first is None:
            return None
        tokens += first.output_tokens + len(_reminder("", "").encode()) + _PROBLEM
        again = ceiling_of(settings.model, tokens)
        if again is None:
            return None
        return times(first + times(again, settings.retries), settings.samples * self._orders)

    def _around(self) -> Iterator[str]:
        """Yield what a model reads beside the material, except fences of turns."""
        empty = prompt(self.rubric, [Block("work"), *[Block("problem")] * 2], self.key)
        yield from (instructions(self.rubric, self.unfinished), empty.user)
        if self.settings.structured:
            yield json.dumps(schema(self.rubric))

    def _samples(self, shown: Material) -> list[_Sample]:
        samples = []
        for order in range(self._orders):
            question = prompt(self.rubric, shown.blocks, self.key, self.unfinished, flip=order == 1)
            # The mark stands for the content.
            key = self.key.child("judgement", question.mark)
            samples += [
                _Sample(question, order, key.child(n), question.messages)
                for n in range(self.settings.samples)
            ]
        return samples

    async def _ask(self, waiting: Sequence[_Sample], attempt: int, calls: Calls) -> list[Answer]:
        settings = self.settings
        request: dict[str, JSON] = {}
        if settings.temperature is not None:
            request["temperature"] = settings.temperature
        if settings.structured:
            request["schema"] = schema(self.rubric)
        # An error does not cancel the other samples: all end before it is raised.
        results = await asyncio.gather(
            *(
                settings.model.complete(
                    {**request, "messages": sample.messages}, sample.key.child(attempt), calls
                )
                for sample in waiting
            ),
            return_exceptions=True,
        )
        if errors := [result for result in results if isinstance(result, BaseException)]:
            raise errors[0]
        return [result for result in results if not isinstance(result, BaseException)]

    def _read(self, sample: _Sample, answer: Answer) -> str:
        """Read a sample's verdict; return what is wrong with it, or an empty text."""
        data = answer.data
        text, stop = data["text"], data.get("stop", "end")
        if stop == "refused":
            sample.open = False  # it would refuse again
            return "the model refused"
        try:
            if stop == "length":
                raise UnusableError("it was cut off; shorten the reason")
            sample.scores = parse_verdict(text, self.rubric, sample.prompt.mark)
            sample.open = False
        except UnusableError as error:
            reminder = _reminder(str(error)[: _PROBLEM // 4], sample.prompt.mark)
            sample.messages = [
                *sample.prompt.messages,
                {"role": "assistant", "content": text or "(nothing)"},
                {"role": "user", "content": reminder},
            ]
            return str(error)[:_PROBLEM]
        return ""

    def _together(
        self, samples: Sequence[_Sample], again: int, problems: tuple[str, ...], usage: Usage
    ) -> Judgement:
        orders: list[list[dict[str, float]]] = [[] for _ in range(self._orders)]
        for sample in samples:
            if sample.scores is not None:
                orders[sample.order].append(sample.scores)
        needed = self.settings.needed or self.settings.samples
        if any(len(usable) < needed for usable in orders):
            return Judgement(None, {}, (), 0.0, again, problems, usage)
        combine = median if self.settings.combine == "median" else fmean
        by_order = [[self.rubric.value(scores) for scores in usable] for usable in orders]
        values = [value for order in by_order for value in order]
        combined = tuple(float(combine(order)) for order in by_order)
        scores = {
            c.name: fmean(combine([scores[c.name] for scores in usable]) for usable in orders)
            for c in self.rubric.criteria
        }
        spread = max(values) - min(values)
        return Judgement(fmean(combined), scores, combined, spread, again, problems, usage)


def _reminder(problem: str, mark: str) -> str:
    return (
        f"That could not be used: {problem}. Answer again with one JSON object as described, whose "
        f'"mark" is {mark}, and nothing else.'
    )
