"""Recorded calls in the order in which one agent made them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from workloads.session import Key
from workloads.weka import Call

Kind = Literal["main", "sub-agent", "flat agent", "worker", "aside"]


class Source(NamedTuple):
    """Which of a trace's requests a step is: its place, and that within its sub-agent."""

    outer: int
    inner: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request of a stream, with times in seconds of the recording.

    It is due `delay` after the step before ended, and held until every stream of `joins` and every
    step of `after` has ended, whatever became of them. `spawns` are the streams that it begins.
    """

    key: Key
    source: Source
    call: Call
    delay: float
    spawns: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    after: tuple[Key, ...] = ()

    @property
    def output(self) -> int:
        """The tokens to ask for."""
        return max(1, self.call.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Steps that follow one another; those of one scope wait for one another across streams.

    A stream other than the main one begins `offset` seconds after the step `spawn` has ended, or
    where it began `early`, while that step still ran, after that step was sent. `number` is its
    place among the streams of one sub-agent. `preamble` is the tokens of its system message.
    """

    id: str
    kind: Kind
    scope: str
    preamble: int
    steps: tuple[Step, ...]
    number: int = 0
    spawn: Key | None = None
    early: bool = False
    offset: float = 0.0

    @property
    def depth(self) -> int:
        """0 for the main stream, 1 for those it spawns."""
        return int(self.kind != "main")


def steps(stream: str, calls: Sequence[tuple[Source, Call]]) -> tuple[Step, ...]:
    """The calls as the steps of a stream, each with its delay after the one before."""
    found = []
    before: Call | None = None
    for turn, (source, call) in enumerate(calls):
        delay = 0.0 if before is None else _delay(before, call)
        found.append(Step(key=Key(stream, turn), source=source, call=call, delay=delay))
        before = call
    return tuple(found)


def _delay(before: Call, call: Call) -> float:
    """The idle time between a call's end and the next one's start."""
    gap = call.start * 1000.0 - before.start * 1000.0
    return max(0.0, gap - before.duration * 1000.0) / 1000.0


def milliseconds(call: Call) -> tuple[float, float]:
    """Start and end of a call as the public clients count them, to the last bit."""
    start = call.start * 1000.0
    return start, start + call.duration * 1000.0
