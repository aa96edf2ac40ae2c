"""A search finds the rung that an exhaustive sweep finds, in at least 30 % fewer points.

On the simulated engine: two topologies, two speeds, three seeds. Each plan is searched first; then
all its other points are run into the same folder, and the whole sweep is judged by the same rules.
What is true of each level comes from six further runs of it, with another seed. A search may
leave levels undecided, but nothing that it says may be false. Prints its figure last, and exits 0
only when all of it is reached.
"""

import io
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console

from harness.run import run
from harness.search import search
from reports.progress import Progress
from results.attainment import kept
from results.bracket import Bracket
from results.folder import RunFolder, create
from results.run import read
from suites.plan import Plan, plan
from suites.suite import load

SEEDS = range(3)
DEMANDED = 0.9
LEAST_SAVED = 0.30
SUITE = """
suite: ladders
seed: {seed}
repeats: {repeats}
order: abba
experiments:
  - name: turns
    engine: {{kind: sim, noise: 0.03, slowdown: [1.0, 1.4]}}
    topology: [TP1, DEP2]
    workload: {{kind: growing, turns: 3, first: 2000, fresh: 200, output: 50}}
    load:
      kind: closed
      concurrency: [1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32]
      duration: 45s
      grace: 10s
    objectives: {{ttft: 500ms, tpot: 25ms}}
"""

Truth = dict[tuple[str, float], float]


def watch() -> Progress:
    """A watch that says nothing."""
    return Progress(quiet=True, console=Console(file=io.StringIO()))


def planned(out: Path, seed: int, repeats: int) -> tuple[Plan, RunFolder]:
    path = out / f"ladders-{seed}.yaml"
    path.write_text(SUITE.format(seed=seed, repeats=repeats))
    suite = load(str(path))
    made = plan(suite)
    return made, create(out, suite.name, suite.text, made.facts(), {}, seed)


def true_shares(out: Path) -> Truth:
    """The share of good requests at each level of each arm, over six runs."""
    made, folder = planned(out, 1000, 6)
    with folder:
        run(made.points, folder, watch())
    good: dict[tuple[str, float], list[np.ndarray]] = {}
    for point in read(folder.path).points:
        told = kept(point)
        key = (point.cell.arm, float(point.cell.load["concurrency"]))
        good.setdefault(key, []).append(told.good)
    return {key: float(np.concatenate(runs).mean()) for key, runs in good.items()}


def ends(bracket: Bracket) -> tuple[float | None, float | None]:
    low, high = bracket.holding, bracket.failing
    return (low.load if low else None), (high.load if high else None)


def false_words(bracket: Bracket, truth: Truth) -> list[str]:
    """What a search says of a level that is not so."""
    return [
        f"{bracket.arm} at {level.load:g}: {level.answer}, and the true share is "
        f"{truth[bracket.arm, level.load]:.4f}"
        for level in bracket.levels
        if (level.answer == "holds" and truth[bracket.arm, level.load] < DEMANDED)
        or (level.answer == "fails" and truth[bracket.arm, level.load] >= DEMANDED)
    ]


def against_the_sweep(seed: int, truth: Truth, out: Path) -> tuple[list[str], list[float], int]:
    """What is wrong, the share of points that each ladder saved, and how many stay undecided."""
    made, folder = planned(out, seed, 3)
    wrong: list[str] = []
    saved: list[float] = []
    with folder:
        found = search(made.points, folder, watch(), demanded=DEMANDED)
        run(made.points, folder, watch())
        swept = search(made.points, folder, watch(), demanded=DEMANDED)
    points = len(made.points) // len(found)
    for short, whole in zip(found, swept, strict=True):
        runs = sum(level.summary.repeats for level in short.levels)
        saved.append(1 - runs / points)
        wrong += false_words(short, truth)
        both = {short.outcome, whole.outcome} == {"bracketed"}
        if both and ends(short) != ends(whole):
            wrong.append(f"{short.arm}, seed {seed}: {ends(short)}, the sweep {ends(whole)}")
        print(
            f"seed {seed} {short.arm:22} search {short.outcome:10} {ends(short)!s:14} "
            f"{runs:2} points at {len(short.levels)} levels; "
            f"sweep {whole.outcome:10} {ends(whole)!s:14} {points} points",
            flush=True,
        )
    return wrong, saved, sum(bracket.outcome != "bracketed" for bracket in found)


def main() -> int:
    wrong: list[str] = []
    saved: list[float] = []
    undecided = 0
    with tempfile.TemporaryDirectory() as folder:
        truth = true_shares(Path(folder))
        for (arm, level), share in truth.items():
            print(f"true share {arm:24} closed {level:3g}: {share:.4f}")
        for seed in SEEDS:
            amiss, spared, left = against_the_sweep(seed, truth, Path(folder))
            wrong += amiss
            saved += spared
            undecided += left
    for line in wrong:
        print(line)
    print(
        f"{len(saved)} ladders: {len(wrong)} wrong, {undecided} undecided; points saved: median "
        f"{median(saved):.0%}, least {min(saved):.0%} (goal {LEAST_SAVED:.0%})"
    )
    return 0 if not wrong and median(saved) >= LEAST_SAVED else 1


if __name__ == "__main__":
    sys.exit(main())
