"""Which of the calls that were recorded as one flat list are one agent's, told by their hash ids.

A call that begins with all that another was sent goes on with it. One that shares less forked, and
is spliced back where nothing longer followed: that was a compaction of the same agent's context.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from workloads.profile import Detection
from workloads.weka import EPSILON, Call, Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The call whose context a chain began with, and how many blocks of it."""

    tail: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One agent's calls, as places in the list they were recorded in."""

    places: tuple[int, ...]
    fork: Fork | None


@dataclass(slots=True, kw_only=True)
class _Growth:
    """Chains being told apart: members, last calls with hash ids, forks, and forks by that call."""

    calls: Sequence[Call]
    members: list[list[int]] = field(default_factory=list)
    tails: list[int | None] = field(default_factory=list)
    forks: list[Fork | None] = field(default_factory=list)
    registered: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


def detect(
    calls: Sequence[Call], detection: Detection, *, preamble: int | None = None
) -> tuple[Chain, ...]:
    """The main chain, then the others in the order of their first calls.

    The call at `preamble` tells nothing, and is added to the main chain in time order.
    """
    growth = _Growth(calls=calls)
    for place in in_time_order(calls, range(len(calls))):
        if place != preamble:
            _place(growth, place)
    spliced = _splice(growth, detection)
    workers = [
        Chain(places=tuple(members), fork=fork)
        for number, (members, fork) in enumerate(zip(growth.members, growth.forks, strict=True))
        if number and number not in spliced
    ]
    workers.sort(key=lambda chain: (calls[chain.places[0]].start, chain.places[0]))
    main = growth.members[0] if growth.members else []
    if preamble is not None:
        main = in_time_order(calls, [*main, preamble])
    return (Chain(places=tuple(main), fork=None), *workers)


def preamble_of(calls: Sequence[Call], detection: Detection) -> int | None:
    """The place of a first call that the session never used again, such as one for its title."""
    if len(calls) < 2:
        return None
    first, *others = in_time_order(calls, range(len(calls)))
    ids = calls[first].hash_ids
    rest = [calls[place].hash_ids for place in others]
    if not len(ids) or any(len(other) and other[0] == ids[0] for other in rest):
        return None
    if calls[first].output > detection.preamble_output and any(
        np.isin(ids, other).any() for other in rest
    ):
        return None
    return first


def groups(
    chains: Sequence[Chain], calls: Sequence[Call], detection: Detection
) -> dict[int, tuple[int, int]]:
    """Group and member numbers of those chains that ran at once and forked from one context.

    `chains` are those of `detect`; the keys are indices into them.
    """
    forked: defaultdict[int, list[tuple[float, int, float, int]]] = defaultdict(list)
    for index, chain in enumerate(chains):
        if chain.fork is not None and chain.fork.depth:
            first = chain.places[0]
            end = max(calls[place].end for place in chain.places)
            forked[chain.fork.tail].append((calls[first].start, first, end, index))
    found = [
        together
        for spans in forked.values()
        for together in _overlapping(sorted(spans))
        if len(together) >= detection.group
    ]
    return {
        index: (group, member)
        for group, together in enumerate(sorted(found))
        for member, (_, _, _, index) in enumerate(together)
    }


def is_aside(chain: Sequence[Call], main: Sequence[Call], detection: Detection) -> bool:
    """Whether the calls are a tool's or a summary's beside the main stream, not an agent's."""
    first = chain[0]
    if len(chain) <= detection.aside_calls:
        peak = max((call.input for call in main), default=0)
        small = first.input < max(detection.aside_input, int(detection.aside_share * peak))
        if small or (bool(main) and first.model != main[0].model):
            return True
    return (
        len(chain) == 1
        and 0 < first.output < detection.reduction_output
        and first.input >= detection.aside_input
        and first.input > detection.reduction_ratio * first.output
    )


def in_time_order(calls: Sequence[Call], places: Iterable[int]) -> list[int]:
    """The places by the starts of their calls, those that start together in file order."""
    return sorted(places, key=lambda place: (calls[place].start, place))


def shared(one: Ids, other: Ids) -> int:
    """How many leading hash ids the two have in common."""
    most = min(len(one), len(other))
    if not most or one[0] != other[0]:
        return 0
    differing = one[:most] != other[:most]
    return int(differing.argmax()) if differing.any() else most


def _place(growth: _Growth, place: int) -> None:
    """Adds the call to the chain that it goes on with, or to a new one."""
    call = growth.calls[place]
    if not len(call.hash_ids):
        if not growth.members:
            _found(growth, place, fork=None, tail=None)
        else:
            growth.members[0].append(place)
        return
    chain = _continued(growth, call)
    if chain is None and growth.members and all(tail is None for tail in growth.tails):
        chain = 0
    if chain is not None:
        growth.members[chain].append(place)
        growth.tails[chain] = place
        return
    fork = _nearest(growth, call)
    if fork is not None:
        growth.registered[fork.tail].append(len(growth.members))
    _found(growth, place, fork=fork, tail=place)


def _found(growth: _Growth, place: int, *, fork: Fork | None, tail: int | None) -> None:
    growth.members.append([place])
    growth.tails.append(tail)
    growth.forks.append(fork)


def _continued(growth: _Growth, call: Call) -> int | None:
    """The chain with the longest context that the call begins with; the first of equal ones."""
    best, longest = None, 0
    for chain, tail in enumerate(growth.tails):
        if tail is None:
            continue
        last = growth.calls[tail]
        blocks = len(last.hash_ids)
        if (
            longest < blocks <= len(call.hash_ids)
            and last.model == call.model
            and last.end <= call.start + EPSILON
            and last.hash_ids[-1] == call.hash_ids[blocks - 1]
            and shared(last.hash_ids, call.hash_ids) == blocks
        ):
            best, longest = chain, blocks
    return best


def _nearest(growth: _Growth, call: Call) -> Fork | None:
    """The context that the call shares most of, the longer and then the earlier of equal ones."""
    best, most = None, (0, 0)
    for tail in growth.tails:
        if tail is None:
            continue
        ids = growth.calls[tail].hash_ids
        depth = shared(ids, call.hash_ids)
        if depth and (depth, len(ids)) > most:
            best, most = tail, (depth, len(ids))
    return None if best is None else Fork(tail=best, depth=most[0])


def _splice(growth: _Growth, detection: Detection) -> set[int]:
    """Joins chains whose context nothing longer followed to what followed it; the joined ones."""
    owners = {place: chain for chain, places in enumerate(growth.members) for place in places}
    queue = list(growth.registered)
    heapify(queue)
    visited: set[int] = set()
    spliced: set[int] = set()
    while queue:
        tail = heappop(queue)
        if tail in visited:
            continue
        visited.add(tail)
        owner = owners[tail]
        if growth.tails[owner] != tail:
            continue
        forks = [chain for chain in growth.registered[tail] if chain not in spliced]
        elected = _elected(growth, forks, growth.calls[tail], detection)
        if elected is None:
            continue
        growth.members[owner] += growth.members[elected]
        owners |= dict.fromkeys(growth.members[elected], owner)
        spliced.add(elected)
        end = growth.tails[owner] = growth.tails[elected]
        assert end is not None
        if _rekey(growth, [chain for chain in forks if chain != elected], end):
            visited.discard(end)
            heappush(queue, end)
    return spliced


def _elected(growth: _Growth, forks: Sequence[int], tail: Call, detection: Detection) -> int | None:
    """The fork that is the same agent's, if there is one: deepest, then earliest, then first."""
    best, most = None, (0, 0.0, 0)
    for chain in forks:
        first = growth.calls[growth.members[chain][0]]
        fork = growth.forks[chain]
        assert fork is not None
        gap = first.start - tail.end
        stranger = (
            gap > detection.longest_gap and fork.depth / len(tail.hash_ids) < detection.least_share
        )
        if stranger or first.model != tail.model or tail.end > first.start + EPSILON:
            continue
        if best is None or (fork.depth, -first.start, -chain) > most:
            best, most = chain, (fork.depth, -first.start, -chain)
    return best


def _rekey(growth: _Growth, forks: Sequence[int], tail: int) -> bool:
    """Whether any of the forks share something with the new tail, from which they then forked."""
    moved = False
    for chain in forks:
        first = growth.calls[growth.members[chain][0]]
        depth = shared(growth.calls[tail].hash_ids, first.hash_ids)
        if depth:
            growth.forks[chain] = Fork(tail=tail, depth=depth)
            growth.registered[tail].append(chain)
            moved = True
    return moved


def _overlapping(
    spans: Sequence[tuple[float, int, float, int]],
) -> list[list[tuple[float, int, float, int]]]:
    """The spans, by start, in runs of those that overlap; spans that only touch do not."""
    runs: list[list[tuple[float, int, float, int]]] = []
    latest = 0.0
    for span in spans:
        start, _, end, _ = span
        if not runs or start >= latest:
            runs.append([])
            latest = end
        runs[-1].append(span)
        latest = max(latest, end)
    return runs
