"""The gap in accuracy between two sides: the same questions paired, epochs and runs averaged."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.columns import Ints
from results.contest import Contest, Entry
from results.effect import Effect
from results.failures import CHANCE, chance
from results.gap import Gap, gap, swapped_error
from results.pairing import MOST_LOST
from results.scores import AMISS, HEADLINE, ITEM, by_question, headline, items, metrics

FAR = 700.0
"""The logarithm of a ratio to 0, which stays a number."""

NONE = "no question was answered on both sides"
ALONE = "a single question, or group of them, says nothing of how sure it is"
NOTHING_RIGHT = (
    "neither side has anything right, so nothing could be lost: see how answers are read"
)
NO_SHARE = "it is no share of right answers, so points say nothing of it"

Sides = tuple[list[pa.Table], list[pa.Table]]


def asks(cell: Contest) -> bool:
    """Whether the cell's runs answered questions, and are compared by these alone."""
    return any(entry.answers is not None for side in cell.sides for entry in side)


def effects(cell: Contest) -> Iterator[Effect]:
    """The effect of the headline, and of each other metric that all runs have."""
    sides = _sides(cell)
    name = headline(cell.base[0].point.evidence)
    for metric in metrics([*sides[0], *sides[1]], name):
        yield _effect(cell, sides, metric)


def left_out(cell: Contest) -> str | None:
    """That too few answers have a partner; None where enough have."""
    sides = _sides(cell)
    asked, both = _asked(sides), _both(sides, HEADLINE).num_rows
    if asked - both <= MOST_LOST * asked:
        return None
    return (
        f"{asked - both:,} of {asked:,} answers are on one side only, {1 - both / asked:.1%}, and "
        f"{MOST_LOST:.0%} are allowed: what is left would be a selection"
    )


def _sides(cell: Contest) -> Sides:
    base, other = (
        [entry.answers for entry in side if entry.answers is not None] for side in cell.sides
    )
    return base, other


def _effect(cell: Contest, sides: Sides, metric: str) -> Effect:
    rows = _both(sides, metric)
    bare = _nothing(metric, (len(cell.base), len(cell.other)))
    if not rows.num_rows:
        return replace(bare, reason=NONE)
    (base, other), groups = by_question(rows, ["base", "other"])
    if min(base.min(), other.min()) < 0 or max(base.max(), other.max()) > 1:
        return replace(bare, reason=NO_SHARE)
    found = replace(
        gap(base, other, groups, _least(sides, metric, rows, groups)),
        asked=_asked(sides),
        answered=rows.num_rows,
        flips=(_flips(sides[0], metric), _flips(sides[1], metric)),
        alike=_alike(sides),
        amiss=tuple((name, _count(cell.base, name), _count(cell.other, name)) for name in AMISS),
    )
    nothing_right = None if found.base or found.other else NOTHING_RIGHT
    return of_gap(metric, found, bare.runs, _doubt(cell) or nothing_right)


def of_gap(
    metric: str, found: Gap, runs: tuple[int, int] = (1, 1), doubt: str | None = None
) -> Effect:
    """The gap as an effect in points: 1 and the difference."""
    bare = _nothing(metric, runs)
    known = replace(bare, gap=found, base=found.base, other=found.other, doubt=doubt)
    if found.low is None or found.high is None:
        return replace(known, reason=ALONE)
    low, point, high = (max(exp(-FAR), 1 + end) for end in (found.low, found.change, found.high))
    return replace(
        known,
        how="paired questions",
        ratio=point,
        low=low,
        high=high,
        error=found.error,
        freedom=found.freedom,
        p=found.p,
        detectable=found.detectable,
    )


def _doubt(cell: Contest) -> str | None:
    """That the sides left questions unanswered unlike beyond chance; None where they did not."""
    (lost, base), (more, other) = (
        (_count(side, "unanswered") or 0, _count(side, "answers") or 0) for side in cell.sides
    )
    if chance((lost, base), (more, other)) >= CHANCE:
        return None
    return (
        f"{lost:,} of {base:,} answers failed in base and {more:,} of {other:,} in other, which is "
        "no chance, and what fails may be what is hard"
    )


def _count(side: Sequence[Entry], name: str) -> int | None:
    """So many answers of the side's runs; None where a run does not tell."""
    told = [entry.summary.figures.get(name) for entry in side]
    values = [figure.value for figure in told if figure and figure.value is not None]
    return int(sum(values)) if len(values) == len(side) else None


def _nothing(metric: str, runs: tuple[int, int]) -> Effect:
    return Effect(metric=metric, unit="share", better="higher", how="none", runs=runs)


def _asked(sides: Sides) -> int:
    """How many answers either side should have: questions, each in so many epochs."""
    every = pa.concat_tables([table.select([*ITEM]) for side in sides for table in side])
    return int(every.group_by([*ITEM]).aggregate([]).num_rows)


def _both(sides: Sides, metric: str) -> pa.Table:
    """Every question and epoch that both sides answered, with each side's mean over its runs."""
    base, other = (_means(side, metric) for side in sides)
    base = base.rename_columns([*ITEM, "base", "group"])
    other = other.rename_columns([*ITEM, "other", "unused"]).drop_columns(["unused"])
    rows = base.join(other, keys=[*ITEM], join_type="inner")
    return rows.sort_by([(name, "ascending") for name in ITEM])


def _means(side: Sequence[pa.Table], metric: str) -> pa.Table:
    rows = pa.concat_tables([items(table, metric) for table in side])
    return rows.group_by([*ITEM]).aggregate([("value", "mean"), ("group", "min")])


def _least(sides: Sides, metric: str, rows: pa.Table, groups: Ints | None) -> float:
    """The least error of sides with unlike numbers of runs; 0 where they have as many."""
    runs = [*sides[0], *sides[1]]
    if 2 * len(sides[0]) == len(runs):
        return 0.0
    values, keys = np.full((len(runs), rows.num_rows), np.nan), _keys(rows).combine_chunks()
    for run, table in zip(values, runs, strict=True):
        told = items(table, metric)
        place = pc.index_in(_keys(told), value_set=keys)
        run[place.drop_null().to_numpy()] = told["value"].filter(place.is_valid()).to_numpy()
    named = pc.binary_join_element_wise(rows["task"], rows["question"], "\0").to_numpy()
    questions = np.cumsum(np.append(False, named[1:] != named[:-1]))
    other = (np.arange(len(runs)) >= len(sides[0])).astype(np.int64)
    return swapped_error(values, other, questions, groups)


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    """One word for each question and epoch."""
    parts = (rows[name].cast(pa.string()) for name in ITEM)
    return pc.binary_join_element_wise(*parts, "\0")


def _flips(side: Sequence[pa.Table], metric: str) -> float | None:
    """The share of answers whose score is another one in the next run of the same side."""
    shares = []
    for before, after in pairwise(side):
        rows = _both(([before], [after]), metric)
        if rows.num_rows:
            shares.append(pc.mean(pc.not_equal(rows["base"], rows["other"])).as_py())
    return float(np.mean(shares)) if shares else None


def _alike(sides: Sides) -> tuple[int, int] | None:
    """How many answers have the very same text in each side's first run, of how many.

    None where a side is a file that keeps none.
    """
    columns = [*ITEM, "text_hash"]
    firsts = [side[0] for side in sides]
    if any("text_hash" not in table.column_names for table in firsts):
        return None
    base, other = (
        one.filter(one["text_hash"].is_valid()).select(columns).rename_columns([*ITEM, name])
        for one, name in zip(firsts, ("base", "other"), strict=True)
    )
    rows = base.join(other, keys=[*ITEM], join_type="inner")
    return pc.sum(pc.equal(rows["base"], rows["other"])).as_py() or 0, rows.num_rows
