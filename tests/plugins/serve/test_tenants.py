"""What clients have for themselves: places, versions of models, models, and logs."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from orchestrion_logged import read
from orchestrion_serve import Keys, Settings
from orchestrion_serve.canary import VersionTrial
from orchestrion_serve.in_use import UseSettings
from orchestrion_serve.keys import hash_of
from orchestrion_serve.limits import SHARE, Room
from orchestrion_serve.refusals import Refusal
from orchestrion_serve.versions import versions_of

from orchestrion import BudgetError, Usage, UsageError
from orchestrion.cli import main
from orchestrion.runs import open_run, train
from tests.plugins.serve.support import (
    ANN,
    BEN,
    GATE,
    HERE,
    WAIT,
    Server,
    config,
    keys_of,
    served,
)


def get(server: Server, path: str, key: str = ANN) -> tuple[int, Any]:
    """Return the status and the data of a page."""
    return server.answer(path, headers={"authorization": f"Bearer {key}"})[:2]


def tell(server: Server, name: str, score: float, key: str) -> int:
    """Send feedback, and return the status."""
    body = f'{{"id": "{name}", "score": {score}}}'.encode()
    return server.answer("/v1/feedback", body, {"authorization": f"Bearer {key}"})[0]


def said(server: Server, model: str, key: str) -> str:
    """Return what a team says; the error's code if it says nothing."""
    status, data, _ = server.ask(model, key)
    if status != 200:
        return str(data["error"]["code"])
    return str(data["choices"][0]["message"]["content"])


def models(server: Server, key: str = ANN) -> list[str]:
    """Return the names of the models that a client sees."""
    status, data = get(server, "/v1/models", key)
    assert status == 200
    return [model["id"] for model in data["data"]]


# ---------------------------------------------------------------------------------- versions


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints after 1, 2 and 3 iterations."""
    folder = tmp_path_factory.mktemp("runs") / "team"
    data = {
        "task": {"use": "relay"},
        "agents": {name: {"use": "bench-agent"} for name in ("planner", "searcher")},
        "policy": {"use": "neural", "hidden": [4]},
        "reward": {"use": "outcome-minus-cost"},
        "trainer": {"use": "reinforce", "iterations": 3, "episodes": 2},
        "limits": {"turns": 2},
        "evaluation": {"episodes": 1},
    }
    train(data, folder)
    return folder


def test_versions_have_names(run: Path) -> None:
    with served(str(run), f"{run}@2", f"{run}@3") as server:
        assert models(server) == ["team", "team@3", "team@2"], "each once"
        for name, status in (("team", 200), ("team@3", 200), ("team@2", 200), ("team@1", 404)):
            code, data, _ = server.ask(name, text="feature")
            assert code == status, name
            if code == 200:
                assert data["model"] == name
        assert get(server, "/v1/models/team@3")[0] == 200
        assert get(server, "/v1/models/team@")[0] == 404


def test_a_version_that_is_served_by_its_number_is_not_answered_by_a_canary(
    run: Path, tmp_path: Path
) -> None:
    new, log = f"{run}@3", tmp_path / "logs"
    with served(
        f"{run}@2", use=UseSettings(log, trial=VersionTrial(share=0.999)), canary=new
    ) as server:
        for _ in range(3):
            assert server.ask("team@2", text="feature")[0] == 200
    requests = read(log / "team@2").served.values()
    assert [one.canary for one in requests] == [""] * 3
    words = [f"{run}@2", "--log", str(log), "--canary", new, "--port", "0"]
    with pytest.raises(UsageError, match="who asks for RUN@N gets that version alone"):
        main(["serve", *words], standalone_mode=False)


def test_an_older_version_is_opened_by_its_number_as_long_as_it_is_kept(run: Path) -> None:
    async def version(target: str) -> tuple[int | None, str]:
        async with open_run(target) as opened:
            return opened.iterations, opened.version

    newest, second = (asyncio.run(version(name)) for name in (str(run), f"{run}@2"))
    assert (newest[0], second[0]) == (3, 2)
    assert newest[1] != second[1]
    assert asyncio.run(version(f"{run}@3")) == newest
    with pytest.raises(UsageError, match=r"no checkpoint after 9 iterations; .* 1, 2, 3"):
        asyncio.run(version(f"{run}@9"))


def test_a_version_opened_anew_goes_on_with_the_budget_and_is_never_an_older_one(
    run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    capped = config(tmp_path, "capped", {"only": "Says"}, budget={"usd": 1})

    async def main() -> None:
        async with versions_of([str(copy), capped]) as versions:
            before = versions["copy"]
            versions["capped"].calls.budget.charge(Usage(usd=0.75))
            config(tmp_path, "capped", {"only": "Says"}, budget={"usd": 0.5})
            assert await versions.reload() == ["copy: opened anew", "capped: opened anew"]
            assert versions["copy"] is not before
            budget = versions["capped"].calls.budget
            assert budget.spent.usd == 0.75
            with pytest.raises(BudgetError, match=r"0.75 of 0.5 spent"):
                budget.check()
            served = versions["copy"]
            (copy / "checkpoints" / "00-000002.safetensors").write_bytes(b"damaged")
            [damaged, stays, _] = await versions.reload()
            assert "00-000002.safetensors: " in damaged
            assert "stays as it is: the newest checkpoint that can be used is" in stays
            assert versions["copy"] is served
        assert asyncio.all_tasks() == {asyncio.current_task()}, "every version was closed"

    asyncio.run(main())


# ------------------------------------------------------------------------- models and logs


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("own")
    teams = [
        config(folder, name, {"only": {"use": f"{HERE}:Says", "text": text}})
        for name, text in (("desk", "for all"), ("desk-ann", "for Ann"))
    ]
    keys = folder / "keys"
    keys.write_text(f"ann {hash_of(ANN)} model/desk=desk-ann log=ann\nben {hash_of(BEN)}\n")
    use = UseSettings(folder / "logs", contents=True)
    with served(*teams, keys=Keys.read(keys), use=use) as server:
        yield server, folder


def test_a_key_has_its_own_model_that_no_other_key_sees(own: tuple[Server, Path]) -> None:
    server, _ = own
    assert said(server, "desk", ANN) == "for Ann"
    assert said(server, "desk", BEN) == "for all"
    assert server.ask("desk", ANN)[1]["model"] == "desk"
    assert said(server, "desk-ann", BEN) == "model_not_found"
    assert models(server, ANN) == models(server, BEN) == ["desk"]


def test_metrics_show_a_key_the_models_that_it_may_ask_for(own: tuple[Server, Path]) -> None:
    server, _ = own
    for key, seen in ((ANN, {"", "desk-ann"}), (BEN, {"", "desk"})):
        server.ask("desk", key)
        server.ask("unknown", key)
        text = get(server, "/metrics", key)[1]
        assert set(re.findall(r'model="(.*?)"', text)) == seen


def test_a_key_has_its_own_log_and_feedback_finds_it(own: tuple[Server, Path]) -> None:
    """By an answer's id, and by the key of its episode."""
    server, folder = own
    assert [path.name for path in (folder / "logs/ann").iterdir()] == ["desk-ann"]
    before = len(read(folder / "logs/ann/desk-ann").served)
    name = str(server.ask("desk", ANN)[1]["id"])
    for identity in (name, server.log[-1]["episode"]):
        assert tell(server, identity, 1, BEN) == 404
        assert tell(server, identity, 1, ANN) == 200
    server.ask("desk", BEN)
    log = read(folder / "logs/ann/desk-ann")
    assert len(log.served) == before + 1
    assert {one.tenant for one in log.served.values()} == {"ann"}
    assert log.feedback[name.removeprefix("chatcmpl-")].score == 1
    assert {one.tenant for one in read(folder / "logs/desk").served.values()} == {"ben"}


@pytest.mark.parametrize(
    ("words", "logged", "message"),
    [
        ("model/desk=other", False, "model 'other' of a key is not served"),
        ("log=ann", False, "log=ann has no effect"),
        ("log=desk", True, "log=desk: a model has this name"),
    ],
)
def test_a_keys_file_that_names_what_is_not_there_is_refused(
    tmp_path: Path, words: str, logged: bool, message: str
) -> None:
    team = config(tmp_path, "desk", {"only": "Says"})
    keys = tmp_path / "keys"
    keys.write_text(f"ann {hash_of(ANN)} {words}\n")
    use = UseSettings(tmp_path / "logs") if logged else None
    refused = pytest.raises(UsageError, match=message)
    with refused, served(team, keys=Keys.read(keys), use=use):
        pass


# ------------------------------------------------------------------------------------ places


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 64])
def test_no_client_takes_the_last_place_of_those_that_have_none(limit: int) -> None:
    room = Room(limit, fair=True)
    share = max(1, min(limit - 1, -(-limit * SHARE // (SHARE + 1))))
    for _ in range(share):
        room.take("ann")
    with pytest.raises(Refusal, match="are being answered") as refused:
        room.take("ann")
    assert (refused.value.status, refused.value.code) == (429, "too_many_requests")
    if limit > 1:
        room.take("ben")


def test_clients_that_want_all_come_to_equal_shares() -> None:
    limit = 64
    room, held = Room(limit, fair=True), {"ann": 0, "ben": 0}
    for name in ["ann"] * limit + ["ann", "ben"] * limit:
        if held["ann"] > held["ben"] and name == "ben":  # one of Ann's requests has ended
            room.give("ann")
            held["ann"] -= 1
        try:
            room.take(name)
        except Refusal:
            continue
        held[name] += 1
    assert abs(held["ann"] - held["ben"]) <= 1
    assert sum(held.values()) >= limit * 3 // 4


def test_a_client_that_floods_the_server_leaves_room_for_another(tmp_path: Path) -> None:
    slow = config(tmp_path, "slow", {"only": "Waits"})
    with (
        served(slow, keys=keys_of(ann=None, ben=None), settings=Settings(concurrency=4)) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        flood = [pool.submit(said, server, "slow", ANN) for _ in range(3)]
        for _ in flood:
            assert GATE.came.acquire(timeout=WAIT)
        assert said(server, "slow", ANN) == "too_many_requests"
        other = pool.submit(said, server, "slow", BEN)
        assert GATE.came.acquire(timeout=WAIT)
        server.open_gate()
        assert [one.result(WAIT) for one in (*flood, other)] == ["hi"] * 4
