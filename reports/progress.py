"""How a run goes, on standard error while it goes."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bars

from reports.notation import counted, duration, number
from results.record import RequestRecord

PERIOD = 0.2


@dataclass(slots=True)
class _Current:
    """The point under way and what has come of it so far; `clock` is in the point's own time."""

    name: str
    number: int
    started: float
    requests: int = 0
    failed: int = 0
    tokens: int = 0
    clock: float = 0.0


class Progress:
    """A watch on a run: two bars on a terminal, or one line a finished point where it is quiet.

    Rates are in the point's own time, so that they mean the same on a virtual clock.
    """

    def __init__(
        self,
        *,
        quiet: bool | None = None,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or Console(file=sys.stderr)
        self._quiet = not self._console.is_terminal if quiet is None else quiet
        self._now = now
        self._drawn = 0.0
        self._spent = 0.0
        self._done = self._ran = 0
        self._total: int | None = None
        self._estimate: float | None = None
        self._current: _Current | None = None
        # Drawn only when something happens: a refreshing thread would stamp into the measurement.
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[line]}"),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            transient=True,
        )
        self._overall = self._bars.add_task("points", total=None, line="")
        self._point = self._bars.add_task("", total=None, line="", visible=False)

    def __enter__(self) -> Self:
        if not self._quiet:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if not self._quiet:
            self._bars.stop()

    def point_started(
        self, name: str, number: int, total: int | None, estimate: float | None
    ) -> None:
        """Point `number` of `total` begins; `estimate` is its length in seconds, where known.

        A search does not know its total.
        """
        self._current = _Current(name=name, number=number, started=self._now())
        self._total, self._done, self._estimate = total, number - 1, estimate
        self._draw()

    def request_done(self, record: RequestRecord) -> None:
        """A request became a row; costs about a microsecond unless it is time to draw."""
        current = self._current
        if current is None:
            return
        current.requests += 1
        current.failed += record.state == "failed"
        current.tokens += record.output_tokens or 0
        current.clock = record.closed
        if not self._quiet and self._now() - self._drawn >= PERIOD:
            self._draw()

    def point_finished(self, name: str, status: str, reason: str | None, seconds: float) -> None:
        """A point has its outcome, after so many seconds on the wall."""
        current = self._current
        self._done += 1
        if current:
            self._ran += 1
            self._spent += seconds
        known = f"{self._done}/{self._total} " if self._total else f"#{self._done} "
        place = known if current else ""
        self._say(f"{place}{name}: {_ending(status, reason, seconds, current)}")
        # Drawn once more, because a short point may have ended before its first drawing.
        self._draw()
        self._current = None

    def point_skipped(self, name: str, status: str) -> None:
        """A point has had its outcome since an earlier run."""
        self._done += 1
        self._say(f"{name}: {status} earlier, not run again")

    def _say(self, line: str) -> None:
        # Soft wrap keeps one line a point, however narrow a log claims to be.
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        if self._quiet:
            return
        self._drawn = self._now()
        known = f"{self._done} of {self._total}" if self._total else f"{self._done} so far"
        overall = f"{known}{self._left()}"
        self._bars.update(self._overall, completed=self._done, total=self._total, line=overall)
        current = self._current
        if current:
            elapsed = self._drawn - current.started
            self._bars.update(
                self._point,
                description=escape(current.name),
                completed=min(elapsed, self._estimate or 0.0),
                total=self._estimate,
                line=_so_far(current, elapsed),
                visible=True,
            )
        self._bars.refresh()

    def _left(self) -> str:
        """About how long the rest takes, from the points run so far or else from the estimate."""
        mean = self._spent / self._ran if self._ran else self._estimate
        if mean is None or self._total is None:
            return ""
        return f", about {duration(mean * (self._total - self._done))} left"


def _ending(status: str, reason: str | None, seconds: float, current: _Current | None) -> str:
    if reason:
        return f"{status} after {duration(seconds)}: {reason}"
    if current is None:
        return f"{status} after {duration(seconds)}"
    counts = f"{counted(current.requests, 'request')}, {number(current.failed, 0)} failed"
    return f"{status} in {duration(seconds)}, {counts}"


def _so_far(current: _Current, elapsed: float) -> str:
    clock = current.clock or 1.0
    return (
        f"{counted(current.requests, 'request')}, {number(current.requests / clock)} req/s, "
        f"{number(current.tokens / clock)} tok/s, {number(current.failed, 0)} failed, "
        f"{duration(elapsed)}"
    )
