"""Named randomness: every draw is a hash of its path from the run's seed.

A key has no state. Two tasks that run in another order, a resumed run and a run at another
concurrency draw the same numbers, because a draw depends on its name alone.
"""

from __future__ import annotations

import random
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final

_UNIT: Final = 2.0**-53
_BITS: Final = 2**53 - 1
_WORDS: Final = Struct("<8Q")


class Key:
    """A name for randomness; `child` gives a name below it.

    Equal seeds and equal paths give equal keys, on every machine. Naming is free: the hash is
    computed when something is drawn.
    """

    __slots__ = ("_digest", "_names", "_parent")

    _digest: bytes | None
    _names: tuple[str | int, ...]
    _parent: Key | None

    def __init__(self, seed: int | bytes = 0) -> None:
        self._names, self._parent = (), None
        if isinstance(seed, bytes):
            self._digest = seed
        else:
            self._digest = blake2b(b"%d" % seed, digest_size=16).digest()

    def child(self, *names: str | int) -> Key:
        """Return the key under this one with the given path, e.g. `key.child("beam", 3)`."""
        new = Key.__new__(Key)
        new._digest, new._names, new._parent = None, names, self
        return new

    @property
    def digest(self) -> bytes:
        """Return the 16 bytes of this key."""
        if self._digest is None:
            assert self._parent is not None
            name = _spelled(*self._names)
            self._digest = blake2b(name, key=self._parent.digest, digest_size=16).digest()
            self._parent = None
        return self._digest

    def integer(self) -> int:
        """Return a 63-bit seed, for the random generator of any library."""
        return int.from_bytes(self.digest[:8], "little") >> 1

    def uniforms(self, n: int) -> list[float]:
        """Return `n` uniform numbers in [0, 1), of 53 bits each."""
        out: list[float] = []
        block = 0
        while len(out) < n:
            words = blake2b(b"%d" % block, key=self.digest, digest_size=64).digest()
            out += [(word >> 11) * _UNIT for word in _WORDS.unpack(words)]
            block += 1
        del out[n:]
        return out

    def uniform(self) -> float:
        """Return a uniform number in [0, 1)."""
        # The upper 53 bits of bytes 8 to 16.
        return (int.from_bytes(self.digest, "little") >> 75 & _BITS) * _UNIT

    def random(self) -> random.Random:
        """Return a standard-library generator seeded by this key (about 10 microseconds)."""
        return random.Random(self.digest)

    def hex(self) -> str:
        """Return the key as text, for records."""
        return self.digest.hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Key({self.digest.hex()[:8]})"


@lru_cache(4096, typed=True)  # the same few paths come back in every episode
def _spelled(*names: str | int) -> bytes:
    """Return a path as bytes; repr distinguishes 3 from "3", and quotes separators in names."""
    return repr(names).encode()
