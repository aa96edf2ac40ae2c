"""One of the two things that are compared: runs, and of them the points of an arm or of all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from results.errors import InputError
from results.run import Run, RunPoint, read
from results.steps import apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Points that stand on one side of a comparison, and the run folders they lie in.

    Several folders may make up one side, each counted once however its path is spelled. `points`
    are in the order of their folders and plans; where steps were timed alone, each step is one.
    """

    name: str
    runs: tuple[Run, ...]
    points: tuple[RunPoint, ...]

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that its points have, in order of appearance."""
        return tuple(dict.fromkeys(point.cell.arm for point in self.points))


def side(written: Sequence[str]) -> Side:
    """The side made of folders, each written `RUN`, or `RUN:ARM` for one arm of it.

    ARM is the whole label of an arm, or words of it that only one arm has: `TP4`, `replay=on`.
    Raises InputError where a folder has no such arm or several.
    """
    read_runs: dict[Path, Run] = {}
    points: list[RunPoint] = []
    for each in written:
        path, asked = _split(each)
        known = read_runs.get(path.resolve())
        run = read_runs[path.resolve()] = known or read(path)
        points += of_arm(run, asked)
    kept = {(point.path.resolve(), point.cell.name): point for point in points}
    return Side(name=" ".join(written), runs=tuple(read_runs.values()), points=tuple(kept.values()))


def of_arm(run: Run, asked: str | None) -> tuple[RunPoint, ...]:
    """The points of the one arm that has these words; of all arms where there are no words.

    Raises InputError where not just one arm has them.
    """
    arms = list(dict.fromkeys(point.cell.arm for point in run.points))
    found = [arm for arm in arms if arm == asked] or [
        arm for arm in arms if set((asked or "").split()) <= set(arm.split())
    ]
    if asked and len(found) != 1:
        several = f"{len(found)} arms that match" if found else "no arm that matches"
        listed = ", ".join(f'"{arm}"' for arm in found or arms) or "no point that has begun"
        raise InputError(
            f'{run.path} has {several} "{asked}": write RUN:ARM with words that one arm alone '
            f"has, of {listed}"
        )
    return tuple(
        replace(point, cell=cell)
        for point in run.points
        if point.cell.arm in found
        for cell in apart(point.cell)
    )


def within(run: Run) -> tuple[tuple[Side, Side], ...]:
    """The sides of one run folder: its first arm against each other one.

    Arms are in the suite's order, which is that of the experiment that has most of them: what
    happens to run first may be compared with none. Raises InputError where there are not two.
    """
    found: dict[str, dict[str, None]] = {}
    for point in run.points:
        found.setdefault(point.cell.experiment, {})[point.cell.arm] = None
    largest = sorted(found.values(), key=len, reverse=True)
    arms = list(dict.fromkeys(arm for of_experiment in largest for arm in of_experiment))
    if len(arms) < 2:
        raise InputError(
            f"{run.path} has {len(arms)} arm{'s' if not arms else ''}, so there is nothing to "
            "compare inside it: name a second run folder"
        )
    sides = [Side(name=arm, runs=(run,), points=of_arm(run, arm)) for arm in arms]
    return tuple((sides[0], other) for other in sides[1:])


def _split(written: str) -> tuple[Path, str | None]:
    """The folder and the arm; a path that is there may hold a colon itself."""
    path, colon, arm = written.partition(":")
    if not colon or Path(written).exists():
        return Path(written), None
    while colon and not Path(path).exists():
        head, colon, arm_rest = arm.partition(":")
        if not colon:
            break
        path, arm = f"{path}:{head}", arm_rest
    return Path(path), arm or None
