"""Learning in use, with a real server: from feedback to a version that serves."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import threading
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from orchestrion_logged import ServedLog, read
from orchestrion_serve import verifying
from orchestrion_serve.canary import VersionTrial
from orchestrion_serve.in_use import UseSettings
from orchestrion_serve.limits import KeyLimits

from orchestrion import Episode, Key, Problem, Scores, StoreError, Trajectory
from orchestrion.cli import main
from orchestrion.runs import TeamAnswer
from tests.coroutines import sync
from tests.plugins.serve.support import ANN, BEN, WAIT, config, keys_of, process, reviewed, served
from tests.plugins.serve.users import Client, Desk, use


def command(*words: str) -> tuple[int, str]:
    """Run a command in this process; return what it returned, and its standard output."""
    done = CliRunner().invoke(main, list(words), standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value or 0, done.stdout


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, 200)


def test_the_whole_circle(desk: Desk, tmp_path: Path) -> None:
    """Serve and explore, estimate, learn, try, promote."""
    logs = tmp_path / "logs"
    with served(str(desk.config), use=UseSettings(logs, explore=0.3)) as server:
        use(desk, server.address, 300, Key(1))
    _, text = command("ope", "logs/desk", "--cost-weight", "0.2", "--json")
    judged = {one["name"]: one for one in json.loads(text)["policies"]}
    for model in ("small", "large"):
        estimate = judged[f"always ask:{model}"]["estimates"]["dr"]
        assert estimate["low"] < desk.value(model) < estimate["high"]
    digests = set()
    for number in (1, 2):  # the same log gives the same bits
        command("learn", "logs/desk", "--from", "desk.yaml")
        [checkpoint] = Path("runs", f"desk-{number}", "checkpoints").iterdir()
        digests.add(sha256(checkpoint.read_bytes()).hexdigest())
    assert len(digests) == 1
    settings = UseSettings(logs, trial=VersionTrial(share=0.5))
    with served(str(desk.config), use=settings, canary="runs/desk-1") as server:
        use(desk, server.address, 240, Key(2), tells=1)
    _, text = command("serve-log", "logs/desk", "--json")
    document = json.loads(text)
    [trial] = document["trials"]
    assert trial["verdict"] == "promoted"
    old, new = trial["old"], trial["new"]
    assert document["versions"][new]["score"] > document["versions"][old]["score"]
    with served(str(desk.config), use=settings, canary="runs/desk-1") as server:  # a restart
        ids = use(desk, server.address, 3, Key(3))
    log = read(logs / "desk")
    assert {log.served[one.rpartition("-")[2]].version for one in ids} == {new}
    assert [step.step for step in log.steps] == ["serving", "canary", "promoted"]
    _, text = command("serve-log", "logs/desk")
    assert f"promoted: {new}" in text
    _, text = command("runs", "show", "desk-1", "--json")
    told = {event["kind"]: event["data"] for event in json.loads(text)["run"]["events"]}
    assert told["promoted"]["version"] == told["canary"]["version"] == new
    assert (told["promoted"]["model"], told["promoted"]["old"]) == ("desk", old)


def test_an_answer_that_is_not_given_scores_nothing_so_that_no_version_gains_by_it(
    tmp_path: Path,
) -> None:
    team = config(tmp_path, "mute", {"only": "Fails"})
    with served(team, use=UseSettings(tmp_path / "logs")) as server:
        assert server.ask("mute")[0] == 502, server.log
    log = read(tmp_path / "logs" / "mute")
    [request] = log.served.values()
    assert request.status == "failed"
    assert log.feedback[request.served].score == 0.0


@pytest.mark.parametrize(("writer", "score"), [("Says", 0.75), ("Fails", 0.0)])
def test_an_answer_is_the_turn_that_the_task_judges(
    tmp_path: Path, writer: str, score: float
) -> None:
    verified = UseSettings(tmp_path / "logs", verify=f"{__name__}:repeats", verify_share=1.0)
    with served(reviewed(tmp_path, writer), use=verified) as server:
        assert server.ask("reviewed")[0] == (200 if score else 502)
    log = read(tmp_path / "logs" / "reviewed")
    [request] = log.served.values()
    assert request.status == ("completed" if score else "failed")
    assert log.feedback[request.served].score == score


def test_feedback_late_missing_repeated_corrected_and_forged(desk: Desk, tmp_path: Path) -> None:
    logs = UseSettings(tmp_path / "logs")
    with served(str(desk.config), keys=keys_of(ann=None, ben=None), use=logs) as server:
        ann, ben = Client(server.address, ANN), Client(server.address, BEN)
        ids = [ann.ask("q1")[0] for _ in range(5)]
        late, _, repeated, corrected, forged = ids
        assert ann.tell(repeated, 1.0)[1]["status"] == "recorded"
        assert ann.tell(repeated, 1.0) == (200, {"id": repeated[9:], "status": "unchanged"})
        assert ann.tell(corrected, 1.0)[0] == 200
        assert ann.tell(corrected, 0.25)[1]["status"] == "corrected"
        stranger, unknown = ben.tell(forged, 1.0), ben.tell("chatcmpl-" + "0" * 32, 1.0)
        assert stranger == unknown
        assert stranger[0] == 404
        key = read(tmp_path / "logs" / "desk").served[forged[9:]].key
        assert ben.tell(key, 1.0)[0] == 404
        assert ann.post("/v1/feedback", {"id": key, "success": False})[0] == 200
        told = [ann.tell(repeated, number / 100)[0] for number in range(20)]
        assert told == [200] * 19 + [429], "one answer cannot fill the log"
        assert ann.tell(corrected, 0.25)[0] == 200
        for body in ({}, {"score": 2}, {"score": 1, "success": True}, {"score": 1, "more": 1}):
            assert ann.post("/v1/feedback", {"id": late, **body})[0] == 400
        nobody = Client(server.address, "c" * 32)
        assert nobody.tell(late, 1.0)[0] == 401
        for client in (ann, ben, nobody):
            client.close()
    with served(str(desk.config), keys=keys_of(ann=None, ben=None), use=logs) as server:
        ann = Client(server.address, ANN)
        assert ann.tell(late, 0.5)[1]["status"] == "recorded"
        assert ann.tell(repeated, 0.18)[1]["status"] == "unchanged"
        assert ann.tell(repeated, 1.0)[0] == 429
        ann.close()
    log = read(tmp_path / "logs" / "desk")
    scores = {episode[0].episode: episode[-1].score for episode in log.episodes}
    assert [scores[one[9:]] for one in ids] == [0.5, None, 0.18, 0.25, 0.0]
    assert {request.tenant for request in log.served.values()} == {"ann"}
    for (line,) in log.episodes:  # no contents
        assert (line.context.text, line.context.id, line.answer) == ("", "", "")
        assert line.context.features


def test_feedback_is_taken_when_the_money_and_the_requests_of_a_key_are_used(
    tmp_path: Path,
) -> None:
    team, logs = config(tmp_path, "desk", {"only": "Says"}), UseSettings(tmp_path / "logs")
    for limits, status in ((KeyLimits(usd=0.25), 402), (KeyLimits(requests=1), 429)):
        with served(team, keys=keys_of(ann=limits), use=logs) as server:
            ann = Client(server.address, ANN)
            name, _ = ann.ask("hi")
            assert server.ask("desk", ANN)[0] == status
            assert ann.tell(name, 1.0)[0] == 200
            ann.close()


def judge(question: str, answer: str) -> float | None:
    """Return a score; none for what it cannot tell."""
    return 0.5 if answer == "asks small" else None


def repeats(question: str, answer: str) -> float:
    """Return a score of what an agent `Says` answers."""
    return 0.75 if answer == question else 0.25


async def later(question: str, answer: str) -> float:
    """Return a score."""
    return 0.25


def wild(question: str, answer: str) -> float:
    """Return what is no score."""
    return 2.0


async def never(question: str, answer: str) -> float:
    """Return nothing, as long as nobody ends it."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("verify", "scores", "notes"),
    [
        (None, [], []),
        ("task", [0.75], []),
        (f"{__name__}:judge", [], []),
        (f"{__name__}:later", [0.25], []),
        (f"{__name__}:wild", [], ["--verify: ValueError: the score 2 is not between 0 and 1"]),
        (f"{__name__}:never", [], []),
    ],
)
@sync
async def test_a_verifier_gives_a_score_or_says_what_is_wrong_with_it(
    verify: str | None, scores: list[float], notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "CLOSING", 0.2)
    given: list[float] = []
    said: list[str] = []

    async def give(identity: str, score: float) -> None:
        given.append(score)

    verifier = verifying.Verifier(verify, 1.0, give, said.append)
    episode = Episode("e", Problem("p"), Trajectory(), scores=Scores(0.75))
    verifier.answered("r", episode.problem, TeamAnswer.of(episode, None), Key(1))
    await verifier.close()
    assert (given, said) == (scores, notes)


def test_a_verifier_scores_a_share_and_contents_are_logged_if_asked_for(
    desk: Desk, tmp_path: Path
) -> None:
    verify = f"{__name__}:judge"
    settings = UseSettings(tmp_path / "logs", contents=True, verify=verify, verify_share=0.5)
    with served(str(desk.config), use=settings) as server:
        use(desk, server.address, 20, Key(7))
    log = read(tmp_path / "logs" / "desk")
    verified = [score for score in log.scores if score.by == "verifier"]
    assert 4 <= len(verified) <= 16
    assert {score.score for score in verified} == {0.5}
    assert all(episode[0].context.text and episode[0].answer for episode in log.episodes)
    counts = log.feedback.values()
    assert {one.by for one in counts} == {"user", "verifier"}


def test_requests_whose_file_was_removed_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrion_logged.served.SMALLEST", 1)
    team = config(tmp_path, "desk", {"only": "Says"})
    with served(team, use=UseSettings(tmp_path / "logs", size=1)) as server:
        client = Client(server.address)
        old = client.ask("hi")[0]
        key = server.log[-1]["episode"]
        new = [client.ask("hi")[0] for _ in range(3)][-1]
        assert [client.tell(name, 1.0)[0] for name in (old, key, new)] == [404, 404, 200]
        client.close()


def test_a_full_disk_loses_records_but_no_answer_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: ServedLog, *records: object) -> int:
        raise StoreError("the disk is full")

    team = config(tmp_path, "desk", {"only": "Says"})
    with served(team, use=UseSettings(tmp_path / "logs")) as server:
        client = Client(server.address)
        name = client.ask("hi")[0]
        monkeypatch.setattr(ServedLog, "append", full)
        assert [client.ask("hi")[1] for _ in range(2)] == ["hi", "hi"]
        status, data = client.tell(name, 1.0)
        assert (status, data["error"]["code"]) == (503, "not_recorded")
        monkeypatch.undo()
        assert client.tell(name, 1.0)[1]["status"] == "recorded"
        client.close()
    assert capsys.readouterr().out.count("desk: a request is not logged: the disk is full") == 1


def test_a_canary_that_is_the_served_version_is_not_tried(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use = UseSettings(tmp_path / "logs")
    with served(str(desk.config), use=use, canary=str(desk.config)) as server:
        assert server.ask("desk", text="q1")[0] == 200
    assert "nothing is tried" in capsys.readouterr().out
    assert [step.step for step in read(tmp_path / "logs" / "desk").steps] == ["serving"]


def test_a_choice_whose_feedback_never_comes_is_not_favoured(desk: Desk, tmp_path: Path) -> None:
    """The better model is explored, and nobody ever says how good it was."""
    with served(str(desk.config), use=UseSettings(tmp_path / "logs", explore=0.5)) as server:
        client = Client(server.address)
        for i in range(60):
            question = f"q{i}"
            identity, answer = client.ask(question, name=str(i))
            if answer == "asks small":
                client.tell(identity, desk.score(question, answer))
        client.close()
    command("learn", "logs/desk", "--from", "desk.yaml")
    with served("runs/desk-1", use=UseSettings(tmp_path / "logs")) as server:
        client = Client(server.address)
        assert {client.ask(f"q{i}", "desk-1")[1] for i in range(10)} == {"asks small"}
        client.close()


def test_what_was_acknowledged_is_in_the_log_after_kill_9(desk: Desk, tmp_path: Path) -> None:
    words = ["desk.yaml", "--log", "logs", "--explore", "0.1"]
    acknowledged: dict[str, float] = {}

    def users(number: int, address: str) -> None:
        client = Client(address)
        try:
            for i in range(10_000):
                question = f"q{(number + i) % 200}"
                identity, answer = client.ask(question)
                score = desk.score(question, answer)
                if client.tell(identity, score)[0] == 200:
                    acknowledged[identity] = score
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the server was killed
        finally:
            client.close()

    with process(tmp_path, *words) as (started, port):
        threads = [
            threading.Thread(target=users, args=(40 * n, f"http://127.0.0.1:{port}"))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 40 and any(thread.is_alive() for thread in threads):
            threads[0].join(0.01)
        started.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(WAIT)
    log = read(tmp_path / "logs" / "desk")
    assert len(acknowledged) >= 40
    assert {one: log.feedback[one[9:]].score for one in acknowledged} == acknowledged
    assert all(request.decisions == 1 for request in log.served.values())
    with served(str(desk.config), use=UseSettings(tmp_path / "logs")) as server:
        client = Client(server.address)
        assert client.tell(next(iter(acknowledged)), 0.5)[1]["status"] == "corrected"
        client.close()
