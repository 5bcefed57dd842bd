"""A memory that is too small for all guests: invariants, for one thread and for several."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_local.offloading import Pool

from orchestrion import RunError


@define(eq=False)
class House:
    """Memory as it really is, beside the pool's bookkeeping."""

    memory: int
    used: int = 0


@define(eq=False)
class Guest:
    """Checks at each move what must hold."""

    name: str
    size: int
    house: House
    here: bool = False
    needed: int = 0
    """How many have it pinned now, counted by those who do."""

    def enter(self) -> None:
        assert not self.here
        self.here, self.house.used = True, self.house.used + self.size
        assert self.house.used <= self.house.memory

    def leave(self) -> None:
        assert not self.needed
        if self.here:
            self.here, self.house.used = False, self.house.used - self.size


SIZES = [1, 2, 3, 3, 5, 8]
MEMORY = 10


def guests() -> list[Guest]:
    house = House(MEMORY)
    return [Guest(f"g{i}", size, house) for i, size in enumerate(SIZES)]


def fitting(places: Sequence[int]) -> bool:
    return sum(SIZES[i] for i in set(places)) <= MEMORY


together = st.lists(st.integers(0, len(SIZES) - 1), min_size=1, max_size=3).filter(fitting)


@given(st.lists(together, max_size=30))
def test_pinned_guests_are_in_and_the_least_recently_used_leave(wishes: list[list[int]]) -> None:
    everybody = guests()
    pool = Pool("small", MEMORY)
    used = dict.fromkeys(everybody, -1)
    for now, wish in enumerate(wishes):
        wanted = [everybody[i] for i in wish]
        before = {guest for guest in everybody if guest.here}
        with pool.pinned(wanted):
            assert all(guest.here for guest in wanted)
            inside = {guest for guest in everybody if guest.here}
            gone, stayed = before - inside, (before & inside) - set(wanted)
            assert all(used[guest] <= used[other] for guest in gone for other in stayed)
            if gone:  # nobody goes without need
                last = max(gone, key=used.__getitem__)
                others = [guest for guest in gone if used[guest] == used[last]]
                kept = sum(guest.size for guest in inside)
                assert kept + max(guest.size for guest in others) > MEMORY
        used.update(dict.fromkeys(wanted, now))
        assert {guest for guest in everybody if guest.here} == set(pool.inside)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(together, min_size=1, max_size=8), min_size=2, max_size=4))
def test_threads_take_turns_and_all_of_them_finish(plans: list[list[list[int]]]) -> None:
    everybody = guests()
    pool = Pool("small", MEMORY)
    lock = threading.Lock()
    start = threading.Barrier(len(plans))
    served: Counter[int] = Counter()

    def work(me: int, plan: list[list[int]]) -> None:
        start.wait()
        for wish in plan:
            wanted = [everybody[i] for i in dict.fromkeys(wish)]
            with pool.pinned(wanted):
                with lock:
                    for guest in wanted:
                        guest.needed += 1
                with pool.pinned(wanted[:1]):  # what is pinned can be pinned again
                    time.sleep(0)  # others may go on now
                    assert all(guest.here for guest in wanted)
                with lock:
                    for guest in wanted:
                        guest.needed -= 1
            served[me] += 1

    threads = [
        threading.Thread(target=work, args=(i, plan), daemon=True) for i, plan in enumerate(plans)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [served[i] for i in range(len(plans))] == [len(plan) for plan in plans]
    assert everybody[0].house.used <= MEMORY


def test_a_pinned_guest_stays_whenever_it_was_used() -> None:
    everybody = guests()
    pool = Pool("small", MEMORY)
    held, later = everybody[4], everybody[3]
    with pool.pinned([held]):
        held.needed = 1
        with pool.pinned([later]):
            pass
        with pool.pinned(everybody[1:3]):
            assert held.here
            assert not later.here
        held.needed = 0
    assert pool.inside[-1] is held  # it has rested since now, and not since it came


def test_pinning_more_than_fits_beside_own_pins_is_an_error() -> None:
    everybody = guests()
    pool = Pool("small", MEMORY)
    with (
        pool.pinned(everybody[4:5]),
        pytest.raises(RuntimeError, match="no room for g5 beside what is pinned"),
        pool.pinned(everybody[5:6]),
    ):
        pass
    with pool.pinned(everybody[5:6]):
        assert everybody[5].here


def test_guests_that_never_fit_are_an_error_with_sizes() -> None:
    everybody = guests()
    with (
        pytest.raises(RunError, match=r"small: 13 B are needed .* there are 10 B \(g4 5 B, g5 8 B"),
        Pool("small", MEMORY).pinned(everybody[4:]),
    ):
        pass


def test_a_failed_move_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    everybody = guests()
    pool = Pool("small", MEMORY)
    with pool.pinned(everybody[:1]):
        pass

    def fail() -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Guest, "enter", lambda self: fail())
        with pytest.raises(OSError, match="no space"), pool.pinned(everybody[1:2]):
            pass
    assert pool.inside == (everybody[0],)
    with pool.pinned(everybody[1:2]):
        assert everybody[1].here
