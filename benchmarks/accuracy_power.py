"""How often a loss of accuracy is found, and by whom: paired verdicts beside what others compute.

Simulated: every question has a chance to be answered rightly, and each run draws a share of the
questions anew, which is what an engine that is not deterministic does. 1,319 questions like those
of GSM8K must show a loss of 1 point in 70 of 100 cases, with at most 5 % false alarms where there
is none (and what 4,000 cases leave open); 198 like those of GPQA are shown beside them, in one
epoch and in twelve. The verdicts are those of the product, at a margin of 1 point. Then, where
PACELINE_DATA names a folder that has them, the answers of four real models to GSM8K are paired.
Prints its figure last, and exits 0 only when all goals are reached. Takes a minute.
"""

import csv
import os
import sys
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from pathlib import Path

import numpy as np

from results.accuracy import of_gap
from results.comparison import A_POINT
from results.contrast import quantile
from results.gap import Gap, detectable, epochs_needed, gap, provable
from results.scores import HEADLINE
from results.verdict import judge, together

CASES = 4000
POWER, ALARMS = 0.70, 0.05
REAL = "gsm8k/four-models-correct.csv"

Scores = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """So many questions of that chance, of which each run draws a share anew."""

    name: str
    questions: int
    chance: float
    drawn: float
    epochs: int = 1


GSM8K = Study(name="GSM8K, 1 epoch", questions=1319, chance=0.95, drawn=0.05)
GPQA = Study(name="GPQA-diamond, 1 epoch", questions=198, chance=0.70, drawn=0.20)
TWELVE = Study(name="GPQA-diamond, 12 epochs", questions=198, chance=0.70, drawn=0.20, epochs=12)

LOSSES = ((GSM8K, 0.0), (GSM8K, 0.01), (GSM8K, 0.02), (GPQA, 0.0), (GPQA, 0.05), (TWELVE, 0.0))


def answered(study: Study, known: Scores, loss: float, random: np.random.Generator) -> Scores:
    """The scores of a run: what is known, but for the share that is drawn anew, and the loss."""
    size = (study.epochs, study.questions)
    anew = random.random(size) < study.drawn
    scores = np.where(anew, random.random(size) < study.chance, known)
    # A loss turns right answers wrong, so many that the mean falls by it.
    lost = random.random(size) < loss / study.chance
    return (scores & ~lost).mean(axis=0)


def ours(found: Gap) -> tuple[str, str | None]:
    """The verdict of the product, and what a gate with one rule makes of it."""
    (final,) = together([judge(of_gap(HEADLINE, found), A_POINT, gated=True)])
    return final.verdict, final.gate


def others(found: Gap) -> dict[str, bool]:
    """What else says that something changed."""
    paired, unpaired = (one or 0.0 for one in found.in_errors)
    return {
        "unpaired z": unpaired > 1.96,
        "gap > 1.5 unpaired SE": unpaired > 1.5,
        "paired t": paired > quantile(found.freedom or 1, 0.975),
        "McNemar exact": found.exact is not None and found.exact < 0.05,
    }


def told(study: Study, loss: float, seed: int) -> dict[str, float]:
    """How often each rule says that something changed, and what the product says besides."""
    random = np.random.default_rng(seed)
    counts: dict[str, int] = {}
    errors = []
    for _ in range(CASES):
        known = random.random(study.questions) < study.chance
        base, other = (answered(study, known, each, random) for each in (0.0, loss))
        found = gap(base, other)
        verdict, gate = ours(found)
        said = {
            "paceline": verdict in {"worse", "better"},
            "same": verdict == "same",
            "passes": gate == "pass",
            "fails": gate == "fail",
            **others(found),
        }
        errors.append(found.error or 0.0)
        for name, happened in said.items():
            counts[name] = counts.get(name, 0) + happened
    shares = {name: count / CASES for name, count in counts.items()}
    return shares | {"error": float(np.mean(errors))}


def simulated() -> bool:
    """The table of the simulation; whether its goals are reached."""
    print(f"{CASES:,} simulated comparisons a row, margin 1 point")
    names = ("paceline", "same", "passes", "fails", *others(gap(np.zeros(4), np.eye(4)[0])))
    print(f"{'questions':26}{'loss':>6}{'SE':>9}" + "".join(f"{name:>23}" for name in names))
    shares = {}
    for number, (study, loss) in enumerate(LOSSES):
        row = shares[study.name, loss] = told(study, loss, number)
        figures = "".join(f"{row[name]:23.1%}" for name in names)
        print(f"{study.name:26}{loss:6.0%}{row['error'] * 100:6.2f} pp{figures}")
    for study in (GSM8K, GPQA, TWELVE):
        error = shares[study.name, 0.0]["error"]
        print(
            f"{study.name}: detects {detectable(error):.2%}, proves {provable(error):.2%}; of one "
            f"such epoch {epochs_needed(error, 0.02)} prove 2 points"
        )
    limit = ALARMS + 1.96 * sqrt(ALARMS * (1 - ALARMS) / CASES)
    alarms = max(row["paceline"] for (_, loss), row in shares.items() if not loss)
    found, blind = (shares[GSM8K.name, 0.01][name] for name in ("paceline", "unpaired z"))
    print(
        f"a loss of 1 point of {GSM8K.questions:,} questions is found in {found:.1%} (goal "
        f"{POWER:.0%}; unpaired z: {blind:.1%}), false alarms {alarms:.1%} at most (5 %, and "
        f"{CASES:,} cases leave {limit:.1%} open)"
    )
    return found >= POWER and alarms <= limit


def real(path: Path) -> None:
    """The standard errors of each pair of the models in a file, paired and not."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    models = [name for name in rows[0] if name != "item"]
    scores = {name: np.array([float(row[name]) for row in rows]) for name in models}
    print(f"\n{len(rows):,} questions, answered by four models\n{'':40}{'gap':>9}", end="")
    print(f"{'paired SE':>12}{'unpaired SE':>13}{'in SE':>14}{'mid-p':>9}  verdict")
    for base, other in combinations(models, 2):
        found = gap(scores[base], scores[other])
        paired, unpaired = found.in_errors
        verdict, _ = ours(found)
        print(
            f"{base + ' to ' + other:40}{found.change * 100:+6.2f} pp"
            f"{(found.error or 0) * 100:9.2f} pp{(found.unpaired or 0) * 100:10.2f} pp"
            f"{paired:7.1f}/{unpaired:.1f}{found.p:12.2g}  {verdict}"
        )


def main() -> int:
    path = Path(os.environ.get("PACELINE_DATA", "")) / REAL
    if path.is_file():
        real(path)
        print()
    else:
        print(f"no real answers: PACELINE_DATA names no folder with {REAL}\n")
    return 0 if simulated() else 1


if __name__ == "__main__":
    sys.exit(main())
