"""Times that the end of the window cut short: at least so long, and nobody knows how long."""

import numpy as np

from results.columns import Floats


def weights(seen: Floats, bounds: Floats) -> tuple[Floats, float]:
    """How much each seen time counts beside times known to be longer than their bounds.

    Also the weight that lies beyond all that was seen, 0 where the longest time is a seen one. The
    weights and what lies beyond add up to 1 (Kaplan and Meier 1958). Without it a window that cuts
    long requests would report the short ones only.
    """
    times = np.concatenate([seen, bounds])
    event = np.arange(len(times)) < len(seen)
    order = np.lexsort((~event, times))
    at_risk = len(times) - np.arange(len(times))
    ended = event[order]
    left = np.cumprod(np.where(ended, 1 - 1 / at_risk, 1.0))
    before = np.concatenate([[1.0], left[:-1]])
    jumps = np.empty(len(times))
    jumps[order] = np.where(ended, before / at_risk, 0.0)
    return jumps[: len(seen)], 0.0 if not len(times) or ended[-1] else float(left[-1])
