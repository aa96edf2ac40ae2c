"""The tables of a comparison: each cell's metrics with their verdicts, and what stands beside."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from reports.account import Account, CellAccount
from reports.gaps import gap_sheet
from reports.labels import marked
from reports.notation import bound, changed, counted, label, measured, number, percent
from reports.tables import Column, Sheet, headings
from reports.verdicts import beside, change, explored, gated, in_unit, limit, more, share
from results.comparison import CellComparison, Comparison
from results.contrast import Drift
from results.direction import DIRECTIONS, in_points
from results.effect import Effect
from results.moved import MOST
from results.standing import Difference
from results.strata import FEWEST, Stratum, contrary, looked_at
from results.verdict import Gate, Judgement, Margin, boundless

TOLD = (
    "MDD: the smallest difference that such runs show in 80 of 100 cases; changes are other "
    "against base, with 95 % intervals"
)

FEW = 6
"""So many exploratory metrics that are worse are named; more are counted."""

FAR_WIDER = 3.0
"""So many times the relative part of a margin the absolute part is when that is worth a warning."""

SMALL = 0.01
"""A drift over all runs that is smaller does not matter where no margin says what does."""

STANDINGS = {
    "refusing": "in the way",
    "factor": "compared",
    "allowed": "allowed",
    "harmless": "harmless",
}
"""What a difference means, in a word."""

GATES: dict[Gate, str] = {
    "pass": "pass",
    "fail": "FAIL",
    "inconclusive": "inconclusive",
    "invalid": "INVALID",
}
"""What became of a rule, as it is shown."""

Filled = tuple[Column, Callable[[Judgement], str]]


def cell_sheets(cell: CellAccount, *, whole: bool = False) -> list[Sheet]:
    """The gated metrics of a cell, and the exploratory ones apart; all of these with `whole`.

    With `whole` TTFT by new tokens follows. Where questions were asked, the gap in their answers
    comes last. None where the cell is not valid: its problems are among its notes.
    """
    if cell.cell.problems:
        return []
    rules = [one for one in cell.cell.judgements if one.gated]
    core, rest = explored(cell)
    free = [*core, *rest] if whole else list(core)
    made = []
    if rules:
        made.append(_sheet(cell, "gated", rules, whole=whole))
    if free:
        told = "exploratory, no rule names them" if rules else "exploratory, as no rule is given"
        made.append(_sheet(cell, told, free, whole=whole))
    if whole and looked_at(cell.cell.strata):
        made.append(_strata_sheet(cell))
    gaps = gap_sheet(cell)
    return [*made, gaps] if gaps else made


def cell_notes(cell: CellAccount, account: Account, *, whole: bool = False) -> list[str]:
    """What is to be known of a cell as a whole, besides what all cells share."""
    one = cell.cell
    notes = [f"not judged: {problem}" for problem in _by_point(one.problems)]
    notes += [f"note: {note}" for note in one.notes if note not in account.notes]
    notes += _failures(one)
    notes += _matched(one)
    notes += _contrary(cell, sum(looked_at(each.cell.strata) for each in account.cells))
    among = [each for any_cell in account.cells for each in _told(any_cell) if each.effect.drift]
    notes += _drifts(_told(cell), len(among))
    rest = explored(cell)[1]
    if rest and not whole:
        notes.append(_rest(rest))
    return notes


def gate_sheet(account: Account) -> Sheet:
    """A row for each rule and cell: whether it passed, and why."""
    rules = gated(account)
    rows = [
        (
            GATES[one.gate or "pass"],
            label(one.effect.metric),
            cell.place,
            change(one.effect),
            limit(one),
            share(one.effect, one.effect.detectable, 2),
            _verdict(one),
        )
        for cell, one in rules
    ]
    columns = headings(("gate", "metric", "cell"), ("change", "margin", "MDD"), ("verdict",))
    notes = (*_widened(rules), *_undecided(rules), *_certain(rules))
    title = marked("Rules: no metric is worse by more than its margin", account.mark)
    return Sheet(title=title, columns=columns, rows=tuple(rows), notes=notes)


def rule(one: Judgement) -> str:
    """The rule in words: `TTFT p90 no more than 5 % worse`."""
    name = label(one.effect.metric)
    if one.margin is None:
        return f"{name} no worse than its margin"
    return f"{name} no more than {share(one.effect, one.margin)} worse"


def moved_sheet(account: Account) -> Sheet:
    """The requests that got slower by the largest factors, where a gated latency is worse."""
    found = {(cell.place, one) for cell in account.cells for one in cell.moved}
    order = sorted(found, key=lambda each: (-each[1].ratio, each[0], each[1].trace, each[1].turn))
    rows = tuple(
        (
            label(one.metric),
            place,
            one.trace,
            one.stream,
            number(one.turn, 0),
            number(one.repeat, 0),
            measured(one.base, DIRECTIONS[one.metric].unit),
            measured(one.other, DIRECTIONS[one.metric].unit),
            f"{number(one.ratio)} times",
        )
        for place, one in order[:MOST]
    )
    return Sheet(
        title=marked("Requests that got slower by most", account.mark),
        columns=headings(
            ("metric", "cell", "trace", "stream"), ("turn", "repeat", "base", "other", "ratio")
        ),
        rows=rows,
    )


def difference_sheet(comparison: Comparison, *, whole: bool = False) -> Sheet:
    """In what the sides differ, what stands in the way first; harmless ones only with `whole`."""
    shown = [one for one in comparison.differences if whole or one.standing != "harmless"]
    return Sheet(
        title="What the sides differ in",
        columns=headings(("key", "base", "other", "standing")),
        rows=tuple((one.key, one.base, one.other, _standing(one)) for one in shown),
    )


def _standing(one: Difference) -> str:
    word = STANDINGS[one.standing]
    return f"{word}: {one.reason}" if one.reason else word


def _sheet(cell: CellAccount, told: str, shown: Sequence[Judgement], *, whole: bool) -> Sheet:
    columns = _columns(cell.cell.runs, shown, whole=whole)
    runs = " + ".join(map(_count, cell.cell.runs))
    return Sheet(
        title=marked(f"{cell.place}, {runs} runs: {told}", cell.mark),
        columns=tuple(column for column, _ in columns),
        rows=tuple(tuple(value(one) for _, value in columns) for one in shown),
        notes=tuple(_reasons(shown)),
    )


def _columns(
    runs: tuple[int, int], shown: Sequence[Judgement], *, whole: bool
) -> tuple[Filled, ...]:
    columns: list[Filled] = [
        (Column(name="metric", number=False), lambda one: _named(one.effect)),
        (Column(name="base"), lambda one: measured(one.effect.base, one.effect.unit)),
        (Column(name="other"), lambda one: measured(one.effect.other, one.effect.unit)),
        (Column(name="change"), lambda one: change(one.effect)),
        (Column(name="margin"), limit),
        (Column(name="MDD"), lambda one: share(one.effect, one.effect.detectable, 2)),
        (Column(name="verdict", number=False), lambda one: one.verdict),
    ]
    if whole or any(one.effect.runs != runs for one in shown):
        columns.append((Column(name="runs"), lambda one: "+".join(map(_count, one.effect.runs))))
    if whole:
        columns.append((Column(name="pairs"), lambda one: _pairs(one.effect)))
        columns.append((Column(name="by", number=False), lambda one: _how(one.effect)))
    return tuple(columns)


def _named(effect: Effect) -> str:
    """What the metric is called, with a unit that no number of it carries."""
    bare = effect.unit in {"s", "s/token", "share"}
    return label(effect.metric) if bare else f"{label(effect.metric)}, {effect.unit}"


def _count(count: int) -> str:
    return number(count, 0)


def _pairs(effect: Effect) -> str:
    return _count(effect.matched.pairs) if effect.matched else "n/a"


def _how(effect: Effect) -> str:
    return "n/a" if effect.how == "none" else effect.how


def _reasons(shown: Iterable[Judgement]) -> Iterator[str]:
    """Why rows are as they are, rows of one reason together."""
    told: dict[str, list[str]] = {}
    for one in shown:
        for reason in _why(one):
            told.setdefault(reason, []).append(label(one.effect.metric))
    for reason, names in told.items():
        yield f"{', '.join(dict.fromkeys(names))}: {reason}"


def _why(one: Judgement) -> Iterator[str]:
    if one.verdict in {"inconclusive", "invalid"} or one.gate == "inconclusive":
        passes = "; it passes, as it is surely no worse than the margin"
        told = "; ".join(filter(None, [f"{one.verdict}: {one.reason}", more(one)]))
        yield told + passes * (one.gate == "pass")
    elif one.verdict == "same" and "," in one.reason:
        yield f"same: {one.reason}"
    if one.effect.how == "one pair":
        yield "~ holds for this pair of runs only, whatever its interval"
    if one.effect.ratio is not None and (known := beside(one)):
        yield known


def _verdict(one: Judgement) -> str:
    passes = one.gate == "pass" and one.verdict == "inconclusive"
    return "inconclusive, but surely no worse" if passes else one.verdict


def _undecided(rules: Iterable[tuple[CellAccount, Judgement]]) -> Iterator[str]:
    """Why rules neither failed nor passed."""
    for cell, one in rules:
        if one.gate in {"inconclusive", "invalid"}:
            told = (f"{one.verdict}: {one.reason}", *cell.cell.problems, more(one))
            yield f"{label(one.effect.metric)}, {cell.place}: {'; '.join(filter(None, told))}"


def _widened(rules: Iterable[tuple[CellAccount, Judgement]]) -> Iterator[str]:
    """Which rules let pass far more than their percentage, in the cell where that is most."""
    widest: dict[tuple[str, Margin], tuple[float, str]] = {}
    for cell, one in rules:
        metric, base, stated = one.effect.metric, one.effect.base, one.stated
        if not (stated.relative and stated.absolute and base) or in_points(metric):
            continue
        if boundless(one.effect, one.margin, stated):
            continue
        times, asked = stated.absolute / base / stated.relative, percent(stated.relative)
        told = (
            f"warning: {label(metric)} in {cell.place} passes up to {percent(one.margin)} worse, "
            f"not {asked}: {bound(stated.absolute, one.effect.unit)} of its margin are "
            f"{number(times, 1)} times {asked} of the "
            f"{measured(base, one.effect.unit, with_unit=True)} of base; state a smaller part"
        )
        widest[metric, stated] = max(widest.get((metric, stated), (0.0, "")), (times, told))
    yield from (told for times, told in widest.values() if times >= FAR_WIDER)


def _certain(rules: Iterable[tuple[CellAccount, Judgement]]) -> Iterator[str]:
    """What is the same though it surely changed, rules of one reason together."""
    told: dict[str, list[str]] = {}
    for cell, one in rules:
        if one.verdict == "same" and "," in one.reason:
            told.setdefault(one.reason, []).append(f"{label(one.effect.metric)}, {cell.place}")
    for reason, names in told.items():
        yield f"{'; '.join(names)}: same: {reason}"


def _by_point(problems: Iterable[str]) -> Iterator[str]:
    """What speaks against a cell, all that does so of one point together."""
    found: dict[str, list[str]] = {}
    for problem in problems:
        point, named, reason = problem.partition("): ")
        found.setdefault(point + named, []).append(reason)
    yield from (point + "; ".join(reasons) for point, reasons in found.items())


def _failures(cell: CellComparison) -> Iterator[str]:
    if any(cell.failed):
        told = (
            f"{number(failed, 0)} of {number(asked, 0)} ({side})"
            for failed, asked, side in zip(cell.failed, cell.asked, ("base", "other"), strict=True)
        )
        yield f"failed requests, which are in no latency: {', '.join(told)}"


def _matched(cell: CellComparison) -> Iterator[str]:
    """How many requests are on both sides; the same for all that is compared by request."""
    found = (one.effect.matched for one in cell.judgements if one.effect.matched)
    for one in dict.fromkeys(found):
        alone, lost = percent(one.unmatched, 2), percent(one.lost, 2)
        missing = f"of the side that answered fewer, {lost} are missing on the other"
        told = (
            f"requests: {number(one.pairs, 0)} on both sides, in {counted(one.sessions, 'session')}"
        )
        of_all = f"{alone} of all were answered by one side only"
        yield "; ".join([told, of_all, *([missing] if one.lost else [])])


def _strata_sheet(cell: CellAccount) -> Sheet:
    """TTFT of the requests on both sides by their new tokens."""
    rows = tuple(
        (
            _span(one),
            number(one.requests, 0),
            number(one.sessions, 0),
            measured(one.base, "s"),
            measured(one.other, "s"),
            _changed(one),
        )
        for one in cell.cell.strata
    )
    note = (
        "new tokens: those of a prompt that were not in the cache, on the side that found more; "
        "exploratory, and intervals are as if requests were independent; repeats of one request "
        f"count once; fewer than {FEWEST} have no interval"
    )
    columns = headings(("new tokens",), ("requests", "sessions", "base", "other", "change"))
    title = marked(f"TTFT by new tokens, {cell.place}: exploratory", cell.mark)
    return Sheet(title=title, columns=columns, rows=rows, notes=(note,))


def _contrary(cell: CellAccount, among: int) -> Iterator[str]:
    """That the change of TTFT hides opposite ones, by how many tokens of a request are new."""
    ttft = next((one for one in cell.cell.judgements if one.effect.metric == "ttft"), None)
    if ttft is None or ttft.effect.ratio is None or ttft.margin is None or cell.aside(ttft):
        return
    found = contrary(cell.cell.strata, ttft.effect.ratio, ttft.margin, among)
    if found:
        each = ", ".join(
            f"{_changed(one)} {'' if one.first == 0 else 'from '}{_span(one)} "
            f"(n {number(one.requests, 0)})"
            for one in found
        )
        whole = in_unit(ttft.effect)[0]
        yield (
            f"TTFT hangs on the new tokens of a request: {each}, against {whole} over all "
            "(exploratory; the table is in the page)"
        )


def _span(one: Stratum) -> str:
    last = number(one.last, 0)
    return f"{number(one.first, 0)} to {last}" if one.first else f"up to {last}"


def _changed(one: Stratum) -> str:
    told, ends = changed(one.ratio, one.low, one.high)
    return f"{told} ({ends.removesuffix(' %') or 'no interval'})"


def _told(cell: CellAccount) -> list[Judgement]:
    """The judgements of a cell that are told one by one."""
    return [*(one for one in cell.cell.judgements if one.gated), *explored(cell)[0]]


def drifted(drift: Drift, margin: float | None, among: int) -> tuple[str, str]:
    """The change from run to run with its interval, where it surely is one and enough to matter."""
    least = SMALL if margin is None else margin / 2
    if not drift.sure(among) or abs(drift.whole) <= least:
        return "", ""
    return changed(1 + drift.slope, 1 + drift.low, 1 + drift.high)


def _drifts(judgements: Sequence[Judgement], among: int) -> Iterator[str]:
    """What surely changed from run to run, whichever side it was, and enough to matter.

    So many metrics are looked at in all cells that some of them drift by chance.
    """
    known = [(one, drift) for one in judgements if (drift := one.effect.drift)]
    told = []
    for one, drift in known:
        slope, ends = drifted(drift, one.margin, among)
        if slope:
            whole = changed(1 + drift.whole, None, None)[0]
            told.append(
                f"{label(one.effect.metric)} {slope} (95 % interval {ends}), {whole} over all runs"
            )
    if told:
        yield f"drift from run to run: {'; '.join(told)}"
    elif known:
        yield "drift from run to run: none that matters is shown in any metric above"


def _rest(rest: Sequence[Judgement]) -> str:
    """What the metrics that are not told one by one came to."""
    counts = []
    for verdict in ("worse", "better", "inconclusive", "same", "invalid"):
        names = [label(one.effect.metric) for one in rest if one.verdict == verdict]
        if names:
            listed = f" ({', '.join(names)})" if verdict == "worse" and len(names) <= FEW else ""
            counts.append(f"{number(len(names), 0)} {verdict}{listed}")
    return f"{counted(len(rest), 'more metric')}, exploratory: {', '.join(counts)}"
