"""What the machine of a server did while requests were measured, by the server's samples."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.columns import Floats, number, text
from results.evidence import Evidence
from results.run import RunPoint

POWER, THROTTLE = "gpu:power_watts", "gpu:throttle_reasons"
CLOCK = "gpu:sm_clock_hertz"
COMPILED = "log:kernels_compiled_total"

PAUSE = 1.0
"""Seconds between two looks: what a look shows may have happened so much earlier."""

REASONS = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x20: "its temperature",
    0x40: "its temperature, in hardware",
    0x80: "a power brake",
}
"""Why a GPU is slower than it could be, by the bits of the driver's tool."""

LEAST = 0.01
"""The share of the window from which throttling is told."""

Steps = tuple[Floats, Floats]
"""Moments, and the value that holds from each until the next."""


def compiled(samples: pa.Table, evidence: Evidence) -> Iterator[str]:
    """Where kernels were compiled between requests that count, as far as the log tells it.

    What a look shows within a second of the opening may have been the warm-up's.
    """
    for moments, values in _series(samples, COMPILED).values():
        late = (moments > evidence.opened + PAUSE) & (moments <= evidence.closed)
        before = values[~late & (moments <= evidence.closed)]
        if late.any() and (count := int(values[late][-1] - (before[-1] if len(before) else 0))):
            yield (
                f"the server compiled {count} kernels while it was measured, first seen "
                f"{moments[late][0] - evidence.opened:.0f} s into the window: warm up every shape "
                "(load.warmup)"
            )


def remarks(samples: pa.Table | None, evidence: Evidence | None, tokens: float) -> Iterator[str]:
    """What held GPUs back, what they used for so many output tokens, and who was beside them."""
    if evidence is None:
        return
    if beside := evidence.observed.start.get("resident_beside"):
        yield f"other arms were up on the same GPUs: {', '.join(map(str, beside))}"
    if samples is None:
        return
    gpus = _series(samples, THROTTLE).values()
    for bit, reason in REASONS.items():
        share = max((_share(steps, bit, evidence) for steps in gpus), default=0.0)
        if share >= LEAST:
            yield f"a GPU was held back by {reason} in {share:.0%} of the window"
    joules = energy(samples, evidence)
    if joules is not None and tokens:
        each = float(f"{joules / tokens:.3g}")
        yield f"its GPUs used {each:,g} J an output token"


def energy(samples: pa.Table, evidence: Evidence) -> float | None:
    """The joules that the server's GPUs used in the window; None where that was not told of each.

    By their power, which a look shows once a second.
    """
    told = _own(samples, POWER, evidence)
    return sum(_integral(steps, evidence) for steps in told) if told else None


def clocked(point: RunPoint) -> float | None:
    """The mean clock, in Hz, of the slowest of its server's GPUs; None where not each told it."""
    evidence, samples = point.evidence, point.samples()
    if evidence is None or samples is None or evidence.closed <= evidence.opened:
        return None
    told = [_integral(steps, evidence) for steps in _own(samples, CLOCK, evidence)]
    return min(told) / (evidence.closed - evidence.opened) if told else None


def _own(samples: pa.Table, name: str, evidence: Evidence) -> list[Steps]:
    """The values of one name of each of the server's GPUs; none where one did not tell."""
    told = _series(samples, name)
    gpus = evidence.observed.start.get("gpus") or ()
    return [told[gpu] for gpu in gpus] if set(gpus) <= told.keys() else []


def _integral(steps: Steps, evidence: Evidence) -> float:
    return float((steps[1] * _held(steps, evidence)).sum())


def _share(steps: Steps, bit: int, evidence: Evidence) -> float:
    """In how much of the window a bit was set."""
    seconds = evidence.closed - evidence.opened
    on = (steps[1].astype(np.int64) & bit) > 0
    return float(_held(steps, evidence)[on].sum()) / seconds if seconds > 0 else 0.0


def _held(steps: Steps, evidence: Evidence) -> Floats:
    """For how many seconds of the window each value held."""
    ends = np.append(steps[0][1:], np.inf)
    within: Floats = np.clip(
        np.minimum(ends, evidence.closed) - np.maximum(steps[0], evidence.opened), 0, None
    )
    return within


def _series(samples: pa.Table, name: str) -> dict[str, Steps]:
    """The values of one name over time, by the GPU, or by nothing where there is none."""
    chosen = samples.filter(pc.equal(samples["name"].cast(pa.string()), name))
    moment, value = number(chosen, "moment"), number(chosen, "value")
    places: dict[str, list[int]] = {}
    for place, labels in enumerate(_gpus(text(chosen, "labels").tolist())):
        places.setdefault(labels, []).append(place)
    return {gpu: (moment[at], value[at]) for gpu, at in places.items()}


def _gpus(labels: Sequence[str]) -> Iterator[str]:
    """The GPU in each of some labels, which are JSON."""
    for told in labels:
        yield told.partition('"gpu":"')[2].partition('"')[0]
