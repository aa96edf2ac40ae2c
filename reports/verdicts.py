"""What a comparison says, in sentences: which side is faster, by how much, and how sure that is."""

from collections.abc import Collection, Iterator, Sequence
from math import ceil, isclose, log, sqrt

from reports.account import Account, CellAccount
from reports.notation import (
    TIMES,
    bound,
    by,
    changed,
    counted,
    label,
    multiple,
    number,
    percent,
    places,
)
from results.comparison import Comparison
from results.direction import in_points
from results.effect import Effect
from results.gap import Gap
from results.scores import HEADLINE
from results.verdict import MOST, Judgement, Verdict, boundless

LEADING = (
    (HEADLINE,),
    ("ttft", "ttft.p50"),
    ("tpot", "tpot.p50"),
    ("batch_tpot",),
    ("output_rate_per_gpu", "output_rate"),
    ("batch_rate_per_gpu", "batch_rate"),
    ("step_time",),
)
"""What is told first where no rule names anything: of each row the first that can be judged."""

CORE = (
    HEADLINE,
    *("ttft", "ttft.p90", "tpot", "tpot.p90", "e2el", "interactivity.p90"),
    *("output_rate", "output_rate_per_gpu", "goodput", "cache_hit"),
    *("batch_tpot", "batch_rate", "batch_rate_per_gpu", "step_time"),
)
"""The metrics that are told one by one where no rule names them."""

AS_SEEN = "if the change is as seen"
"""What must be so for more runs to decide."""

PER_GPU = {"output_rate": "output_rate_per_gpu", "batch_rate": "batch_rate_per_gpu"}
"""What changes as much as the metric does where both sides have equally many GPUs."""


LONGEST = 40
"""A side with a longer name, or with a path, is called base or other in a sentence."""

ORDER: tuple[Verdict, ...] = ("worse", "better", "inconclusive", "invalid", "same")
"""In which order verdicts are told."""

Judged = tuple[CellAccount, Judgement]


def headline(account: Account) -> tuple[str, ...]:
    """The sentences that come first: one for each leading metric, over all cells."""
    prefix = f"{account.mark}. " if account.mark else ""
    return tuple(prefix + line for line in _lines(account))


def amount(effect: Effect) -> str:
    """By how much, and how sure: `12.0 %`, then `95 % interval 9.1 to 15.2 %` in brackets."""
    told, ends = in_unit(effect, plain=True)
    return f"{told} ({_sure(effect, ends)})"


def signed(effect: Effect) -> str:
    """The change in a sentence: `+0.3 % (95 % interval -0.9 to +1.5 %)`; nothing without one."""
    if effect.ratio is None:
        return ""
    if effect.how == "identical":
        return "identical"
    told, ends = in_unit(effect)
    alone = " in this pair of runs alone" if effect.how == "one pair" else ""
    return f"{told}{alone} ({_sure(effect, ends)})"


def _sure(effect: Effect, ends: str) -> str:
    """How sure a change is, and of which sessions alone, where those are few."""
    told = f"95 % interval {ends}" if ends else "no interval"
    return "; ".join(filter(None, [told, _of_these(effect)]))


def _of_these(effect: Effect) -> str:
    if effect.alone is None:
        return ""
    which = "this session" if effect.alone == 1 else f"these {effect.alone} sessions"
    return f"of {which} alone"


def beside(one: Judgement) -> str:
    """What is to be known of a change beyond its verdict, and of which few sessions alone."""
    reason = one.effect.reason or ""
    return "; ".join(filter(None, [reason * (reason not in one.reason), _of_these(one.effect)]))


def change(effect: Effect) -> str:
    """The change in a table: `+12.0 % (+9.1 to +15.2)`, with `~` where it is of one pair alone."""
    if effect.ratio is None:
        return "n/a"
    if effect.how == "identical":
        return "identical"
    told, ends = in_unit(effect)
    alone = "~" if effect.how == "one pair" else ""
    return f"{alone}{told} ({ends.removesuffix(' %').removesuffix(' points') or 'no interval'})"


def in_unit(effect: Effect, *, plain: bool = False) -> tuple[str, str]:
    """The change and its interval; `plain` is without signs, but where it may be none at all."""
    if effect.gap:
        return _gap_in_points(effect.gap, plain=plain)
    told, ends = (by if plain else changed)(effect.ratio or 1.0, effect.low, effect.high)
    if not in_points(effect.metric):
        return told, ends
    return told.replace(" %", " points"), ends.replace(" %", " points")


def _gap_in_points(gap: Gap, *, plain: bool) -> tuple[str, str]:
    """A gap in accuracy and its interval, to two digits of its half width, or to the hundredth."""
    change, *ends = (one * 100 for one in (gap.change, gap.low, gap.high) if one is not None)
    half = (max(ends) - min(ends)) / 2 if ends else 0.0
    most = min(2, places(half)) if half else 2
    sign = "" if plain and (not ends or ends[0] * ends[1] >= 0) else "+"
    ends = ends if sign else sorted(map(abs, ends))
    told = f"{abs(change):.{most}f}" if plain else f"{change:+.{most}f}"
    interval = " to ".join(f"{end:{sign}.{most}f}" for end in ends)
    return f"{told} points", f"{interval} points" if ends else ""


def share(effect: Effect, value: float | None, digits: int = 3) -> str:
    """A margin, or what could be seen: `5 %` of base, or `1 point` where those are compared."""
    told = percent(value, digits)
    if not in_points(effect.metric):
        return told
    return "1 point" if told == "1 %" else told.replace(" %", " points")


def direction(effect: Effect) -> str:
    """What other is against base: `slower`, `faster`; `lower`, `higher` of what is no speed."""
    speed = effect.unit in TIMES or effect.unit == "tok/s/user"
    ratio = effect.ratio or 1.0
    worse = ratio > 1 if effect.better == "lower" else ratio < 1
    if speed:
        return "slower" if worse else "faster"
    return "higher" if ratio > 1 else "lower"


def more(judgement: Judgement) -> str:
    """What would decide what is inconclusive; nothing where that is not known."""
    if "inconclusive" not in {judgement.verdict, judgement.gate}:
        return ""
    if ways := _ways(judgement):
        return f"{' or '.join(ways)} would decide"
    known = judgement.effect.worsening is not None and judgement.margin is not None
    boundless_margin = boundless(judgement.effect, judgement.margin, judgement.stated)
    doubted = boundless_margin or judgement.reason == judgement.effect.doubt
    what = "folders" if judgement.effect.folders else "runs"
    what = "questions or epochs" if judgement.effect.gap else what
    return _as_many(judgement, what) if known and not doubted else ""


def _as_many(judgement: Judgement, what: str) -> str:
    """What would decide where no number of runs shows it the same."""
    point, low, high = judgement.effect.worsening or (0.0, 0.0, 0.0)
    margin, count = judgement.margin or 0.0, min(judgement.effect.runs)
    narrower = f"as many {what} as make the interval narrower than ±"
    if abs(point) < margin or not point:
        room = share(judgement.effect, margin - abs(point), 2)
        return f"{narrower}{room} would show it within the margin, {AS_SEEN}"
    verdict = "worse" if point > 0 else "better"
    if low > 0 or high < 0:
        return f"more {what} would show it {verdict}, {AS_SEEN}"
    times = (high - low) / 2 / abs(point)
    if what == "runs" and times <= sqrt(MOST / count):
        needed = max(ceil(count * times**2), count + 1)
        return f"about {number(needed, 0)} runs a side would show it {verdict}, {AS_SEEN}"
    return f"{narrower}{share(judgement.effect, abs(point), 2)} would show it {verdict}, {AS_SEEN}"


def _ways(judgement: Judgement) -> list[str]:
    """How many more runs or folders would decide it, or, of answers, epochs or questions."""
    needed, questions, found = judgement.runs_needed, judgement.questions_needed, []
    if judgement.more_runs is not None and needed is not None:
        runs = counted(judgement.more_runs, "more run")
        found.append(f"{runs} a side ({number(needed, 0)} in all)")
    if judgement.folders_needed is not None:
        folders = counted(judgement.folders_needed, "folder")
        found.append(f"{folders} a side in all, as each is one number,")
    if questions is not None and found and needed is not None:
        found.append(f"{needed / min(judgement.effect.runs):.3g} times the epochs")
    if questions is not None:
        found.append(f"about {number(questions, 0)} questions")
    return found


def limit(judgement: Judgement) -> str:
    """The margin as a share of base, and what it comes from where that is no share: `28 % (20 ms)`.

    Where several parts are stated the widest one counts.
    """
    told, stated = share(judgement.effect, judgement.margin), judgement.stated
    margin, base = judgement.margin, judgement.effect.base
    if margin is None or in_points(judgement.effect.metric):
        return told
    if stated.relative is not None and stated.relative >= margin:
        return told
    if stated.absolute is not None and base and isclose(stated.absolute / base, margin):
        return f"{told} ({bound(stated.absolute, judgement.effect.unit)})"
    return told if stated.noise is None else f"{told} ({multiple(stated.noise)})"


def called(comparison: Comparison) -> tuple[str, str]:
    """What base and other are called in a sentence."""
    names = comparison.base, comparison.other
    if names[0] == names[1] or max(map(len, names)) > LONGEST or any("/" in one for one in names):
        return "base", "other"
    return names


def gated(account: Account) -> tuple[Judged, ...]:
    """The judgements of rules, those that did not pass first."""
    found = [(cell, one) for cell, one in account.judgements() if one.gated]
    order = ("fail", "invalid", "inconclusive", "pass")
    return tuple(sorted(found, key=lambda each: order.index(each[1].gate or "pass")))


def explored(cell: CellAccount) -> tuple[tuple[Judgement, ...], tuple[Judgement, ...]]:
    """The exploratory judgements of a cell: those told one by one, and the rest."""
    free = [one for one in cell.cell.judgements if not one.gated]
    told = [one for one in free if _core(one) and not cell.aside(one) and not _again(one, cell)]
    rest = tuple(one for one in free if one not in told)
    return tuple(sorted(told, key=lambda one: CORE.index(_core(one)))), rest


def _again(one: Judgement, cell: CellAccount) -> bool:
    """Whether it says no more than the same rate per GPU, as both sides have equally many."""
    same = PER_GPU.get(one.effect.metric)
    ratios = [each.effect.ratio for each in cell.cell.judgements if each.effect.metric == same]
    mine = one.effect.ratio
    return mine is not None and any(ratio is not None and isclose(ratio, mine) for ratio in ratios)


def _core(one: Judgement) -> str:
    """Which of the metrics that are told one by one it is; each score of an answer is."""
    name = one.effect.metric
    name = HEADLINE if name.startswith(f"{HEADLINE}.") else name
    return name if name in CORE else ""


def leading(account: Account) -> list[str]:
    """The metrics that are told first: those of rules, else a few that all engines have."""
    valid = [(cell, one) for cell, one in account.judgements() if not cell.cell.problems]
    rules = dict.fromkeys(one.effect.metric for _, one in valid if one.gated)
    if rules:
        return list(rules)
    told = [one.effect.metric for _, one in valid if one.effect.ratio is not None]
    spoken = {one.effect.metric for _, one in valid if _spoken(one)}
    return [
        max(found, key=told.count)
        for group in LEADING
        if (found := [metric for metric in group if metric in told and metric in spoken])
    ]


def _lines(account: Account) -> Iterator[str]:
    comparison = account.comparison
    base, other = called(comparison)
    if comparison.refusals:
        count = len(comparison.refusals)
        reasons = counted(count, "reason")
        stands = "stands" if count == 1 else "stand"
        yield f"Not compared: {reasons} {stands} in the way of comparing {base} and {other}."
        return
    if not account.cells:
        yield f"Nothing to compare: {base} and {other} have no workload under one load in common."
        return
    invalid = [cell.place for cell in account.cells if cell.cell.problems]
    metrics = leading(account)
    found = []
    for metric in metrics:
        judged = [each for each in account.judgements() if each[1].effect.metric == metric]
        # A rule may hold in one experiment alone: what it says is not mixed with what it does not.
        ruled = [each for each in judged if each[1].gated]
        found.append(_metric(ruled or judged, base, other))
    yield from (f"{said}." for said in found if said)
    said = {metric for metric, line in zip(metrics, found, strict=True) if line}
    if still := _still(account, said):
        yield still
    if invalid:
        cells = counted(len(invalid), "cell")
        yield (
            f"{cells} of {number(len(account.cells), 0)} must not be judged, as runs in "
            f"{'it' if len(invalid) == 1 else 'them'} are not valid: {'; '.join(invalid)}."
        )
    gaps = len(comparison.missing) + len(comparison.unjudged)
    if gaps:
        yield f"Not all that rules are about was judged: {counted(gaps, 'gap')}, each told below."
    if not metrics and not still and not invalid:
        yield f"Nothing is judged: {base} and {other} have no metric in common."


def _still(account: Account, said: Collection[str]) -> str:
    """What is said where runs do not vary at all: by how much they differ, and why that is all."""
    silent = [one for _, one in account.judgements() if not _spoken(one)]
    first = [one for one in silent if any(one.effect.metric in group for group in LEADING)]
    most: dict[str, Judgement] = {}
    for one in first if said else first or silent:
        if (metric := one.effect.metric) not in said:
            most[metric] = max(most.get(metric, one), one, key=_size)
    if not most:
        return ""
    told = ", ".join(f"{label(metric)} {change(one.effect)}" for metric, one in most.items())
    reason = next(iter(most.values())).effect.reason
    return f"{'Not' if said else 'Nothing is'} decided, as {reason}: {told}."


def _metric(judged: Sequence[Judged], base: str, other: str) -> str:
    """What there is to say of one metric in all cells."""
    able = [each for each in judged if not each[0].cell.problems]
    valid = [each for each in able if _spoken(each[1])]
    # Cells of which nothing is said are counted: there is no more to say of them.
    whole = len(valid) + sum(one.effect.ratio is not None for _, one in able if not _spoken(one))
    parts = []
    for verdict in ORDER:
        members = [each for each in valid if each[1].verdict == verdict]
        if members:
            parts.append(_said(verdict, members, whole, (base, other)))
    return "; ".join(parts)


def _spoken(one: Judgement) -> bool:
    """Whether a sentence speaks of it: nothing is to be said of runs that do not vary at all."""
    return one.effect.how != "no spread"


def _said(verdict: Verdict, members: Sequence[Judged], whole: int, names: tuple[str, str]) -> str:
    """What there is to say of a metric in the cells that have this verdict."""
    cell, most = max(members, key=lambda each: _size(each[1]))
    several = f" in {len(members)} of {counted(whole, 'cell')}" if whole > 1 else ""
    where = f"{'most in ' if len(members) > 1 else 'in '}{cell.place}: " if whole > 1 else ""
    where = where if _size(most) else ""
    name = label(most.effect.metric)
    match verdict:
        case "worse" | "better":
            return _apart(most, name, names, several, where)
        case "same":
            return _same(members, most, name, names, several, where)
        case "inconclusive":
            told = (signed(most.effect), most.reason, more(most))
            return f"not decided in {name}{several}: {where}{'; '.join(filter(None, told))}"
    return f"{name} must not be judged{several}: {where}{most.reason}"


def _apart(one: Judgement, name: str, names: tuple[str, str], several: str, where: str) -> str:
    way = direction(one.effect)
    # Of what is no speed, lower says nothing of which is better.
    judged = "" if way in {"slower", "faster"} else f", which is {one.verdict}"
    told, _, sure = amount(one.effect).partition(" (")
    if not several:
        return f"{names[1]} is {told} {way} than {names[0]} in {name}{judged} ({sure}"
    which = f"{names[1]} is {way} than {names[0]} in {name}{several}{judged}"
    return f"{which}; {where}{told} ({sure}"


def _same(
    members: Sequence[Judged],
    most: Judgement,
    name: str,
    names: tuple[str, str],
    several: str,
    where: str,
) -> str:
    margins = _span(most.effect, [one.margin for _, one in members])
    seen = _span(most.effect, [one.effect.detectable for _, one in members], 2)
    return (
        f"{names[1]} and {names[0]} are the same in {name}, within {margins}{several}: {where}"
        f"{signed(most.effect)}; smallest detectable difference {seen}"
    )


def _span(effect: Effect, shares: Sequence[float | None], digits: int = 3) -> str:
    """One share, or the smallest and the largest of several."""
    known = sorted(one for one in shares if one is not None)
    ends = list(dict.fromkeys(share(effect, one, digits) for one in (known[:1] + known[-1:])))
    return " to ".join(ends) or "n/a"


def _size(one: Judgement) -> float:
    """How far the change is from nothing, either way."""
    ratio = one.effect.ratio
    return abs(log(ratio)) if ratio else 0.0
