"""When requests of a window came, against when they were due by their traces and the caps.

What a request follows, its turn before, its spawn or the end of the tree before, is taken from the
server's log of the same client, and so are the idle times after which a cap moves timers up. So
what is late for one turn, or answered late by the server, is not counted again for the next.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from workloads.plan import Plan
from workloads.profile import Profile
from workloads.session import Key
from workloads.start import Start, offset
from workloads.stream import Step as PlanStep
from workloads.stream import Stream

Step = tuple[int, Key]
"""A step of one of the trees of its trace, which are numbered."""

EARLY = 0.010
"""Seconds by which a request may come before it is due; so the window's first one may be late."""

AT_ONCE = 0.02
"""Seconds within which two requests are sent at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request: what its client calls it, and what the server's log says of it."""

    key: Key
    tree: str
    window: bool
    arrived: float
    closed: float
    asked: int
    prompt: int
    cached: int
    messages: tuple[tuple[str, int], ...]
    correlation: str | None

    @property
    def content(self) -> tuple[object, ...]:
        """What must be equal on both sides."""
        return (self.asked, self.prompt, self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one client sent: its primers, the rest of its warm-up, and its window, which began.

    `refused` are the arrivals and ends of requests that the server refused.
    """

    steps: Mapping[Step, Sent]
    primers: frozenset[Step]
    warmup: frozenset[Step]
    window: frozenset[Step]
    began: float
    refused: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """How many seconds after they were due requests came, where that is known.

    `twice` counts how often all timers moved up once more than the rules have it, as the public
    client's do when its watchdog finds nothing in flight in the moment of the next request.
    """

    late: Mapping[Step, float]
    twice: int


class Jump(NamedTuple):
    """All timers, or those of a tree, moved up; not known by how much where `seconds` is None."""

    moment: float
    seconds: float | None
    tree: str | None


class Due(NamedTuple):
    """When a timer began and when it ends, and until when its request waits for others."""

    since: float
    timer: float | None
    held: float = -inf


def moments(
    one: Side, lanes: Sequence[Start], plans: Mapping[str, Plan], profile: Profile
) -> Moments:
    """Those of a side whose lanes began so.

    Its idle times say where a cap moved timers up, as the rules have it.
    """
    idle, opening = _idle_of(one), _offsets(one, lanes, plans)
    jumps: list[Jump] = []
    late, twice = {}, 0
    for step in sorted(one.window, key=lambda step: one.steps[step].arrived):
        sent = one.steps[step]
        due = _due(one, step, plans, profile, opening)
        timer = due.timer
        for jump in jumps:
            if due.since <= jump.moment < sent.arrived and jump.tree in {None, sent.tree}:
                timer = _earlier(timer, jump)
        caps = {None: profile.system_idle_cap, sent.tree: profile.tree_idle_cap or inf}
        for tree, cap in caps.items():
            limit = idle[tree].get(sent.arrived, inf) + cap
            if sent.arrived > limit - EARLY and (timer is None or timer > limit):
                jumps.append(Jump(limit, None if timer is None else timer - limit, tree))
                timer = _earlier(timer, jumps[-1])
        if timer is not None and (second := _again(jumps, sent, max(timer, due.held))):
            jumps.append(second)
            timer, twice = _earlier(timer, second), twice + 1
        if timer is not None:
            late[step] = sent.arrived - max(timer, due.held)
    return Moments(late=late, twice=twice)


def _again(jumps: Sequence[Jump], sent: Sent, due: float) -> Jump | None:
    """The second move of all timers that a request shows which is early right after a first."""
    last = next((jump.moment for jump in reversed(jumps) if jump.tree is None), -inf)
    if due - sent.arrived < AT_ONCE or sent.arrived - last > AT_ONCE:
        return None
    return Jump(last, due - last, None)


def _earlier(timer: float | None, jump: Jump) -> float | None:
    if timer is None or jump.seconds is None:
        return None
    return max(jump.moment, timer - jump.seconds)


def _idle_of(one: Side) -> dict[str | None, dict[float, float]]:
    """Since when nothing of a tree had been in flight at an arrival; under None, nothing at all."""
    everything = [*one.refused, *((sent.arrived, sent.closed) for sent in one.steps.values())]
    trees: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for sent in one.steps.values():
        trees[sent.tree].append((sent.arrived, sent.closed))
    found: dict[str | None, dict[float, float]] = {None: _idle(everything, one.began)}
    for tree, spans in trees.items():
        found[tree] = _idle(spans, max(one.began, min(spans)[0]))
    return found


def _idle(spans: Iterable[tuple[float, float]], began: float) -> dict[float, float]:
    """Since when nothing had been in flight at an arrival."""
    busy, found = began, {}
    for arrived, closed in sorted(spans):
        if arrived > busy:
            found[arrived] = busy
        busy = max(busy, closed)
    return found


def _due(
    one: Side,
    step: Step,
    plans: Mapping[str, Plan],
    profile: Profile,
    opening: Mapping[Step, float],
) -> Due:
    """When a step is due by its trace after what it follows, or after the window's start."""
    tree, key = step
    plan = plans[key.stream.partition("::")[0]]
    stream = plan.stream(key.stream)
    own = stream.steps[key.turn]
    since = _since(one, step, stream)
    delay = own.delay if key.turn else stream.offset
    joins = _ends(one, tree, (plan.stream(name).steps[-1].key for name in own.joins))
    held = max(joins, _ends(one, tree, own.after))
    known = since >= one.began or step in opening
    if since < one.began:
        since, delay = one.began, opening.get(step, 0.0)
    if joins > since and not profile.joins_keep_delay:
        delay, known = 0.0, True
    return Due(since, since + delay if known else None, held)


def _ends(one: Side, tree: int, keys: Iterable[Key]) -> float:
    """When the last of those steps had ended that were sent."""
    found = (one.steps.get((tree, key)) for key in keys)
    return max((sent.closed for sent in found if sent), default=-inf)


def _tree_before(one: Side, step: Step) -> float:
    """When the last of the trees, or a refused request, had ended before a tree began."""
    ends: dict[str, float] = {}
    for sent in one.steps.values():
        ends[sent.tree] = max(sent.closed, ends.get(sent.tree, -inf))
    before = [*ends.values(), *(closed for _, closed in one.refused)]
    return max((end for end in before if end <= one.steps[step].arrived), default=-inf)


def _offsets(one: Side, lanes: Sequence[Start], plans: Mapping[str, Plan]) -> dict[Step, float]:
    """How long after the window's first request the steps are due with which streams go on.

    Trees with the same primers began in the order of their numbers, the latest moment first.
    """
    primed: defaultdict[tuple[str, int], set[Key]] = defaultdict(set)
    for number, key in sorted(one.steps):
        trace = key.stream.partition("::")[0]
        primed[trace, number] |= {key} if (number, key) in one.primers else set()
    alike: defaultdict[tuple[str, frozenset[Key]], list[int]] = defaultdict(list)
    for (trace, number), keys in primed.items():
        alike[trace, frozenset(keys)].append(number)
    found, free = {}, []
    for (trace, begun), numbers in alike.items():
        plan = plans[trace]
        for number, moment in zip(numbers, _began(plan, begun, len(numbers), lanes), strict=False):
            openings = list(_openings(one, plan, number))
            live = {step.key.stream for step in openings}
            for step in openings:
                found[number, step.key] = offset(step, moment)
                if live.isdisjoint(step.joins):
                    free.append(found[number, step.key])
    first = min(free, default=0.0)
    return {step: max(0.0, seconds - first) for step, seconds in found.items()}


def _openings(one: Side, plan: Plan, number: int) -> Iterator[PlanStep]:
    """The steps with which the streams of a tree go on when the window opens."""
    for stream in plan.streams:
        sent = [(step, one.steps.get((number, step.key))) for step in stream.steps]
        warm = [step.key.turn for step, found in sent if found and not found.window]
        first = [step for step, found in sent if found][:1]
        if warm:
            yield from stream.steps[max(warm) + 1 : max(warm) + 2]
        elif first and _since(one, (number, first[0].key), stream) < one.began:
            yield first[0]


def _since(one: Side, step: Step, stream: Stream) -> float:
    """When the timer of a step began that its stream begins with, or goes on with."""
    tree, key = step
    if key.turn:
        before = one.steps.get((tree, Key(key.stream, key.turn - 1)))
        return before.closed if before else -inf
    if stream.spawn is None:
        return _tree_before(one, step)
    spawn = one.steps.get((tree, stream.spawn))
    return -inf if spawn is None else spawn.arrived if stream.early else spawn.closed


def _began(plan: Plan, primers: Set[Key], trees: int, lanes: Sequence[Start]) -> list[float]:
    """The moments of the recording at which trees began that had those primers, if known."""
    if not primers:
        return [plan.main.steps[0].call.start] * trees
    alike = [
        lane.moment
        for lane in lanes
        if lane.trace == plan.trace and primers == {primer.key for primer in lane.primers}
    ]
    return sorted(alike, reverse=True) if len(alike) == trees else []
