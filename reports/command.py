"""The commands that made a run, to be given again."""

import shlex
from collections.abc import Iterable

from results.run import Run


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
    """Those that make several runs afresh, each once."""
    return tuple(dict.fromkeys(command(run, new=True, repeats=repeats) for run in runs))
