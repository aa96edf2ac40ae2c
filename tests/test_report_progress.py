"""What the watch on a run prints."""

import io
import time
from types import SimpleNamespace

from rich.console import Console

from reports.progress import Progress


def _record(closed, state="ok", tokens=50):
    return SimpleNamespace(closed=closed, state=state, output_tokens=tokens)


def _quiet(clock=time.monotonic):
    out = io.StringIO()
    return out, Progress(quiet=True, console=Console(file=out, width=40), now=clock)


def test_a_quiet_watch_prints_one_line_a_point():
    out, progress = _quiet()
    with progress:
        progress.point_skipped("a-point", "finished")
        progress.point_started("a-[bold]point-with-a-long-name", 2, 3, None)
        progress.request_done(_record(1.0))
        progress.request_done(_record(3600.0, "failed", None))
        progress.point_finished("a-[bold]point-with-a-long-name", "finished", None, 4.0)
        progress.point_started("b-point", 3, 3, 60.0)
        progress.point_finished("b-point", "failed", "the server died", 61.0)
    assert out.getvalue() == (
        "a-point: finished earlier, not run again\n"
        "2/3 a-[bold]point-with-a-long-name: finished in 4.0 s, 2 requests, 1 failed\n"
        "3/3 b-point: failed after 1 min 01 s: the server died\n"
    )


def test_a_search_counts_what_it_has_run_since_it_does_not_know_its_total():
    out, progress = _quiet()
    with progress:
        for number, name in enumerate("abc", start=1):
            progress.point_started(name, number, None, 1.0)
            progress.point_finished(name, "finished", None, 2.0)
    places = [line.split(":")[0] for line in out.getvalue().splitlines()]
    assert places == ["#1 a", "#2 b", "#3 c"]
    console = Console(file=out, width=200, force_terminal=True)
    with Progress(console=console, now=lambda: 0.0) as progress:
        progress.point_started("a", 4, None, 1.0)
        assert "3 so far" in out.getvalue()
        assert "left" not in out.getvalue()


def test_a_point_for_which_no_time_was_left_has_its_line():
    out, progress = _quiet()
    with progress:
        progress.point_finished("a", "not started", "the time budget was spent", 0.0)
    assert out.getvalue() == "a: not started after 0.0 s: the time budget was spent\n"


def test_bars_show_points_requests_rates_and_the_time_left():
    out, moment = io.StringIO(), 0.0
    console = Console(file=out, width=200, force_terminal=True)
    with Progress(console=console, now=lambda: moment) as progress:
        progress.point_started("first", 1, 3, 30.0)
        for second in range(1, 11):
            moment = float(second)
            progress.request_done(_record(moment, tokens=300))
        assert "0 of 3, about 1 min 30 s left" in out.getvalue()
        assert "10 requests, 1.00 req/s, 300 tok/s, 0 failed, 10.0 s" in out.getvalue()
        progress.point_finished("first", "finished", None, 12.0)
        assert "1 of 3, about 24.0 s left" in out.getvalue()


def test_the_bars_are_drawn_a_few_times_a_second_at_most():
    out, moment = io.StringIO(), 0.0
    console = Console(file=out, width=200, force_terminal=True)
    with Progress(console=console, now=lambda: moment) as progress:
        progress.point_started("first", 1, 1, None)
        before = len(out.getvalue())
        for request in range(1000):
            moment = 0.1 * request / 1000
            progress.request_done(_record(moment))
        assert len(out.getvalue()) == before


def test_a_point_too_short_to_be_drawn_while_it_runs_is_drawn_when_it_ends():
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True)
    with Progress(console=console, now=lambda: 0.0) as progress:
        progress.point_started("first", 1, 2, None)
        progress.request_done(_record(1.0))
        assert "1 request," not in out.getvalue()
        progress.point_finished("first", "finished", None, 0.1)
        assert "1 request, 1.00 req/s, 50.0 tok/s" in out.getvalue()
