"""Runs that are copies of other runs: what a simulated engine does again, it does to the byte."""

from collections.abc import Mapping

import numpy as np

from results.columns import Floats
from results.direction import DIRECTIONS
from results.figure import Figure
from results.scores import HEADLINE
from results.steps import TIME

SAME = 1e-11
"""Values that are relatively closer are the same: a baseline file keeps thirteen digits."""

Seen = dict[str, list[Floats]]
"""The metrics of all runs so far, by what they were sent."""


def copied(seen: Seen, sent: str, figures: Mapping[str, Figure]) -> bool:
    """Whether a run that was sent this was seen before, equal in every metric.

    Takes it down where it was not. One without any metric is no copy of anything.
    """
    # Two runs often have as many right answers, or one time of a step, and are no copies for that.
    told = (figures.get(name) for name in DIRECTIONS if name not in {HEADLINE, TIME})
    values = np.array(
        [np.nan if one is None or one.value is None else one.value for one in told], np.float64
    )
    if np.isnan(values).all():
        return False
    known = seen.setdefault(sent, [])
    if any(np.allclose(values, one, rtol=SAME, atol=0.0, equal_nan=True) for one in known):
        return True
    known.append(values)
    return False


def counted_once(copies: int, runs: int, side: str = "") -> str:
    """The sentence that so many of all runs, or of those of a side, are copies of others."""
    whose = f" of {side}" if side else ""
    are = "is a copy of another one" if copies == 1 else "are copies of others"
    count = "counts" if copies == 1 else "count"
    return f"{copies} of {runs} runs{whose} {are}, the same to the last digit, and {count} once"
