"""The conformance kit finds executors that do not keep their contract."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

import pytest

from orchestrion import Calls, Key, Output, RunError, View
from orchestrion._plugins import Plugins
from orchestrion.testing import _executor_contracts as contracts
from orchestrion.testing._stage import Subject
from tests.plugins.executors import planted


def subject(name: str) -> Subject:
    plugins = Plugins()
    return Subject(plugins, plugins.find("executor", f"tests.plugins.executors.planted:{name}"))


def test_workers_in_the_same_process_give_the_same_and_cannot_be_lost() -> None:
    assert contracts.executor_gives_the_same(subject("InThisProcess")) > 0
    with pytest.raises(AssertionError, match="after the loss of a worker, episodes differ"):
        contracts.executor_replaces(subject("InThisProcess"))
    with pytest.raises(AssertionError, match="came to an end"):
        contracts.executor_names_the_culprit(subject("InThisProcess"))


def test_what_an_agent_logs_in_the_leading_process_is_not_forwarded_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = contracts.Mortal.act

    def act(self: contracts.Mortal, view: View, key: Key, calls: Calls) -> Awaitable[Output]:
        logging.getLogger("noisy").warning("saw %s", view.problem.id)
        return quiet(self, view, key, calls)

    monkeypatch.setattr(contracts.Mortal, "act", act)
    assert contracts.executor_gives_the_same(subject("InThisProcess")) > 0
    assert len(caplog.records) <= 3 * contracts.EPISODES


def test_a_link_that_changes_messages_is_found() -> None:
    with pytest.raises(AssertionError, match="whole, once and in order"):
        contracts.executor_gives_the_same(subject("Tampering"))


def test_a_run_goes_on_as_long_as_a_worker_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrion._engine.seat.PAUSE", 0.0)
    planted.Reluctant.asked.clear()
    assert contracts.executor_gives_the_same(subject("Reluctant")) > 0
    assert len(planted.Reluctant.asked) > 1


def test_an_executor_that_starts_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrion._engine.seat.PAUSE", 0.01)
    with pytest.raises(RunError, match=r"no worker is left; at each place 4 in a row ended"):
        contracts.executor_gives_the_same(subject("Unable"))
