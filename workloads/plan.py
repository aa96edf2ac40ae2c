"""A recorded trace as the streams that replay it: who spawns whom, who waits for whom, how long."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from workloads.agents import Anchor, streams
from workloads.edges import Interval, edges
from workloads.profile import Profile
from workloads.session import Key
from workloads.stream import Step, Stream, milliseconds
from workloads.weka import EPSILON, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Streams that one main step spawns and one later main step joins, or none does.

    `start` is when the first of them was spawned, in seconds of the recording.
    """

    spawn: int
    join: int | None
    start: float
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A trace's streams, the main one first, their branches, and its models by first appearance."""

    trace: str
    streams: tuple[Stream, ...]
    branches: tuple[Branch, ...]
    models: tuple[str, ...]

    @property
    def main(self) -> Stream:
        """The stream that spawns the others."""
        return self.streams[0]

    def stream(self, name: str) -> Stream:
        """The stream of that id."""
        return next(stream for stream in self.streams if stream.id == name)

    def steps(self) -> Iterator[Step]:
        """Every request of the trace once, stream by stream."""
        for stream in self.streams:
            yield from stream.steps

    def model(self, step: Step, served: Sequence[str]) -> str:
        """Which of the served models answers the step: the first one the main stream's first."""
        return served[self.models.index(step.call.model) % len(served)]


def plan(trace: Trace, profile: Profile) -> Plan:
    """The streams of a trace by the rules of the profile."""
    main, anchors = streams(trace, profile.detection)
    branches = _branches(anchors, main)
    others = [stream for anchor in anchors for stream in anchor.streams]
    root = replace(main, steps=_branching(main.steps, branches))
    return Plan(
        trace=trace.id,
        streams=_ordered([root, *_spawned(others, branches, main.steps)]),
        branches=branches,
        models=_models(trace),
    )


def _branches(anchors: Sequence[Anchor], main: Stream) -> tuple[Branch, ...]:
    """The streams found, by the main steps that spawn and join them."""
    found: defaultdict[tuple[bool, int, int | None], list[Anchor]] = defaultdict(list)
    steps = sorted(main.steps, key=lambda step: step.source)
    for anchor in anchors:
        before = (step.key.turn for step in steps if step.source.outer < anchor.outer)
        spawn = max(before, default=0)
        later = (
            step.key.turn
            for step in steps
            if step.source.outer > anchor.outer and step.call.start + EPSILON >= anchor.end
        )
        join = next(later, None)
        # Steps out of time order may join before they spawn, which nothing could replay.
        kept = join if join is not None and join > spawn else None
        found[anchor.tagged, spawn, kept].append(anchor)
    return tuple(
        Branch(
            spawn=spawn,
            join=join,
            start=min(anchor.start for anchor in together),
            streams=tuple(stream.id for anchor in together for stream in anchor.streams),
        )
        for (_, spawn, join), together in found.items()
    )


def _branching(steps: Sequence[Step], branches: Sequence[Branch]) -> tuple[Step, ...]:
    """The main steps with what they spawn and join."""
    spawns: defaultdict[int, list[str]] = defaultdict(list)
    joins: defaultdict[int, list[str]] = defaultdict(list)
    for branch in branches:
        spawns[branch.spawn] += branch.streams
        if branch.join is not None:
            joins[branch.join] += branch.streams
    return tuple(
        replace(step, spawns=tuple(spawns[turn]), joins=tuple(joins[turn]))
        for turn, step in enumerate(steps)
    )


def _spawned(
    found: Sequence[Stream], branches: Sequence[Branch], main: Sequence[Step]
) -> Iterator[Stream]:
    """The streams with the step that begins each, and how long after."""
    origins = {name: branch for branch in branches for name in branch.streams}
    for stream in found:
        branch = origins[stream.id]
        spawn = main[branch.spawn]
        start, end = milliseconds(spawn.call)
        early = branch.start * 1000.0 < end and start < end
        since = start if early else branch.start * 1000.0
        offset = max(0.0, stream.steps[0].call.start * 1000.0 - since) / 1000.0
        yield replace(stream, spawn=spawn.key, early=early, offset=offset)


def _ordered(found: Sequence[Stream]) -> tuple[Stream, ...]:
    """The streams with the steps of others in their scope that each step waits for."""
    scopes: defaultdict[str, list[Interval]] = defaultdict(list)
    for stream in found:
        for step in stream.steps:
            start, end = milliseconds(step.call)
            scopes[stream.scope].append(Interval(end=end, start=start, key=step.key))
    after: dict[Key, tuple[Key, ...]] = {}
    for intervals in scopes.values():
        after |= edges(intervals)
    after |= dict.fromkeys(_stuck(found, after), ())
    return tuple(
        replace(stream, steps=tuple(replace(step, after=after[step.key]) for step in stream.steps))
        for stream in found
    )


def _stuck(found: Sequence[Stream], after: Mapping[Key, Sequence[Key]]) -> set[Key]:
    """The steps that would never be sent, which takes a recording that is out of order."""
    lasts = {stream.id: stream.steps[-1].key for stream in found}
    waits: dict[Key, set[Key]] = {}
    for stream in found:
        before = stream.spawn
        for step in stream.steps:
            waits[step.key] = {*after[step.key], *(lasts[name] for name in step.joins)}
            if before is not None:
                waits[step.key].add(before)
            before = step.key
    sorter = TopologicalSorter(waits)
    with suppress(CycleError):
        sorter.prepare()
        return set()
    stuck = set(waits)
    while ready := sorter.get_ready():
        stuck.difference_update(ready)
        sorter.done(*ready)
    return stuck


def _models(trace: Trace) -> tuple[str, ...]:
    """The models in the order of their first requests, that of the first main one first."""
    names = [trace.calls[0].model]
    place = 0
    for agent in trace.agents:
        names += [call.model for call in trace.calls[place : agent.place]]
        names += [call.model for call in agent.calls]
        place = agent.place
    return tuple(dict.fromkeys([*names, *(call.model for call in trace.calls[place:])]))
