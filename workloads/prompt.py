"""Prompts as segments of seeded content, hashed and counted without ever being text."""

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

Role = Literal["system", "user", "assistant"]
Seeds = NDArray[np.uint64]
Counts = NDArray[np.int64]

Tokens = Annotated[int, Ge(1), Le(10_000_000)]
"""A length that a suite may ask for."""

MARKER_TOKENS = 8
"""How many tokens a run's salt takes, so that prompts are equally long under every salt."""


def seed_of(*parts: object) -> int:
    """A 64-bit content seed: the first 8 bytes, big-endian, of sha256 over the parts joined by `:`.

    The rule of the AgentX reference clients for block and tail seeds.
    """
    text = ":".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """What is sent before the answer: segments, each a content seed and a number of tokens.

    Equal seeds at equal places are equal content; a segment's first k tokens are the same
    whatever its length. `marker` is the index of the segment that the salt fills, if there is one.
    `messages` gives role and number of segments in order; empty means one plain text.
    """

    seeds: Seeds
    tokens: Counts
    marker: int | None = None
    messages: tuple[tuple[Role, int], ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens."""
        return int(self.tokens.sum())

    @property
    def hash(self) -> str:
        """16 hex digits that identify the content before any salt."""
        seeds = self.seeds
        if self.marker is not None:
            seeds = seeds.copy()
            seeds[self.marker] = 0
        digest = hashlib.sha256(seeds.tobytes())
        digest.update(self.tokens.tobytes())
        digest.update(repr(self.messages).encode())
        return digest.hexdigest()[:16]

    def salted(self, salt: int) -> "Prompt":
        """The same prompt with the salt as its marker's content; itself where it has no marker."""
        if self.marker is None:
            return self
        seeds = self.seeds.copy()
        seeds[self.marker] = salt
        return replace(self, seeds=seeds)

    def ends(self) -> Counts:
        """The token position after each segment."""
        return np.cumsum(self.tokens)

    def prefix_hashes(self, positions: Counts) -> Seeds:
        """One 64-bit hash for each prefix of `positions` tokens: equal content, equal hash.

        A sum over segments of mixed (seed, start, length), so prefixes cost one cumulative sum;
        two different prefixes collide with a probability of about 2**-64.
        Positions are ascending, within 1..length.
        """
        ends = self.ends()
        starts = ends - self.tokens
        whole = np.concatenate([[np.uint64(0)], np.cumsum(_mix(self.seeds, starts, self.tokens))])
        index = np.searchsorted(ends, positions, side="left")
        part = _mix(self.seeds[index], starts[index], positions - starts[index])
        return whole[index] + part


def marked(*segments: tuple[int, int], messages: tuple[tuple[Role, int], ...] = ()) -> Prompt:
    """A prompt of (seed, tokens) segments whose first tokens are the marker.

    The marker is part of the first segment's tokens, and all of them where they are few.
    """
    (seed, tokens), *rest = segments
    marker = min(MARKER_TOKENS, tokens)
    parts = [(0, marker), *([(seed, tokens - marker)] if tokens > marker else []), *rest]
    return Prompt(
        seeds=np.array([seed for seed, _ in parts], dtype=np.uint64),
        tokens=np.array([tokens for _, tokens in parts], dtype=np.int64),
        marker=0,
        messages=messages,
    )


def _mix(seeds: Seeds, starts: Counts, tokens: Counts) -> Seeds:
    """Splitmix64 finaliser over the three, wrapping."""
    x = seeds + starts.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = _scramble(x) + tokens.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    return _scramble(x)


def _scramble(x: Seeds) -> Seeds:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
