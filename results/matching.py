"""Which cells two sides have in common: one workload under one load, arm against arm."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from results.run import Run, RunPoint
from results.side import Side, within

Points = tuple[RunPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The points of one cell on both sides, repeats and folders together."""

    base: Points
    other: Points

    @property
    def name(self) -> str:
        """The cell's name without its repeat."""
        return self.base[0].cell.name.rpartition("-r")[0] or self.base[0].cell.name


def match(base: Side, other: Side) -> tuple[tuple[Match, ...], tuple[str, ...]]:
    """The cells on both sides, in base's order, and the names of those that only one side has.

    The only arms of two sides are compared, of sides with several those of one name. Cells belong
    together where a repeat of them was sent the very same; else where they were asked the same.
    """
    left = _cells(other.points)
    found, alone = [], []
    for points in _cells(base.points):
        partner = next(
            (one for one in _ranked(points, left) if _arms(base, other, points, one)), ()
        )
        if partner:
            left.remove(partner)
            found.append(Match(base=points, other=partner))
        else:
            alone.append(points)
    return tuple(found), tuple(label(points) for points in (*alone, *left))


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


def _ranked(points: Points, candidates: Sequence[Points]) -> list[Points]:
    """The candidates that may be the same cell, the likeliest first."""
    sent, asked = {point.cell.pairing for point in points}, _asked(points[0])

    def distance(one: Points) -> tuple[bool, bool]:
        apart = not sent & {point.cell.pairing for point in one}
        return apart, one[0].cell.experiment != points[0].cell.experiment

    alike = [one for one in candidates if not distance(one)[0] or _asked(one[0]) == asked]
    return sorted(alike, key=distance)


def _arms(base: Side, other: Side, one: Points, two: Points) -> bool:
    """Whether the arms of the two are to be compared."""
    only = len(base.arms) == len(other.arms) == 1
    return only or one[0].cell.arm == two[0].cell.arm


def label(points: Sequence[RunPoint]) -> str:
    """The cell of these points, repeats left out, with its arm."""
    cell = points[0].cell
    return f"{cell.name.rpartition('-r')[0] or cell.name} ({cell.arm})"
