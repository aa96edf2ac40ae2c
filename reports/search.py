"""What a search found: its levels as a table, and one sentence a ladder."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from reports.labels import headed, limits, load_level, places
from reports.notation import brief, counted, figure, shared_scale, show
from reports.notes import doubts
from reports.tables import Column, Sheet, drawn
from results.bracket import Bracket
from results.figure import Figure
from results.level import Level

FIGURES = {
    "goodput": "goodput req/s",
    "output_rate_per_gpu": "output tok/s/GPU",
}
"""What is shown of each level besides its share, and the headings."""

SHARE = "within objectives"
"""The heading of the share."""


def search_table(
    brackets: Sequence[Bracket], left_out: Sequence[str] = (), width: int | None = None
) -> str:
    """A table of the levels that were run for each experiment, and what they come to.

    `left_out` are sentences on the parts of the plan that were not searched.
    """
    told = []
    for experiment in dict.fromkeys(bracket.experiment for bracket in brackets):
        members = [bracket for bracket in brackets if bracket.experiment == experiment]
        told.append(drawn(_sheet(experiment, members), width))
    told += [f"Not searched: {sentence}" for sentence in left_out]
    return "\n\n".join(told)


def sentence(bracket: Bracket) -> str:
    """What a ladder came to: `closed 8 holds and closed 16 fails`."""
    low, high = bracket.holding, bracket.failing
    match bracket.outcome:
        case "holds throughout" if low:
            return f"holds up to {_at(low)}, the top of its ladder: not bracketed"
        case "fails throughout" if high:
            return f"fails already at {_at(high)}: not bracketed{_because(high)}"
        case "bracketed" if low and high:
            return f"{_at(low)} holds and {_at(high)} fails{_because(high)}"
        case "not monotone" if high:
            above = ", ".join(map(_at, bracket.astray))
            return f"not monotone: {_at(high)} fails, and yet {above} holds{_lower(low)}"
    ends = [_at(end) if end else word for end, word in ((low, "nothing"), (high, "nothing"))]
    return f"{bracket.outcome}: {ends[0]} surely holds, {ends[1]} surely fails; {_between(bracket)}"


def search_facts(bracket: Bracket) -> dict[str, Any]:
    """A ladder and its levels as plain JSON."""
    low, high = bracket.holding, bracket.failing
    return {
        "experiment": bracket.experiment,
        "arm": bracket.arm,
        "workload": bracket.workload,
        "load": bracket.kind,
        "ladder": list(bracket.ladder),
        "outcome": bracket.outcome,
        "holds_at": low.load if low else None,
        "fails_at": high.load if high else None,
        "levels": [
            _level_facts(level, needed=level not in bracket.needless) for level in bracket.levels
        ],
    }


def _level_facts(level: Level, *, needed: bool) -> dict[str, Any]:
    shown = {"share": level.share, **{key: figure(level.summary, key) for key in FIGURES}}
    return {
        "load": level.load,
        "answer": level.answer,
        "needed": needed,
        "reason": level.reason,
        "more_repeats": level.more,
        "provenance": level.summary.provenance,
        **{
            name: {"value": one.value, "low": one.low, "high": one.high, "n": one.n}
            for name, one in shown.items()
        },
    }


def _sheet(experiment: str, brackets: Sequence[Bracket]) -> Sheet:
    levels = [level for bracket in brackets for level in bracket.levels]
    summaries = [level.summary for level in levels]
    filled: list[tuple[Column, list[str]]] = [
        (Column(name="arm", number=False), [one.cell.arm for one in summaries]),
        (Column(name="load", number=False), places(summaries)),
        (Column(name="answer", number=False), [word for one in brackets for word in _answers(one)]),
        (Column(name="runs"), [str(one.repeats) for one in summaries]),
        _figures(SHARE, [level.share for level in levels]),
        *(_figures(name, [figure(one, key) for one in summaries]) for key, name in FIGURES.items()),
    ]
    columns, values = zip(*filled, strict=True)
    return Sheet(
        title=headed(f"Search: {experiment}", summaries),
        columns=columns,
        rows=tuple(zip(*values, strict=True)),
        notes=(*_notes(brackets, levels), *_sentences(brackets)),
    )


def _answers(bracket: Bracket) -> list[str]:
    """The answer of each level, and of one that others answer for that it is not needed."""
    return ["not needed" if one in bracket.needless else one.answer for one in bracket.levels]


def _figures(name: str, figures: Sequence[Figure]) -> tuple[Column, list[str]]:
    fit = shared_scale(figures)
    unit = fit.unit if fit.unit == "%" else ""
    return Column(name=name, unit=unit), [brief(one, fit) for one in figures]


def _notes(brackets: Sequence[Bracket], levels: Sequence[Level]) -> Iterator[str]:
    if not levels:
        return
    share = show(Figure(value=brackets[0].demanded, unit="share", n=0))
    yield (
        f"holds: surely at least {share} of requests keep {limits(levels[0].summary.cell)}; "
        "fails: surely fewer; intervals are 95 %, those of the share over all looks at a level"
    )
    if any(bracket.needless for bracket in brackets):
        yield (
            "not needed: neither is sure, but a higher load holds or a lower one fails, which "
            "answers for it"
        )
    for bracket in brackets:
        for level in bracket.needless:
            if level.reason and level.reason != level.share.doubt:
                yield f"{bracket.arm}, {_at(level)}: {level.answer} by itself: {level.reason}"
    shown = [
        replace(level.summary, figures={**level.summary.figures, "share": level.share})
        for level in levels
    ]
    yield from doubts(shown, {"share": SHARE, **FIGURES})


def _sentences(brackets: Sequence[Bracket]) -> Iterator[str]:
    several = len({bracket.workload for bracket in brackets}) > 1
    for bracket in brackets:
        workload = f", {bracket.workload}" if several else ""
        yield f"{bracket.arm}{workload}: {sentence(bracket)}"


def _at(level: Level) -> str:
    return load_level(level.summary.cell)


def _because(level: Level) -> str:
    return f" ({level.reason})" if level.reason else ""


def _lower(level: Level | None) -> str:
    """What is sure all the same."""
    return f"; {_at(level)} surely holds" if level else ""


def _between(bracket: Bracket) -> str:
    """The lowest and the highest level that are neither, and how many lie between these."""
    told = [_open(level) for level in bracket.between]
    if len(told) > 2:
        told[1:-1] = [f"{counted(len(told) - 2, 'level')} in between"]
    return "; ".join(told) or "what lies between was not run"


def _open(level: Level) -> str:
    """Why a level is neither, and what would decide it."""
    told = [level.reason] if level.reason else []
    if level.more is not None:
        told.append(f"about {counted(level.more, 'more repeat')} would decide")
    elif not told:
        told.append("too close to the demanded share for repeats to decide")
    return f"{_at(level)}: {', '.join(told)}"
