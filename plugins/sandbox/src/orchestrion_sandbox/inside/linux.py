"""System calls that Python has no function for. Each raises `OSError` if it is refused."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

MACHINE = platform.machine()

NEWTIME, NEWNS, NEWCGROUP, NEWUTS = 0x80, 0x20000, 0x2000000, 0x4000000
NEWIPC, NEWUSER, NEWPID, NEWNET = 0x8000000, 0x10000000, 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

CAP_SYS_ADMIN = 21
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 38, 47
_CAPABILITY_VERSION_3 = 0x20080522

_NUMBERS = {
    "x86_64": {"pivot_root": 155, "capset": 126},
    "aarch64": {"pivot_root": 41, "capset": 91},
}.get(MACHINE, {})
_MOUNT_SETATTR, _CLOSE_RANGE = 442, 436  # the same everywhere since Linux 5.1
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(number: int | None, what: str, *arguments: object) -> int:
    if number is None:
        raise OSError(f"{what}: no number known on {MACHINE}")
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words), what)


def _prctl(what: str, option: int, *arguments: int) -> None:
    words = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    _check(_libc.prctl(ctypes.c_int(option), *words), what)


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def unshare_users(flags: int, proc: int, inner: int = 1000) -> None:
    """Unshare, with a namespace of users in which this user, as `inner`, is the only one.

    `proc` is a descriptor of /proc, which need not be mounted.
    """
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    unshare(flags | NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inner} {outer_uid} 1"),
        ("gid_map", f"{inner} {outer_gid} 1"),
    ):
        fd = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def is_host_root() -> bool:
    """Return whether this is root of the host, not only of a namespace of users."""
    with open("/proc/self/uid_map") as file:
        return os.geteuid() == 0 and file.read().split() == ["0", "0", str(0xFFFFFFFF)]


def mapped(user: int) -> bool:
    """Return whether a user exists here: a container without root may have only a few."""
    with open("/proc/self/uid_map") as file:
        rows = [[int(word) for word in line.split()] for line in file]
    return any(first <= user < first + count for first, _, count in rows)


def has_capability(number: int) -> bool:
    """Return whether this process has a capability."""
    with open("/proc/self/status") as file:
        effective = next(line.split()[1] for line in file if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> number & 1)


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    data = options.encode() if options else None
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data
    )
    _check(result, f"mount {kind or source} on {target}")


def bind(source: str, target: str) -> None:
    """Mount `source` at `target`, with all mounts below it."""
    mount(source, target, "", MS_BIND | MS_REC)


def make_read_only(target: str, also: int = ATTR_NOSUID | ATTR_NODEV) -> None:
    """Make all mounts at and below `target` read-only. Needs Linux 5.12."""
    # struct mount_attr: attr_set, attr_clr, propagation, userns_fd
    attributes = struct.pack("=QQQQ", _ATTR_RDONLY | also, 0, 0, 0)
    path = target.encode()
    arguments = (_AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes))
    _syscall(_MOUNT_SETATTR, f"make {target} read-only", *arguments)


def pivot_root(root: str) -> None:
    """Make the mount point `root` the root, and unmount the old one."""
    os.chdir(root)
    _syscall(_NUMBERS.get("pivot_root"), "pivot_root", b".", b".")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir("/")


def on_parent_death(signal: int) -> None:
    _prctl("parent death signal", _PR_SET_PDEATHSIG, signal)


def no_new_privileges() -> None:
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


def drop_user(number: int) -> None:
    """Change from root to another user and group; this cannot be undone."""
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)
    _prctl("dumpable", _PR_SET_DUMPABLE, 1)  # else its own files in /proc are root's


def drop_capabilities() -> None:
    """Drop all capabilities from every set; this cannot be undone."""
    for number in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) < 0:
            break  # past the last one, or none may be dropped any more
    _libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _syscall(_NUMBERS.get("capset"), "capset", header, bytes(24))


def set_filter(program: bytes) -> None:
    """Set a seccomp filter for this process and all it starts; it cannot be removed."""
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: unsigned short len, padding, pointer
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(head, len(head))
    _prctl("seccomp", _PR_SET_SECCOMP, 2, ctypes.addressof(holder))


def end_on(*signals: int) -> None:
    """Let these signals end the process, with their number as exit code.

    The first process of a namespace ignores signals without a handler. This handler is in C, so it
    runs at once, whatever the interpreter does.
    """
    handler = ctypes.cast(_libc._exit, ctypes.c_void_p)
    for number in signals:
        _libc.signal(ctypes.c_int(number), handler)


def close_from(first: int) -> None:
    """Close all descriptors from `first` on."""
    _syscall(_CLOSE_RANGE, "close_range", first, 0x7FFFFFFF, 0)


# ---------------------------------------------------------------- landlock

_FS_EXECUTE, _FS_READ_FILE, _FS_READ_DIR = 1, 4, 8
# The number of rights to files that each version of the interface knows.
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_RULE_PATH = 1


def landlock_version() -> int:
    """Return the version of the kernel's interface; 0 if there is none."""
    result: int = _libc.syscall(ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_long(0), 1)
    return max(0, result)


def landlock_rules(readable: list[str]) -> int:
    """Return a descriptor of rules: only these files and folders can be opened, for reading.

    It is made once, and used by `landlock` in each process forked later.
    """
    version = landlock_version()
    if version < 1:
        raise OSError("this kernel has no landlock")
    rights = (1 << _FS_RIGHTS.get(version, 16)) - 1
    # struct landlock_ruleset_attr: handled_access_fs, _net (version 4), scoped (version 6)
    words = [rights, *([3] if version >= 4 else []), *([3] if version >= 6 else [])]
    attributes = struct.pack(f"={len(words)}Q", *words)
    rules = _syscall(_LANDLOCK_CREATE, "landlock", attributes, len(attributes), 0)
    for path in readable:
        fd = os.open(path, os.O_PATH)
        try:
            may = _FS_READ_FILE
            if os.path.isdir(path):
                may |= _FS_READ_DIR
            rule = struct.pack("=Qi", may, fd)
            _syscall(_LANDLOCK_ADD, f"landlock {path}", rules, _RULE_PATH, rule, 0)
        finally:
            os.close(fd)
    return rules


def landlock(rules: int) -> None:
    """Apply the rules to this process, after `no_new_privileges`; they cannot be removed."""
    _syscall(_LANDLOCK_RESTRICT, "landlock", rules, 0)
