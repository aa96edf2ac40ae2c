"""Two sides compared: cell by cell, metric by metric."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean
from typing import Any

from results import accuracy, machine
from results.calibration import FREEDOM, Calibration, mismatches, noise, unsure
from results.cell import Cell
from results.comparability import differences, refusals
from results.contest import Contest, Entry, contest
from results.contrast import LEVEL
from results.copies import counted_once
from results.coverage import about, missing, unjudged
from results.direction import DIRECTIONS
from results.effect import Effect
from results.effects import Noise, effects, nothing
from results.errors import InputError
from results.failures import CHANCE, chance, counts
from results.matching import Match, match, ties
from results.scores import HEADLINE
from results.side import Side
from results.standing import Difference, within
from results.strata import Stratum, strata
from results.tokens import Alike, alike
from results.verdict import Judgement, Margin, Rule, invalid, judge, together

EXPLORED = Margin(relative=0.05)
"""What metrics that no rule names are held against."""

A_POINT = Margin(absolute=0.01)
"""What accuracies that no rule names are held against: 5 of 100 answers would be too many."""

APART = 0.01
"""The share by which clocks of GPUs must differ to be told."""

PROMPTS = "prompt_tokens"
"""The key under which different tokens for one message are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellComparison:
    """One workload under one load on both sides: its judgements, or why it is invalid.

    `experiment` is what other calls it, whose rules are judged by. `problems` are finished
    sentences; where there are any, every judgement is `invalid`. `failed` and `asked` count the
    requests that failed and all that ended, of base and other. `strata` are TTFT by new tokens.
    """

    name: str
    experiment: str
    arms: tuple[str, str]
    workload: Mapping[str, Any]
    load: Mapping[str, Any]
    runs: tuple[int, int]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    failed: tuple[int, int]
    asked: tuple[int, int]
    judgements: tuple[Judgement, ...]
    strata: tuple[Stratum, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two sides have in common, and how they differ there.

    `differences` are those of results/comparability.py. `refusals` are finished sentences: where
    there are any, nothing was judged and `cells` is empty. `unmatched` names cells that only one
    side has. `allowed` are the keys in which the sides were allowed to differ. `calibration` is
    what the calibration that was given says of itself, `uncalibrated` why it was not used.
    `missing` says which cells rules are about and other lacks, `unjudged` which base lacks.
    """

    base: str
    other: str
    cells: tuple[CellComparison, ...]
    differences: tuple[Difference, ...] = ()
    refusals: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    calibration: str | None = None
    uncalibrated: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    level: float = LEVEL
    seed: int = 0


def compare(
    base: Side,
    other: Side,
    rules: Sequence[Rule] = (),
    *,
    calibration: Calibration | None = None,
    factors: Sequence[str] = (),
    allow: Sequence[str] = (),
    explored: Margin = EXPLORED,
    seed: int = 0,
) -> Comparison:
    """Everything that two sides have in common, judged; docs/verdicts.md says how.

    The metrics that `rules` name gate, and are held against their own margins; all others are
    held against `explored`. Raises InputError where a rule or a factor names nothing.
    """
    _check(rules)
    found = differences(base, other, factors=factors, allow=allow)
    refused = list(refusals(found))
    matches, alone = ((), ()) if refused else match(base, other)
    tied = () if refused else ties(base, other)
    cells: list[CellComparison] = []
    untold: list[str] = []
    for one in matches:
        read = contest(one.base, one.other)
        if not within(PROMPTS, allow):
            refused += _apart(one, read)
            untold += _untold(one, read, rules)
        spreads, floors = noise(calibration, base, one) if calibration else ({}, {})
        against = _Against(
            margins=_margins(rules, one.other[0].cell),
            explored=explored,
            spreads=spreads,
            floors=floors,
            unsure=unsure(calibration, base, one) if calibration else {},
            seed=seed,
        )
        cells.append(_cell(one, read, (base, other), against))
    return Comparison(
        base=base.name,
        other=other.name,
        cells=() if refused else _with_holm(cells),
        differences=found,
        refusals=tuple(refused),
        unmatched=alone,
        allowed=tuple(allow),
        calibration=calibration.provenance if calibration else None,
        uncalibrated=mismatches(calibration, base) if calibration else (),
        missing=tuple(missing(base, other, rules, alone, _renamed(matches))),
        unjudged=()
        if refused
        else (*unjudged(base, other, rules, alone, _held(cells), tied), *untold),
        seed=seed,
    )


def _renamed(matches: Sequence[Match]) -> dict[str, str]:
    """What other calls the experiments of base."""
    return {one.base[0].cell.experiment: one.other[0].cell.experiment for one in matches}


def _held(cells: Sequence[CellComparison]) -> set[tuple[str, str]]:
    """The experiments and the metrics in which rules were judged."""
    return {
        (cell.experiment, one.effect.metric)
        for cell in cells
        for one in cell.judgements
        if one.gated
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Against:
    """What the effects of a cell are held against."""

    margins: Mapping[str, Margin]
    explored: Margin
    spreads: Noise
    floors: Mapping[str, float]
    unsure: Mapping[str, float]
    seed: int


def _margins(rules: Sequence[Rule], cell: Cell) -> dict[str, Margin]:
    """Those of the rules that hold in the cell; the last one for a metric counts."""
    return {
        rule.metric: rule.margin for rule in rules if about(rule, cell.experiment, cell.workload)
    }


def _check(rules: Sequence[Rule]) -> None:
    for rule in rules:
        if rule.metric not in DIRECTIONS:
            raise InputError(
                f'the rule for "{rule.metric}" names no metric that can be compared: take one of '
                f"{', '.join(DIRECTIONS)}"
            )


def _cell(one: Match, read: Contest, sides: tuple[Side, Side], against: _Against) -> CellComparison:
    problems = (*_problems(read), *_not_begun(one, sides))
    told = [side[0].point.cell for side in read.sides]
    if problems:
        judged = [
            invalid(nothing(read, metric, None), "the cell is invalid", gated=True)
            for metric in against.margins
        ]
    else:
        found = effects(read, against.spreads, against.seed, against.margins)
        judged = [_judged(effect, against) for effect in found]
    failed, asked = zip(*(counts(side) for side in read.sides), strict=True)
    return CellComparison(
        name=one.name,
        experiment=told[1].experiment,
        arms=(told[0].arm, told[1].arm),
        workload=told[0].workload,
        load=told[0].load,
        runs=(len(read.base), len(read.other)),
        problems=problems,
        notes=(*_notes(read), *_unsure(against)),
        failed=failed,
        asked=asked,
        judgements=tuple(judged),
        strata=() if problems or accuracy.asks(read) else strata(read),
    )


def _judged(effect: Effect, against: _Against) -> Judgement:
    margin = against.margins.get(effect.metric)
    of_answers = effect.metric.partition(".")[0] == HEADLINE
    explored = A_POINT if of_answers else against.explored
    floor = against.floors.get(effect.metric)
    return judge(effect, margin or explored, floor=floor, gated=margin is not None)


def _with_holm(cells: Sequence[CellComparison]) -> tuple[CellComparison, ...]:
    """Holm's rule over the gated metrics of all cells: any of them can fail the gate."""
    judged = iter(together([each for cell in cells for each in cell.judgements]))
    return tuple(
        replace(cell, judgements=tuple(islice(judged, len(cell.judgements)))) for cell in cells
    )


def _problems(read: Contest) -> tuple[str, ...]:
    """Why the cell must not be judged: what is wrong with each of its runs."""
    found = []
    for side in read.sides:
        for entry in side:
            summary, cell = entry.summary, entry.point.cell
            where = f"{entry.folder}: {cell.name} ({cell.arm})"
            if summary.status != "finished":
                ended = f"{summary.status}: {summary.reason or 'it was interrupted'}"
                found.append(f"{where} is {ended}")
            found += [f"{where}: {problem}" for problem in summary.problems]
    if not found and accuracy.asks(read) and (apart := accuracy.left_out(read)):
        found.append(apart)
    return tuple(found)


def _not_begun(one: Match, sides: tuple[Side, Side]) -> Iterator[str]:
    """Repeats that the plan has and that never began."""
    for side, points in zip(sides, (one.base, one.other), strict=True):
        cells = {point.cell.cell for point in points}
        for run in side.runs:
            begun = {point.cell.id for point in run.points}
            for planned in run.plan["points"]:
                if planned.get("cell") in cells and planned["id"] not in begun:
                    yield f"{run.path.name}: {planned['name']} has not begun: finish the run first"


def _apart(one: Match, read: Contest) -> list[str]:
    """A refusal where servers tell different input tokens for the same message."""
    found = _messages(read)
    example = next((each.told for each in found if each.told), None)
    if example is None:
        return []
    apart, shared = sum(each.apart for each in found), sum(each.shared for each in found)
    return [
        f"{PROMPTS}: {example[0]:.0f} against {example[1]:.0f} input tokens for the same message, "
        f"in {apart} of {shared} requests of {one.name}: a template, a tokenizer or a thinking "
        f"mode differs; state it on both sides and run again, or add --allow {PROMPTS}"
    ]


def _untold(one: Match, read: Contest, rules: Sequence[Rule]) -> list[str]:
    """A sentence where rules are judged, and nothing says whether the messages were the same."""
    cell = one.other[0].cell
    ruled = any(about(rule, cell.experiment, cell.workload) for rule in rules)
    whole = not any(_sampled(entry) for side in read.sides for entry in side)
    if not ruled or whole or any(each.shared for each in _messages(read)):
        return []
    return [
        f"{one.name} has no message whose input tokens both sides tell, so they may differ in a "
        "template, a tokenizer or a thinking mode: add a newer run to the baseline, or add "
        f"--allow {PROMPTS}"
    ]


def _messages(read: Contest) -> list[Alike]:
    """What the same messages on both sides say: all of them, and few of runs that keep but few."""
    return [
        *(Alike(shared=p.count, apart=p.apart, told=p.told) for p in read.pairs.values()),
        *(
            alike(base.tokens, other.tokens)
            for base in read.base
            for other in read.other
            if base.workload == other.workload and (_sampled(base) or _sampled(other))
        ),
    ]


def _sampled(entry: Entry) -> bool:
    """Whether a baseline file keeps but a few messages of the run."""
    return entry.point.kept is not None and entry.point.kept.rows is None


def _notes(read: Contest) -> tuple[str, ...]:
    """What to know of how the runs were made."""
    found = [
        counted_once(copies, copies + len(entries), name)
        for name, copies, entries in zip(("base", "other"), read.copies, read.sides, strict=True)
        if copies
    ]
    paths = [{one.point.path.resolve() for one in side} for side in read.sides]
    if paths[0] & paths[1]:
        found.append("both sides are the very same runs")
    elif not read.ordered:
        found.append(
            "the runs lie in several folders, so what drifted in between is not told apart"
        )
    elif _one_after_the_other(read):
        found.append("one side ran wholly before the other, so what changed then is not told apart")
    found += [*_unpaired(read), *_cut(read), *_clocked(read)]
    kept = [entry.point.kept for side in read.sides for entry in side if entry.point.kept]
    if kept and not any(one.whole for one in kept):
        found.append(
            "the baseline file keeps no single requests, so those that moved are told only against "
            "run folders"
        )
    if read.twins:
        simulated = all(
            entry.summary.provenance == "simulated" for side in read.sides for entry in side
        )
        found.append(
            "every request was answered in the very same time on both sides"
            + ", as where a simulated run is repeated or copied: ask for more repeats" * simulated
        )
    return tuple(found)


def _clocked(read: Contest) -> Iterator[str]:
    """How fast the GPUs of the sides ran, where that differs."""
    told = [[machine.clocked(one.point) for one in side] for side in read.sides]
    base, other = (fmean(filter(None, side)) if all(side) else None for side in told)
    if base and other and abs(other / base - 1) > APART:
        yield (
            f"the slowest GPU of a run was clocked at {base / 1e6:,.0f} MHz on average on base and "
            f"at {other / 1e6:,.0f} MHz on other, as at its power limit a card slows down by as "
            "much as its work takes: if time follows the clock, that alone makes other "
            f"{100 * abs(base / other - 1):.1f} % {'slower' if other < base else 'faster'}"
        )


def _cut(read: Contest) -> Iterator[str]:
    """How many requests each side had cut, where that differs by more than chance."""
    told = [
        tuple(
            sum(int(one.value or 0) for one in figures if one)
            for figures in (
                [entry.summary.figures.get(name) for entry in side] for name in ("cut", "requests")
            )
        )
        for side in read.sides
    ]
    (few, base), (many, other) = told
    # A baseline file does not tell what was cut.
    kept = any(entry.point.kept for side in read.sides for entry in side)
    if not kept and chance((few, base), (many, other)) < CHANCE:
        yield (
            f"requests that the end of the window cut, which are in no latency: {few:,} of "
            f"{base:,} (base), {many:,} of {other:,} (other)"
        )


def _unsure(against: _Against) -> Iterator[str]:
    """Which rules are multiples of a noise that too few runs tell."""
    few = [name for name in against.unsure if against.margins.get(name, EXPLORED).noise]
    if few:
        yield (
            f"the calibration tells the noise of {', '.join(few)} by fewer than {FREEDOM} degrees "
            "of freedom, too few for a margin in multiples of it: calibrate with more repeats"
        )


def _unpaired(read: Contest) -> Iterator[str]:
    """That request by request not all runs are compared: some repeats are on one side only."""
    for name, side in zip(("base", "other"), read.sides, strict=True):
        sent = sum(entry.workload in read.pairs for entry in side)
        if 0 < sent < len(side):
            yield (
                f"request by request, only {sent} of the {len(side)} runs of {name} are compared: "
                "the others are of repeats that the other side did not run"
            )


def _one_after_the_other(read: Contest) -> bool:
    """Whether all runs of one side came first, though there were several to interleave."""
    base, other = ([entry.point.cell.position for entry in side] for side in read.sides)
    several = min(len(base), len(other)) > 1
    return several and (max(base) < min(other) or max(other) < min(base))
