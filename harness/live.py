"""A session tree under way: which of its streams have begun, how far they are, who waits."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from workloads.prompt import seed_of
from workloads.replay import Replay
from workloads.start import Place, Start, offset
from workloads.stream import Step, Stream


@dataclass(slots=True, kw_only=True)
class Live:
    """One tree in a lane; its streams are named, `done` counts their steps that have ended.

    `live` are the streams that have begun and have steps left, of which those in `flying` are being
    answered. `over` are those of which nothing more will be sent. `held` are those whose next step
    has fallen due, when it did, and that wait for others; None where only the others say when.
    `idle` is since when nothing of the tree is in flight, and `hurried` that this was too long.
    `moment` is the recorded moment at which its clock starts, `seen` are the prefixes it has sent.
    """

    replay: Replay
    number: int
    lane: int
    salt: int
    moment: float
    streams: dict[str, Stream]
    done: dict[str, int]
    live: dict[str, None]
    over: set[str]
    flying: set[str] = field(default_factory=set)
    held: dict[str, float | None] = field(default_factory=dict)
    idle: float | None = None
    hurried: bool = False
    seen: set[int] = field(default_factory=set)

    @property
    def trace(self) -> str:
        """The trace that it replays."""
        return self.replay.plan.trace

    def step(self, stream: str) -> Step:
        """The next step of a stream, or the one that is being answered."""
        return self.streams[stream].steps[self.done[stream]]


def begin(replay: Replay, start: Start, *, number: int, text: str) -> Live:
    """The tree of a replay as its start says; all its prompts share the marker `text`."""
    streams = {stream.id: stream for stream in replay.plan.streams}
    done = {name: start.ended.get(name, 0) for name in streams}
    return Live(
        replay=replay,
        number=number,
        lane=start.lane,
        salt=seed_of(text),
        moment=start.moment,
        streams=streams,
        done=done,
        live=dict.fromkeys(place.next.stream for place in start.places),
        over={name for name, stream in streams.items() if done[name] == len(stream.steps)},
    )


def joined(tree: Live, step: Step) -> bool:
    """Whether all streams that a step joins are over."""
    return all(name in tree.over for name in step.joins)


def ready(tree: Live, step: Step) -> bool:
    """Whether nothing holds a step back."""
    return joined(tree, step) and all(
        key.stream in tree.over or tree.done[key.stream] > key.turn for key in step.after
    )


def end(tree: Live, stream: str) -> None:
    """Counts the step that was being answered, whatever became of it."""
    tree.flying.discard(stream)
    tree.done[stream] += 1
    if tree.done[stream] == len(tree.streams[stream].steps):
        stop(tree, stream)


def stop(tree: Live, stream: str) -> None:
    """Ends a stream for good; with the main one, also those that it would have spawned."""
    tree.flying.discard(stream)
    tree.live.pop(stream, None)
    tree.over.add(stream)
    if stream == tree.trace:
        tree.over.update(name for name in tree.streams if name not in tree.live)


def spawned(tree: Live, names: Iterable[str], *, early: bool) -> list[Stream]:
    """The streams of those names that begin now: when their spawning step is sent, or has ended."""
    found = [tree.streams[name] for name in names if tree.streams[name].early == early]
    fresh = [stream for stream in found if stream.id not in tree.live | dict.fromkeys(tree.over)]
    tree.live |= dict.fromkeys(stream.id for stream in fresh)
    return fresh


def released(tree: Live) -> list[str]:
    """The streams held back whose step may go now, in the order of their names."""
    return sorted(name for name in tree.held if ready(tree, tree.step(name)))


def places(tree: Live) -> tuple[Place, ...]:
    """Where each stream goes on when the window opens, on the tree's clock."""
    found = []
    for name in tree.live:
        step = tree.step(name)
        due = offset(step, tree.moment)
        found.append(Place(next=step.key, offset=due, waiting=not joined(tree, step)))
    return tuple(found)
