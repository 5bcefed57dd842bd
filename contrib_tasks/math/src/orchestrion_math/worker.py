"""A process that compares expressions, so that a hostile one can only end this process.

A line in is a JSON list [given, wanted, seconds]; a line out is `true` or `false`. LaTeX is read by
a grammar, and nothing is evaluated as a program. When the seconds of processor time are used up,
the kernel ends the process, even during the computation of one huge power.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys

MEMORY = 2 << 30


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
    """Return whether two LaTeX expressions are equal."""
    from math_verify import (  # type: ignore[import-untyped]
        LatexExtractionConfig,
        parse,
        verify,
    )

    logging.disable(logging.CRITICAL)
    # Time is limited from outside: the library's own alarm cannot stop a single long step.
    left, right = (
        [
            expression
            for expression in parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None)
            if not isinstance(expression, str)
        ]
        for text in (given, wanted)
    )
    # Decimals count to 12 places: 1.41 is not the root of 2.
    equal = verify(right, left, float_rounding=12, timeout_seconds=None)
    return bool(left and right and equal)


if __name__ == "__main__":
    main()
