"""How often identical engines are called better or worse: 2,000 simulated comparisons a design.

Eight designs of 2 to 8 runs a side in the order A B B A, with run noise, drift, workloads that
differ from repeat to repeat, and sessions whose requests resemble one another; in each a figure a
run, a rarer one that is noisier, and TTFT paired request by request. The goal: false better and
worse together in 5 % of cases at most, give or take what 2,000 cases leave open; and `same` as
rarely where the true change is twice the margin. Beside it, sides whose runs lie in folders that
differ from night to night, and how much of a true change of twice the margin is still found. A
smaller number goes the whole way through run folders. Prints its figure last, and exits 0 only when
that is reached. Takes about five minutes; `--folders` takes the folders alone, in a minute.
"""

import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from math import log, sqrt
from pathlib import Path

import numpy as np
from big_compare import make
from scipy.stats import binom

from results.comparison import compare
from results.contrast import Series, across, combined, contrast
from results.direction import DIRECTIONS
from results.effect import of_estimate
from results.run import read
from results.side import within
from results.spread import over_sessions
from results.verdict import Judgement, Margin, Rule, judge

CASES, FOLDERS = 2000, 60
MARGIN = 0.05
SESSIONS, TURNS = 40, 4
ALARMS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Runs a side, and standard deviations of logarithms: of runs, of what repeats share, and more.

    `drift` is relative, from one run to the next; `correlation` that of requests of one session;
    `recurring` says that every run plays the same sessions; `apart` is how much the effect on one
    session is another than on the next.
    """

    runs: int
    noise: float
    drift: float = 0.0
    repeats: float = 0.0
    correlation: float = 0.5
    recurring: bool = False
    apart: float = 0.0


DESIGNS = (
    Design(runs=2, noise=0.01),
    Design(runs=3, noise=0.02, drift=0.01),
    Design(runs=3, noise=0.04, repeats=0.04),
    Design(runs=4, noise=0.02, drift=0.01, repeats=0.02),
    Design(runs=4, noise=0.01, recurring=True, apart=0.1),
    Design(runs=5, noise=0.04, correlation=0.9),
    Design(runs=6, noise=0.02, drift=-0.01, repeats=0.2),
    Design(runs=8, noise=0.08, recurring=True, correlation=0.9),
)
METRICS = ("output_rate", "ttft.p90", "ttft")

NIGHTS = (0.0, 0.01, 0.05)
ACROSS = ((2, 2), (3, 1), (3, 3), (10, 1))
"""Folders of base and of other, of IN_EACH runs that vary by INSIDE."""
IN_EACH, INSIDE = 3, 0.01


def order(runs: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions of both sides: A B, B A, and so on."""
    first = np.arange(runs) * 2.0
    turned = np.arange(runs) % 2
    return first + turned, first + 1 - turned


def runs_of(
    design: Design, random: np.random.Generator, change: float, noise: float
) -> tuple[Series, Series]:
    """A figure a run on both sides."""
    shared = random.normal(size=design.runs) * design.repeats
    return tuple(  # type: ignore[return-value]
        Series(
            values=shared
            + random.normal(size=design.runs) * noise
            + positions * log(1 + design.drift)
            + side * change,
            pairs=np.arange(design.runs),
            positions=positions,
        )
        for side, positions in enumerate(order(design.runs))
    )


def requests_of(
    design: Design, random: np.random.Generator, change: float
) -> tuple[tuple[Series, Series], np.ndarray, np.ndarray]:
    """The mean over requests a run, and the change of every request with its session."""
    count = design.runs
    base, other = runs_of(design, random, change, design.noise)
    own = random.normal(size=(2, count, SESSIONS, TURNS)) * sqrt(1 - design.correlation)
    shared = random.normal(size=(2, count, SESSIONS, 1)) * sqrt(design.correlation)
    logs = 0.1 * (own + shared)
    effect = random.normal(size=SESSIONS if design.recurring else (count, SESSIONS)) * design.apart
    logs[1] += np.broadcast_to(effect, (count, SESSIONS))[:, :, None]
    means = logs.mean(axis=(2, 3))
    changes = (logs[1] - logs[0]) + (other.values - base.values)[:, None, None]
    sessions = np.broadcast_to(np.arange(SESSIONS)[None, :, None], changes.shape)
    sides = (
        Series(values=base.values + means[0], pairs=base.pairs, positions=base.positions),
        Series(values=other.values + means[1], pairs=other.pairs, positions=other.positions),
    )
    return sides, changes.ravel(), sessions.ravel()


def told(design: Design, metric: str, random: np.random.Generator, change: float) -> Judgement:
    """What is said of one simulated comparison."""
    sign = -1 if DIRECTIONS[metric].better == "higher" else 1
    if metric == "ttft":
        sides, changes, sessions = requests_of(design, random, change)
        estimate = contrast(*sides)
        spread = over_sessions(changes, sessions, 0) if design.recurring else None
        if spread:
            estimate = combined(estimate, spread.error, spread.freedom, "paired requests")
    else:
        noise = design.noise * (2 if metric == "ttft.p90" else 1)
        estimate = contrast(*runs_of(design, random, sign * change, noise))
    effect = of_estimate(
        metric, DIRECTIONS[metric], estimate, (0.0, estimate.change), runs=(design.runs,) * 2
    )
    return judge(effect, Margin(relative=MARGIN))


def rates(design: Design, metric: str, change: float, seed: int) -> dict[str, float]:
    """How often each verdict falls, and how often the interval leaves no change out."""
    random = np.random.default_rng(seed)
    judged = [told(design, metric, random, change) for _ in range(CASES)]
    counts = Counter(one.verdict for one in judged)
    missed = sum((one.effect.p or 0.0) < ALARMS for one in judged)
    return {
        "alarms": (counts["better"] + counts["worse"]) / CASES,
        "same": counts["same"] / CASES,
        "missed": missed / CASES,
    }


def by_night(folders: int, night: float, random: np.random.Generator, first: int) -> Series:
    """The runs of one side, whose folders differ from night to night."""
    shared = random.normal(size=(folders, 1)) * night
    return Series(
        values=(shared + random.normal(size=(folders, IN_EACH)) * INSIDE).ravel(),
        pairs=np.tile(np.arange(IN_EACH), folders),
        folders=np.repeat(np.arange(folders) + first, IN_EACH),
    )


def over_nights(folders: tuple[int, int], night: float, change: float, seed: int) -> Counter[str]:
    """The share of each verdict on TTFT, and of intervals that miss the change."""
    random, found = np.random.default_rng(seed), Counter[str]()
    for _ in range(CASES):
        base, other = (by_night(count, night, random, 99 * n) for n, count in enumerate(folders))
        other = replace(other, values=other.values + change)
        estimate = across(contrast(base, other), base, other)
        effect = of_estimate(
            "ttft", DIRECTIONS["ttft"], estimate, (0.0, estimate.change), runs=folders
        )
        found[judge(effect, Margin(relative=MARGIN)).verdict] += 1
        low, high = estimate.interval or (change, change)
        found["missed"] += not low <= change <= high
    return Counter({name: count / CASES for name, count in found.items()})


def across_folders() -> Counter[str]:
    """The most false alarms, missed changes and false `same` of any design over folders."""
    most: Counter[str] = Counter()
    print(f"{IN_EACH} runs a folder, noise {INSIDE:.0%}")
    for number, (folders, night) in enumerate(product(ACROSS, NIGHTS)):
        equal = over_nights(folders, night, 0.0, number)
        apart = over_nights(folders, night, log(1 + 2 * MARGIN), 1000 + number)
        alarms = equal["better"] + equal["worse"]
        most |= Counter({"alarms": alarms, "missed": equal["missed"], "same": apart["same"]})
        print(
            f"{folders[0]}+{folders[1]} folders that differ by {night:.0%}: false alarms "
            f"{alarms:.2%}, interval misses 0 {equal['missed']:.2%}, same {equal['same']:.1%}; of "
            f"2 margins worse {apart['worse']:.1%}, same {apart['same']:.2%}"
        )
    return most


def through_folders(out: Path) -> int:
    """False alarms for TTFT among so many pairs of identical engines, each in a run folder."""
    alarms = 0
    for seed in range(FOLDERS):
        path = make(out / str(seed), 800, repeats=4, faster=1.0, run_noise=0.06, seed=seed)
        base, other = within(read(path))[0]
        compared = compare(base, other, [Rule(metric="ttft", margin=Margin(relative=MARGIN))])
        judged = next(one for one in compared.cells[0].judgements if one.gated)
        assert judged.effect.how == "paired requests"
        alarms += judged.verdict in {"better", "worse"}
    return alarms


def main() -> int:
    limit = ALARMS + 1.96 * sqrt(ALARMS * (1 - ALARMS) / CASES)
    most = across_folders()
    if "--folders" in sys.argv:
        return 0 if max(most.values()) <= limit else 1
    print(f"{CASES:,} simulated comparisons each, margin {MARGIN:.0%}, limit {limit:.2%}")
    print(f"{'':58}{'':12}{'false':>8}{'interval':>10}{'':>8}{'same at':>11}")
    print(f"{'design':58}{'metric':12}{'alarms':>8}{'misses 0':>10}{'same':>8}{'2 margins':>11}")
    for number, design in enumerate(DESIGNS):
        words = (
            f"{design.runs}+{design.runs} noise {design.noise:.0%} drift {design.drift:.0%} "
            f"repeats {design.repeats:.0%} {'same' if design.recurring else 'new'} sessions"
        )
        for place, metric in enumerate(METRICS):
            seed = 10 * number + place
            equal = rates(design, metric, 0.0, seed)
            # Twice the margin in the metric's own terms: 10 % fewer tokens, or 10 % more seconds.
            lower = DIRECTIONS[metric].better == "lower"
            far = log(1 + 2 * MARGIN) if lower else log(1 / (1 - 2 * MARGIN))
            apart = rates(design, metric, far, 1000 + seed)
            most |= Counter(
                {"alarms": equal["alarms"], "missed": equal["missed"], "same": apart["same"]}
            )
            print(
                f"{words:58}{metric:12}{equal['alarms']:8.2%}{equal['missed']:10.2%}"
                f"{equal['same']:8.1%}{apart['same']:11.2%}"
            )
    with tempfile.TemporaryDirectory() as out:
        alarms = through_folders(Path(out))
    allowed = int(binom.ppf(0.975, FOLDERS, ALARMS))
    print(f"through run folders: {alarms} false alarms of {FOLDERS} (at most {allowed})")
    print(
        f"most false alarms {most['alarms']:.2%}, intervals that miss 0 {most['missed']:.2%}, "
        f"`same` at twice the margin {most['same']:.2%}"
    )
    return 0 if max(most.values()) <= limit and alarms <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
