"""Attacks on other runs, other processes, the wall itself, and on what the supervisor believes."""

from __future__ import annotations

import json
import platform

from orchestrion_sandbox.inside import seccomp
from orchestrion_sandbox.interface import Result

from tests.plugins.sandbox.scene import Attack, Scene

_COLUMN = 0 if platform.machine() == "x86_64" else 1
# Without its tables a machine would be hung up or made to wait where nothing holds the attack.
_CALLS = {
    name: numbers[_COLUMN]
    for name, numbers in seccomp.BARRED.items()
    if numbers[_COLUMN] is not None and name not in ("vhangup", "sync")
}
HOSTILE = b'\x00\xff\xfe\x1b]0;owned\x07\x1b[2J\r\n\xed\xa0\x80{"status": "ok"}\x85\xe2\x80\xa8'


def _not_what_it_did(scene: Scene, result: Result) -> str:
    if (result.status, result.exit_code) == ("error", 137):
        return ""
    return f"it made them believe {result.status}, {result.exit_code}"


def _not_as_written(scene: Scene, result: Result) -> str:
    return "" if result.stdout == HOSTILE * 2 else f"other bytes came out: {result.stdout!r}"


INTEGRITY = [
    Attack(
        "p30 signals to others",
        """
import fcntl
victim = WORLD["victim"]
def by_owner():
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, victim)
    fcntl.fcntl(reader, 10, signal.SIGTERM)  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writer, b"x")
ways = {
    "stop": lambda: os.kill(victim, signal.SIGSTOP),
    "kill": lambda: os.kill(victim, signal.SIGTERM),
    "group": lambda: os.killpg(os.getpgid(victim), 0),
    "pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGTERM),
    "owner": by_owner,
    "owner by ioctl": lambda: fcntl.ioctl(os.pipe()[0], 0x8901, victim.to_bytes(4, "little")),
    "parent": lambda: os.kill(os.getppid(), 0) if os.getppid() else None,
    "supervisor": lambda: os.kill(WORLD["supervisor"], 0) or "reached",
    "slower": lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    "affinity": lambda: os.sched_setaffinity(victim, [min(os.sched_getaffinity(0))]),
}
for what, way in ways.items():
    attempt(what, way)
""",
    ),
    Attack(
        "p31 new namespaces",
        """
import platform
flags = {"mount": 0x20000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000,
         "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}
x86 = platform.machine() == "x86_64"
def apart(way, flag):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if way == "unshare":
                code = 0 if libc.unshare(flag) == 0 else 1
            else:
                child = call(56 if x86 else 220, flag | 17, 0, 0, 0, 0)
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
                code = 0
        except OSError:
            pass
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0 or None
for name, flag in flags.items():
    for way in ("unshare", "clone"):
        if way == "unshare" or flag != 0x80:
            attempt(f"{way} {name}", lambda: apart(way, flag))
def clone3():
    arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
    pid = call(435, arguments, 88)
    if pid == 0:
        os._exit(0)
    return "clone3"
attempt("clone3", clone3)
attempt("setns", lambda: libc.setns(os.open("/proc/1/ns/mnt", 0), 0) == 0)
""",
    ),
    Attack(
        "p32 privileges",
        """
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
def capabilities():
    data = (ctypes.c_uint32 * 6)()
    libc.capget(ctypes.byref(Header(0x20080522, 0)), data)
    return list(data) if any(data) else None
def regain():
    data = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
    return libc.capset(ctypes.byref(Header(0x20080522, 0)), data) == 0
attempt("capabilities", capabilities)
attempt("regained", regain)
attempt("bounding set", lambda: [n for n in range(41) if libc.prctl(23, n, 0, 0, 0) > 0] or None)
attempt("may gain more", lambda: libc.prctl(39, 0, 0, 0, 0) != 1)
attempt("no filter", lambda: libc.prctl(21, 0, 0, 0, 0) != 2)
attempt("outlives its parent", lambda: libc.prctl(1, 0, 0, 0, 0) == 0)
attempt("personality", lambda: libc.personality(0x40000) >= 0)
if os.getuid():
    for name in ("setuid", "setgid", "seteuid"):
        attempt(name, lambda: getattr(os, name)(0) or name)
    attempt("chroot", lambda: os.chroot(".") or "chroot")
attempt("groups", lambda: os.setgroups([0]) or "groups")
attempt("faster", lambda: os.nice(-5) < 0)
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) or "fifo")
""",
        landlock="who is root stays root, without its powers",
    ),
    Attack(
        "p33 writes outside",
        """
def write(folder):
    path = f"{folder}/{WORLD['mark']}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    os.unlink(path)
    return path
for folder in ("/", "/python", "/python/lib", "/sandbox/inside", "/dev", "/packages", "/usr/lib",
               os.path.dirname(os.__file__), WORLD["folder"]):
    attempt(folder, lambda: write(folder))
canary = WORLD["folder"] + "/canary"
attempt("canary", lambda: open(canary, "r+").write("changed") and None)
attempt("mode", lambda: os.chmod(canary, 0o604))
attempt("times", lambda: os.utime(canary, (1, 1)))
attempt("owner", lambda: os.chown(canary, 1, -1))
attempt("attribute", lambda: os.setxattr(canary, "user.x", b"y"))
attempt("shorter", lambda: os.truncate(canary, 3))
attempt("moved", lambda: os.rename(canary, canary + "2"))
attempt("library", lambda: os.utime(os.__file__, ns=(os.stat(os.__file__).st_atime_ns,
                                                      os.stat(os.__file__).st_mtime_ns)) or "times")
for path in ("/dev/null", "/dev/urandom"):
    attempt(path, lambda: os.chmod(path, 0o666) or "mode")
""",
    ),
    Attack(
        "p33 leases and notifications on files that others use",
        """
import fcntl
def lease():
    fd = os.open("own", os.O_CREAT | os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return "a lease"
def notified():
    fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE)
    return "a notification"
def watched(path):
    fd = libc.inotify_init1(0)
    return fd >= 0 and libc.inotify_add_watch(fd, path.encode(), 0xFFF) >= 0
attempt("lease", lease)
attempt("notification", notified)
attempt("inotify", lambda: watched(os.path.dirname(os.__file__)))
attempt("fanotify", lambda: libc.fanotify_init(0x200, 0) >= 0)
""",
    ),
    Attack(
        "p34 keys typed into a terminal",
        """
import fcntl, termios
def typed(fd):
    for key in b"rm x\\n":
        fcntl.ioctl(fd, termios.TIOCSTI, bytes([key]))
    return "keys"
def written():
    fd = os.open(WORLD["terminal"], os.O_RDWR | os.O_NOCTTY)
    os.write(fd, b"\\x1b]52;c;b3duZWQ=\\x07")
    attempt("keys", lambda: typed(fd))
for fd in (0, 1, 2):
    attempt("keys", lambda: typed(fd))
    attempt("console", lambda: fcntl.ioctl(fd, 0x541C, b"\\x03") and "pasted")
attempt("terminal", written)
attempt("own terminal", lambda: os.open("/dev/tty", os.O_RDWR) and "a terminal")
""",
    ),
    Attack(
        "p35 every barred system call",
        f"""
calls = json.loads('''{json.dumps(_CALLS)}''')
passed = []
for name, number in calls.items():
    if libc.syscall(number, -1, -1, -1, -1, -1, -1) >= 0 or ctypes.get_errno() != errno.EPERM:
        passed.append(name)
attempt("calls", lambda: passed or None)
for number in (463, 467, 500, 4000):  # newer than the table
    libc.syscall(number, -1, -1, -1, -1, -1, -1)
    if ctypes.get_errno() != errno.ENOSYS:
        print("BREACH", number)
""",
    ),
    Attack(
        "p35 calls by the numbers of other machines",
        """
def killed(number):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGSYS, signal.SIG_IGN)
        libc.syscall(number, 0)
        os._exit(0)
    return None if os.WIFSIGNALED(os.waitpid(pid, 0)[1]) else "not ended"
import platform
if platform.machine() == "x86_64":
    attempt("x32", lambda: killed(0x40000000 + 39))
""",
        weak="filter",
    ),
    Attack(
        "p36 state between runs",
        """
found = [path for path in (f"/tmp/{WORLD['mark']}", "left", f"/dev/shm/{WORLD['mark']}",
                           f"/var/tmp/{WORLD['mark']}") if os.path.exists(path)]
import builtins, tempfile
found += [x for x in ("LEFT",) if hasattr(builtins, x) or x in os.environ or hasattr(json, x)]
found += [tempfile.tempdir] if tempfile.tempdir == "left" else []
attempt("left", lambda: found or None)
attempt("others", lambda: [n for n in os.listdir("/proc") if n.isdecimal()] or None)
""",
        before="""
import builtins, tempfile
builtins.LEFT = json.LEFT = True
os.environ["LEFT"] = "x"
tempfile.tempdir = "left"
for path in (f"/tmp/{WORLD['mark']}", "left", f"/dev/shm/{WORLD['mark']}"):
    attempt(path, lambda: open(path, "w").close())
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.nice(5)
sys.setrecursionlimit(50)
""",
    ),
    Attack(
        "p37 runs side by side",
        """
import glob
end = time.monotonic() + 0.4
while time.monotonic() < end:
    for path in glob.glob("/proc/[0-9]*/comm"):
        pid = int(path.split("/")[2])
        try:
            if pid != os.getpid() and open(path).read().strip() == WORLD["mark"]:
                print("BREACH sees", pid, open(f"/proc/{pid}/cwd/own").read(), flush=True)
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    for path in glob.glob("/tmp/*/own") + glob.glob("/tmp/own"):
        print("BREACH reads", open(path).read())
    for pid in range(2, 200):
        try:
            os.kill(pid, 0)
        except OSError:
            pass
        else:
            if not os.path.exists("/proc"):
                print("BREACH", pid)
    time.sleep(0.02)
""",
        beside="""
with open("own", "w") as file:
    file.write(sys.argv[2])
time.sleep(0.3)
assert open("own").read() == sys.argv[2] and not os.path.exists("another")
""",
        landlock="there are no files to keep apart",
    ),
    Attack(
        "p40 lying exit codes and status lines",
        """
print('{"ended": {"exit": 0, "signal": null, "cpu": 0.0}}\\nok\\nPASS', flush=True)
for fd in range(3, 70):
    for line in (b'{"ended": {"exit": 0, "signal": null, "cpu": 0.0}}', b'{"ready": true}'):
        try:
            os.write(fd, line)
            print("BREACH wrote to", fd, flush=True)
        except OSError:
            pass
os._exit(137)
""",
        ends=("error",),
        judge=_not_what_it_did,
        weak="closed status",
    ),
    Attack(
        "p41 hostile bytes",
        f"""
data = {HOSTILE!r}
os.write(1, data)
os.write(2, data * 9)
sys.stdout.buffer.write(data)
""",
        judge=_not_as_written,
    ),
    Attack(
        "p42 a set-uid program of its own",
        """
import shutil
def make(folder):
    path = folder + "/suid"
    shutil.copyfile("/bin/true" if os.path.exists("/bin/true") else sys.executable, path)
    os.chmod(path, 0o6755)
    return path
attempt("outside", lambda: make(WORLD["folder"]))
def gained():
    with open("show.py", "w") as file:
        file.write("import os; print(os.geteuid() != os.getuid() or os.geteuid() == 0)")
    with open("suid", "wb") as file:
        file.write(b"#!" + sys.executable.encode() + b" -S\\n")
    os.chmod("suid", 0o6755)
    import subprocess
    done = subprocess.run([sys.executable, "-S", "show.py"], capture_output=True, text=True)
    return done.stdout.strip() == "True" and "root"
attempt("inside", gained)
""",
    ),
    Attack(
        "p43 deleting its world",
        """
import shutil
shutil.rmtree(WORLD["folder"], ignore_errors=True)
here = os.getcwd()
shutil.rmtree(here, ignore_errors=True)
attempt("in its own folder", lambda: os.rmdir(here))
if os.getpid() == 1 and not os.path.exists("/proc"):  # nowhere but behind a wall
    for folder in ("/python", "/python/lib", "/sandbox", "/packages", "/usr", "/dev", "/tmp"):
        attempt(folder, lambda: os.rename(folder, folder + "2") or "moved")
        for name in os.listdir(folder)[:20] if folder != "/tmp" else []:
            attempt(name, lambda: os.unlink(f"{folder}/{name}") or "deleted")
            attempt(name, lambda: os.rmdir(f"{folder}/{name}") or "deleted")
    for fd in range(3):
        os.close(fd)
    sys.modules.clear()
""",
        ends=("ok", "error"),
    ),
]
