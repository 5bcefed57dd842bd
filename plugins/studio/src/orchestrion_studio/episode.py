"""The page of an episode: the conversation as it went, from the problem to the reward."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import exp
from typing import Any

from orchestrion import Episode, Trajectory, Turn
from orchestrion.runs import RunReader, as_data, stored_config
from orchestrion_studio.calls import call_data
from orchestrion_studio.episodes import FILTERS, link_values, page_of, place_in
from orchestrion_studio.page import Data, NotFoundError, Page, Query
from orchestrion_studio.run import colours_of
from orchestrion_studio.showing import Showing

_FENCES = re.compile(r"(?m)^(```|~~~)\w*\s*$")


def episode_of(query: Query, reader: RunReader) -> Any:
    """Return the stored episode that an address names.

    Raises:
        NotFoundError: there is none.
    """
    name = query.text("id")
    stored = next(reader.episodes(id=name), None) if name else None
    if stored is None:
        raise NotFoundError(f"the run {query.run} has no episode {name!r}")
    return stored


def turn_at(trajectory: Trajectory, place: str) -> Turn | None:
    """Return the turn at a place: "3", or "3.1" for the first one of its nested team."""
    here, _, rest = place.partition(".")
    turn = next((each for each in trajectory.turns if _place(each.index) == here), None)
    if turn is None or not rest:
        return turn
    return None if turn.output.inner is None else turn_at(turn.output.inner, rest)


def episode_data(query: Query, reader: RunReader) -> Data:
    """Return an episode: its problem, what was decided, said and called, and how it was judged."""
    stored = episode_of(query, reader)
    episode: Episode = stored.episode
    showing = Showing()
    problem = episode.problem
    data = problem.data if isinstance(problem.data, Mapping) else {}
    team = _Team(reader, showing, episode)
    return {
        "run": query.run,
        "id": episode.id,
        "filters": link_values(query),
        "at": query.text("at"),
        **_neighbours(query, reader),
        "source": stored.source,
        "stage": stored.stage,
        "iteration": stored.iteration,
        "status": str(episode.status),
        "success": episode.success,
        "error": episode.error,
        "usage": as_data(stored.usage),
        "problem": {
            "id": problem.id,
            "category": problem.category,
            "text": showing.text(problem.text, "problem"),
            "code": showing.code(_program(data) or "", "problem-data"),
            "data": showing.json(_without_program(problem.data), "problem-data"),
        },
        "scores": None if episode.scores is None else as_data(episode.scores),
        "reward": None if episode.reward is None else as_data(episode.reward),
        "steps": team.steps(episode.trajectory, _program(data)),
        "judging": [call_data(call, [], showing) for call in reader.calls(episode.calls)],
        "turn_count": stored.turn_count,
        "kept": reader.retention,
        "colours": colours_of(stored_config(reader)),
    }


def _neighbours(query: Query, reader: RunReader) -> dict[str, Any]:
    """Return the episodes before and after this one in the list that it was opened from."""
    at = query.text("at")
    neighbours: dict[str, Any] = {"previous": None, "next": None}
    if at:
        for name, side in (("previous", "before"), ("next", "after")):
            for row in page_of(query, reader, limit=1, **{side: at}).rows:
                neighbours[name] = {"id": row.id, "at": place_in(query, row)}
    return neighbours


class _Team:
    """Describes the turns of an episode, and of the nested teams in it."""

    def __init__(self, reader: RunReader, showing: Showing, episode: Episode) -> None:
        self._reader, self._showing, self._episode = reader, showing, episode
        reward = episode.reward
        self._rewards = reward.turns if reward is not None and reward.turns is not None else ()

    def steps(self, trajectory: Trajectory, program: str | None, above: str = "") -> list[Any]:
        """Return the decisions in order, each with the turns that it started.

        Args:
            trajectory: of the episode, or of a nested team.
            program: the program before the first turn.
            above: place of the turn of the nested team, with a dot.
        """
        decisions = () if above else self._episode.decisions
        steps, taken, programs = [], -1, {-1: program}
        turns = trajectory.turns
        for number, group in groupby(turns, key=lambda turn: turn.decision):
            steps += [self._step(decisions, i, []) for i in range(taken + 1, number)]
            described = [self._turn(turn, above, turns, programs) for turn in group]
            steps.append(self._step(decisions, number, described))
            taken = max(taken, number)
        steps += [self._step(decisions, i, []) for i in range(taken + 1, len(decisions))]
        return [step for step in steps if step is not None]

    def _step(self, decisions: Sequence[Any], number: int, turns: list[Any]) -> Any:
        if number >= len(decisions):
            return {"decision": None, "turns": turns} if turns else None
        decision = decisions[number]
        chances = decision.chances
        return {
            "decision": {
                "number": number + 1,
                "stop": decision.stop,
                "wait": decision.wait,
                "chance": None if decision.logp is None else exp(min(decision.logp, 0.0)),
                "chances": None if chances is None else _ranked(chances, decision),
                "error": decision.error,
                "starts": [_name(started.agent, started.option) for started in decision.start],
            },
            "turns": turns,
        }

    def _turn(
        self, turn: Turn, above: str, turns: Sequence[Turn], programs: dict[int, str | None]
    ) -> dict[str, Any]:
        showing, output, place = self._showing, turn.output, _place(turn.index, above)
        readable = [
            index
            for index in programs
            if index < turn.index and (index < 0 or turn.reads is None or index in turn.reads)
        ]
        before = programs[max(readable)] if readable else None
        own = _program(output.data)
        if own is not None:
            programs[turn.index] = own
        content = output.content
        only = own is not None and _FENCES.sub("", content).strip() == own.strip()
        inner = None
        if output.inner is not None:
            inner = self.steps(output.inner, before, f"{place}.")
        top = not above and turn.index < len(self._rewards)
        return {
            "place": place,
            "agent": turn.agent,
            "option": turn.option,
            "status": turn.status,
            "error": showing.text(turn.error, f"error-{place}"),
            "content": showing.text("" if only else content, f"content-{place}"),
            "program": self._version(own, before, place, max(readable, default=-1), content),
            "data": showing.json(_without_program(output.data) or None, f"data-{place}"),
            "metadata": showing.json(as_data(output.metadata) or None, f"metadata-{place}"),
            "reads": None if turn.reads is None else [_place(i, above) for i in turn.reads],
            "earlier": [_place(each.index, above) for each in turns if each.index < turn.index],
            "usage": as_data(output.usage),
            "reward": self._rewards[turn.index] if top else None,
            "final": output.final,
            "calls": self._calls(output.calls),
            "made": len(output.calls),
            "inner": inner,
        }

    def _version(
        self, own: str | None, before: str | None, place: str, since: int, content: str
    ) -> Any:
        if own is None:
            return None
        name = f"program-{place}"
        return {
            "code": self._showing.code(own, name),
            "diff": self._showing.difference(own if before is None else before, own, name),
            "first": before is None,
            "said": own.strip() in content and _FENCES.sub("", content).strip() != own.strip(),
            "same": before == own,
            "since": None if since < 0 else _place(since, place[: place.rfind(".") + 1]),
        }

    def _calls(self, names: Sequence[str]) -> list[Any]:
        messages: list[Any] = []
        return [call_data(call, messages, self._showing) for call in self._reader.calls(names)]


def _place(index: int, above: str = "") -> str:
    """Return what a turn is called where it is shown: turns count from 1."""
    return f"{above}{index + 1}"


def _name(agent: str, option: str | None) -> str:
    return f"{agent}:{option}" if option else agent


def _ranked(chances: Mapping[str, float], decision: Any) -> list[dict[str, Any]]:
    """Return the choices from the likeliest; the one that was taken is marked."""
    taken = {_name(each.agent, each.option) for each in decision.start} or {"(stop)"}
    ranked = sorted(chances.items(), key=lambda item: -item[1])
    return [{"name": name, "chance": p, "taken": name in taken} for name, p in ranked]


def _program(data: Any) -> str | None:
    """Return the program that a turn, or a problem, has beside its text."""
    code = data.get("code") if isinstance(data, Mapping) else None
    return code if isinstance(code, str) and code.strip() else None


def _without_program(data: Any) -> Any:
    if _program(data) is None:
        return data
    return {name: value for name, value in data.items() if name != "code"} or None


PAGES = [
    Page(
        "/episode/{run}",
        "episode.html",
        episode_data,
        "An episode: decisions, turns, calls, scores and reward",
        {
            "id": "the episode",
            "at": "its place in the list that the other parameters describe",
            **FILTERS,
        },
    )
]
