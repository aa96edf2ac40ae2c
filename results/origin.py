"""Where runs come from: which command made each, and whether they ran the same cells."""

from collections.abc import Iterable, Sequence
from typing import Literal

from results.errors import InputError
from results.run import Run

Maker = Literal["run", "search", "calibrate"]
"""The commands that make run folders."""


def check_makers(runs: Iterable[Run], purpose: str) -> None:
    """Raises InputError where a run was not made to measure a whole suite once.

    That is one by `calibrate`, and one by `search` that nobody has completed. `purpose` says what
    the runs are wanted for.
    """
    for run in runs:
        match run.plan.get("maker"):
            case "calibrate":
                raise InputError(
                    f"{run.path} was made by `calibrate`, which runs an engine against itself, and "
                    f"is no part of {purpose}: leave it out"
                )
            case "search" if run.planned:
                raise InputError(
                    f"{run.path} was made by `search`, has only the points that it needed, and is "
                    f"no part of {purpose}: complete it with `paceline run`, or leave it out"
                )


def check_cells(runs: Sequence[Run]) -> None:
    """Raises InputError where a run has not the arms and cells that most of the runs have."""
    there = [frozenset(_cells(run)) for run in runs]
    usual = max(there, key=there.count, default=frozenset())
    for run, cells in zip(runs, there, strict=True):
        if apart := cells ^ usual:
            names = {cell: name for one in runs for cell, name in _cells(one).items()}
            first = min(names[cell] for cell in apart)
            has = "has" if any(_cells(run).get(cell) == first for cell in apart) else "lacks"
            raise InputError(
                f"{run.path.name} is not a run of the same cells as the others, for one because it "
                f"{has} {first}: leave it out, or make a new baseline with -o of the runs that "
                "have the same cells"
            )


def _cells(run: Run) -> dict[tuple[str, str, str], str]:
    """Every cell of the run by its experiment, its arm and what was sent, with a readable name."""
    return {
        (cell.experiment, cell.arm, cell.pairing): cell.name.removesuffix("-r0")
        for cell in (point.cell for point in run.points)
        if cell.repeat == 0
    }
