"""Recorded traces made by hand, and the published example."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workloads.weka import Agent, Call, Trace


def call(start: float, ids: Sequence[int], took: float = 1.0, output: int = 1, **more: Any) -> Call:
    """A recorded call, of whole blocks where nothing else is said."""
    hash_ids = np.array(ids, dtype=np.int64)
    told = {"input": 64 * len(hash_ids), **more}
    return Call(start=start, duration=took, output=output, hash_ids=hash_ids, **told)


def main(*starts: float, took: float = 1.0, output: int = 1) -> list[Call]:
    """A growing stream of calls that start then."""
    return [call(start, range(1, turn + 2), took, output) for turn, start in enumerate(starts)]


def example(name: str = "synth-0001", end: float = 19.5) -> Trace:
    """The published example, of one sub-agent that had ended then."""
    inner = (
        call(11.5, [7, 8], 2.5, 64, model="m-small"),
        call(15.0, [7, 8, 9, 10], 4.5, 128, model="m-small"),
    )
    calls = (
        call(0.0, range(4), 3.1, 90, model="m-large"),
        call(9.0, range(7), 2.0, 40, model="m-large"),
        call(21.0, [*range(7), 11, 12, 13], 7.0, 300, model="m-large"),
    )
    agent = Agent(id="a", place=2, end=end, preamble=0, calls=inner)
    return Trace(id=name, preamble=0, calls=calls, agents=(agent,))


SUB = "synth-0001::sa:a"
"""The stream of its sub-agent."""
