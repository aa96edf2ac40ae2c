"""What happens inside the window that counts, over its time."""

from itertools import pairwise

import numpy as np

from results.columns import Columns, Floats, Ints, Mask

Window = tuple[float, float]

# Pieces are stamped in whole microseconds, so one at an edge may seem to lie just outside.
SLACK = 1e-6

PARTS = 10
"""Into how many parts a window is cut to see how much a rate varies."""


def inside(moments: Floats, window: Window) -> Mask:
    """Which moments lie in the window, its ends included."""
    opened, closed = window
    return (moments >= opened - SLACK) & (moments <= closed + SLACK)


def parts(window: Window) -> list[Window]:
    """The window in PARTS equal parts."""
    edges = np.linspace(*window, PARTS + 1).tolist()
    return list(pairwise(edges))


def amounts(moments: Floats, weights: Floats, window: Window) -> Floats:
    """The sum of the weights in each part; they add up to the window's."""
    opened, closed = window
    chosen = inside(moments, window)
    place = (moments[chosen] - opened) / (closed - opened) * PARTS
    index = np.clip(place.astype(np.int64), 0, PARTS - 1)
    sums = np.bincount(index, weights=weights[chosen], minlength=PARTS)
    return sums.astype(np.float64)


def overlap(begins: Floats, ends: Floats, window: Window) -> Floats:
    """How many seconds of the window each interval covers; none where it has no ends."""
    opened, closed = window
    seconds = np.minimum(ends, closed) - np.maximum(begins, opened)
    return np.asarray(np.nan_to_num(np.maximum(seconds, 0.0)), dtype=np.float64)


def at_once(begins: Floats, ends: Floats, window: Window) -> tuple[Floats, Ints]:
    """How many intervals cover each moment: times, and the count from each time to the next."""
    covering = overlap(begins, ends, window) > 0
    opened, closed = window
    first = np.maximum(begins[covering], opened)
    last = np.minimum(ends[covering], closed)
    moments = np.concatenate([[opened], first, last])
    change = np.concatenate([[0], np.ones(len(first)), -np.ones(len(last))])
    times, index = np.unique(moments, return_inverse=True)
    return times, np.cumsum(np.bincount(index, weights=change)).astype(np.int64)


def decoding(rows: Columns) -> tuple[Floats, Floats]:
    """When each request that did not fail began and ended to decode: first and last token."""
    return rows.first[rows.counted], rows.last[rows.counted]
