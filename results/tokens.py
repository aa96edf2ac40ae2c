"""The input tokens of a few messages of a run, to see that another run was sent the same ones."""

import base64
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.pairing import Requests

KEPT = 16
"""So many messages of a point are kept in a file: two that differ in most do so in these."""

HELD = 4096
"""So many are looked at of a point whose requests are there, to meet most of those kept."""

_BYTES = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tokens:
    """Messages by the key of their request, and the input tokens that the server told of each."""

    keys: NDArray[np.uint64]
    counts: NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """How many messages two runs share, in how many the tokens differ, and an example of those."""

    shared: int
    apart: int
    told: tuple[float, float] | None


def drawn(sent: Requests, most: int) -> Tokens:
    """So many of the requests whose server told their tokens, at most: those of the smallest keys.

    Keys are hashes, so these are drawn at random, and alike from every run of the same requests.
    """
    told = np.flatnonzero(~np.isnan(sent.input))
    keys = sent.keys[told]
    if len(keys) > most:
        chosen = np.argpartition(keys, most)[:most]
        told, keys = told[chosen], keys[chosen]
    order = np.argsort(keys)
    counts = np.rint(sent.input[told[order]]).astype(np.uint32)
    return Tokens(keys=keys[order], counts=counts)


def alike(base: Tokens, other: Tokens) -> Alike:
    """What the messages that both have say."""
    _, one, two = np.intersect1d(base.keys, other.keys, assume_unique=True, return_indices=True)
    before, after = base.counts[one], other.counts[two]
    apart = np.flatnonzero(before != after)
    told = (float(before[apart[0]]), float(after[apart[0]])) if len(apart) else None
    return Alike(shared=len(one), apart=len(apart), told=told)


def packed(tokens: Tokens) -> str:
    """They as one word."""
    raw = tokens.keys.astype("<u8").tobytes() + tokens.counts.astype("<u4").tobytes()
    return base64.b64encode(raw).decode()


def unpacked(word: str) -> Tokens:
    """Those that a word holds. Raises ValueError where it holds none."""
    raw = base64.b64decode(word, validate=True)
    count, rest = divmod(len(raw), _BYTES)
    if rest:
        raise ValueError(f"tokens that cannot be read: {len(raw)} bytes")
    return Tokens(
        keys=np.frombuffer(raw, "<u8", count).astype(np.uint64),
        counts=np.frombuffer(raw, "<u4", count, count * 8).astype(np.uint32),
    )
