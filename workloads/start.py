"""Where a lane begins in the middle of a trace, as if its session had been under way for long."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workloads.plan import Plan
from workloads.profile import Profile
from workloads.prompt import seed_of
from workloads.session import Key
from workloads.stream import Step, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a stream goes on: with the step `next`, recorded `offset` seconds after the start.

    One that is `waiting` joins streams of its tree that have steps left.
    """

    next: Key
    offset: float
    waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Primer:
    """A step sent once before the start, recorded `lead` seconds before it, to fill the cache."""

    key: Key
    lead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The state of a trace's streams at one moment of its recording.

    `places` are the streams with steps left that had begun, the main one first if it is among them.
    `ended` tells how many leading steps of each stream count as ended, which those after wait for.
    """

    lane: int
    trace: str
    moment: float
    places: tuple[Place, ...]
    ended: Mapping[str, int]
    primers: tuple[Primer, ...]


def starts(
    plans: Iterator[Plan], lanes: int, pool: int, profile: Profile, seed: int
) -> list[Start]:
    """The first start of each lane, from plans without end in the order of their replay.

    A trace with nothing to send after its moment is passed over. There are fewer starts than lanes
    where `pool` different traces give no more.
    """
    found: list[Start] = []
    for _ in range(lanes + 2 * pool):
        if len(found) == lanes:
            break
        plan = next(plans)
        begun = start(plan, len(found), moment(plan, len(found), profile, seed), profile)
        if begun is not None:
            found.append(begun)
    return found


def moment(plan: Plan, lane: int, profile: Profile, seed: int) -> float:
    """The moment of the recording, in seconds, at which a lane starts."""
    times = [step.call.start for step in plan.steps()]
    low, span = min(times), max(times) - min(times)
    earliest = low + profile.start_from * span
    latest = max(earliest, low + profile.start_to * span)
    if earliest == latest:
        return earliest
    random = np.random.default_rng(seed_of(seed, plan.trace, lane))
    return float(random.uniform(earliest, latest))


def start(plan: Plan, lane: int, moment: float, profile: Profile) -> Start | None:
    """The state at a moment of the recording, or None where nothing could be sent."""
    nexts = {stream.id: _next(stream, moment) for stream in plan.streams}
    begun, joins = _begun(plan, nexts, moment)
    root = nexts[plan.trace]
    names = [plan.trace, *begun] if root is not None else begun
    places = tuple(
        Place(
            next=step.key,
            offset=offset(step, moment),
            waiting=name == plan.trace and step.key.turn in joins,
        )
        for name in names
        if (step := nexts[name]) is not None
    )
    if all(place.waiting for place in places):
        return None
    return Start(
        lane=lane,
        trace=plan.trace,
        moment=moment,
        places=places,
        ended={
            stream.id: len(stream.steps) if (step := nexts[stream.id]) is None else step.key.turn
            for stream in plan.streams
        },
        primers=tuple(_primers(plan, places, moment, profile)),
    )


def again(plan: Plan, lane: int) -> Start:
    """The state in which a lane begins a further trace: at its beginning, with nothing to prime."""
    first = plan.main.steps[0]
    return Start(
        lane=lane,
        trace=plan.trace,
        moment=first.call.start,
        places=(Place(next=first.key, offset=0.0),),
        ended={},
        primers=(),
    )


def waits(begun: Sequence[Start]) -> dict[tuple[int, Key], float]:
    """How long after the first primer each lane's are sent, so that their moments coincide."""
    leads = {(start.lane, primer.key): primer.lead for start in begun for primer in start.primers}
    longest = max(leads.values(), default=0.0)
    return {key: longest - lead for key, lead in leads.items()}


def offset(step: Step, moment: float) -> float:
    """When a step is due after warm-up, on the clock of a tree that started at that moment."""
    return max(0.0, step.call.start - moment)


def anchor(places: Iterable[Place], profile: Profile) -> float:
    """What is taken off every offset when the window opens."""
    if not profile.starts_at_first:
        return 0.0
    return min((place.offset for place in places if not place.waiting), default=0.0)


def _begun(
    plan: Plan, nexts: Mapping[str, Step | None], moment: float
) -> tuple[list[str], set[int]]:
    """The streams with steps left whose branch had begun, and the main turns that join them."""
    names: list[str] = []
    joins: set[int] = set()
    root = nexts[plan.trace]
    for branch in plan.branches:
        if moment < branch.start and root is not None and root.key.turn <= branch.spawn:
            continue
        left = [name for name in branch.streams if nexts[name] is not None]
        names += left
        if left and branch.join is not None:
            joins.add(branch.join)
    return names, joins


def _primers(
    plan: Plan, places: Iterable[Place], moment: float, profile: Profile
) -> Iterator[Primer]:
    """The last step before the start of every stream that has one."""
    for place in places:
        if place.next.turn:
            before = plan.stream(place.next.stream).steps[place.next.turn - 1]
            lead = moment - before.call.start
            yield Primer(key=before.key, lead=min(lead, profile.system_idle_cap))


def _next(stream: Stream, moment: float) -> Step | None:
    """The first step recorded at or after the moment."""
    return next((step for step in stream.steps if step.call.start >= moment), None)
