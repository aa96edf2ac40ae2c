"""How often a level at exactly the demanded share is said to hold, or to fail: <= 2.5 % each.

Simulated sessions, from alike to very unlike, looked at after each of up to five runs; then runs
that differ among themselves, looked at first once and then after three runs, as a search does for
the levels that its answer rests on. Prints its figure last, and exits 0 only when no case but the
single looks at differing runs, which are shown for contrast, exceeds the limit.
"""

import sys
from dataclasses import dataclass

import numpy as np

from results.attainment import Kept, attained

TRIALS = 1500
LIMIT = 0.025


@dataclass(frozen=True, kw_only=True)
class Case:
    """Sessions a run and requests a session; `alike` is small where sessions are unlike."""

    share: float = 0.9
    sessions: int = 50
    requests: int = 8
    alike: float = 10.0
    looks: int = 3
    fewest: int = 1
    between_runs: float = 0.0


CASES = (
    Case(sessions=12, requests=20),
    Case(),
    Case(looks=1),
    Case(sessions=200, requests=1),
    Case(sessions=36, requests=30, alike=3.0),
    Case(sessions=20, requests=100, alike=100.0),
    Case(sessions=64, requests=12, alike=1.0, looks=1),
    Case(sessions=30, requests=10, alike=2.0, looks=5),
    Case(share=0.99, sessions=400, requests=3),
    Case(fewest=3, between_runs=0.02),
    Case(fewest=3, between_runs=0.04),
)
CONTRAST = (Case(looks=1, between_runs=0.02), Case(looks=1, between_runs=0.04))


def one_run(case: Case, random: np.random.Generator) -> Kept:
    chance = random.beta(case.alike * case.share, case.alike * (1 - case.share), case.sessions)
    chance = np.clip(chance + random.normal(0, case.between_runs), 0, 1)
    good = random.random((case.sessions, case.requests)) < chance[:, None]
    session = np.repeat(np.arange(case.sessions), case.requests)
    part = session * 10 // case.sessions
    return Kept(good=good.ravel().astype(float), session=session, part=part)


def wrong(case: Case, seed: int) -> tuple[float, float]:
    """The shares of trials that end in `holds` and in `fails`."""
    random = np.random.default_rng(seed)
    holds = fails = 0
    for _ in range(TRIALS):
        runs: list[Kept] = []
        for look in range(1, case.looks + 1):
            runs.append(one_run(case, random))
            share = attained(runs, case.looks)
            if look < case.fewest or share.low is None or share.high is None:
                continue
            if share.low >= case.share or share.high < case.share:
                holds += share.low >= case.share
                fails += share.high < case.share
                break
    return holds / TRIALS, fails / TRIALS


def main() -> int:
    worst = 0.0
    for seed, case in enumerate((*CASES, *CONTRAST)):
        holds, fails = wrong(case, seed)
        contrast = case in CONTRAST
        worst = worst if contrast else max(worst, holds, fails)
        print(f"{case}: holds {holds:.1%}, fails {fails:.1%}{' (contrast)' * contrast}", flush=True)
    print(f"wrongly decided at most {worst:.1%} of {TRIALS:,} simulated levels (limit {LIMIT:.1%})")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
