"""A run folder while it is written: one writer, safe against a crash, and resumable."""

import fcntl
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from results import answers, document
from results.errors import FolderError
from results.writer import PointWriter

STATUSES = ("finished", "failed", "unsupported", "not started", "cut")
"""What can become of a point."""


class RunFolder:
    """A run folder that this process alone writes to, until it is closed.

    `run_id` is what the `run` column says: equal for two runs of one plan with one salt. Points
    with an id of `again` count as if they had no outcome until they are begun anew.
    """

    def __init__(self, path: Path, plan: Mapping[str, Any], again: Iterable[str] = ()) -> None:
        """Takes the folder's lock. Raises FolderError where another writer holds it."""
        self.path = path
        self._again = set(again)
        self.salt: int = plan["salt"]
        self.run_id = run_id(plan)
        self._lock = _locked(path)

    def outcome(self, point_name: str, point_id: str) -> str | None:
        """The point's status; None where it has none, and so must be run."""
        if point_id in self._again:
            return None
        return _status(self._point(point_name, point_id) / "outcome.json")

    def open_point(self, facts: Mapping[str, Any]) -> PointWriter:
        """A writer for the point that `facts` is point.json of.

        What an earlier attempt left is kept beside it as broken-1, broken-2, ...
        """
        return PointWriter(*self._begin(facts))

    def not_started(self, facts: Mapping[str, Any], reason: str) -> None:
        """Records that the point could not begin; it is run when the folder is taken up again.

        One that was to be run again keeps what it has.
        """
        if facts["id"] in self._again:
            return
        path, _ = self._begin(facts)
        document.write(path / "outcome.json", {"status": "not started", "reason": reason})

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self, facts: Mapping[str, Any]) -> tuple[Path, int]:
        self._again.discard(facts["id"])
        path = self._point(facts["name"], facts["id"])
        with document.writing(path):
            path.mkdir(exist_ok=True)
            attempts = _retire(path)
        document.write(path / "point.json", facts)
        return path, attempts

    def _point(self, name: str, identity: str) -> Path:
        return self.path / folder_name(name, identity)


def create(
    out: Path,
    suite_name: str,
    suite_text: str,
    plan: Mapping[str, Any],
    environment: Mapping[str, Any],
    salt: int,
) -> RunFolder:
    """A new run folder `out/<suite>-<utc>`.

    `plan` has at least `hash`, and `points`: mappings with at least `id` and `name`, in the order
    in which they are to run. Raises FolderError where the folder cannot be written.
    """
    points = [
        {**point, "folder": folder_name(point["name"], point["id"])} for point in plan["points"]
    ]
    resolved = {"suite": suite_name, "salt": salt, **plan, "points": points}
    folder = RunFolder(_fresh(out, _safe(suite_name)), resolved)
    with document.published(folder.path / "suite.yaml") as temporary:
        temporary.write_bytes(suite_text.encode())
    document.write(folder.path / "environment.json", environment)
    # The plan comes last: a folder without one is no run.
    document.write(folder.path / "plan.json", resolved)
    return folder


def newest(out: Path, suite_name: str, plan_hash: str, *, unfinished: bool = False) -> Path | None:
    """The newest folder of this suite and plan; if `unfinished`, in which a point is to be run."""
    found = [
        (match[1], int(match[2] or 1), path)
        for path in out.glob(f"{_safe(suite_name)}-*")
        if (match := re.fullmatch(r".*-(\d{8}T\d{6}Z)(?:-(\d+))?", path.name))
        and _same(path, suite_name, plan_hash)
        and (not unfinished or _unfinished(path))
    ]
    return max(found)[2] if found else None


def reopen(path: Path, again: Iterable[str] = ()) -> RunFolder:
    """A run folder to go on with, the points with an id of `again` as if they had no outcome.

    Raises FolderError where it is none, or another writes to it.
    """
    return RunFolder(path, document.read(path / "plan.json"), again)


def run_id(plan: Mapping[str, Any]) -> str:
    """The name of a run in its rows: suite, plan and salt."""
    return f"{plan['suite']}-{plan['hash'][:8]}-{plan['salt'] & 0xFFFFFFFF:08x}"


def folder_name(name: str, identity: str) -> str:
    """The name of a point's folder."""
    return f"{_safe(name)[:200]}-{identity}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+=-]+", "-", name)


def _fresh(out: Path, suite: str) -> Path:
    """An empty folder of its own: two runs may begin within one second."""
    stem = f"{suite}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    with document.writing(out / stem):
        out.mkdir(parents=True, exist_ok=True)
        while True:
            path = out / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
            else:
                return path


def _locked(path: Path) -> int:
    """A descriptor that holds the folder's lock as long as it is open."""
    with document.writing(path / "lock"):
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(descriptor, 20).decode() or "unknown"
        os.close(descriptor)
        raise FolderError(
            f"{path} is being written by another paceline (process {owner}): wait until it has "
            "ended, or start a run of your own with --new"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _same(path: Path, suite_name: str, plan_hash: str) -> bool:
    try:
        plan = document.read(path / "plan.json")
    except FolderError:
        return False
    return (plan.get("suite"), plan.get("hash")) == (suite_name, plan_hash)


def _unfinished(path: Path) -> bool:
    try:
        points = document.read(path / "plan.json")["points"]
        found = (_status(path / point["folder"] / "outcome.json") for point in points)
        return any(status in {None, "not started"} for status in found)
    except (KeyError, TypeError):
        # Damaged: it cannot be taken up.
        return False


def _status(outcome: Path) -> str | None:
    """The status that an outcome tells; None where there is none, or a damaged one."""
    try:
        status = document.read(outcome).get("status")
    except FolderError:
        return None
    return status if status in STATUSES else None


def _retire(path: Path) -> int:
    """Sets aside what an earlier attempt at a point left, its outcome first.

    Gives how many attempts there have been.
    """
    for name in ("outcome.json", "evidence.json", "steps.parquet", answers.NAME):
        (path / name).unlink(missing_ok=True)
    if (path / "requests.arrow").exists():
        # The same rows, written just before the crash.
        (path / "requests.parquet").unlink(missing_ok=True)
    numbers = [int(old.stem.partition("-")[2]) for old in path.glob("broken-*.*")]
    number = 1 + max(numbers, default=0)
    for name in ("requests.arrow", "requests.parquet", "server.log", answers.GROWING):
        old = path / name
        if old.exists():
            old.rename(path / f"broken-{number}{old.suffix}")
    return number if any(path.glob(f"broken-{number}.*")) else number - 1
