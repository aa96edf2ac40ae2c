"""Percentiles by linear interpolation at (n-1)p, and how many samples each needs."""

import numpy as np

from results.columns import Floats

NEEDED = {0.9: 64, 0.95: 130, 0.99: 662}
"""Samples for one to lie beyond the percentile with confidence 0.99: MLPerf's early stopping."""


def quantile(values: Floats, totals: Floats, share: float) -> float:
    """The percentile of ascending values, each as often as its step in the running `totals`."""
    place = (totals[-1] - 1) * share
    below = np.floor(place)
    index = np.searchsorted(totals, [below, below + 1], side="right")
    low, high = values[np.minimum(index, len(values) - 1)]
    return float(low + (place - below) * (high - low))


def too_small(n: int, share: float, maximum: str) -> str | None:
    """Why the percentile must not be shown; None where it may be."""
    needed = NEEDED.get(share, 1)
    return f"n too small (n={n}, needs {needed}; maximum {maximum})" if n < needed else None
