"""What is random in the simulated engine, each draw a pure function of what it belongs to."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from workloads.prompt import seed_of

_BLOCK = 4096


def noise(seed: int, deviation: float, first: int, steps: int) -> NDArray[np.float64]:
    """Factors of mean 1 and relative standard deviation `deviation` for steps `first` onwards.

    A step's factor depends on the seed and its index alone, so planning it again changes nothing.
    """
    blocks = range(first // _BLOCK, (first + steps - 1) // _BLOCK + 1)
    factors = np.concatenate([_factors(seed, deviation, block) for block in blocks])
    return factors[first % _BLOCK :][:steps]


@lru_cache(maxsize=256)
def _factors(seed: int, deviation: float, block: int) -> NDArray[np.float64]:
    random = np.random.Generator(np.random.Philox(key=[seed, block]))
    variance = np.log1p(deviation**2)
    factors: NDArray[np.float64] = np.exp(
        np.sqrt(variance) * random.standard_normal(_BLOCK) - variance / 2
    )
    return factors


def delivered(seed: int, request: str, output: int, drafts: int, rate: float) -> NDArray[np.int64]:
    """How many tokens a request has got after 0, 1, 2 ... decode steps, if each were full.

    A step delivers one token and the draft tokens before the first rejected one; each is accepted
    with probability `rate`. Long enough for `output` tokens.
    """
    if not drafts:
        return np.arange(output + 1, dtype=np.int64)
    random = np.random.Generator(np.random.Philox(key=seed_of(seed, request)))
    rejected = random.random((output, drafts)) >= rate
    accepted = np.where(rejected.any(axis=1), rejected.argmax(axis=1), drafts)
    total = np.zeros(output + 1, dtype=np.int64)
    np.cumsum(1 + accepted, out=total[1:])
    return total


def acceptance_rate(drafts: int, length: float) -> float:
    """The chance of each draft token for which a step delivers `length` tokens on average.

    Solves 1 + p + p**2 + ... + p**drafts = length by halving.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**power for power in range(drafts + 1)) < length:
            low = middle
        else:
            high = middle
    return high
