"""The streams of a trace: its main one, tagged sub-agents, and agents its hash ids give away."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from workloads.chains import Chain, detect, groups, is_aside, preamble_of
from workloads.profile import Detection
from workloads.stream import Kind, Source, Stream, steps
from workloads.weka import BLOCK, Agent, Call, Ids, Trace


class Anchor(NamedTuple):
    """Streams beside the main one: their place among all requests, and when they ran."""

    outer: int
    start: float
    end: float
    tagged: bool
    streams: tuple[Stream, ...]


def streams(trace: Trace, detection: Detection) -> tuple[Stream, tuple[Anchor, ...]]:
    """The main stream, and the others: first those of sub-agents, then those detected.

    A sub-agent without a main call before it is dropped, because nothing spawns it.
    """
    agents = [agent.place for agent in trace.agents]
    before = np.searchsorted(agents, np.arange(len(trace.calls)), side="right")
    sources = [Source(place + int(agents), None) for place, agents in enumerate(before)]
    preamble = preamble_of(trace.calls, detection)
    chains = detect(trace.calls, detection, preamble=preamble)
    places: Sequence[int] = chains[0].places
    if len(chains) == 1:
        places = range(len(trace.calls))
    main = Stream(
        id=trace.id,
        kind="main",
        scope=trace.id,
        preamble=trace.preamble,
        steps=steps(trace.id, [(sources[place], trace.calls[place]) for place in places]),
    )
    tagged = [
        _tagged(trace, agent, detection, agent.place + number)
        for number, agent in enumerate(trace.agents)
        if min(places) < agent.place
    ]
    return main, (*tagged, *_flat(trace, detection, chains, preamble, sources))


def _flat(
    trace: Trace,
    detection: Detection,
    chains: Sequence[Chain],
    preamble: int | None,
    sources: Sequence[Source],
) -> list[Anchor]:
    """The agents that were recorded among the main calls."""
    names = _names(chains, trace.calls, detection, preamble)
    first = _first_ids(chains[0], trace.calls, preamble)
    anchors = []
    for chain, (kind, suffix) in zip(chains[1:], names, strict=True):
        name = f"{trace.id}::{suffix}"
        calls = [trace.calls[place] for place in chain.places]
        stream = Stream(
            id=name,
            kind=kind,
            scope=trace.id,
            preamble=_covered(trace.preamble, first, calls[0]),
            steps=steps(name, [(sources[place], trace.calls[place]) for place in chain.places]),
        )
        outer = sources[chain.places[0]].outer
        end = max(call.end for call in calls)
        anchors.append(Anchor(outer, calls[0].start, end, tagged=False, streams=(stream,)))
    return anchors


def _tagged(trace: Trace, agent: Agent, detection: Detection, outer: int) -> Anchor:
    """A sub-agent, with the agents that were recorded among its calls."""
    calls = agent.calls
    preamble = preamble_of(calls, detection)
    chains = detect(calls, detection, preamble=preamble)
    scope = f"{trace.id}::sa:{agent.id}"
    first = _first_ids(chains[0], calls, preamble)
    names: list[tuple[Kind, str]] = [("sub-agent", scope)]
    names += [
        (kind, f"{scope}:{suffix}") for kind, suffix in _names(chains, calls, detection, preamble)
    ]
    found = []
    for number, (chain, (kind, name)) in enumerate(zip(chains, names, strict=True)):
        inner = [(Source(outer, place), calls[place]) for place in chain.places]
        system = _covered(agent.preamble, first, inner[0][1]) if number else agent.preamble
        found.append(
            Stream(
                id=name,
                kind=kind,
                scope=scope,
                number=number,
                preamble=system,
                steps=steps(name, inner),
            )
        )
    start = min(call.start for call in calls) if agent.start is None else agent.start
    return Anchor(outer, start, agent.end, tagged=True, streams=tuple(found))


def _names(
    chains: Sequence[Chain], calls: Sequence[Call], detection: Detection, preamble: int | None
) -> list[tuple[Kind, str]]:
    """Kind and suffix of every chain but the main one."""
    main = [calls[place] for place in chains[0].places if place != preamble]
    together = groups(chains, calls, detection)
    names: list[tuple[Kind, str]] = []
    for number, chain in enumerate(chains[1:]):
        if is_aside([calls[place] for place in chain.places], main, detection):
            names.append(("aside", f"aux:{number:03d}"))
        elif number + 1 in together:
            group, member = together[number + 1]
            names.append(("worker", f"wg:{group:03d}_{member:03d}"))
        else:
            names.append(("flat agent", f"fa:{number:03d}"))
    return names


def _first_ids(main: Chain, calls: Sequence[Call], preamble: int | None) -> Ids:
    """The hash ids that the main chain began with."""
    ids = (calls[place].hash_ids for place in main.places if place != preamble)
    return next((found for found in ids if len(found)), np.zeros(0, dtype=np.int64))


def _covered(preamble: int, base: Ids, call: Call) -> int:
    """The preamble of a stream, which is 0 unless it begins with the main stream's blocks of it."""
    blocks = ceil(preamble / BLOCK)
    least = min(len(base), len(call.hash_ids))
    same = blocks <= least and np.array_equal(call.hash_ids[:blocks], base[:blocks])
    return preamble if same else 0
