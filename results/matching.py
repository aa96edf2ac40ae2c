"""Which cells two sides have in common: one workload under one load, arm against arm."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from results.run import Run, RunPoint
from results.side import Side, within

Points = tuple[RunPoint, ...]
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The points of one cell on both sides, repeats and folders together."""

    base: Points
    other: Points

    @property
    def name(self) -> str:
        """The cell's name without its repeat."""
        return self.base[0].cell.name.rpartition("-r")[0] or self.base[0].cell.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """Cells of base and of other that are as near to each other, so that none has a partner."""

    base: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.base, *self.other)

    def __str__(self) -> str:
        """What cannot be told, and the way out."""
        return (
            f"{' and '.join(self.base)} of base and {' and '.join(self.other)} of other were all "
            "asked the same, and nothing says which of them belong together, so none is compared: "
            "give the experiments the same names in both suites, and run again"
        )


def match(base: Side, other: Side) -> tuple[tuple[Match, ...], tuple[str, ...]]:
    """The cells on both sides, in base's order, and the names of those that only one side has.

    The only arms of two sides are compared, of sides with several those of one name. Cells belong
    together where a repeat of them was sent the very same; else where they were asked the same.
    Those of one name go first; where several are as near, they are in `ties` and in neither here.
    """
    ours, theirs = _cells(base.points), _cells(other.points)
    pairs, tied = _near(base, other, ours, theirs)
    found = tuple(Match(base=ours[one], other=theirs[two]) for one, two in sorted(pairs))
    met = [{pair[side] for pair in pairs | tied} for side in (0, 1)]
    alone = (
        label(points)
        for places, cells in zip(met, (ours, theirs), strict=True)
        for place, points in enumerate(cells)
        if place not in places
    )
    return found, tuple(alone)


def ties(base: Side, other: Side) -> tuple[Tie, ...]:
    """The cells that may be one another, and of which nothing says which are."""
    ours, theirs = _cells(base.points), _cells(other.points)
    groups: dict[tuple[int, ...], list[int]] = {}
    _, tied = _near(base, other, ours, theirs)
    for one in sorted({one for one, _ in tied}):
        groups.setdefault(tuple(sorted(two for first, two in tied if first == one)), []).append(one)
    return tuple(
        Tie(
            base=tuple(label(ours[one]) for one in ones),
            other=tuple(label(theirs[two]) for two in twos),
        )
        for twos, ones in groups.items()
    )


def comparable(run: Run) -> tuple[tuple[tuple[Side, Side], ...], tuple[Side, ...]]:
    """Each arm of a run beside the first one that has a cell in common with it, and arms left over.

    Where no two arms have any, the first one beside each other one, which will be refused. Raises
    InputError as `within` does.
    """
    every = within(run)
    sides = (every[0][0], *(other for _, other in every))
    pairs: list[tuple[Side, Side]] = []
    for place, side in enumerate(sides):
        base = next((one for one in sides[:place] if match(one, side)[0]), None)
        if base is not None:
            pairs.append((base, side))
    used = {id(side) for pair in pairs for side in pair}
    alone = tuple(side for side in sides if id(side) not in used)
    return (tuple(pairs), alone) if pairs else (every, ())


def _cells(points: Iterable[RunPoint]) -> list[Points]:
    """Points that are repeats of one another, in whatever folder."""
    cells: dict[tuple[str, ...], list[RunPoint]] = {}
    for point in points:
        cells.setdefault((point.cell.experiment, point.cell.arm, _asked(point)), []).append(point)
    return [tuple(cell) for cell in cells.values()]


def _asked(point: RunPoint) -> str:
    asked = [point.cell.workload, point.cell.load]
    return orjson.dumps(asked, option=orjson.OPT_SORT_KEYS).decode()


def _near(
    base: Side, other: Side, ours: Sequence[Points], theirs: Sequence[Points]
) -> tuple[set[Pair], set[Pair]]:
    """The places of cells that are each other's only nearest, and of those where several are."""
    near: dict[tuple[bool, bool, bool], set[Pair]] = {}
    known = [(_sent(two), _asked(two[0])) for two in theirs]
    for one, points in enumerate(ours):
        sent, asked = _sent(points), _asked(points[0])
        for two, (others, alike) in enumerate(known):
            apart = not sent & others
            if (not apart or asked == alike) and _arms(base, other, points, theirs[two]):
                renamed = points[0].cell.experiment != theirs[two][0].cell.experiment
                near.setdefault((apart, renamed, asked != alike), set()).add((one, two))
    found: set[Pair] = set()
    tied: set[Pair] = set()
    for distance in sorted(near):
        gone = [{pair[side] for pair in found | tied} for side in (0, 1)]
        left = {
            pair for pair in near[distance] if pair[0] not in gone[0] and pair[1] not in gone[1]
        }
        times = [Counter(pair[side] for pair in left) for side in (0, 1)]
        single = {(one, two) for one, two in left if times[0][one] == times[1][two] == 1}
        found |= single
        tied |= left - single
    return found, tied


def _sent(points: Points) -> set[str]:
    return {point.cell.pairing for point in points}


def _arms(base: Side, other: Side, one: Points, two: Points) -> bool:
    """Whether the arms of the two are to be compared."""
    only = len(base.arms) == len(other.arms) == 1
    return only or one[0].cell.arm == two[0].cell.arm


def label(points: Sequence[RunPoint]) -> str:
    """The cell of these points, repeats left out, with its arm."""
    cell = points[0].cell
    return f"{cell.name.rpartition('-r')[0] or cell.name} ({cell.arm})"
