"""Attacks on what a run may use: time, memory, processes, disk, descriptors, output.

Each is bounded, so that it does no harm where nothing holds it.
"""

from __future__ import annotations

from attrs import evolve
from orchestrion_sandbox.interface import Result

from tests.plugins.sandbox.scene import SMALL, Attack, Scene

ENDED = ("error", "memory", "crashed")
SHORT = evolve(SMALL, wall_seconds=1)
ONE_SECOND = evolve(SMALL, cpu_seconds=1, wall_seconds=30)  # a busy machine takes long for one


def _slept(scene: Scene, result: Result) -> str:
    return "it slept to its end" if result.status == "ok" else ""


def _not_the_core_limit(scene: Scene, result: Result) -> str:
    """1 is the only limit with which nothing of the machine takes the dump either."""
    return f"core dumps up to {scene.peak.core}" if scene.peak.core != {"1 1"} else ""


RESOURCES = [
    Attack(
        "p01 fork bomb",
        """
for _ in range(40):
    try:
        if os.fork() == 0:
            time.sleep(0.5)
            os._exit(0)
    except OSError:
        break
time.sleep(0.3)
""",
        watch=True,
    ),
    Attack(
        "p01 fork bomb by raw system calls, each child its own bomb",
        """
import platform
clone = 56 if platform.machine() == "x86_64" else 220
for _ in range(5):
    try:
        call(clone, 17, 0, 0, 0, 0)
    except OSError:
        break
time.sleep(0.3)
""",
        watch=True,
    ),
    Attack(
        "p02 memory",
        """
kept = []
for _ in range(30):
    kept.append(bytearray(os.urandom(1)) * (10 << 20))
print("BREACH held", len(kept) * 10, "MB")
""",
        ends=ENDED,
        watch=True,
    ),
    Attack(
        "p02 memory in the stacks of threads",
        """
import threading
threading.stack_size(64 << 20)
threads = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(6)]
for thread in threads:
    thread.start()
print("BREACH", 6 * 64, "MB of stacks")
""",
        ends=ENDED,
    ),
    Attack(
        "p03 memory over processes",
        """
def hold(done):
    kept = bytearray(b"x") * (60 << 20)
    done()
together(6, hold)
print("BREACH held 360 MB")
""",
        ends=("memory",),
        watch=True,
    ),
    Attack(
        "p03 memory of processes whose first thread has ended",
        """
import threading
def hold(done):
    time.sleep(0.05)
    kept = bytearray(b"x") * (60 << 20)
    done()
def leave(done):
    threading.Thread(target=hold, args=(done,)).start()
    libc.pthread_exit(None)
together(3, leave)
print("BREACH held 180 MB")
""",
        ends=("memory",),
    ),
    Attack(
        "p03 memory of processes that hide their name and cannot be dumped",
        """
libc.prctl(15, b") R 0 0 0", 0, 0, 0)
libc.prctl(4, 0, 0, 0, 0)
def hold(done):
    kept = bytearray(b"x") * (60 << 20)
    done()
together(6, hold)
print("BREACH held 360 MB")
""",
        ends=("memory",),
    ),
    Attack(
        "p03 shared memory that each process lets go of",
        """
import mmap
def fill(done):
    try:
        shared = mmap.mmap(-1, 60 << 20)
        for start in range(0, 60 << 20, 1 << 20):
            shared[start : start + (1 << 20)] = b"x" * (1 << 20)
            shared.madvise(mmap.MADV_DONTNEED)
        print("BREACH filled 60 MB", flush=True)
    except OSError as error:
        print("held", error, flush=True)
    done()
together(4, fill)
""",
        watch=True,
    ),
    Attack(
        "p03 shared memory of the zero device",
        """
import mmap
def fill():
    fd = os.open("/dev/zero", os.O_RDWR)
    return mmap.mmap(fd, 1 << 20)
attempt("shared zeros", fill)
""",
        weak="no zero device",
        landlock="one process, whose address space is limited",
    ),
    Attack(
        "p04 memory in nameless files",
        """
def fill():
    fd = os.memfd_create("x")
    for _ in range(200):
        os.write(fd, b"x" * (1 << 20))
    time.sleep(0.1)
    return "200 MB"
attempt("memfd", fill)
attempt("memfd_secret", lambda: call(447, 0) >= 0)
""",
        watch=True,
    ),
    Attack(
        "p05 memory of System V and POSIX queues",
        """
import platform
def shared():
    segment = libc.shmget(0, 200 << 20, 0o1600)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    libc.shmctl(segment, 0, None)
    return "200 MB"
def queue():
    number = libc.msgget(0, 0o1600)
    if number < 0:
        raise OSError(ctypes.get_errno(), "msgget")
    libc.msgctl(number, 0, None)
    return "a queue"
attempt("shmget", shared)
attempt("msgget", queue)
""",
    ),
    Attack(
        "p05 memory in the buffers of sockets and pipes",
        """
import fcntl
def fill(kept):
    for writer in kept:
        os.set_blocking(writer, False)
    held = 0
    for writer in kept:
        try:
            while True:
                held += os.write(writer, b"x" * (1 << 16))
        except BlockingIOError:
            pass
    return f"{held >> 20} MB" if held > 6 << 20 else None
def sockets():
    pairs = [socket.socketpair() for _ in range(4)]
    for end in (end for pair in pairs for end in pair):
        try:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        except OSError as error:
            print("held", error)
    return fill([end.fileno() for pair in pairs for end in pair])
def pipes():
    writers = []
    for _ in range(8):
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(writer, 1031, 1 << 20)  # F_SETPIPE_SZ
        except OSError as error:
            print("held", error)
        writers.append(writer)
    return fill(writers)
attempt("sockets", sockets)
attempt("pipes", pipes)
""",
    ),
    Attack(
        "p06 disk",
        """
def fill(folder):
    written, paths = 0, []
    try:
        for number in range(12):
            paths.append(f"{folder}/{WORLD['mark']}.{number}")
            with open(paths[-1], "wb") as file:
                for _ in range(2):
                    written += file.write(b"x" * (1 << 20))
                    file.flush()
    except OSError as error:
        print("held", folder, error)
    for path in paths:
        if os.path.exists(path):
            os.unlink(path)
    return f"{written >> 20} MB" if written > 4 << 20 else None
for folder in (".", "/tmp", "/dev/shm", "/var/tmp", "/dev", "/run"):
    attempt(folder, lambda: fill(folder))
""",
    ),
    Attack(
        "p06 disk in files without a name, and through mappings",
        """
import mmap
def nameless():
    kept = []
    for _ in range(8):
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
        os.write(fd, b"x" * (1 << 20))
        kept.append(fd)
    return "8 MB"
def mapped():
    fd = os.open("big", os.O_CREAT | os.O_RDWR)
    os.truncate(fd, 16 << 20)
    return mmap.mmap(fd, 16 << 20)[::4096] and "16 MB"
def reserved():
    os.posix_fallocate(os.open("reserved", os.O_CREAT | os.O_RDWR), 0, 16 << 20)
    return "16 MB"
for function in (nameless, mapped, reserved):
    attempt(function.__name__, function)
""",
    ),
    Attack(
        "p07 inodes",
        """
def fill(make):
    made = 0
    try:
        for number in range(200):
            make(f"i{number}")
            made += 1
    except OSError as error:
        print("held", error)
    for number in range(made):
        os.rmdir(f"i{number}") if os.path.isdir(f"i{number}") else os.unlink(f"i{number}")
    return f"{made} of them" if made > 64 else None
open("source", "w").close()
attempt("files", lambda: fill(lambda name: open(name, "w").close()))
attempt("folders", lambda: fill(os.mkdir))
attempt("links", lambda: fill(lambda name: os.link("source", name)))
attempt("symbolic links", lambda: fill(lambda name: os.symlink("x" * 90, name)))
attempt("FIFOs", lambda: fill(os.mkfifo))
""",
    ),
    Attack(
        "p08 CPU loop that ignores the signal",
        """
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
while time.process_time() < 1.6:
    pass
print("BREACH took", time.process_time())
""",
        ends=("cpu",),
        limits=ONE_SECOND,
    ),
    Attack(
        "p08 CPU over processes",
        """
for _ in range(2):
    if os.fork() == 0:
        while time.process_time() < 0.8:
            pass
        os._exit(0)
os.wait(), os.wait()
print("BREACH took 1.6 seconds")
""",
        ends=("cpu",),
        limits=ONE_SECOND,
    ),
    Attack(
        "p08 CPU of short lives that nobody waits for",
        """
try:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("BREACH children vanish")
except OSError as error:
    print("held", error)
def burn():
    while time.process_time() < 0.05:
        pass
    os._exit(0)
for _ in range(32):
    if os.fork() == 0:
        burn()
    try:
        os.wait()
    except OSError:
        pass
print("BREACH took 1.6 seconds")
""",
        ends=("cpu",),
        limits=ONE_SECOND,
    ),
    Attack(
        "p09 sleep with all signals ignored",
        """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(3)
""",
        ends=("timeout",),
        limits=SHORT,
        judge=_slept,
    ),
    Attack(
        "p10 C code that never returns",
        """
libc.prctl(15, WORLD["mark"].encode(), 0, 0, 0)
ctypes.PyDLL(None).sleep(3)
""",
        ends=("timeout",),
        limits=SHORT,
        judge=_slept,
    ),
    Attack(
        "p11 flood of standard output",
        "os.write(1, b'x' * 4096)\nprint('x' * (1 << 20))",
        ends=("flood",),
    ),
    Attack(
        "p12 flood of standard error",
        "while sys.stderr.write('x' * 4096) and (WORLD.setdefault('n', []).append(1) or 1):\n"
        "    if len(WORLD['n']) > 64: break",
        ends=("flood",),
    ),
    Attack(
        "p12 flood of both, from several processes",
        """
for stream in (1, 2):
    if os.fork() == 0:
        for _ in range(64):
            os.write(stream, b"x" * 4096)
        os._exit(0)
os.wait(), os.wait()
""",
        ends=("flood",),
    ),
    Attack(
        "p13 daemon",
        """
sys.stdout.flush()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3):
            os.close(fd)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        time.sleep(3)
    os._exit(0)
os.wait()
""",
    ),
    Attack(
        "p14 grandchild that holds the output open",
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(5)
    os._exit(0)
os.wait()
os._exit(0)
""",
        judge=lambda scene, result: "it took its time" if result.wall_seconds >= 5 else "",
    ),
    Attack(
        "p15 threads",
        """
import threading
for _ in range(40):
    try:
        threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
    except RuntimeError:
        break
time.sleep(0.3)
os._exit(0)
""",
        watch=True,
        landlock="one process, whose threads its address space limits",
    ),
    Attack(
        "p16 descriptors",
        """
def fill(opened):
    kept = []
    try:
        for _ in range(200):
            kept.append(opened())
    except OSError as error:
        print("held", error)
    for fd in kept:
        os.close(fd)
    return f"{len(kept)} of them" if len(kept) > 32 else None
attempt("files", lambda: fill(lambda: os.open("/dev/null", os.O_RDONLY)))
attempt("duplicates", lambda: fill(lambda: os.dup(0)))
""",
    ),
    Attack(
        "p17 segfault, which has the machine collect a dump",
        "time.sleep(0.2)\nctypes.string_at(0)",
        ends=("crashed",),
        judge=_not_the_core_limit,
        watch=True,
        weak="no dumps",
    ),
    Attack(
        "p18 raising limits",
        """
import resource
names = {"AS": 128 << 20, "CPU": 2, "FSIZE": 4 << 20, "NOFILE": 32, "NPROC": 9, "STACK": 8 << 20}
for name, most in names.items():
    number = getattr(resource, "RLIMIT_" + name)
    def more():
        for wanted in (resource.RLIM_INFINITY, 2 * most):
            try:
                resource.setrlimit(number, (wanted, wanted))
            except (OSError, ValueError) as error:
                print("held", name, error)
        hard = resource.getrlimit(number)[1]
        return hard if hard > most or hard < 0 else None
    attempt(name, more)
attempt("dumps", lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)) or "lowered")
""",
        landlock="processes are not limited by number: there can be only one",
    ),
]
