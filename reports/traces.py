"""What traces look like beside the published corpus, and what is wrong with their files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reports.notation import counted, number, show
from reports.tables import Column, Sheet, drawn
from results.figure import Figure
from workloads.entry import Problem
from workloads.portrait import ENGINE_BLOCKS, QUANTILES
from workloads.targets import NEAR, SESSIONS, TAIL, TARGETS, Target

DISTRIBUTIONS = {
    "main_turns": "main requests a session",
    "main_input": "main input",
    "agent_input": "sub-agent input",
    "input": "input of all requests",
    "main_output": "main output",
    "output": "output of all requests",
    "new": "new tokens a request",
    "later_new": "the same after the first",
    "gap": "gap between main requests",
    "context": "context over time",
    "agents": "sub-agents, where any",
    "agent_turns": "requests a sub-agent",
    "parallel_agents": "sub-agents at once",
}

TOTALS = {
    "requests": "requests a session",
    "main_requests": "of them main",
    "agent_requests": "of them sub-agents'",
    "input_tokens": "input tokens a session",
    "output_tokens": "output tokens a session",
    "input_per_output": "input per output token",
    "with_agents": "sessions with sub-agents",
    "agent_groups": "sub-agents a session",
    "gap.beyond_300": "gaps above 300 s",
    "gap.beyond_1800": "gaps above 1,800 s",
    "idle": "time without a request",
    "busy": "time with one",
    "hit": "blocks seen before",
    "missed": "blocks not seen before",
    "prefill_per_output": "new input per output token",
    **{f"ceiling_{block}": f"cache ceiling, blocks of {block}" for block in ENGINE_BLOCKS},
}
"""What each figure is called."""

STATISTICS = (*QUANTILES, "mean")

MEANING = (
    "in brackets and as published: the cc-traces-weka-062126 corpus of 393 sessions",
    "new tokens: what the request before it in its stream does not begin with; all of a first one",
    "blocks: the recorded ones of 64 tokens; seen before by any request of the session",
    "cache ceiling: input tokens that an engine with cache blocks of so many tokens finds at best, "
    "behind a marker of 8 tokens",
)


def portrait_tables(figures: Mapping[str, Figure], width: int | None = None) -> str:
    """The distributions and totals of traces, each beside its target."""
    sheets = (_distributions(figures), _totals(figures))
    return "\n\n".join(drawn(sheet, width) for sheet in sheets)


def portrait_values(figures: Mapping[str, Figure]) -> dict[str, dict[str, Any]]:
    """The same for machines: value, n and unit, and the target where there is one."""
    return {key: _values(figure, TARGETS.get(key)) for key, figure in figures.items()}


def problem_lines(problems: Sequence[Problem]) -> str:
    """A line a problem, the fatal ones first, and what they come to."""
    fatal = [problem for problem in problems if problem.fatal]
    notes = [problem for problem in problems if not problem.fatal]
    lines = [f"fatal: {problem.sentence}" for problem in fatal]
    for note in notes:
        often = f" ({number(note.times, 0)} times in this file)" if note.times > 1 else ""
        lines.append(f"note: {note.sentence}{often}")
    told = f"{counted(len(fatal), 'fatal problem')}, {counted(len(notes), 'note')}"
    mend = ": mend these fields, or take the records out, before a run" if fatal else ""
    return "\n".join([*lines, f"{told}{mend}"])


def _values(figure: Figure, target: Target | None) -> dict[str, Any]:
    told = {name: value for name, value in asdict(figure).items() if name in ("value", "n", "unit")}
    if figure.reason:
        told["reason"] = figure.reason
    if target:
        told |= {
            "target": target.value,
            "within": target.within,
            "deviation": target.deviation(figure),
            "met": target.met(figure),
        }
    return told


def _distributions(figures: Mapping[str, Figure]) -> Sheet:
    return Sheet(
        title="Distributions",
        columns=(
            Column(name="quantity", number=False),
            Column(name="n"),
            *(Column(name=name, spare=name == "p10") for name in STATISTICS),
        ),
        rows=tuple(
            (
                name,
                number(figures[f"{key}.mean"].n, 0),
                *(_beside(figures, f"{key}.{statistic}") for statistic in STATISTICS),
            )
            for key, name in DISTRIBUTIONS.items()
        ),
    )


def _totals(figures: Mapping[str, Figure]) -> Sheet:
    return Sheet(
        title="Totals and shares",
        columns=(
            Column(name="quantity", number=False),
            Column(name="here"),
            Column(name="published"),
            Column(name="n"),
        ),
        rows=tuple(
            (name, show(figures[key], unit=False), _target(figures, key), number(figures[key].n, 0))
            for key, name in TOTALS.items()
        ),
        notes=(*MEANING, _far(figures)),
    )


def _beside(figures: Mapping[str, Figure], key: str) -> str:
    """The figure, and under it its target."""
    target = _target(figures, key)
    shown = show(figures[key], unit=False)
    return f"{shown}\n({target})" if target else shown


def _target(figures: Mapping[str, Figure], key: str) -> str:
    if key not in TARGETS:
        return ""
    return show(Figure(value=TARGETS[key].value, unit=figures[key].unit, n=SESSIONS), unit=False)


def _far(figures: Mapping[str, Figure]) -> str:
    """Which figures are too far from their targets."""
    limits = (
        f"{number(NEAR * 100, 0)} % from the published corpus, {number(TAIL * 100, 0)} % for p99"
    )
    far = []
    for key, target in TARGETS.items():
        deviation = target.deviation(figures[key])
        if deviation is not None and not target.met(figures[key]):
            sign = "+" if deviation > 0 else "−"
            far.append(f"{_name(key)} {sign}{number(abs(deviation) * 100, 0)} %")
    return f"further than {limits}: {', '.join(far) or 'none'}"


def _name(key: str) -> str:
    name, _, statistic = key.partition(".")
    return TOTALS.get(key) or f"{DISTRIBUTIONS[name]} {statistic}"
