"""Attacks on what a run must not see: files, secrets, other memory, the network, the machine."""

from __future__ import annotations

from tests.plugins.sandbox.scene import Attack

REACH = [
    Attack(
        "p20 files of the host",
        """
secret = WORLD["folder"] + "/secret"
roots = ["", "/proc/self/root", "/proc/1/root", "../" * 30, "/old_root", "/.old",
         f"/proc/{WORLD['supervisor']}/root", "/sandbox/../..", "/python/lib/../../.."]
for root in roots:
    attempt("secret by " + root, lambda: print(open(root + secret).read()))
for fd in range(32):
    attempt(f"secret by {fd}", lambda: print(os.open("../" * 20 + secret, 0, dir_fd=fd)))
for path in ("/etc/passwd", "/etc/hostname", "/proc/version", "/sys/kernel/uevent_seqnum"):
    attempt(path, lambda: open(path).read())
for path in ("/home", "/root", "/etc", "/proc", "/sys", "/var", "/run", "/mnt", "/boot"):
    attempt(path, lambda: os.listdir(path))
""",
    ),
    Attack(
        "p21 environment",
        """
def show(path):
    text = open(path, "rb").read()
    print(text)
    return text
for pid in ("self", WORLD["victim"], WORLD["supervisor"], 1, os.getppid()):
    attempt(f"of {pid}", lambda: show(f"/proc/{pid}/environ"))
ours = {"PYTHONHASHSEED": "0", "LD_LIBRARY_PATH": "/python/lib", "PATH": "/python/bin"}
attempt("own", lambda: {n: v for n, v in os.environ.items()
                        if n != "LC_CTYPE" and ours.get(n) != v} or None)
names = ("HOME", "USER", "PYTHONPATH", "TOKEN")
libc.getenv.restype = ctypes.c_char_p
attempt("in C", lambda: [n for n in names if libc.getenv(n.encode())] or None)
""",
    ),
    Attack(
        "p22 links and FIFOs in place of results",
        """
folder = WORLD["folder"]
for number, make in enumerate((os.symlink, os.link)):
    attempt(make.__name__, lambda: make(folder + "/secret", f"answer{number}"))
    attempt("read", lambda: print(open(f"answer{number}").read()))
    attempt("link to write", lambda: make(folder + "/canary", f"other{number}"))
    attempt("write", lambda: open(f"other{number}", "r+").write("changed") and None)
attempt("chmod", lambda: os.chmod("other0", 0o600))
attempt("FIFO", lambda: os.mkfifo("fifo.txt"))
attempt("loop", lambda: os.symlink("loop", "loop"))
attempt("link to the root", lambda: os.symlink("/", "root"))
attempt("root", lambda: print(open("root" + folder + "/secret").read()))
""",
    ),
    Attack(
        "p23 hostile names of files",
        r"""
names = [b"\n", b"\x1b]0;owned\x07", b"\xff\xfe", b"-rf *", b"x" * 255, b"con.py;rm", b"..."]
for name in names:
    outside = WORLD["folder"].encode()
    for folder in (b".", outside, b"../../../../../../.." + outside):
        try:
            open(os.path.join(folder, name), "w").close()
        except OSError as error:
            print("held", error)
try:
    for _ in range(40):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
except OSError as error:
    print("held", error)
""",
    ),
    Attack(
        "p24 memory of other processes",
        """
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def environment(pid):
    words = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return int(words[47]), int(words[48]) - int(words[47])
def by_vector(pid):
    start, size = environment(pid)
    buffer = ctypes.create_string_buffer(size)
    mine = Vector(ctypes.addressof(buffer), size)
    theirs = Vector(start, size)
    if libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    print(buffer.raw)
    return True
def by_file(pid):
    start, size = environment(pid)
    with open(f"/proc/{pid}/mem", "rb") as file:
        file.seek(start)
        print(file.read(size))
    return True
def by_trace(pid):
    if libc.ptrace(16, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0)
    libc.ptrace(17, pid, 0, 0)
    return "attached"
def by_pidfd(pid):
    return call(438, os.pidfd_open(pid), 0, 0)
for pid in {WORLD["victim"], WORLD["supervisor"], os.getppid(), 1}:
    for way in (by_vector, by_file, *([by_trace, by_pidfd] if pid == WORLD["victim"] else [])):
        attempt(f"{way.__name__} {pid}", lambda: way(pid))
attempt("pidfd of its parent", lambda: call(438, os.pidfd_open(os.getppid()), 0, 0))
""",
    ),
    Attack(
        "p25 descriptors that it was not given",
        """
opened = []
for fd in range(3, 1024):
    try:
        opened.append((fd, os.fstat(fd).st_mode))
    except OSError:
        pass
attempt("more than three", lambda: opened or None)
attempt("input can be written", lambda: os.write(0, b"x"))
attempt("output can be read", lambda: os.read(1, 1) and None)
for fd in range(3):
    attempt("a directory", lambda: os.listdir(fd))
    attempt("grows", lambda: os.ftruncate(fd, 5) or "grown")
""",
        weak="closed descriptors",
    ),
    Attack(
        "p26 the network outside",
        """
def reach(kind, address):
    with socket.socket(socket.AF_INET, kind) as connection:
        connection.setblocking(False)
        if kind == socket.SOCK_DGRAM:
            connection.connect(address)
        return "an internet socket"
attempt("DNS", lambda: reach(socket.SOCK_DGRAM, ("127.0.0.53", 53)))
attempt("TCP", lambda: reach(socket.SOCK_STREAM, ("192.0.2.1", 443)))
attempt("raw", lambda: reach(socket.SOCK_RAW, ("192.0.2.1", 0)))
attempt("names", lambda: socket.getaddrinfo("localhost", 80))
attempt("interfaces", lambda: [i for i in socket.if_nameindex() if i[1] != "lo"] or None)
""",
    ),
    Attack(
        "p27 loopback of the host",
        """
def connect():
    socket.create_connection(("127.0.0.1", WORLD["tcp"]), 1).send(b"here I am")
def send():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hi", ("127.0.0.1", WORLD["udp"]))
attempt("TCP", connect)
attempt("UDP", send)
attempt("listening", lambda: socket.create_server(("127.0.0.1", 0)).getsockname())
""",
    ),
    Attack(
        "p28 unix and abstract sockets",
        """
addresses = [WORLD["folder"] + "/unix", chr(0) + WORLD["mark"]]
def datagram(address):
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.sendto(b"hi", address + "d")
def named():
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    left.send(b"x")
    return left.getsockname() or None
def unnamed_stream(kind):
    left, right = socket.socketpair(socket.AF_UNIX, kind)
    left.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    left.sendto(b"x", addresses[1] + "d")
for address in addresses:
    attempt("stream", lambda: socket.socket(socket.AF_UNIX).connect(address + "s"))
    attempt("datagram", lambda: datagram(address))
attempt("its own name", named)
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    attempt("an address in a pair", lambda: unnamed_stream(kind))
""",
    ),
    Attack(
        "p29 odd families of sockets",
        """
made = []
for family in range(1, 47):
    for kind in (1, 2, 3, 5):
        for protocol in (0, 16):
            for make in (libc.socket, lambda *a: libc.socketpair(*a, (ctypes.c_int * 2)())):
                if family == 1 and make is not libc.socket and kind in (1, 5):
                    continue  # pairs are allowed
                if make(family, kind, protocol) >= 0:
                    made.append(family)
attempt("families", lambda: sorted(set(made)) or None)
""",
    ),
    Attack(
        "p38 devices",
        """
names = ["mem", "kmsg", "port", "vda", "sda", "tty", "ptmx", "console", "fuse", "kvm", "loop0",
         "net/tun", "zero", "shm/x", "mqueue/x", "input/event0", "dri/card0", "nvidia0"]
attempt("opened", lambda: [n for n in names if os.path.exists("/dev/" + n)
                           and os.open("/dev/" + n, os.O_RDONLY | os.O_NONBLOCK)] or None)
import stat
for kind, number in ((stat.S_IFCHR, (1, 3)), (stat.S_IFBLK, (254, 0))):
    attempt("made", lambda: os.mknod("device", kind | 0o666, os.makedev(*number)) or "a device")
attempt("own", lambda: [n for n in os.listdir("/dev")
                        if n not in ("null", "full", "random", "urandom")] or None)
attempt("urandom's settings", lambda: __import__("fcntl").ioctl(
    os.open("/dev/urandom", os.O_RDWR), 0x5201, b"0000") and "entropy added")
""",
    ),
    Attack(
        "p39 what machine this is",
        """
import gc, sysconfig
host, here = WORLD["host"][::-1], WORLD["here"][::-1]
attempt("host name", lambda: host if host in (os.uname().nodename, socket.gethostname()) else None)
def texts():
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            thing = [*thing, *thing.values()]
        if isinstance(thing, (list, tuple)):
            yield from (word for word in thing if type(word) is str and word is not here)
attempt("project", lambda: [t for t in texts() if here in t][:2] or None)
attempt("user", lambda: __import__("pwd").getpwuid(os.getuid()))
attempt("home", lambda: os.listdir(os.path.expanduser("~")) and None)
for path in ("/proc/cpuinfo", "/proc/mounts", "/etc/machine-id", "/sys/class/dmi/id/product_name"):
    attempt(path, lambda: open(path).read())
def mounts():
    ids = (ctypes.c_uint64 * 64)()
    request = (ctypes.c_uint64 * 4)(24, 2**64 - 1, 0, 0)
    return call(458, request, ids, 64, 0)
attempt("list of mounts", mounts)
""",
        landlock="the machine is in view there: its name, and paths",
    ),
]
