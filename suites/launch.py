"""The folder that a plan runs into: one to go on with, or a new one."""

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.environment import environment
from harness.point import Point
from harness.run import UNDONE
from results.errors import FolderError, InputError
from results.folder import RunFolder, create, newest, reopen
from results.metrics import summarise
from results.run import RunPoint, read
from suites.description import refusal
from suites.needs import missing
from suites.output import check_folder
from suites.plan import Plan
from suites.suite import Suite

INVALID = "INVALID"

AGAIN = frozenset({"failed", "broken", INVALID})
"""What becomes of points that are run again where that is asked for."""


def launch(
    suite: Suite,
    planned: Plan,
    out: Path,
    *,
    points: Sequence[Point],
    new: bool,
    retry: bool,
    tell: Callable[[str], None],
) -> RunFolder:
    """The newest folder of this plan that is not complete, or a new one; `tell` hears which.

    With `retry` it is the newest of all, and what failed or is invalid there is to be run again.
    Raises InputError where what is left of the `points` that are meant needs what is not there,
    FolderError where the folder cannot be written, or another process writes to it.
    """
    check_folder(out)
    folder = None if new else _earlier(planned, out, retry=retry, tell=tell)
    left = [one for one in points if not folder or folder.outcome(one.name, one.id) in UNDONE]
    lines = missing((one for one in left if refusal(one) is None), planned.engines)
    if lines and folder:
        folder.close()
    if lines:
        raise InputError("\n".join(lines))
    return folder or _begun(suite, planned, out, new=new, tell=tell)


def _earlier(
    planned: Plan, out: Path, *, retry: bool, tell: Callable[[str], None]
) -> RunFolder | None:
    """The folder of an earlier run that is gone on with, if any."""
    path = newest(out, planned.suite, planned.hash, unfinished=not retry)
    if path is None and retry:
        raise InputError(
            f"{out} has no run of this very plan to run anything again in: leave --retry out"
        )
    if path is None:
        return None
    became = _became(path) if retry else {}
    again = {point: word for point, word in became.items() if word in AGAIN}
    told = _counted(again) if again else "nothing"
    tell(f"Resuming {path}{f', running again: {told}' if retry else ''}")
    return reopen(path, again)


def _begun(
    suite: Suite, planned: Plan, out: Path, *, new: bool, tell: Callable[[str], None]
) -> RunFolder:
    """A new folder."""
    before = None if new else newest(out, planned.suite, planned.hash)
    simulated = all(point.deployment.engine.clock == "virtual" for point in planned.points)
    # A simulated server is always new, so its runs may repeat to the byte. A real one may remember
    # an earlier run, so nothing that is sent to it may ever have been sent before.
    salt = suite.seed if simulated else secrets.randbits(32)
    made = create(out, planned.suite, suite.text, planned.facts(), environment(), salt)
    if before:
        told = _left_behind(before, again="--retry runs those again" * (planned.maker == "run"))
        tell(
            f"An earlier run of this very plan has nothing left to begin ({told}): starting anew "
            f"in {made.path}"
        )
    return made


def _left_behind(path: Path, again: str) -> str:
    """What became of the points of a run, and what could be done about those that came to nothing.

    A run of another version of paceline cannot be read, and need not be.
    """
    try:
        became = _became(path)
    except FolderError as error:
        return str(error)
    way = again if AGAIN & set(became.values()) else ""
    return "; ".join(filter(None, [_counted(became), way]))


def _became(path: Path) -> dict[str, str]:
    """The status of each point of a run by its id, or that it is finished and invalid."""
    return {point.cell.id: _status(point) for point in read(path).points}


def _status(point: RunPoint) -> str:
    valid = point.status != "finished" or summarise(point, intervals=False).valid
    return point.status if valid else INVALID


def _counted(became: dict[str, str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(became.values()).items())
