"""The blocks that a cache without limits would have had, if everything was sent when recorded."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from workloads.ceiling import compact, highest
from workloads.plan import Plan
from workloads.session import Key


class Hit(NamedTuple):
    """How many blocks lead a prompt that its trace had sent before, of how many."""

    blocks: int
    total: int


def hits(plan: Plan) -> dict[Key, Hit]:
    """The hit of every step, all streams of the trace sharing one memory, in recorded order."""
    ordered = sorted(
        (step.call.start, step.source.outer, stream.number, step.key, step.call.hash_ids)
        for stream in plan.streams
        for step in stream.steps
    )
    lists = compact([ids for *_, ids in ordered])
    known = np.zeros(1 + highest(lists), np.bool_)
    found = {}
    for (*_, key, _), ids in zip(ordered, lists, strict=True):
        seen = known[ids]
        found[key] = Hit(len(ids) if seen.all() else int(seen.argmin()), len(ids))
        known[ids] = True
    return found


def theoretical(found: Mapping[Key, Hit]) -> float | None:
    """The share of blocks hit over all of them, None where there are none."""
    total = sum(hit.total for hit in found.values())
    return sum(hit.blocks for hit in found.values()) / total if total else None
