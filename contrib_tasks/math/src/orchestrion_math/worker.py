"""A process that compares expressions, so that a hostile one can only end this process.

A line in is a JSON list [given, wanted, seconds]; a line out is `true` or `false`. LaTeX is read by
a grammar, and nothing is evaluated as a program. When the seconds of processor time are used up,
the kernel ends the process, even during the computation of one huge power.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import signal
import sys
from typing import Any

MEMORY = 2 << 30
_EQUALS = re.compile(r"(?<![\\<>!:=])=(?!=)")


def main() -> None:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    compare("1", "1")
    print("ready", flush=True)
    for line in sys.stdin:
        given, wanted, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            equal = compare(given, wanted)
        # The library raises whatever a strange expression makes it raise.
        except Exception:
            equal = False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(equal), flush=True)


def compare(given: str, wanted: str) -> bool:
    """Return whether two LaTeX expressions are equal.

    An equation, or a chain of them, is given for its last side, if no other side contradicts it: a
    side with unknowns that the wanted expression does not have may be its name.
    """
    from latex2sympy2_extended import (  # type: ignore[import-untyped]
        NormalizationConfig,
        normalize_latex,
    )
    from sympy import Expr  # type: ignore[import-untyped]

    logging.disable(logging.CRITICAL)
    # The units that the library can leave out are also letters: it would read 2t as 2.
    config = NormalizationConfig(malformed_operators=True, nits=True)
    given, wanted = normalize_latex(given, config), normalize_latex(wanted, config)
    *names, value = map(_read, [given] if "=" in wanted else _EQUALS.split(given))
    goal = _read(wanted)
    return _equal(value, goal) and all(
        isinstance(name, Expr) and (_unknowns(name) - _unknowns(goal) or _equal(name, goal))
        for name in names
    )


def _read(text: str) -> Any:
    """Return a LaTeX expression as one of sympy; raise an exception if it is none."""
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import (  # type: ignore[import-untyped]
        ConversionConfig,
    )
    from math_verify.grader import should_treat_as_complex  # type: ignore[import-untyped]

    return latex2sympy(
        text,
        is_real=not should_treat_as_complex(text),
        normalization_config=None,
        conversion_config=ConversionConfig(lowercase_symbols=False),
    )


def _equal(value: Any, goal: Any) -> bool:
    from math_verify import verify  # type: ignore[import-untyped]
    from sympy import Symbol

    if isinstance(value, Symbol) or isinstance(goal, Symbol):
        return bool(value == goal)  # the library takes E for e, and X_1 for x_1
    # Decimals count to 12 places: 1.41 is not the root of 2. Time is limited from outside: the
    # library's own alarm cannot stop a single long step.
    return bool(verify(goal, value, float_rounding=12, timeout_seconds=None))


def _unknowns(expression: Any) -> set[Any]:
    from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]

    return {*expression.free_symbols, *expression.atoms(AppliedUndef)}


if __name__ == "__main__":
    main()
