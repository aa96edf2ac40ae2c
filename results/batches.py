"""Fixed batches: the span in which all of a batch decode together, and the speed inside it."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from results import interval, rates
from results.cell import Cell
from results.columns import UNTOLD, Columns, Floats, Ints, Pieces, columns
from results.figure import Figure, Unit
from results.window import SLACK

LEFT_BEHIND = 8

HELD_BACK = 0.25
"""Pieces that come in a smaller part of a request's usual gap, after its first, were held back."""

FEWEST = 3
"""An answer of fewer pieces has no gap but that behind its first token."""

_UNITS: tuple[tuple[str, Unit], ...] = (
    ("batch_size", "count"),
    ("batch_tpot", "s/token"),
    ("batch_rate", "tok/s"),
    ("batch_rate_per_gpu", "tok/s/GPU"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWindow:
    """From where all of a tree's requests decode to the first last token of one of them.

    A server that is late with a first token sends at once after it what it has decoded meanwhile,
    in one piece or in several, which is no speed of the span: it begins after these.

    `tokens` came inside it, to `size` requests, the first of them in row `row`. `behind` of the
    requests stood still while the others went on for LEFT_BEHIND pieces: preempted, most likely.
    """

    tree: int
    size: int
    opened: float
    closed: float
    tokens: float
    row: int
    behind: int

    @property
    def seconds(self) -> float:
        """How long all decode together."""
        return self.closed - self.opened


def batch_windows(rows: pa.Table) -> list[BatchWindow]:
    """One for each tree all of whose requests decode together for a while."""
    return _windows(columns(rows))


def figures(rows: Columns, cell: Cell, resample: interval.Resample) -> dict[str, Figure]:
    """Batch size, seconds a token for each user, and tokens a second, over all spans."""
    windows = _windows(rows)
    if not windows:
        reason = "no batch decoded together"
        return {name: Figure(value=None, unit=unit, n=0, reason=reason) for name, unit in _UNITS}
    if any(np.isnan(window.tokens) for window in windows):
        return {name: Figure(value=None, unit=unit, n=0, reason=UNTOLD) for name, unit in _UNITS}
    index = np.array([window.row for window in windows])
    size = np.array([window.size for window in windows], dtype=np.float64)
    seconds = np.array([window.seconds for window in windows])
    tokens = np.array([window.tokens for window in windows])
    result = {
        "batch_size": rates.share(size * seconds, seconds, index, resample, "count"),
        "batch_tpot": rates.share(size * seconds, tokens, index, resample, "s/token"),
        "batch_rate": rates.share(tokens, seconds, index, resample, "tok/s"),
    }
    result["batch_rate_per_gpu"] = rates.per_gpu(result["batch_rate"], cell.gpus)
    return {
        name: replace(figure, reason=figure.reason or rows.approximate)
        for name, figure in result.items()
    }


def _begun(pieces: Pieces, count: int) -> Floats:
    """When each request decodes at its own pace: once what was held back behind its first came.

    At infinity where it never does, so that its batch has no span.
    """
    begun = np.full(count, np.inf)
    rows, starts = np.unique(pieces.row, return_index=True)
    for row, stamps in zip(rows, np.split(pieces.stamp, starts[1:]), strict=False):
        # The first gap is the wait itself, whatever it was that held the first token back.
        gaps = np.diff(stamps[1:])
        if len(gaps):
            held = gaps < HELD_BACK * np.median(gaps)
            begun[row] = stamps[1 + int(np.argmin(held))] if not held.all() else np.inf
    return begun


def _behind(row: Ints, stamp: Floats, members: Ints, span: tuple[float, float]) -> int:
    """How many of a batch had no piece while each other one, on average, had LEFT_BEHIND."""
    everyone = np.sort(stamp)
    # A request may stand still from the beginning of the span, and to its end.
    row = np.concatenate([row, members, members])
    stamp = np.concatenate([stamp, *(np.full(len(members), end) for end in span)])
    order = np.lexsort((stamp, row))
    row, stamp = row[order], stamp[order]
    same = np.diff(row) == 0
    between = np.searchsorted(everyone, stamp[1:]) - np.searchsorted(
        everyone, stamp[:-1], side="right"
    )
    others = max(1, len(members) - 1)
    return len(np.unique(row[1:][same & (between >= LEFT_BEHIND * others)]))


def _windows(rows: Columns) -> list[BatchWindow]:
    pieces = rows.pieces
    trees, index, batch = np.unique(rows.tree, return_index=True, return_inverse=True)
    size = np.bincount(batch, minlength=len(trees))
    opened = np.full(len(trees), -np.inf)
    closed = np.full(len(trees), np.inf)
    begun = _begun(pieces, len(batch))
    np.maximum.at(opened, batch, np.where(rows.counted, begun, np.inf))
    np.minimum.at(closed, batch, np.where(rows.counted, rows.last, -np.inf))
    of = batch[pieces.row]
    within = (pieces.stamp > opened[of] + SLACK) & (pieces.stamp <= closed[of] + SLACK)
    tokens = np.bincount(of[within], weights=pieces.tokens[within], minlength=len(trees))
    return [
        BatchWindow(
            tree=int(trees[place]),
            size=int(size[place]),
            opened=float(opened[place]),
            closed=float(closed[place]),
            tokens=float(tokens[place]),
            row=int(index[place]),
            behind=_behind(
                pieces.row[within & (of == place)],
                pieces.stamp[within & (of == place)],
                np.flatnonzero(batch == place),
                (float(opened[place]), float(closed[place])),
            ),
        )
        for place in np.flatnonzero(closed > opened)
    ]
