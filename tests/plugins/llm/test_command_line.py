"""Through the command line: preflight; in real processes secrets, record and replay."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner, Result

from orchestrion.cli import main
from tests.end_to_end.support import orchestrion
from tests.plugins.llm.apis import APIS, Api
from tests.service import ModelService, Reply, Seen, reply

# A process each: two of the three APIs are enough where code is shared, one where it is core's.
both_vendors = pytest.mark.parametrize("api", APIS[:2], ids=lambda api: api.name)
chat_only = pytest.mark.parametrize("api", APIS[1:2], ids=lambda api: api.name)

KEY = "sk-canary/4f9a+7c1e=8b2d6035"
HEADER = "header-canary-71d0c3e9"
PROMPT = "Hello. My key is"


def config(api: Api, url: str, **model: Any) -> str:
    address = url if api.name == "anthropic" else f"{url}/v1"
    use = {"use": "anthropic"} if api.name == "anthropic" else {"use": "openai", "api": api.name}
    settings = {
        **use,
        "model": "m-1",
        "base_url": address,
        "key_env": "TEST_KEY",
        "price": {"input": 1, "output": 2},
        **model,
    }
    return json.dumps(
        {
            "seed": 1,
            "task": {
                "use": "recorded",
                "generated": {"questions": 40, "models": 3, "groups": 2},
            },
            "models": {"m": settings},
            "agents": {"say": {"use": "chat", "model": "m", "instructions": PROMPT}},
            "policy": {"use": "sequence", "steps": ["say"]},
            "reward": {"use": "exact-outcome"},
            "trainer": {"use": "best-sequence", "length": 1, "problems": 2},
            "evaluation": {"episodes": 2, "baselines": {}},
        }
    )


def by_path(answers: dict[str, Reply], otherwise: Reply) -> Reply:
    """Another answer for paths that end like this."""

    async def send(seen: Seen, writer: Any) -> None:
        found = next((one for end, one in answers.items() if seen.path.endswith(end)), otherwise)
        await found(seen, writer)

    return send


def models(*names: str) -> Reply:
    return reply(200, {"data": [{"id": name} for name in names], "has_more": False})


def listing(api: Api, one: Reply, all_: Reply, call: Reply | None = None) -> Reply:
    """A server with a model's own page, a list of models, and calls."""
    return by_path({"/models/m-1": one, "/models": all_}, call or reply(200, api.good()))


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "config.yaml").write_text(text)
    return "config.yaml"


def calls(server: ModelService) -> list[Seen]:
    return [seen for seen in server.seen if seen.method == "POST"]


def here(*words: str, cwd: Path, code: int = 0, **extra: str) -> Result:
    """As `orchestrion`, in this process, which has imported the SDK already."""
    with chdir(cwd):
        done = CliRunner(env=extra).invoke(main, words)
    assert done.exit_code == code, f"{words}: {done.exit_code}\n{done.stdout}\n{done.stderr}"
    return done


@both_vendors
def test_without_a_key_nothing_is_asked_and_the_variable_is_named(api: Api, tmp_path: Path) -> None:
    with ModelService(reply(500)) as server:
        file = write(tmp_path, config(api, server.url))
        done = here("train", file, cwd=tmp_path, code=2, TEST_KEY="")
    assert "models.m: the environment variable TEST_KEY is not set" in done.stderr
    assert server.seen == []


@both_vendors
def test_the_usual_variable_is_named_where_none_is_given(api: Api, tmp_path: Path) -> None:
    data = json.loads(config(api, "http://x"))
    del data["models"]["m"]["base_url"], data["models"]["m"]["key_env"]
    usual = "ANTHROPIC_API_KEY" if api.name == "anthropic" else "OPENAI_API_KEY"
    file = write(tmp_path, json.dumps(data))
    done = here("run", file, "--input", "q1", cwd=tmp_path, code=2, **{usual: ""})
    assert usual in done.stderr


Server = Callable[[Api], Reply]
REFUSED: dict[str, tuple[Server, str]] = {
    "wrong key": (
        lambda api: reply(401, api.error("authentication_error", f"no such key {KEY}")),
        "401 no such key [TEST_KEY]; the service does not accept the key in TEST_KEY; put a valid "
        "key for ",
    ),
    "unknown model": (
        lambda api: listing(api, reply(404, api.error("not_found_error")), models("m-2", "n")),
        "there is no model 'm-1' there; did you mean 'm-2'",
    ),
    "no money": (lambda api: reply(402, api.error("billing_error")), "the account is used up"),
    "redirect": (lambda api: reply(308, b"", location="https://new.example/"), "not followed"),
}


@both_vendors
@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_key_or_model_is_a_clear_error_before_any_call(
    api: Api, case: str, tmp_path: Path
) -> None:
    answers, words = REFUSED[case]
    with ModelService(answers(api)) as server:
        file = write(tmp_path, config(api, server.url))
        done = here("run", file, "--input", "q1", cwd=tmp_path, code=2, TEST_KEY=KEY)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert words in line
    assert "models.m" in line
    assert KEY not in done.stdout + done.stderr
    assert calls(server) == []


@chat_only
@pytest.mark.parametrize(
    "look",
    [
        lambda api: listing(api, reply(404), reply(404)),
        lambda api: listing(api, reply(404), models("m-1", "n")),
        lambda api: listing(api, reply(503), reply(503)),
        lambda api: listing(api, reply(200, {"id": "m-1"}), reply(404)),
    ],
    ids=["no such endpoint", "listed only", "busy", "known"],
)
def test_an_inconclusive_preflight_is_ignored(api: Api, look: Server, tmp_path: Path) -> None:
    with ModelService(look(api)) as server:
        file = write(tmp_path, config(api, server.url))
        done = here("run", file, "--input", "q1", cwd=tmp_path, TEST_KEY=KEY)
    assert "hello" in done.stderr
    assert len(calls(server)) == 1


@chat_only
def test_a_dollar_budget_names_the_model_without_price(api: Api, tmp_path: Path) -> None:
    with ModelService(reply(200, api.good())) as server:
        data = json.loads(config(api, server.url, price=None))
        file = write(tmp_path, json.dumps({**data, "budget": {"usd": 1}}))
        told = here("train", file, "--dry-run", cwd=tmp_path, TEST_KEY=KEY)
        done = here("run", file, "--input", "q1", cwd=tmp_path, code=4, TEST_KEY=KEY)
    assert "budget.usd: 1 refuses calls whose price is not known" in told.stdout
    assert "the price of openai:m-1@127.0.0.1" in done.stderr
    assert calls(server) == []


def forms(secret: str) -> list[bytes]:
    """A secret as a server could echo it."""
    plain = [secret, quote(secret, safe=""), json.dumps(secret)[1:-1]]
    encoded = [base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]]
    # Inside a longer text, as in HTTP's basic authentication.
    encoded.append(base64.b64encode(f"u:{secret}".encode()).decode()[4:-4])
    return [one.encode() for one in plain + encoded]


def echo(seen: Seen) -> str:
    said = seen.headers["authorization"].removeprefix("Bearer ")
    secret = seen.headers["x-canary"]
    return " ".join(
        [
            said,
            quote(said, safe=""),
            base64.b64encode(said.encode()).decode(),
            base64.b64encode(f"u:{said}".encode()).decode(),
            secret,
            base64.b64encode(secret.encode()).decode(),
        ]
    )


@both_vendors
@pytest.mark.parametrize("how", ["answers", "fails"])
def test_secrets_are_found_in_no_file_or_output(api: Api, how: str, tmp_path: Path) -> None:
    """The server echoes key and headers in its errors and answers, in several spellings."""
    count = 0

    async def send(seen: Seen, writer: Any) -> None:
        nonlocal count
        if seen.method == "GET":
            answer = reply(503, api.error("overloaded", echo(seen)))
        elif how == "fails":
            answer = reply(400, api.error("invalid_request_error", echo(seen)), x_echo=echo(seen))
        elif (count := count + 1) % 2:
            answer = reply(500, api.error("api_error", echo(seen)))
        else:
            tools = [("c1", echo(seen)[:40], json.dumps({"a": echo(seen)}))] if count > 99 else []
            answer = reply(200, api.good(f"You said {echo(seen)}", tools=tools))
        await answer(seen, writer)

    data = json.loads(config(api, "", headers={"X-Canary": "${env:OTHER}"}))
    data["agents"]["say"]["instructions"] = f"{PROMPT} ${{env:TEST_KEY}}"
    with ModelService(send) as server:
        data["models"]["m"]["base_url"] = server.url + ("" if api.name == "anthropic" else "/v1")
        (tmp_path / "config.yaml").write_text(json.dumps(data))
        outcome = orchestrion(
            "train",
            "config.yaml",
            "--verbose",
            cwd=tmp_path,
            TEST_KEY=KEY,
            OTHER=HEADER,
            OPENAI_LOG="debug",
            ANTHROPIC_LOG="debug",
        )
    assert len(calls(server)) >= 2
    sent = b" ".join(seen.body for seen in calls(server))
    assert KEY.encode() not in sent, "not even the prompt of a model holds a key"
    assert PROMPT.encode() in sent
    written = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in (tmp_path / "runs").rglob("*")
        if path.is_file()
    }
    assert len(written) > 3
    written["output"] = (outcome.stdout + outcome.stderr).encode()
    found = [
        (name, form)
        for name, text in written.items()
        for secret in (KEY, HEADER)
        for form in forms(secret)
        if form in text
    ]
    assert found == []


@chat_only
def test_a_recorded_run_replays_without_network_and_without_a_key(api: Api, tmp_path: Path) -> None:
    with ModelService(reply(200, api.good())) as server:
        file = write(tmp_path, config(api, server.url))
        orchestrion("train", file, cwd=tmp_path, TEST_KEY=KEY)
        assert len(calls(server)) >= 2
    (run,) = (tmp_path / "runs").iterdir()
    done = orchestrion("replay", str(run), cwd=tmp_path, TEST_KEY="")
    assert "identical" in done.stdout
