"""What the blocks and tails of a replay hold, and the marker that sets one tree's prompts apart.

Content is cut from a pool of tokens; the places are those of the public clients for equal seeds.
"""

from hashlib import sha256
from random import Random

import numpy as np
from numpy.typing import NDArray

from workloads.prompt import seed_of
from workloads.weka import BLOCK

Tokens = NDArray[np.int64]

MARKER_DIGITS = 12


def base_seed(run_seed: int) -> int:
    """The seed of all block contents of a run."""
    return seed_of(run_seed, "dataset.coding_content.corpus")


def block_seed(base: int, trace: str, hash_id: int) -> int:
    """The seed of one block's content: equal in all streams of a trace, and in no other trace."""
    return seed_of(base, trace, hash_id)


def tail_seed(stream: str, turn: int) -> int:
    """The seed of the tokens of a step that fill no block."""
    return seed_of(stream, f"turn_{turn}", "partial_tail")


def block_start(seed: int, pool: int) -> int:
    """Where in a pool of that many tokens a block begins."""
    # The place must be that of the public clients, who draw it so.
    return Random(seed).randrange(pool)  # noqa: S311


def tail_start(seed: int, tokens: int, pool: int) -> int:
    """Where in a pool a tail of that many tokens begins."""
    return seed % max(pool - tokens, 1)


def cut(pool: Tokens, start: int, tokens: int) -> Tokens:
    """That many tokens of the pool, going on at its beginning where they reach its end."""
    return pool[np.arange(start, start + tokens) % len(pool)]


def block(pool: Tokens, seed: int) -> Tokens:
    """The tokens of a block."""
    return cut(pool, block_start(seed, len(pool)), BLOCK)


def tail(pool: Tokens, seed: int, tokens: int) -> Tokens:
    """The tokens of a tail."""
    return cut(pool, tail_start(seed, tokens, len(pool)), tokens)


def marker(benchmark: str, passed: int, lane: int, trace: str) -> str:
    """The text before the first user message of every prompt of a tree.

    `passed` counts how often the trace had begun before in this run, on whichever lane.
    """
    told = f"{benchmark}:{passed}:{lane}:{trace}"
    return f"[rid:{sha256(told.encode()).hexdigest()[:MARKER_DIGITS]}]\n\n"
