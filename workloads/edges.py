"""Which turns of other streams had ended before a turn began, in the recording."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workloads.session import Key


class Interval(NamedTuple):
    """When a recorded turn ran, ordered by its end; times in milliseconds, as the rules count."""

    end: float
    start: float
    key: Key


def edges(intervals: Sequence[Interval]) -> dict[Key, tuple[Key, ...]]:
    """The turns that each waits for, of streams other than its own: the last one of each.

    A turn waits for those that began before it and had ended when it began, less those that
    another of them had waited for. Touching is ended; turns that overlap or begin together wait for
    none of one another.
    """
    streams: defaultdict[str, list[Interval]] = defaultdict(list)
    for interval in intervals:
        streams[interval.key.stream].append(interval)
    for ran in streams.values():
        ran.sort()
    return {target.key: _frontier(target, streams) for target in intervals}


def _frontier(target: Interval, streams: Mapping[str, Sequence[Interval]]) -> tuple[Key, ...]:
    ended = [
        last
        for stream, ran in streams.items()
        if stream != target.key.stream and (last := _last(ran, target.start))
    ]
    latest = max((last.start for last in ended), default=0.0)
    return tuple(
        sorted(last.key for last in ended if not (last.end <= latest and last.start < latest))
    )


def _last(ran: Sequence[Interval], moment: float) -> Interval | None:
    """The latest of the intervals that began before the moment and had ended by then."""
    place = bisect_right(ran, moment, key=lambda interval: interval.end) - 1
    while place >= 0 and ran[place].start >= moment:
        place -= 1
    return ran[place] if place >= 0 else None
