"""The components of this distribution."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_ensemble"
_JURY = {"use": "jury", "classes": 2, "train": 8, "validation": 8, "test": 4}
_VOTE = {"vote": {"use": "ensemble", "members": ["a", "c"], "aggregator": "tested"}}
_AROUND = {"agents": {"a": {"use": "kit-agent"}, "c": {"use": "kit-agent"}, **_VOTE}}


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("aggregator", "aggregators", f"{HERE}.interfaces:Aggregator")


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "ensemble",
        f"{HERE}.ensemble:Ensemble",
        "asks all members at once and makes one result of their answers",
        example={"members": ["a", "c"]},
    )
    yield Component(
        "juror",
        f"{HERE}.jury:Juror",
        "answers the task jury, right at a known rate",
        around={"task": _JURY},
    )
    yield Component(
        "foreman",
        f"{HERE}.jury:Foreman",
        "reads the jurors' answers, and counts those it trusts on the topic",
        around={"task": _JURY},
    )


@hookimpl
def orchestrion_tasks() -> Iterator[Component]:
    yield Component("jury", f"{HERE}.jury:Jury", "sums for jurors of known accuracy")


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, path, summary in (
        ("plurality", "votes:Plurality", "most votes"),
        ("majority", "votes:Majority", "more than half of the votes"),
        ("weighted", "weighted:Weighted", "most weight; by default the log-odds of accuracies"),
        ("quorum", "votes:Quorum", "at least k equal votes, with vetoes"),
        ("unanimous", "votes:Unanimous", "all agree, or there is no consensus"),
        ("average", "average:Average", "pools of probabilities: BMA, pseudo-BMA, stacking weights"),
        ("confidence", "weighted:Confidence", "votes weigh their calibrated confidence"),
        ("dynamic", "weighted:Dynamic", "weights from recent similar problems"),
        ("dawid-skene", "dawid_skene:DawidSkene", "confusion matrices learned without truth"),
        ("stacked", "stacked:Stacked", "a learned model over all votes"),
        ("ranked", "ranked:Ranked", "Borda, instant run-off or Condorcet over rankings"),
    ):
        yield "aggregator", Component(name, f"{HERE}.{path}", summary, around=_AROUND)
    yield (
        "aggregator",
        Component(
            "mixture",
            f"{HERE}.ensemble:Mixture",
            "an agent reads all answers and writes the result",
            example={"integrator": "b"},
            around={"agents": {**_AROUND["agents"], "b": {"use": "kit-agent"}}},
        ),
    )


@hookimpl
def orchestrion_trainers() -> Iterator[Component]:
    yield Component(
        "ensemble-weights",
        f"{HERE}.train:EnsembleWeights",
        "teaches an aggregator its voters' weights",
        example={"aggregator": "weights", "ensemble": "a"},
        around={
            "aggregators": {"weights": {"use": "weighted"}},
            "agents": {
                "a": {"use": "ensemble", "members": ["c"], "aggregator": "weights"},
                "c": {"use": "kit-agent"},
            },
        },
    )
