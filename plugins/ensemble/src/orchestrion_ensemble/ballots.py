"""Ballots and results as the JSON that an ensemble's turn records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrion_ensemble.interfaces import Ballot, Result

__all__ = ["ballot_from", "ballot_to", "result_to"]


def ballot_to(ballot: Ballot) -> dict[str, Any]:
    """A ballot as JSON; what is empty is left out."""
    data: dict[str, Any] = {
        "voter": ballot.voter,
        "status": ballot.status,
        "answer": ballot.answer,
    }
    if ballot.text != (ballot.answer or ""):
        data["text"] = ballot.text
    if ballot.ranking:
        data["ranking"] = list(ballot.ranking)
    if ballot.probabilities is not None:
        data["probabilities"] = dict(ballot.probabilities)
    if ballot.confidence is not None:
        data["confidence"] = ballot.confidence
    if ballot.error:
        data["error"] = ballot.error
    return data


def ballot_from(data: Mapping[str, Any]) -> Ballot:
    """The inverse of `ballot_to`."""
    return Ballot(
        data["voter"],
        data["status"],
        data["answer"],
        data.get("text", data["answer"] or ""),
        tuple(data.get("ranking", ())),
        data.get("probabilities"),
        data.get("confidence"),
        data.get("error", ""),
    )


def result_to(result: Result, ballots: Sequence[Ballot]) -> dict[str, Any]:
    """The typed result with the ballots behind it, as JSON."""
    data: dict[str, Any] = {
        "status": result.status,
        "answer": result.answer,
        "leaders": list(result.leaders),
        "rule": result.rule,
        "scores": dict(result.scores),
        "coverage": result.coverage,
        "notes": list(result.notes),
        "ballots": [ballot_to(ballot) for ballot in ballots],
    }
    if result.probabilities is not None:
        data["probabilities"] = dict(result.probabilities)
    return data
