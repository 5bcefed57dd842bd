"""A filter of system calls, assembled here in a hundred lines without a library.

Most calls are allowed. Blocked are those that reach rarely used parts of the kernel, other
processes, the network, the machine's settings, or memory that no limit counts. The instructions
are classic BPF (Linux, Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import errno
import struct

# name: (number on x86_64, number on aarch64); None where the machine has no such call.
BARRED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # namespaces, mounts, devices
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    # what other runs and the machine do with files that both see
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "sync": (162, 81),
    "syncfs": (306, 267),
    # memory and queues that no limit counts
    "io_setup": (206, 0),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184),
    "mq_getsetattr": (245, 185),
    "vmsplice": (278, 75),
    "seccomp": (317, 277),
    # attributes of files, which tmpfs keeps in memory of the kernel; setxattrat is _NEWER
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    # the whole machine: its load, what it has in memory, interrupts on all its processors
    "sysinfo": (99, 179),
    "cachestat": (451, 451),
    "membarrier": (324, 283),
    "lsm_get_self_attr": (459, 459),
    "lsm_set_self_attr": (460, 460),
    "lsm_list_modules": (461, 461),
    # sockets: `socketpair` stays, for pairs that never leave the process
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "setsockopt": (54, 208),  # buffers, which are memory that no limit counts
    # the kernel's less travelled parts
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "lookup_dcookie": (212, 18),
    "modify_ldt": (154, None),
    "personality": (135, 92),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "nfsservctl": (180, 42),
    "remap_file_pages": (216, 234),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "get_mempolicy": (239, 236),
    # the machine
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "iopl": (172, None),
    "ioperm": (173, None),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "setgroups": (116, 159),
}

# Also blocked where no namespace isolates processes: to start one, to reach others, and what
# Landlock does not cover: owner, mode and times of files.
NO_FORK: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "setpgid": (109, 154),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "truncate": (76, 45),
}

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _IOCTL, _SOCKETPAIR = (56, 220), 435, (16, 29), (53, 199)
_TGKILL, _PRLIMIT, _SETRLIMIT = (234, 131), (302, 261), (160, 164)
_MMAP, _FCNTL, _PRCTL, _SIGACTION = (9, 222), (72, 25), (157, 167), (13, 134)
_NEWER = 463  # calls from here on came after this table was written
_X32 = 0x40000000
_CLONE_THREAD = 0x10000
# every namespace, and CLONE_PTRACE
_CLONE_BARRED = 0x7E020000 | 0x80 | 0x2000
# What is asked of a terminal, and set on any descriptor: TCGETS, TCGETS2, TIOCGPGRP, TIOCGWINSZ,
# FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. Every other one reaches into some driver or file system.
_IOCTLS = (0x5401, 0x802C542A, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ
_FCNTLS_BARRED = (8, 10, 15, 1024, 1026, 1031)
# Locks: F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW. No limit counts them, and on a file that two
# runs see, one tells the other of it. They are granted and kept nowhere: a refusal would break
# programs that lock a file which nobody else has, e.g. a database.
_LOCKS, _FLOCK = (6, 7, 37, 38), (73, 32)
# sendto, recvfrom, sendmmsg, recvmmsg; sendmsg, recvmsg: the flags, by argument
_MESSAGES = {3: ((44, 206), (45, 207), (307, 269), (299, 243)), 2: ((46, 211), (47, 212))}
_OUT_OF_BAND = 1  # which only TCP was made for
_AF_UNIX = 1
_DATAGRAM = 2  # this bit of a socket's type means that messages can be sent to any address
_SHARED, _ANONYMOUS, _HUGE = 0x1, 0x20, 0x40000
_CORE, _CHILD_ENDED = 4, 17
# PR_SET_PDEATHSIG, PR_SET_DUMPABLE (who may count its descriptors), PR_SET_SECCOMP,
# PR_SET_MEMORY_MERGE
_PRCTLS_BARRED = (1, 4, 22, 67)

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_ERROR = 0x00050000
_ENDS = {
    "allow": _ALLOW,
    "refuse": _ERROR | errno.EPERM,
    "missing": _ERROR | errno.ENOSYS,
    "granted": _ERROR,  # no error, and nothing done
    "kill": _KILL,
}
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_Instruction = tuple[int, str | int, str | int, int]  # what to do, where to go if so, if not, with
_LOAD, _RETURN, _EQUAL, _AT_LEAST, _ANY_BIT = 0x20, 0x06, 0x15, 0x35, 0x45


def build(machine: str, own_pid: int | None = None) -> bytes | None:
    """Return the filter as an array of `struct sock_filter`; None for an unknown machine.

    With `own_pid`, no process can be started and no other one signalled.
    """
    if machine not in _MACHINES:
        return None
    column, arch = _MACHINES[machine]
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _ENDS["kill"]),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ENDS["kill"])]
    # clone3 has its flags in memory, where a filter cannot look; libc falls back to clone.
    code += [(_AT_LEAST, 1, 0, _NEWER), (_EQUAL, 0, 1, _CLONE3)]
    code.append((_RETURN, 0, 0, _ENDS["missing"]))
    code += [(_EQUAL, 0, 1, _FLOCK[column]), (_RETURN, 0, 0, _ENDS["granted"])]
    barred = (BARRED | NO_FORK if own_pid is not None else BARRED).values()
    code += _refused([numbers[column] or 0 for numbers in barred if numbers[column] is not None])
    code += _looking_at(_IOCTL[column], 1, _one_of(_IOCTLS))
    code += _looking_at(_SOCKETPAIR[column], 0, [
        (_EQUAL, 0, "refuse", _AF_UNIX), _argument(1), (_ANY_BIT, "refuse", "allow", _DATAGRAM),
    ])  # fmt: skip
    # Shared memory that no process has touched, or that it let go of, is in no one's count.
    code += _looking_at(_MMAP[column], 3, [
        (_ANY_BIT, "refuse", 0, _HUGE), (_ANY_BIT, 0, "allow", _ANONYMOUS),
        (_ANY_BIT, "refuse", "allow", _SHARED),
    ])  # fmt: skip
    # A lease makes whoever opens the file wait; a notification tells of it. Long pipes come out of
    # what all processes of a user have together.
    # An owner is whom the kernel signals.
    code += _looking_at(_FCNTL[column], 1, [
        *((_EQUAL, "granted", 0, lock) for lock in _LOCKS), *_none_of(_FCNTLS_BARRED),
    ])  # fmt: skip
    for argument, calls in _MESSAGES.items():
        for call in calls:
            whether: list[_Instruction] = [(_ANY_BIT, "refuse", "allow", _OUT_OF_BAND)]
            code += _looking_at(call[column], argument, whether)
    code += _looking_at(_PRCTL[column], 0, _none_of(_PRCTLS_BARRED))
    code += _looking_at(_SETRLIMIT[column], 0, [(_EQUAL, "refuse", "allow", _CORE)])
    # Who ignores that children end need not wait for them, and nobody counts the time they took.
    # To ask what is set is fine: the new action is null then, in both halves.
    code += _looking_at(_SIGACTION[column], 0, [
        (_EQUAL, 0, "allow", _CHILD_ENDED), _argument(1), (_EQUAL, 0, "refuse", 0),
        _argument(1, high=True), (_EQUAL, "allow", "refuse", 0),
    ])  # fmt: skip
    thread_only = [(_ANY_BIT, 0, "refuse", _CLONE_THREAD)] if own_pid is not None else []
    code += _looking_at(
        _CLONE[column], 0, [*thread_only, (_ANY_BIT, "refuse", "allow", _CLONE_BARRED)]
    )
    not_core: list[_Instruction] = [(_EQUAL, "refuse", "allow", _CORE)]
    if own_pid is None:
        code += _looking_at(_PRLIMIT[column], 1, not_core)
    else:
        itself: list[_Instruction]
        itself = [(_EQUAL, "allow", 0, own_pid), (_EQUAL, "allow", "refuse", 0)]
        code += _looking_at(_TGKILL[column], 0, itself)
        itself = [(_EQUAL, 1, 0, own_pid), (_EQUAL, 0, "refuse", 0)]
        code += _looking_at(_PRLIMIT[column], 0, [*itself, _argument(1), *not_core])
    return _assemble(code)


def _looking_at(number: int, argument: int, checks: list[_Instruction]) -> list[_Instruction]:
    """Return checks of an argument's low half, none of which falls through."""
    return [(_EQUAL, 0, len(checks) + 1, number), _argument(argument), *checks]


def _refused(numbers: list[int]) -> list[_Instruction]:
    """Return checks of blocked calls; jumps reach 255 instructions, so each 100 have an end."""
    code: list[_Instruction] = []
    for start in range(0, len(numbers), 100):
        few = numbers[start : start + 100]
        code += [(_EQUAL, len(few) - i, 0, number) for i, number in enumerate(few)]
        code += [(_EQUAL, 1, 1, 0), (_RETURN, 0, 0, _ENDS["refuse"])]
    return code


def _one_of(values: tuple[int, ...]) -> list[_Instruction]:
    return [(_EQUAL, "allow", "refuse" if v == values[-1] else 0, v) for v in values]


def _none_of(values: tuple[int, ...]) -> list[_Instruction]:
    return [(_EQUAL, "refuse", "allow" if v == values[-1] else 0, v) for v in values]


def _argument(number: int, high: bool = False) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * number + 4 * high)


def _assemble(code: list[_Instruction]) -> bytes:
    place = {name: len(code) + i for i, name in enumerate(_ENDS)}
    instructions = []
    for i, (operation, yes, no, value) in enumerate(code):
        jumps = [place[j] - i - 1 if isinstance(j, str) else j for j in (yes, no)]
        instructions.append(struct.pack("=HBBI", operation, *jumps, value))
    instructions += [struct.pack("=HBBI", _RETURN, 0, 0, value) for value in _ENDS.values()]
    return b"".join(instructions)
