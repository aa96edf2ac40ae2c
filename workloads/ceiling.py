"""The most that a cache could save: input that an earlier request of its session had."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from workloads.weka import BLOCK, Call, Ids, Trace

SPARSE = 16
"""Ids beyond so many times the number of references are renamed before they are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """What one request repeats: `seen` of its recorded `blocks` lead it and had been sent before.

    `agent` is its sub-agent's place in the trace, None in the main stream; `first` says that
    nothing was sent before it.
    """

    agent: int | None
    turn: int
    seen: int
    blocks: int
    input: int
    first: bool = False

    def cached(self, block: int, before: int = 0) -> int:
        """The tokens that an engine with cache blocks of `block` tokens finds at best.

        `before` tokens, the same in the whole session, precede the recorded ones: a marker, a
        template. An engine computes at least the last token, whatever it has cached.
        """
        if self.first:
            return 0
        return min(before + self.seen * BLOCK, before + self.input - 1) // block * block


def reuses(trace: Trace) -> Iterator[Reuse]:
    """What every request repeats, in the order of their starts.

    All streams share one memory; of equal starts the one that stands first in the file is first.
    """
    order = sorted(_placed(trace), key=lambda placed: placed[:3])
    lists = compact([call.hash_ids for _, _, _, _, call in order])
    known = np.zeros(1 + highest(lists), np.bool_)
    for number, ((_, _, turn, agent, call), ids) in enumerate(zip(order, lists, strict=True)):
        found = known[ids]
        known[ids] = True
        yield Reuse(
            agent=agent,
            turn=turn,
            seen=len(ids) if found.all() else int(found.argmin()),
            blocks=len(ids),
            input=call.input,
            first=not number,
        )


def _placed(trace: Trace) -> Iterator[tuple[float, int, int, int | None, Call]]:
    """Each call with its start, the place of its entry in the file, its turn and its agent."""
    before = [agent.place for agent in trace.agents]
    for turn, call in enumerate(trace.calls):
        yield call.start, turn + sum(place <= turn for place in before), turn, None, call
    for number, agent in enumerate(trace.agents):
        for turn, call in enumerate(agent.calls):
            yield call.start, agent.place + number, turn, number, call


def compact(lists: Sequence[Ids]) -> Sequence[Ids]:
    """The same lists, with smaller numbers where theirs are negative or far apart."""
    held = [ids for ids in lists if len(ids)]
    low = min((int(ids.min()) for ids in held), default=0)
    if low >= 0 and highest(lists) <= SPARSE * sum(map(len, held)):
        return lists
    _, renamed = np.unique(np.concatenate(lists), return_inverse=True)
    return np.split(renamed, np.cumsum([len(ids) for ids in lists])[:-1])


def highest(lists: Sequence[Ids]) -> int:
    """The greatest id of all, 0 where there is none."""
    return max((int(ids.max()) for ids in lists if len(ids)), default=0)
