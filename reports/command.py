"""The commands that made a run, to be given again."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from results.run import Run
from results.side import Side

USUAL = Path("runs")
"""Where run folders go unless something else is asked for."""


def command(run: Run, *, new: bool = False, repeats: int | None = None) -> str:
    """The command that made the run; an older folder knows no more than its suite's name.

    With `new` it begins a run of its own, whatever was finished before; `repeats` states how many
    repeats that has.
    """
    changes = list(run.plan.get("overrides", ()))
    if repeats is not None:
        changes = [one for one in changes if not one.startswith("repeats=")]
        changes.append(f"repeats={repeats}")
    overrides = [word for change in changes for word in ("--set", change)]
    words = ["paceline", "run", run.plan.get("suite_path", run.suite), *overrides]
    return shlex.join([*words, "--new"] if new else words)


def commands(runs: Iterable[Run], *, repeats: int | None = None) -> tuple[str, ...]:
    """Those that make several runs afresh, each once, into the folders where these lie."""
    return tuple(
        dict.fromkeys(command(run, new=True, repeats=repeats) + _place(run) for run in runs)
    )


def judging(side: Side, options: Mapping[str, Iterable[object]]) -> str:
    """The gate that judges what `commands` make of the side, with these options and their values.

    Those folders are not there yet, so `<utc>` stands for their time.
    """
    whole = {point.cell.arm for run in side.runs for point in run.points}
    arm = f":{side.arms[0]}" if len(side.arms) == 1 and len(whole) > 1 else ""
    folders = dict.fromkeys(f"{run.path.parent}/{run.suite}-<utc>{arm}" for run in side.runs)
    stated = ((f"--{name}", str(one)) for name, values in options.items() for one in values)
    return shlex.join(["paceline", "gate", *folders, *(word for pair in stated for word in pair)])


def _place(run: Run) -> str:
    """The option that names the folder in which the run lies; a baseline file does not know it."""
    parent = run.path.parent
    if parent == USUAL or any(point.kept for point in run.points):
        return ""
    return f" --out {shlex.quote(str(parent))}"
