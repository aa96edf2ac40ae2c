"""How often a real change is found, and by whom: our verdicts beside what others do with the runs.

Simulated, two-sided, in the order A B B A. Five and five runs with 4 % run noise must find a change
of 10 % in 85 of 100 cases; requests paired by turn, with four and four runs, 1 % run noise and the
same recorded sessions in every run, one of 3 % of TTFT in 80. Beside them one run each against a
threshold of 5 %, and Welch's t with a threshold of 3 %, with their false alarms. Prints its figure
last, and exits 0 only when both goals are reached and our false alarms keep to 5 %. Takes a minute.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from scipy.stats import ttest_ind

from results.contrast import Series, combined, contrast
from results.direction import DIRECTIONS
from results.effect import of_estimate
from results.spread import over_sessions
from results.verdict import Margin, judge

CASES = 4000
SESSIONS, TURNS = 50, 10
OWN, APART = 0.05, 0.02
"""Standard deviations of logarithms: of a request, and of the change from session to session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """So many runs a side with that noise, and a change of TTFT that is to be found.

    `sessions` says whether requests are paired, and whether all runs play the same sessions;
    `repeats` is how much the workloads of repeats differ.
    """

    name: str
    runs: int
    noise: float
    change: float
    margin: float
    goal: float | None
    sessions: str = "none"
    repeats: float = 0.0


STUDIES = (
    Study(name="figures, 5+5 runs", runs=5, noise=0.04, change=0.10, margin=0.05, goal=0.85),
    Study(
        name="paired by turn, 4+4 runs, same sessions",
        runs=4,
        noise=0.01,
        change=0.03,
        margin=0.02,
        goal=0.80,
        sessions="same",
        repeats=0.2,
    ),
    Study(
        name="paired by turn, 4+4 runs, new sessions",
        runs=4,
        noise=0.01,
        change=0.03,
        margin=0.02,
        goal=None,
        sessions="new",
        repeats=0.2,
    ),
)

Sides = tuple[Series, Series]


def drawn(
    study: Study, change: float, random: np.random.Generator
) -> tuple[Sides, np.ndarray | None]:
    """The runs of both sides; of recurring sessions, also the change of each request."""
    count = study.runs
    first, turned = np.arange(count) * 2.0, np.arange(count) % 2
    places = first + turned, first + 1 - turned
    # The same sessions differ from one another, and not from run to run.
    shared = random.normal(size=count) * study.repeats * (study.sessions == "new")
    values = [
        shared + random.normal(size=count) * study.noise + side * log(1 + change) for side in (0, 1)
    ]
    changes = None
    if study.sessions != "none":
        own = random.normal(size=(2, count, SESSIONS, TURNS)) * OWN
        size = (1, SESSIONS) if study.sessions == "same" else (count, SESSIONS)
        own[1] += (random.normal(size=size) * APART)[:, :, None]
        values = [value + logs.mean(axis=(1, 2)) for value, logs in zip(values, own, strict=True)]
        if study.sessions == "same":
            changes = own[1] - own[0]
    one, two = (
        Series(values=value, pairs=np.arange(count), positions=place)
        for value, place in zip(values, places, strict=True)
    )
    return (one, two), changes


def ours(study: Study, sides: Sides, changes: np.ndarray | None) -> bool:
    """Whether the verdict is better or worse."""
    estimate = contrast(*sides)
    if changes is not None:
        sessions = np.broadcast_to(np.arange(SESSIONS)[None, :, None], changes.shape)
        spread = over_sessions(changes.ravel(), sessions.ravel(), 0)
        if spread:
            estimate = combined(estimate, spread.error, spread.freedom, "paired requests")
    effect = of_estimate("ttft", DIRECTIONS["ttft"], estimate, (0.0, estimate.change))
    return judge(effect, Margin(relative=study.margin)).verdict in {"better", "worse"}


def threshold(_study: Study, sides: Sides, _changes: np.ndarray | None) -> bool:
    """One run each, more than 5 % apart."""
    return bool(abs(exp(sides[1].values[0] - sides[0].values[0]) - 1) > 0.05)


def welch(study: Study, sides: Sides, _changes: np.ndarray | None) -> bool:
    """Welch's t below 0.05, and the means more than 3 % apart, or half the change sought."""
    base, other = (np.exp(side.values) for side in sides)
    apart = abs(other.mean() / base.mean() - 1) > min(0.03, study.change / 2)
    return bool(apart and ttest_ind(base, other, equal_var=False).pvalue < 0.05)


RULES: dict[str, Callable[[Study, Sides, np.ndarray | None], bool]] = {
    "paceline": ours,
    "one run each, 5 %": threshold,
    "Welch and 3 %": welch,
}


def found(study: Study, change: float, seed: int) -> dict[str, float]:
    """How often each rule says that something changed, on the very same runs."""
    random = np.random.default_rng(seed)
    told = dict.fromkeys(RULES, 0)
    for _ in range(CASES):
        sides, changes = drawn(study, change, random)
        for name, rule in RULES.items():
            told[name] += rule(study, sides, changes)
    return {name: count / CASES for name, count in told.items()}


def main() -> int:
    limit = 0.05 + 1.96 * sqrt(0.05 * 0.95 / CASES)
    good = True
    print(f"{CASES:,} simulated comparisons each")
    print(f"{'study':42}{'rule':20}{'found':>8}{'false alarms':>15}")
    for number, study in enumerate(STUDIES):
        power, alarms = found(study, study.change, number), found(study, 0.0, 100 + number)
        for rule in RULES:
            print(f"{study.name:42}{rule:20}{power[rule]:8.1%}{alarms[rule]:15.1%}")
        good &= alarms["paceline"] <= limit
        good &= study.goal is None or power["paceline"] >= study.goal
        goal = f"goal {study.goal:.0%}" if study.goal else "no goal: 3 degrees of freedom"
        print(f"  {study.change:.0%} at {study.noise:.0%} noise: {power['paceline']:.1%} ({goal})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
