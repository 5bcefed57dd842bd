"""Attacks through what the kernel holds for a program, by its list of system calls.

Memory that no process shows, calls that reach past a run or slow the whole machine, and what tells
one run of another.
"""

from __future__ import annotations

from attrs import evolve

from tests.plugins.sandbox.scene import SMALL, Attack

NUMBERS = """
import platform
AT = 0 if platform.machine() == "x86_64" else 1
"""

KERNEL = [
    Attack(
        "k01 memory in attributes of standard input and of files",
        """
def fill(target):
    for number in range(4):
        os.setxattr(target, f"user.a{number}", b"y" * 64)
    return "4 attributes"
open("file", "w").close()
for target in (0, 1, "file", ".", os.open("file", os.O_RDONLY)):
    attempt(f"of {target}", lambda: fill(target))
""",
    ),
    Attack(
        "k02 attributes by every call there is for them",
        NUMBERS
        + """
open("file", "w").close()
def put(number, target):
    return call(number, target, b"user.a", b"y" * 100, 100, 0) == 0
def put_at():
    return call(463, -100, b"file", 0, b"user.a", (ctypes.c_uint64 * 2)(0, 0), 16) == 0
for numbers, target in (((188, 5), b"file"), ((189, 6), b"file"), ((190, 7), os.open("file", 0))):
    attempt(f"call {numbers[AT]}", lambda: put(numbers[AT], target))
attempt("setxattrat", put_at)
attempt("removal", lambda: os.removexattr("file", "user.a") or "removed")
""",
    ),
    Attack(
        "k03 records of locks",
        """
import fcntl
def hoard(command):
    held = 0
    file = open("locked", "w+b")
    for number in range(2000):
        fcntl.fcntl(file, command, struct.pack("hhqqi", 1, 0, 2 * number, 1, 0))
    if os.fork() == 0:
        asked = fcntl.fcntl(file, 5, struct.pack("hhqqi", 1, 0, 0, 0, 0))
        os._exit(struct.unpack("hhqqi", asked)[0] != 2)
    return os.waitstatus_to_exitcode(os.wait()[1]) == 1
import struct
attempt("kept for a process", lambda: hoard(6))
attempt("kept for a file", lambda: hoard(37))
""",
        landlock="no process can be started to see them, and no file made",
    ),
    Attack(
        "k04 a lock on a file that other runs see",
        """
import fcntl
first, second = (open(sys.executable if os.path.exists(sys.executable) else os.__file__)
                 for _ in range(2))
fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
def told():
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "somebody has it"
attempt("flock", told)
""",
    ),
    Attack(
        "k05 buffers of sockets over processes",
        """
def fill(done):
    kept = []
    for _ in range(12):
        for end in socket.socketpair():
            kept.append(end)
            end.setblocking(False)
            try:
                while end.send(b"x" * 65536):
                    pass
            except BlockingIOError:
                pass
    done()
together(6, fill)
print("BREACH", "buffers of 144 sockets")
""",
        ends=("memory",),
        limits=evolve(SMALL, memory_mb=64),
        landlock="one process, whose descriptors are limited",
    ),
    Attack(
        "k06 what the machine does: its load, memory and processes",
        """
class Info(ctypes.Structure):
    _fields_ = [("words", ctypes.c_long * 14), ("more", ctypes.c_char * 64)]
def info():
    found = Info()
    if libc.sysinfo(ctypes.byref(found)) < 0:
        raise OSError(ctypes.get_errno(), "sysinfo")
    return list(found.words)[:6]
attempt("sysinfo", info)
""",
    ),
    Attack(
        "k07 which parts of the machine's files are in memory",
        """
def cached():
    fd = os.open(os.__file__, os.O_RDONLY)
    span, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    call(451, fd, span, found, 0)
    return list(found)
attempt("cachestat", cached)
""",
    ),
    Attack(
        "k08 interrupts on all processors",
        NUMBERS
        + """
attempt("global", lambda: call((324, 283)[AT], 1, 0, 0) == 0)
attempt("registered", lambda: call((324, 283)[AT], 4, 0, 0) == 0)
attempt("expedited", lambda: call((324, 283)[AT], 2, 0, 0) == 0)
""",
    ),
    Attack(
        "k09 messages out of band between its sockets",
        """
left, right = socket.socketpair()
attempt("sent", lambda: left.send(b"x", socket.MSG_OOB) == 1)
attempt("sent with more", lambda: left.sendmsg([b"x"], [], socket.MSG_OOB) == 1)
attempt("received", lambda: right.recv(1, socket.MSG_OOB | socket.MSG_DONTWAIT))
""",
    ),
    Attack(
        "k10 control of files and drivers",
        """
import fcntl, struct
fd = os.open(os.__file__, os.O_RDONLY)
attempt("block size", lambda: fcntl.ioctl(fd, 2, b"0000"))
attempt("where it lies on the disk", lambda: fcntl.ioctl(fd, 0xC020660B, bytes(24) + bytes(8)))
attempt("its flags", lambda: fcntl.ioctl(fd, 0x80086601, bytes(8)))
attempt("signals of a pipe", lambda: fcntl.ioctl(0, 0x5452, struct.pack("i", 0)))
attempt("signals of a socket", lambda: fcntl.ioctl(
    socket.socketpair()[0], 0x5452, struct.pack("i", 1)) and "set")
""",
    ),
    Attack(
        "k11 a filter of its own, with somebody who listens",
        NUMBERS
        + """
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
import struct
allow = Program(1, struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
libc.prctl(38, 1, 0, 0, 0)
def by_prctl():
    if libc.prctl(22, 2, ctypes.byref(allow), 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return "installed"
attempt("by prctl", by_prctl)
attempt("by seccomp", lambda: call((317, 277)[AT], 1, 0, ctypes.byref(allow)) == 0)
attempt("with a listener", lambda: call((317, 277)[AT], 1, 8, ctypes.byref(allow)) > 0)
""",
    ),
    Attack(
        "k12 timers",
        NUMBERS
        + """
def hoard():
    number, made = ctypes.c_int(), 0
    try:
        while made < 300:
            call((222, 107)[AT], 1, 0, ctypes.byref(number))
            made += 1
    except OSError as error:
        print("held", error)
    return f"{made} of them" if made > 128 else None
attempt("timers", hoard)
""",
        weak="counted signals",
    ),
    Attack(
        "k13 queued signals",
        """
def hoard():
    made, signal_number = 0, signal.SIGRTMIN + 1
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal_number])
    while made < 300 and libc.sigqueue(os.getpid(), signal_number, ctypes.c_void_p(1)) == 0:
        made += 1
    return f"{made} of them" if made > 128 else None
attempt("signals", hoard)
""",
        weak="counted signals",
    ),
    Attack(
        "k14 watches of many descriptors by many",
        """
import select
def hoard():
    watchers, watched, made = [], [], 0
    try:
        for _ in range(40):
            watchers.append(select.epoll())
            watched.append(os.eventfd(0))
    except OSError as error:
        print("held", error)
    for watcher in watchers:
        for fd in watched:
            watcher.register(fd)
            made += 1
    return f"{made} of them" if made > 32 * 32 else None
attempt("epoll", hoard)
""",
    ),
    Attack(
        "k15 CPU time of children that end without a signal",
        NUMBERS
        + """
def burn():
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    os._exit(0)
for _ in range(32):
    sys.stdout.flush()
    if call((56, 220)[AT], 0, 0, 0, 0, 0) == 0:
        burn()
    try:
        os.waitpid(-1, 0x40000000)
    except OSError:
        pass
print("BREACH took 1.6 seconds")
""",
        ends=("cpu",),
        limits=evolve(SMALL, cpu_seconds=1, wall_seconds=30),
    ),
    Attack(
        "k16 hiding its descriptors from whoever counts them",
        """
def hide():
    if libc.prctl(4, 0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return "hidden"
attempt("dumpable", hide)
attempt("merged memory", lambda: libc.prctl(67, 1, 0, 0, 0) == 0)
""",
    ),
    Attack(
        "k17 pipes that are not pipes, and long ones",
        """
import fcntl
def long():
    fds = [os.pipe()[1] for _ in range(4)]
    return max(fcntl.fcntl(fd, 1031, 1 << 18) for fd in fds)
def notifying():
    reader, writer = os.pipe2(os.O_EXCL)
    fcntl.ioctl(reader, 0x5760, 256)
    return "watching"
attempt("long", long)
attempt("notifications", notifying)
""",
    ),
    Attack(
        "k18 which modules guard the machine",
        """
def modules():
    found, size = (ctypes.c_uint64 * 32)(), ctypes.c_uint32(256)
    count = call(461, found, ctypes.byref(size), 0)
    return [found[i] for i in range(count)]
attempt("listed", modules)
""",
    ),
    Attack(
        "k19 descriptors in flight, each with a full buffer",
        """
import array
def fly():
    carrier, other = socket.socketpair()
    for number in range(300):
        left, right = socket.socketpair()
        fds = array.array("i", [left.fileno(), right.fileno()]).tobytes()
        carrier.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        left.close(), right.close()
        if number > 100:
            return f"{2 * number} in flight"
attempt("in flight", fly)
""",
    ),
    Attack(
        "k20 pages that are mapped a second way",
        NUMBERS
        + """
import mmap
def again():
    space = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(space))
    return call((216, 234)[AT], start, mmap.PAGESIZE, 0, 1, 0) == 0
attempt("remap_file_pages", again)
""",
    ),
]
