"""The commands about verdicts: compare two sides, gate a candidate, keep a baseline."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suites import output
from suites.exits import Exit, print_json, sentences

if TYPE_CHECKING:
    from reports.account import Account

Json = Annotated[bool, typer.Option("--json", help="Ends stdout with one JSON line.")]
Factors = Annotated[
    list[str] | None,
    typer.Option("--factor", metavar="KEY", help="What is compared; other keys must agree."),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="KEY", help="A key in which the sides may differ."),
]
Rules = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Rules, in place of those of the suite.")
]
Noise = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What `calibrate` wrote on this machine.")
]


@sentences()
def compare(
    *,
    base: Annotated[str, typer.Argument(metavar="A", help="RUN, RUN:ARM or a baseline file.")],
    other: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Without it, the arms of A.")
    ] = None,
    factors: Factors = None,
    allow: Allowed = None,
    rules: Rules = None,
    calibration: Noise = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", "--output", help="A page to write.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether B is faster or slower than A, by how much, and how sure that is.

    Example: paceline compare runs/smoke-20260101T120000Z
    """
    from reports.comparison import comparison_text, left_out
    from reports.facts import comparison_facts
    from suites.gate import compared

    output.check(*filter(None, [out]))
    found, alone = compared(
        base,
        other,
        rules=rules,
        calibration=calibration,
        factors=factors or (),
        allow=allow or (),
    )
    print("\n\n".join([*map(comparison_text, found), *left_out(alone)]))
    if out:
        from reports.comparison_page import write_comparison

        for number, one in enumerate(found, 1):
            page = out if number == 1 else out.with_stem(f"{out.stem}-{number}")
            write_comparison(one, page)
            print(f"Wrote {page}")
    if as_json:
        print_json({"comparisons": [comparison_facts(one) for one in found], "left_out": alone})
    if any(one.comparison.refusals or not one.cells for one in found):
        raise typer.Exit(Exit.BAD_INPUT)


class Undecided(StrEnum):
    """What an inconclusive gate counts as."""

    FAIL = "fail"
    PASS = "pass"  # noqa: S105 - no password


@sentences()
def gate(
    *,
    candidate: Annotated[list[str], typer.Argument(metavar="RUN...", help="What is judged.")],
    baseline: Annotated[
        list[str], typer.Option(metavar="RUN|FILE", help="What it is held against.")
    ],
    factors: Factors = None,
    allow: Allowed = None,
    rules: Rules = None,
    calibration: Noise = None,
    inconclusive: Annotated[
        Undecided | None, typer.Option(help="What to make of it, instead of exit code 4.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Adds a summary to this file, as for a pull request.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Writes a JUnit report.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", "--output", help="A page to write.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge runs by rules against a baseline: exit 0 passed, 1 failed, 4 inconclusive.

    Example: paceline gate runs/smoke-20260102T120000Z --baseline baseline.json
    """
    from reports.facts import comparison_facts
    from reports.gate import gate_text
    from suites.gate import gated

    output.check(*filter(None, [out, markdown, junit]))
    found = gated(
        candidate,
        baseline,
        rules=rules,
        calibration=calibration,
        factors=factors or (),
        allow=allow or (),
    )
    print(gate_text(found))
    if out or markdown or junit:
        _write(found, page=out, markdown=markdown, junit=junit)
    code = _gate_code(found, inconclusive)
    if as_json:
        print_json({**comparison_facts(found), "exit_code": int(code)})
    raise typer.Exit(code)


@sentences()
def baseline(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", "--output", help="A baseline to begin.")
    ] = None,
    update: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A baseline to add the runs to.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=1, help="How many of the newest runs stay in it.")
    ] = None,
) -> None:
    """Make one small file of run folders, or add to it, for a gate to hold later runs against.

    Example: paceline baseline runs/smoke-20260101T120000Z -o baseline.json
    """
    from suites.gate import remembered

    output.check(*filter(None, [out]))
    print(remembered(runs, out=out, update=update, keeps=keep))


def _write(one: Account, *, page: Path | None, markdown: Path | None, junit: Path | None) -> None:
    """Writes what is asked for; Markdown is added to what the file holds, as a step's summary is.

    Raises FolderError where something cannot be written.
    """
    from reports.comparison_page import write_comparison
    from reports.junit import junit as as_junit
    from reports.markdown import comparison_markdown
    from results import document

    if markdown:
        with document.writing(markdown), markdown.open("a") as file:
            file.write(comparison_markdown(one))
    if junit:
        with document.writing(junit):
            junit.write_text(as_junit(one))
    if page:
        write_comparison(one, page, decides=True)


def _gate_code(found: Account, inconclusive: Undecided | None) -> Exit:
    """The exit code that the gate's answer comes to."""
    from reports.gate import answer

    if found.comparison.refusals:
        return Exit.BAD_INPUT
    said = answer(found)
    if said == "inconclusive" and inconclusive:
        print(f"Inconclusive counts as a {inconclusive} here.")
        return Exit.GOOD if inconclusive is Undecided.PASS else Exit.GATE_FAILED
    return {
        "pass": Exit.GOOD,
        "fail": Exit.GATE_FAILED,
        "invalid": Exit.INCOMPLETE,
        "inconclusive": Exit.INCONCLUSIVE,
    }[said]
