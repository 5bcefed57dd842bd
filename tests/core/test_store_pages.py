"""Episodes a page at a time: equal to a plain filter over all of them, whatever they contain."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion import (
    Episode,
    Output,
    Problem,
    Reward,
    Status,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    replace,
)
from orchestrion._store.pages import _lower
from orchestrion.runs import EpisodeFilter, EpisodePage, RunReader, RunStore
from tests.core.store_support import checkpoint, episode

TEXTS = [
    "",
    "Ready.\n",
    'say "x" \\n',
    "100%_A",
    "straße ΣK",
    "\udc80 lone",
    "tab\there",
    "\u202ex",
]
AGENTS = ["writer", "Writer", 'a"b', "ä"]

usages = st.builds(Usage, cost=st.sampled_from([0.0, 0.5, math.nan]))
turns = st.builds(
    Turn,
    st.just(0),
    st.sampled_from(AGENTS),
    output=st.builds(
        Output,
        st.sampled_from(TEXTS),
        usage=st.builds(Usage, cost=st.sampled_from([0.0, 0.5, math.nan])),
    ),
    error=st.sampled_from(["", "timed OUT"]),
)


@st.composite
def trajectories(draw: st.DrawFn, nested: bool = True) -> Trajectory:
    """Up to three turns, some of them of nested teams."""
    made = draw(st.lists(turns, max_size=3))
    if nested and made and draw(st.booleans()):
        inner = draw(trajectories(nested=False))
        made[-1] = Turn(0, made[-1].agent, output=Output("of a team", inner=inner))
    return Trajectory(
        [Turn(i, t.agent, output=t.output, error=t.error) for i, t in enumerate(made)]
    )


episodes = st.builds(
    Episode,
    st.just(""),
    st.builds(
        Problem,
        st.sampled_from(["p1", "P2", "100%", "a_b"]),
        category=st.sampled_from(["", "Sums"]),
    ),
    trajectories(),
    status=st.sampled_from(Status),
    reward=st.none() | st.builds(Reward, st.sampled_from([-1.5, 0.0, 0.1, 1e300])),
)
filters = st.builds(
    EpisodeFilter,
    source=st.sampled_from([None, "train", "test"]),
    stage=st.sampled_from([None, 0]),
    iteration=st.sampled_from([None, 0, 1]),
    status=st.sampled_from([None, "completed", "failed"]),
    success=st.sampled_from([None, False]),
    problem=st.sampled_from(["", "p", "%", "_", "SUM"]),
    reward_from=st.sampled_from([None, 0.0]),
    reward_to=st.sampled_from([None, 0.1]),
    agent=st.sampled_from(["", *AGENTS]),
    text=st.sampled_from(["", "READY", '"x"', "%_a", "Σ", "\udc80", "\t", "out", "agent"]),
)


def matches(row: Any, wanted: EpisodeFilter) -> bool:
    """The filter, written plainly over what `RunReader.episodes` gives."""
    found: Episode = row.episode
    reward = None if found.reward is None else found.reward.total
    said = list(_all_turns(found.trajectory))
    return all(
        (
            wanted.source in (None, row.source),
            wanted.stage in (None, row.stage),
            wanted.iteration in (None, row.iteration),
            wanted.status in (None, str(found.status)),
            wanted.success in (None, found.success),
            _lower(wanted.problem) in _lower(found.problem.id)
            or _lower(wanted.problem) in _lower(found.problem.category),
            wanted.reward_from is None or (reward is not None and reward >= wanted.reward_from),
            wanted.reward_to is None or (reward is not None and reward <= wanted.reward_to),
            not wanted.agent or any(turn.agent == wanted.agent for turn in said),
            not wanted.text
            or any(_lower(wanted.text) in _lower(f"{t.output.content}\n{t.error}") for t in said),
        )
    )


def _all_turns(trajectory: Trajectory) -> list[Turn]:
    inner = [turn for turn in trajectory if turn.output.inner is not None]
    return [
        *trajectory,
        *(t for turn in inner for t in _all_turns(turn.output.inner or Trajectory())),
    ]


def run_of(folder: Path, lists: list[list[Episode]]) -> Path:
    """A run with an iteration for each list, and an evaluation with the last one."""
    number = 0
    with RunStore.create(folder / "run", "seed: 7\n", {}) as store:
        for place, made in enumerate(lists):
            named = []
            for each in made:
                number += 1
                named.append(_named(each, f"{number:03}"))
            if place == len(lists) - 1:
                store.save_evaluation("test", {}, named)
            else:
                store.commit_iteration(0, place, named, {}, checkpoint(place))
    return folder / "run"


def _named(made: Episode, name: str) -> Episode:
    return replace(made, id=name)


def all_pages(page: Callable[..., EpisodePage], **arguments: Any) -> list[EpisodePage]:
    """All pages, and none of them twice."""
    pages = [page(**arguments)]
    while pages[-1].after is not None:
        pages.append(page(**arguments, after=pages[-1].after))
        assert len(pages) < 100
    return pages


KEYS: dict[str, Callable[[Any], float]] = {
    "number": lambda row: 0.0,
    "reward": lambda row: math.nan if row.episode.reward is None else row.episode.reward.total,
    "cost": lambda row: row.usage.cost,
    "turns": lambda row: float(row.turn_count),
}


@settings(max_examples=30)
@given(
    st.lists(st.lists(episodes, max_size=4), min_size=3, max_size=3),
    st.lists(filters, min_size=6, max_size=6),
    st.sampled_from(list(KEYS)),
    st.booleans(),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_pages_together_are_what_a_plain_filter_gives_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    lists: list[list[Episode]],
    wanted: list[EpisodeFilter],
    order: Any,
    descending: bool,
    limit: int,
    look: int,
) -> None:
    with RunReader(run_of(tmp_path_factory.mktemp("pages"), lists)) as reader:
        stored = list(reader.episodes())
        for each in wanted:
            expected = [row for row in stored if matches(row, each)]
            if descending:
                expected.reverse()
            sign = -1 if descending else 1
            keys = {row.episode.id: KEYS[order](row) for row in expected}
            expected.sort(
                key=lambda row: math.inf if math.isnan(v := keys[row.episode.id]) else sign * v
            )
            arguments: Any = {
                "order": order,
                "descending": descending,
                "limit": limit,
                "look": look,
            }
            pages = all_pages(reader.episode_page, wanted=each, seconds=60.0, **arguments)
            assert [r.id for page in pages for r in page.rows] == [r.episode.id for r in expected]
            if not each.reads:
                assert {page.candidates for page in pages} == {len(expected)}
                assert all(page.looked == 0 for page in pages)
                back = reader.episode_page(wanted=each, before=pages[-1].before, **arguments)
                if len(pages) > 1:
                    assert back.rows == pages[-2].rows
            assert all(page.looked <= look for page in pages)


def test_new_episodes_appear_and_those_that_a_resume_drops_go(tmp_path: Path) -> None:
    def first(reader: RunReader) -> list[str]:
        return [row.id for row in reader.episode_page(order="turns", limit=9).rows]

    with RunStore.create(tmp_path / "run", "seed: 7\n", {}) as store:
        store.commit_iteration(0, 0, [episode("0", 1)], {}, checkpoint(0))
        with RunReader(tmp_path / "run") as reader:
            assert first(reader) == ["0"]
            version = reader.data_version()
            assert version == reader.data_version()
            store.commit_iteration(0, 1, [episode("1", 2)], {}, checkpoint(1))
            assert first(reader) == ["1", "0"]
            assert version != reader.data_version()
            newest = max((tmp_path / "run" / "checkpoints").iterdir())
            newest.write_bytes(b"damaged")
            store.restore()
            store.commit_iteration(0, 1, [episode("2", 0)], {}, checkpoint(1))
            assert first(reader) == ["0", "2"]


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", "seed: 7\n", {}), RunReader(tmp_path / "run") as reader:
        assert reader.episode_page().rows == ()
        with pytest.raises(UsageError, match="no place"):
            reader.episode_page(after="1;DROP")
