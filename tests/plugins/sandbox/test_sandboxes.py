"""Which backend is chosen, what it says of itself, and what happens where none works."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from orchestrion_sandbox import (
    Case,
    Limits,
    Profile,
    Program,
    Result,
    SandboxError,
    choose,
    judge_calls,
    require,
)
from orchestrion_sandbox.cold import Cold, bubblewrap_command, engine_command
from orchestrion_sandbox.sandboxes import Engine, Subprocess
from orchestrion_sandbox.selftest import findings

from orchestrion import Key, OpenContext, UsageError

BACKENDS = [
    "namespaces",
    "landlock",
    pytest.param("bwrap", marks=pytest.mark.skipif(not shutil.which("bwrap"), reason="no bwrap")),
    "subprocess",
]
LEVELS = {"namespaces": 3, "landlock": 2, "bwrap": 3, "subprocess": 1}


def run(name: str, source: str, stdin: bytes = b"", limits: Limits | None = None) -> Result:
    async def once() -> Result:
        async with choose(name, unsafe_local=True).open() as box:
            return await box.run(Program(source), stdin, limits or Limits())

    return asyncio.run(once())


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_runs_a_program_and_says_what_it_is(name: str) -> None:
    source = "import sys\nprint(input()[::-1])\nprint('aside', file=sys.stderr)\nsys.exit(3)"
    result = run(name, source, b"abc\n")
    assert (result.status, result.exit_code) == ("error", 3)
    assert (result.stdout, result.stderr) == (b"cba\n", b"aside\n")
    assert (result.backend, result.level) == (name, LEVELS[name])
    assert result.unsandboxed == (name == "subprocess")


STATUSES = {
    "flood": "while True: print('x' * 1000)",
    "timeout": "import time; time.sleep(60)",
    "cpu": "while True: pass",
    "crashed": "import ctypes; ctypes.string_at(0)",
    "error": "1 / 0",
}


@pytest.mark.parametrize("name", BACKENDS)
def test_the_status_is_what_the_supervisor_saw(name: str) -> None:
    async def results() -> dict[str, str]:
        async with choose(name, unsafe_local=True).open() as box:
            runs = []
            for status, source in STATUSES.items():
                seconds = 1.0 if status == "timeout" else 60.0
                limits = Limits(wall_seconds=seconds, cpu_seconds=1)
                runs.append(box.run(Program(source), limits=limits))
            return {s: r.status for s, r in zip(STATUSES, await asyncio.gather(*runs), strict=True)}

    assert asyncio.run(results()) == {status: status for status in STATUSES}


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_can_judge(name: str) -> None:
    async def judged(source: str) -> bool:
        async with choose(name, unsafe_local=True).open() as box:
            verdict = await judge_calls(box, source, "f", [Case((1,), 2), Case((5,), 6)])
            assert (verdict.backend, verdict.level) == (name, LEVELS[name])
            return verdict.passed

    assert asyncio.run(judged("def f(x):\n    print('noise')\n    return x + 1"))
    assert not asyncio.run(judged("def f(x):\n    return 2"))


@pytest.mark.parametrize("name", BACKENDS)
def test_standard_input_is_read_or_not(name: str) -> None:
    """It comes by a pipe where a warm interpreter runs it, so that no file of ours is held."""
    data = b"x" * 300_000
    assert run(name, "import sys; print(len(sys.stdin.read()))", data).stdout == b"300000\n"
    assert run(name, "print('it reads nothing')", data).stdout == b"it reads nothing\n"
    if name != "bwrap":
        kind = "import os, stat; print(stat.S_ISFIFO(os.fstat(0).st_mode))"
        assert run(name, kind, data).stdout == b"True\n"


MANY_FILES = """
made = 0
try:
    for number in range(500):
        open(f"f{number}", "w").close()
        made += 1
except OSError:
    pass
print(made)
"""


@pytest.mark.parametrize("name", ["namespaces", BACKENDS[2]])
def test_what_holds_level_3_keeps_the_number_of_files(name: str) -> None:
    made = int(run(name, MANY_FILES, limits=Limits(files=50)).stdout)
    assert 40 < made <= 50


@pytest.mark.parametrize("name", ["namespaces", BACKENDS[2]])
def test_modules_of_a_profile_are_there_without_their_folder(name: str) -> None:
    back = "def back(x): return x[::-1]\n"
    talk = (
        "import os\ndef answer(payload, channel): os.write(channel, os.read(channel, 9).upper())\n"
    )

    async def once() -> tuple[bytes, bytes]:
        profile = Profile(("fractions",), (), {"tools.words": back, "tools.talk": talk})
        async with choose(name).open(profile) as box:
            program = Program("from tools.words import back; import tools; print(back('ab'))")
            printed = (await box.run(program)).stdout
            harness = {"answers": "tools.talk:answer"}
            async with box.slots, box.converse(Program(""), harness=harness) as conversation:
                return printed, await conversation.ask(b"ab")

    assert asyncio.run(once()) == (b"ba\n", b"AB")


# ---------------------------------------------------------------- choosing


def test_auto_takes_the_best() -> None:
    assert run("auto", "pass").backend == "namespaces"


@pytest.fixture
def landlock_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither namespaces nor bubblewrap work."""
    from orchestrion_sandbox import launching

    launch = launching.launch

    def barred(mode: str, profile: Profile) -> object:
        if mode == "namespaces":
            raise SandboxError("the sandbox 'namespaces' cannot start: barred for this test")
        return launch(mode, profile)  # type: ignore[arg-type]

    monkeypatch.setattr("orchestrion_sandbox.warm.launch", barred)
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("landlock_only")
def test_auto_steps_down_only_to_the_level_asked_for() -> None:
    async def opened(level: int) -> str:
        async with choose("auto", level=level).open() as box:
            return box.backend

    assert asyncio.run(opened(2)) == "landlock"
    with pytest.raises(SandboxError, match=r"level 3 works here: .*barred for this test.*bwrap"):
        asyncio.run(opened(3))


@pytest.mark.usefixtures("landlock_only")
def test_doctor_calls_it_a_problem_where_the_default_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrion_sandbox.selftest.ATTACKS", ())
    problems = [text for _, state, text in findings() if state == "problem"]
    assert len(problems) == 1
    assert "the default backend cannot be used: no sandbox of level 3 works here" in problems[0]


# As macOS and Windows have it, as far as an interpreter on Linux can be made to look like one.
ELSEWHERE = """
import asyncio, os, signal, socket, subprocess, sys
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
for module, names in (
    (os, "sched_getaffinity memfd_create geteuid getegid killpg sysconf pidfd_open setsid fork"),
    (signal, "SIGXCPU SIGALRM SIGVTALRM SIGPROF pidfd_send_signal"),
    (socket, "SOCK_SEQPACKET send_fds recv_fds"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "darwin"
from orchestrion_sandbox import Case, Program, SandboxError, choose, judge_calls
from orchestrion_sandbox.cold import Cold
from orchestrion_sandbox.sandboxes import Auto, Bubblewrap, Engine, Landlock, Namespaces, Subprocess
from orchestrion_sandbox.selftest import findings
kinds = [Auto(), Bubblewrap(), Engine(), Landlock(), Namespaces(), Subprocess(unsafe_local=True)]
for name in ("auto", "namespaces", "landlock"):
    async def opened():
        async with choose(name).open():
            print("opened", name)
    try:
        asyncio.run(opened())
    except SandboxError as error:
        print("refused", name, "needs Linux" in str(error))
print("problem" in [state for _, state, _ in findings()])
async def judged():
    async with Cold("docker", 3, "image").open() as box:
        print((await box.run(Program("print(input() * 2)"), b"ab")).stdout)
        print((await judge_calls(box, "def f(x): return x + 1", "f", [Case((1,), 2)])).passed)
asyncio.run(judged())
"""


@pytest.mark.usefixtures("engine")
def test_a_container_can_be_used_where_the_rest_needs_linux() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    refused = [f"refused {name} True" for name in ("auto", "namespaces", "landlock")]
    assert done.stdout.splitlines() == [*refused, "True", "b'abab\\n'", "True"]


ROOTLESS = """
import asyncio
from orchestrion_sandbox import Program, choose
async def main():
    async with choose("namespaces").open() as box:
        print(box.level, (await box.run(Program("print(6 * 7)"))).stdout)
asyncio.run(main())
"""


@pytest.mark.parametrize("rights", ["", "--bounding-set=-sys_admin"], ids=["all", "no admin"])
def test_root_of_a_container_without_root_has_namespaces(rights: str) -> None:
    """It has no other user to become, and perhaps no right to namespaces but those of users."""
    lesser = ["setpriv", rights] if rights else []
    container = ["unshare", "--user", "--map-root-user", *lesser]
    if subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        pytest.skip("no namespaces of users here, or no programs that make them")
    done = subprocess.run(
        [*container, sys.executable, "-c", ROOTLESS], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "3 b'42\\n'\n", done.stderr


def test_no_protection_has_to_be_asked_for() -> None:
    with pytest.raises(UsageError, match="unsafe_local: true"):
        choose("subprocess")

    async def opened() -> None:
        async with Subprocess().open(OpenContext("sandbox", Key(0))):
            raise AssertionError("it opened")

    with pytest.raises(UsageError, match="sandbox: 'subprocess' is no sandbox"):
        asyncio.run(opened())


def test_an_unknown_backend_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no sandbox is named 'chroot'; there are auto, namesp"):
        choose("chroot")


def test_a_task_gets_what_it_needs_or_an_error() -> None:
    async def required(name: str, level: int) -> None:
        async with choose(name, unsafe_local=True).open() as box:
            require(box, level, "this task")

    asyncio.run(required("landlock", 2))
    asyncio.run(required("subprocess", 3))  # asked for by name, and marked
    with pytest.raises(SandboxError, match="this task needs a sandbox of level 3"):
        asyncio.run(required("landlock", 3))


# ---------------------------------------------------------------- other programs' sandboxes

NEEDED = ["--network", "--read-only", "--cap-drop", "--pids-limit", "--memory", "--tmpfs"]


def test_a_container_gets_no_network_no_rights_and_no_folder_of_the_host() -> None:
    limits = Limits(memory_mb=128, processes=4, scratch_mb=8, files=50)
    command = engine_command(limits, "docker", "python:3.13-slim", "name", "runsc")
    assert all(option in command for option in NEEDED)
    pairs = dict(pairwise(command))
    assert (pairs["--network"], pairs["--cap-drop"]) == ("none", "ALL")
    assert (pairs["--memory"], pairs["--memory-swap"]) == ("128m", "128m")
    assert pairs["--security-opt"] == "no-new-privileges"
    assert (pairs["--runtime"], pairs["--user"]) == ("runsc", "65534:65534")
    assert "size=8m,nr_inodes=50" in pairs["--tmpfs"]
    assert not {"-v", "--volume", "--mount", "--privileged"} & set(command)


FILES = {
    "python": sys.executable,
    "prefix": sys.base_prefix,
    "stdlib": os.path.dirname(os.__file__),
    "multiarch": "",
}


def test_bubblewrap_shares_nothing_and_mounts_for_reading() -> None:
    command = bubblewrap_command(Limits(), "bwrap", FILES)
    assert {"--unshare-all", "--die-with-parent", "--new-session", "--clearenv"} <= set(command)
    assert "--bind" not in command
    assert "--dev" not in command


FAKE_ENGINE = """\
#!{python}
# An engine for tests: `run` starts the image's interpreter right here, `kill` ends it.
import os, signal, sys
folder = {folder!r}
if sys.argv[1] == "kill":
    os.kill(int(open(os.path.join(folder, sys.argv[2])).read()), signal.SIGKILL)
else:
    name = sys.argv[sys.argv.index("--name") + 1]
    open(os.path.join(folder, name), "w").write(str(os.getpid()))
    rest = sys.argv[sys.argv.index("--entrypoint") + 3:]
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, *rest])
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "docker"
    program.write_text(FAKE_ENGINE.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def packages() -> Iterator[str]:
    """A folder with a module, which every user can read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        Path(name, "shown.py").write_text("WORD = 'package'")
        yield name


def test_packages_and_files_are_shown_where_the_backend_can(packages: str) -> None:
    async def printed(name: str) -> bytes:
        async with choose(name, level=2).open(Profile(packages=(packages,))) as box:
            source = "import shown\nprint(shown.WORD, open('a').read())"
            return (await box.run(Program(source, {"a": b"file"}))).stdout

    for name in ["namespaces", *(["bwrap"] if shutil.which("bwrap") else [])]:
        assert asyncio.run(printed(name)) == b"package file\n"
    with pytest.raises(SandboxError, match="no folder for files"):
        asyncio.run(printed("landlock"))
    with pytest.raises(SandboxError, match="shows no folders of packages"):
        engine_command(Limits(), "docker", "image", "name", packages=("/somewhere",))


@pytest.mark.usefixtures("engine")
def test_a_container_speaks_over_standard_files_alone() -> None:
    """With an engine that only starts the interpreter: the conversation is the real one."""

    async def once() -> tuple[Result, Result, bool]:
        async with Cold("docker", 3, "image").open() as box:
            result = await box.run(Program("print(input() * 2)"), b"ab\n")
            late = await box.run(
                Program("import time; time.sleep(60)"), limits=Limits(wall_seconds=0.5)
            )
            verdict = await judge_calls(box, "def f(x): return x + 1", "f", [Case((1,), 2)])
            return result, late, verdict.passed

    result, late, passed = asyncio.run(once())
    assert (result.status, result.stdout, result.backend) == ("ok", b"abab\n", "docker")
    assert late.status == "timeout"
    assert passed


def test_an_engine_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    async def opened() -> None:
        async with (
            Engine("podman").open(OpenContext("sandbox", Key(0))) as sandbox,
            sandbox.open(Profile()),
        ):
            raise AssertionError("it opened")

    with pytest.raises(SandboxError, match="podman is not installed"):
        asyncio.run(opened())
