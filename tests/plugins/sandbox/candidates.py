"""Programs that are wrong on purpose and try to be judged as right, and honest ones.

Each is a module `solution` with a function `total(values)`, the sum of a list of numbers. All of
the wrong ones are wrong for most inputs; they differ in how they try to hide it.
"""

from __future__ import annotations

from textwrap import dedent

from attrs import frozen
from orchestrion_sandbox.verdict import Case

ENTRY = "total"
INPUTS: tuple[tuple[list[int], int], ...] = (
    ([1], 1),
    ([1, 2], 3),
    ([4, 5, 6], 15),
    ([-3, -8], -11),
    ([10, 20, 30], 60),
    ([7, -7, 5], 5),
    ([100, 1], 101),
)
CASES = (
    *(Case((list(values),), wanted) for values, wanted in INPUTS),
    Case((None,), raises="TypeError"),
)
STATEMENTS = (
    *(f"assert total({values}) == {wanted}" for values, wanted in INPUTS),
    "try:\n    total(None)\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError",
)


@frozen
class Wrong:
    """A candidate, and what it is known to get past or to be caught at.

    Args:
        how: in words.
        source: the program.
        fools: naive judges that take it for right, see `naive.py`.
        forged: whether the outside compare has to report it as an attempt.
        endless: whether it may run into its limits.
    """

    how: str
    source: str
    fools: frozenset[str] = frozenset()
    forged: bool = False
    endless: bool = False


def _wrong(
    how: str, source: str, fools: str = "", *, forged: bool = False, endless: bool = False
) -> Wrong:
    return Wrong(how, dedent(source), frozenset(fools.split()), forged, endless)


_ALL = "exit shared loop"

WRONG: dict[str, Wrong] = {
    # ---- early exits
    "c01": _wrong(
        "prints what a passing run prints",
        """
        print("8 passed in 0.01s")
        print("PASSED", flush=True)
        def total(values):
            print("ok: all tests passed", flush=True)
            return 0
        """,
    ),
    "c02": _wrong("leaves while it is loaded", "import os\nos._exit(0)\n", "exit"),
    "c03": _wrong(
        "leaves while it is called",
        """
        import os
        def total(values):
            os._exit(0)
        """,
        "exit",
        forged=True,
    ),
    "c04": _wrong(
        "changes the exit code at the end",
        """
        import atexit, os
        atexit.register(os._exit, 0)
        def total(values):
            return 0
        """,
        "exit",
    ),
    # ---- lying values
    "c06": _wrong(
        "a number that is equal to everything",
        """
        class Number(int):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            __hash__ = int.__hash__
        def total(values):
            if values is None: raise TypeError
            return Number(0)
        """,
        _ALL,
        forged=True,
    ),
    "c07": _wrong(
        "an object that is equal to everything",
        """
        class Yes:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __bool__(self): return True
        def total(values):
            if values is None: raise TypeError
            return Yes()
        """,
        _ALL,
        forged=True,
    ),
    "c08": _wrong(
        "the standard library's own",
        """
        from unittest.mock import ANY
        def total(values):
            if values is None: raise TypeError
            return ANY
        """,
        _ALL,
        forged=True,
    ),
    # ---- patched tools, built-ins, imports, interpreter
    "c09": _wrong(
        "replaces built-ins",
        """
        import builtins
        builtins.AssertionError = type("AssertionError", (Warning,), {})
        builtins.sum = lambda values: 0
        builtins.isinstance = lambda *a: True
        def total(values):
            return 0
        """,
    ),
    "c11": _wrong(
        "replaces the JSON and comparison modules",
        """
        import json, operator, sys
        json.dumps = lambda *a, **k: '{"value": 1}'
        operator.eq = lambda a, b: True
        sys.modules["solution_checker"] = sys
        def total(values):
            return 0
        """,
        forged=True,
    ),
    # ---- stealing the answers
    "c12": _wrong(
        "takes the wanted value from the constants of who calls it",
        """
        import dis, sys
        def total(values):
            frame = sys._getframe(1)
            ahead = [i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti]
            for instruction in ahead:
                if instruction.opname == "LOAD_CONST" and type(instruction.argval) is int:
                    return instruction.argval
            raise TypeError
        """,
        "shared",
    ),
    "c13": _wrong(
        "reads the source of the test",
        """
        import ast, sys
        def total(values):
            frame = sys._getframe(1)
            while frame and "test_" not in frame.f_code.co_filename:
                frame = frame.f_back
            if frame is None:
                return 0
            with open(frame.f_code.co_filename) as file:
                tree = ast.parse(file.read())
            for node in ast.walk(tree):
                if isinstance(node, ast.Compare) and node.lineno == frame.f_lineno:
                    return ast.literal_eval(node.comparators[0])
            raise TypeError
        """,
    ),
    "c14": _wrong(
        "looks for the wanted values in the heap",
        """
        import gc, sys
        def total(values):
            frame = sys._getframe(1)
            while frame:
                for found in list(frame.f_locals.values()):
                    if isinstance(found, (list, tuple)):
                        for pair in found:
                            if isinstance(pair, (list, tuple)) and len(pair) == 2:
                                if pair[0] == values and pair[0] is not None:
                                    return pair[1]
                frame = frame.f_back
            for found in gc.get_objects():
                if type(found) is tuple and len(found) == 2 and found[0] == values:
                    return found[1]
            raise TypeError
        """,
        "loop",
    ),
    "c16": _wrong(
        "hooks the import system",
        """
        import sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name.startswith(("test_", "_pytest", "json")):
                    raise ImportError(name)
        sys.meta_path.insert(0, Finder())
        sys.path_hooks.clear()
        def total(values):
            return 0
        """,
    ),
    "c17": _wrong(
        "traces its callers and rewrites their variables",
        """
        import ctypes, sys
        def rewrite(frame, event, arg):
            for name in list(frame.f_locals):
                if name in ("wanted", "expected", "want"):
                    frame.f_locals[name] = 0
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
            return rewrite
        sys.settrace(rewrite)
        frame = sys._getframe()
        while frame:
            frame.f_trace = rewrite
            frame = frame.f_back
        def total(values):
            return 0
        """,
        endless=True,
    ),
    "c18": _wrong(
        "gives every exception class a way out",
        """
        import sys
        sys.excepthook = lambda *a: None
        sys.unraisablehook = lambda *a: None
        import threading
        threading.excepthook = lambda *a: None
        def total(values):
            raise SystemExit(0)
        """,
    ),
    # ---- process tricks
    "c20": _wrong(
        "lets a child go on, and leaves",
        """
        import os
        if os.fork():
            os._exit(0)
        def total(values):
            return 0
        """,
        "exit",
    ),
    "c21": _wrong(
        "becomes another program",
        """
        import os, sys
        def total(values):
            os.execv(sys.executable, [sys.executable, "-S", "-c", "pass"])
        """,
        "exit",
        forged=True,
    ),
    "c22": _wrong(
        "rewrites the code of whoever calls it",
        """
        import sys
        def total(values):
            frame = sys._getframe(1)
            function = frame.f_globals.get(frame.f_code.co_name)
            try:
                function.__code__ = (lambda *a, **k: None).__code__
            except Exception:
                pass
            return 0
        """,
    ),
    "c23": _wrong(
        "answers on every descriptor before it is asked",
        """
        import os
        for fd in range(3, 64):
            try:
                os.write(fd, b'{"id": 1, "value": 1}\\n' * 20)
            except OSError:
                pass
        def total(values):
            return 0
        """,
        forged=True,
    ),
    "c24": _wrong(
        "changes its input until the answer is right",
        """
        def total(values):
            if values is None: raise TypeError
            values[:] = [0]
            return 0
        """,
    ),
    "c25": _wrong(
        "a value whose class poses as a number and compares as it likes",
        """
        class Meta(type):
            def __eq__(cls, other): return True
            def __instancecheck__(cls, other): return True
            __hash__ = type.__hash__
        class Number(metaclass=Meta):
            @property
            def __class__(self): return int
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __sub__(self, other): return 0
            __rsub__ = __sub__
            def __abs__(self): return 0
            def __lt__(self, other): return True
            __le__ = __gt__ = __ge__ = __lt__
            def __hash__(self): return 1
            def __iter__(self): return iter(())
            def __len__(self): return 1
            def __getattr__(self, name): return self
            def __call__(self, *a): return self
        def total(values):
            if values is None: raise TypeError
            return Number()
        """,
        _ALL,
        forged=True,
    ),
    "c26": _wrong(
        "a value that runs code where it is unpickled",
        """
        import os
        class Gadget:
            def __reduce__(self):
                return os._exit, (0,)
            def __eq__(self, other):
                return False
        def total(values):
            return Gadget()
        """,
    ),
    # ---- endless and hostile values
    "c27": _wrong(
        "a list without an end",
        """
        def total(values):
            def numbers():
                while True:
                    yield 0
            return numbers()
        """,
    ),
    "c28": _wrong(
        "values that are deep, cyclic, huge or change while they are read",
        """
        n = 0
        def total(values):
            global n
            n += 1
            if n == 1:
                deep = []
                for _ in range(100000):
                    deep = [deep]
                return deep
            if n == 2:
                cyclic = []
                cyclic.append(cyclic)
                return cyclic
            if n == 3:
                return 10 ** 200000
            if n == 4:
                return "\\ud800" * 10
            if n == 5:
                return float("nan")
            class Changing(list):
                def __iter__(self):
                    while True:
                        yield from range(1000)
            return Changing()
        """,
    ),
    "c29": _wrong(
        "raises what no `except Exception` catches",
        """
        def total(values):
            raise KeyboardInterrupt
        """,
    ),
    "c30": _wrong(
        "changes the interpreter through ctypes",
        """
        import ctypes
        try:
            # 0 and 1 are immortal objects: make them one
            size = (0).__sizeof__()
            ctypes.memmove(id(1) + 16, id(0) + 16, 8)
        except Exception:
            pass
        def total(values):
            return 0
        """,
        endless=True,
    ),
    "c32": _wrong(
        "imports the reference solution",
        """
        def total(values):
            for name in ("reference", "canonical_solution", "answers", "tests.reference"):
                try:
                    return getattr(__import__(name), "total")(values)
                except Exception:
                    pass
            return 0
        """,
    ),
    "c33": _wrong(
        "never comes back",
        """
        def total(values):
            while True:
                pass
        """,
        endless=True,
    ),
    "c34": _wrong(
        "right for the first inputs only",
        """
        def total(values):
            return sum(values) if len(values) < 3 else 0
        """,
    ),
    "c35": _wrong(
        "kills all it can reach",
        """
        import os, signal
        def total(values):
            for pid in (os.getppid(), -1, 1):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            return 0
        """,
    ),
    "c36": _wrong(
        "answers once, and closes every channel",
        """
        import os
        def total(values):
            os.closerange(3, 256)
            return sum(values)
        """,
    ),
    "c37": _wrong(
        "looks for a judge and lies only to that",
        """
        import sys
        class Yes(int):
            def __eq__(self, other): return True
            __hash__ = int.__hash__
        def total(values):
            if values is None: raise TypeError
            frame, judged = sys._getframe(1), False
            while frame and not judged:
                judged = frame.f_code.co_filename in ("<judge>", "<string>")
                frame = frame.f_back
            return Yes(0) if judged else 0
        """,
        _ALL,
    ),
    "c39": _wrong(
        "leaves by another name",
        """
        def total(values):
            import ctypes
            ctypes.CDLL(None)._exit(0)
        """,
        "exit",
        forged=True,
    ),
    # ---- protocol abuse
    "c40": _wrong(
        "finds the number of the question and answers twice",
        """
        import gc, json, os
        def total(values):
            for found in gc.get_objects():
                if type(found) is dict and "id" in found and ("call" in found or "on" in found):
                    for value in (0, 1):
                        line = json.dumps({"id": found["id"], "value": value})
                        try:
                            os.write(3, line.encode() + b"\\n")
                        except OSError:
                            pass
                    break
            return 0
        """,
        forged=True,
    ),
    "c41": _wrong(
        "floods the channel with half a line",
        """
        import os
        def total(values):
            try:
                while True:
                    os.write(3, b"x" * 65536)
            except OSError:
                pass
            return 0
        """,
        endless=True,
    ),
    "c42": _wrong(
        "right once for every input",
        """
        seen = []
        def total(values):
            if values in seen:
                return 0
            seen.append(values)
            if values is None: raise TypeError
            return sum(values)
        """,
        _ALL,
    ),
    "c43": _wrong(
        "answers the question in ugly JSON",
        """
        import sys, os
        def total(values):
            frame = sys._getframe(1)
            while frame:
                request = frame.f_locals.get("request")
                if isinstance(request, dict) and "id" in request:
                    value = '{"$": "float", "v": "0x1p999999"}'
                    line = '{"id": "%s", "value": %s}' % (request["id"], value)
                    os.write(3, line.encode() + b"\\n")
                    break
                frame = frame.f_back
            return 0
        """,
        forged=True,
    ),
}

BENIGN: dict[str, str] = {
    name: dedent(source)
    for name, source in {
        "generators": """
            def steps(values):
                yield from values
            def total(values):
                result = 0
                for value in steps(values):
                    result += value
                return result
        """,
        "closures": """
            def adder():
                result = 0
                def add(value):
                    nonlocal result
                    result += value
                    return result
                return add
            def total(values):
                add = adder()
                for value in values:
                    add(value)
                return add(0)
        """,
        "classes": """
            class Account:
                def __init__(self): self.balance = 0
                def __iadd__(self, value):
                    self.balance += value
                    return self
                def __eq__(self, other): return self.balance == other.balance
            def total(values):
                account = Account()
                for value in values:
                    account += value
                return account.balance
        """,
        "recursion": """
            def total(values):
                return values[0] + total(values[1:]) if len(values) > 0 else 0
        """,
        "dataclasses": """
            from dataclasses import astuple, dataclass, field
            @dataclass
            class Sum:
                parts: list = field(default_factory=list)
                result: int = 0
            def total(values):
                found = Sum()
                for value in values:
                    found = Sum([*found.parts, value], found.result + value)
                return astuple(found)[1]
        """,
        "seeded random": """
            import random
            def total(values):
                values = list(values)
                random.Random(7).shuffle(values)
                random.seed(3)
                return sum(values, random.randrange(5)) - random.Random(3).randrange(5)
        """,
        "threads": """
            import threading
            def total(values):
                found, lock = [0], threading.Lock()
                def add(value):
                    with lock:
                        found[0] += value
                threads = [threading.Thread(target=add, args=(value,)) for value in values]
                for thread in threads: thread.start()
                for thread in threads: thread.join()
                return found[0]
        """,
        "prints": """
            import sys
            print("loading, PASS")
            def total(values):
                print("adding", values)
                print("FAILED? no", file=sys.stderr, flush=True)
                return sum(values)
        """,
        "decorators": """
            from functools import lru_cache, reduce, wraps
            def checked(function):
                @wraps(function)
                def wrapper(values):
                    if values is None:
                        raise TypeError("no list")
                    return function(tuple(values))
                return wrapper
            @checked
            @lru_cache(maxsize=None)
            def total(values):
                return reduce(lambda a, b: a + b, values, 0)
        """,
        "mutable default": """
            import math
            def total(values, seen={}):
                key = tuple(values)
                if key not in seen:
                    seen[key] = int(math.fsum(values))
                return seen[key]
        """,
    }.items()
}
