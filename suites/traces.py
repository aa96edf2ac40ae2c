"""The commands about trace files: make, describe and check them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suites.exits import Exit, print_json, sentences

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help=".json or .jsonl files, .gz of either, or folders."),
]
Json = Annotated[bool, typer.Option("--json", help="Ends stdout with one JSON line.")]


@sentences()
def make(
    *,
    out: Annotated[
        Path, typer.Option("-o", "--out", "--output", help="A .jsonl or .jsonl.gz file.")
    ],
    sessions: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds make equal files.")] = 0,
    context_limit: Annotated[
        int | None,
        typer.Option(min=4096, help="Scales sessions down to so many tokens a request."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Generate agent sessions that are distributed like the published corpus.

    Example: paceline traces make -o sessions.jsonl.gz --sessions 24 --seed 1
    """
    from reports.notation import counted
    from suites import output
    from workloads.export import write
    from workloads.synthesis import generate

    output.check(out)
    made, requests = write(generate(sessions, seed, context_limit), out)
    print(f"Wrote {out}: {counted(made, 'generated session')}, {counted(requests, 'request')}")
    if as_json:
        print_json({"file": str(out), "sessions": made, "requests": requests})


@sentences()
def describe(files: Files, as_json: Json = False) -> None:
    """Print the distributions of trace files beside those of the published corpus.

    Example: paceline traces describe sessions.jsonl.gz
    """
    from itertools import chain

    from reports.traces import portrait_tables, portrait_values
    from workloads import portrait
    from workloads.weka import stream

    found = portrait.figures(portrait.describe(chain.from_iterable(map(stream, files))))
    print(portrait_tables(found))
    if as_json:
        print_json({"files": files, "figures": portrait_values(found)})


@sentences()
def check(files: Files, as_json: Json = False) -> None:
    """List everything that is wrong in trace files; exit 2 where a run would refuse them.

    Example: paceline traces check corpus.jsonl
    """
    from dataclasses import asdict

    from reports.traces import problem_lines
    from workloads import inspection

    problems = [problem for file in files for problem in inspection.check(file)]
    print(problem_lines(problems))
    if as_json:
        print_json({"problems": [asdict(problem) for problem in problems]})
    if any(problem.fatal for problem in problems):
        raise typer.Exit(Exit.BAD_INPUT)
