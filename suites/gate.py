"""A candidate held against a baseline by rules, and what an engine against itself shows."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from reports.account import Account, account
from reports.command import judging
from reports.notation import counted, number
from results import calibration as noises
from results import ledger
from results.baseline import KEEPS, REQUESTS, Baseline, baseline
from results.calibration import Calibration
from results.comparability import differences
from results.comparison import EXPLORED, compare
from results.copies import counted_once
from results.errors import FolderError, InputError
from results.matching import comparable
from results.origin import check_cells, check_makers
from results.run import Run, identity, read
from results.side import Side
from results.verdict import Margin, Rule
from suites import rules as written_rules
from suites.reading import Problem
from suites.reading import place as spot
from suites.rules import EXAMPLE, KEY


def compared(
    base: str,
    other: str | None,
    *,
    rules: Path | None = None,
    calibration: Path | None = None,
    factors: Sequence[str] = (),
    allow: Sequence[str] = (),
) -> tuple[list[Account], tuple[str, ...]]:
    """The comparison of two sides, or of a run's arms, and the arms that have nothing in common.

    Each arm of a run is held against the first one that did some of the same work. Rules are those
    of the file, or those that other's suite declares; there may be none. Raises InputError where
    an arm is named and nothing to hold it against.
    """
    path, colon, _ = base.partition(":")
    if other is None and colon and not Path(base).exists() and Path(path).exists():
        raise InputError(
            f"{base}: RUN:ARM needs a second side, such as another arm of {path}: write "
            f"{shlex.quote(base)} {shlex.quote(f'{path}:ARM')}, or {path} for all of its arms"
        )
    pairs, alone = ((ledger.sides([base], [other]),), ()) if other else comparable(read(Path(base)))
    known = _known(calibration)
    found = [
        _account(one, two, rules_for(two, rules), known, factors=factors, allow=allow)
        for one, two in pairs
    ]
    return found, tuple(one.name for one in alone)


def gated(
    candidate: Sequence[str],
    baseline: Sequence[str],
    *,
    rules: Path | None = None,
    calibration: Path | None = None,
    factors: Sequence[str] = (),
    allow: Sequence[str] = (),
) -> Account:
    """The candidate held against the baseline by the rules of the file, or of its own suite.

    Raises InputError where there are no rules, a side has no points, or both are the same runs.
    """
    for each in baseline:
        if not any(Path(each[:end]).exists() for end in _ends(each)):
            raise InputError(
                f"{each} does not exist: make a baseline with `paceline baseline RUN... -o FILE`, "
                "or name a folder that `run` made"
            )
    base, other = ledger.sides(baseline, candidate)
    asked = rules_for(other, rules)
    if not asked:
        raise InputError(
            f"{other.name} has no rules to be judged by: add {KEY}: {{ttft.p90: {EXAMPLE}}} to the "
            "suite, or name a file of rules with --rules"
        )
    for one in (base, other):
        if not one.points:
            raise InputError(f"{one.name} holds no point that has begun: run it first")
    _not_itself(base, other)
    known = _known(calibration)
    found = _account(base, other, asked, known, factors=factors, allow=allow)
    options: dict[str, Sequence[object]] = {
        "baseline": baseline,
        "rules": [rules] if rules else [],
        "calibration": [calibration] if calibration else [],
        "factor": factors,
        "allow": allow,
    }
    return replace(found, confirm=(*found.confirm, judging(other, options)))


def _ends(written: str) -> list[int]:
    """Where a path may end that perhaps has an arm behind it."""
    return [place for place, letter in enumerate(f"{written}:") if letter == ":"]


def rules_for(side: Side, path: Path | None) -> tuple[Rule, ...]:
    """The rules in the file; without one, those that the side's runs were begun with.

    Raises InputError where they are wrong, or differ between the runs of the side.
    """
    experiments = {point.cell.experiment for point in side.points} | {
        str(point["experiment"])
        for run in side.runs
        for point in run.plan["points"]
        if "experiment" in point
    }
    if path is not None:
        return written_rules.load(path, sorted(experiments))
    declared: list[Mapping[str, object]] = []
    for run in side.runs:
        gate = run.plan.get(KEY) or {}
        declared += [] if gate in declared else [gate]
    if len(declared) > 1:
        raise InputError(
            f"{side.name}: its runs were begun with different rules: name those to judge by with "
            "--rules FILE"
        )
    if not declared or not declared[0]:
        return ()
    problems: list[Problem] = []
    found = written_rules.read(declared[0], (KEY,), problems)
    if problems:
        told = f"{spot(problems[0].path)}: {problems[0].sentence}"
        raise InputError(f"{side.runs[0].path / 'plan.json'}: {told}")
    return found


def remembered(
    folders: Sequence[Path], *, out: Path | None, update: Path | None, keeps: int | None
) -> str:
    """Makes a baseline of run folders, or adds them to one; says what it holds.

    Raises InputError where not one of the two is asked for, a file to begin is there already, or
    a run cannot be part of the baseline.
    """
    path = out or update
    if path is None or (out and update):
        raise InputError("baseline: write -o FILE to begin one, or --update FILE to add to one")
    if out and out.exists():
        raise InputError(f"{out} is there already: add to it with --update, or remove it first")
    for folder in folders:
        _refuse_arm(str(folder), path)
    old = ledger.read(path) if update else None
    keeps = keeps or (old.keeps if old else KEEPS)
    named = [path for folder in folders for path in ledger.runs_in(folder)]
    added = [read(folder) for folder in named]
    check_makers(added, "a baseline")
    made = baseline(added, keeps=keeps, old=old)
    check_cells(made.runs)
    ledger.write(path, made)
    known = [run.path.name for run in old.runs] if old else []
    names = [run.path.name for run in made.runs]
    gone = [name for name in (*known, *(folder.name for folder in named)) if name not in names]
    said = f"{path} holds {counted(len(names), 'run')} of {made.suite}, {_kept(made)}"
    dropped = f"; it keeps the {keeps} newest, so these left it: {', '.join(gone)}"
    again = f"; {counted_once(made.copies, len(names))}" if made.copies else ""
    return said + dropped * bool(gone) + again


def _refuse_arm(written: str, path: Path) -> None:
    """Raises InputError where an arm is named: a baseline keeps those of its runs all."""
    folder, colon, arm = written.partition(":")
    if colon and not Path(written).exists() and Path(folder).is_dir():
        against = shlex.quote(f"{path}:{arm}")
        raise InputError(
            f"{written}: a baseline keeps all arms of a run: write {folder}, and name the arm "
            f"where it is used, as in `paceline gate RUN:ARM --baseline {against}`"
        )


def _kept(made: Baseline) -> str:
    """What a baseline keeps of its runs, beside their figures."""
    if made.paired == len(made.runs):
        return "each with all its requests"
    if made.paired:
        return f"with all requests of the newest {made.paired} and only figures of the others"
    return (
        f"with figures alone, as the newest run has more than {number(REQUESTS, 0)} requests: a "
        "gate that fails will not name the slower ones"
    )


def calibrated(
    written: Sequence[str], *, rules: Path | None = None, made: str | None = None
) -> Calibration:
    """What run folders tell of an engine's noise: those that `calibrate SUITE` makes, or others.

    Of one folder with two arms one is held against the other; of one arm, or of several folders,
    every second run. Raises InputError where they are not one engine twice.
    """
    base, other = _halves(written)
    found = differences(base, other)
    apart = [
        one
        for one in found
        if one.standing in {"refusing", "factor"}
        and one.key != "deployment.engine.name"
        and not one.key.endswith(".configuration.name")
    ]
    if apart:
        told = "; ".join(f"{one.key}: {one.base} against {one.other}" for one in apart)
        raise InputError(
            f"{base.name} and {other.name} are not one engine twice ({told}): calibrate takes runs "
            "in which nothing differs"
        )
    margins: dict[str, Margin] = {rule.metric: rule.margin for rule in rules_for(base, rules)}
    return noises.calibrate(
        base,
        other,
        made=made or f"{datetime.now(UTC):%Y-%m-%d}",
        margins=margins,
        explored=EXPLORED,
    )


def _halves(written: Sequence[str]) -> tuple[Side, Side]:
    """The two sides that are one engine twice."""
    if len(written) > 1:
        if len({Path(each).resolve() for each in written}) < len(written):
            raise InputError("calibrate: a run is named twice: name each run once")
        return ledger.side(written[::2]), ledger.side(written[1::2])
    whole = ledger.side(written)
    if len(whole.arms) == 2:
        first, second = (
            replace(whole, name=arm, points=tuple(p for p in whole.points if p.cell.arm == arm))
            for arm in whole.arms
        )
        return first, second
    if len(whole.arms) != 1:
        raise InputError(
            f"{whole.name} has {len(whole.arms)} arms: write RUN:ARM for the one to calibrate"
        )
    first, second = (
        replace(
            whole,
            name=f"{whole.name} ({told} runs)",
            points=tuple(point for point in whole.points if point.cell.repeat % 2 == odd),
        )
        for odd, told in enumerate(("even", "odd"))
    )
    return first, second


def _account(
    base: Side,
    other: Side,
    rules: Sequence[Rule],
    calibration: Calibration | None,
    *,
    factors: Sequence[str],
    allow: Sequence[str],
) -> Account:
    comparison = compare(base, other, rules, calibration=calibration, factors=factors, allow=allow)
    return account(comparison, base, other)


def _known(path: Path | None) -> Calibration | None:
    """The calibration in the file. Raises InputError where it cannot be read."""
    try:
        return noises.read(path) if path else None
    except FolderError as error:
        raise InputError(f"{error}; a calibration is made with `paceline calibrate`") from None


def _not_itself(base: Side, other: Side) -> None:
    """Raises InputError where a run is on both sides: it always is as good as itself.

    A copy under another name is the same run.
    """
    known: dict[str, Run] = {identity(run): run for run in base.runs}
    for run in other.runs:
        same = known.get(identity(run))
        shared = {point.cell.id for point in base.points} & {p.cell.id for p in other.points}
        if same is not None and shared:
            raise InputError(
                f"{run.path} is part of the baseline ({same.path}) and always as good as itself: "
                "gate a run that was made later"
            )
