"""What rules are about and could not be held against anything: a gate must not pass over it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from results.matching import Tie, label
from results.scores import HEADLINE
from results.side import Side
from results.steps import KIND, TIME
from results.verdict import Rule


def missing(
    base: Side,
    other: Side,
    rules: Sequence[Rule],
    alone: Iterable[str],
    renamed: Mapping[str, str],
) -> list[str]:
    """A sentence for each cell that rules are about and other lacks: base has it, or its plan.

    `alone` are the cells that only one side has; `renamed` is what other calls the experiments of
    base. Rules name the experiments of other.
    """
    begun = {point.cell.cell for point in other.points}
    planned = [
        point
        for run in other.runs
        for point in run.plan["points"]
        if point.get("cell") not in begun and point.get("arm") in {*other.arms, None}
    ]
    return [
        *(
            f"{name} is in the baseline and not in {other.name}: run it too"
            for name in _ruled(base, rules, alone, renamed)
        ),
        *(
            f"{point['name']} of {other.name} has not begun: finish the run first"
            for point in planned
            if any(
                about(rule, point.get("experiment", ""), point.get("workload", {}))
                for rule in rules
            )
        ),
    ]


def unjudged(
    base: Side,
    other: Side,
    rules: Sequence[Rule],
    alone: Sequence[str],
    held: Collection[tuple[str, str]],
    tied: Sequence[Tie] = (),
) -> list[str]:
    """A sentence for each cell of other that base lacks, and for each rule about no cell.

    `held` are the experiments of other and the metrics that were held against a rule there, `tied`
    are cells of which base may have any.
    """
    left = [*alone, *(name for one in tied for name in one.names)]
    return [
        *map(str, tied),
        *(
            f"{name} is not in the baseline {base.name}, so nothing says how it should be: add a "
            "run that has it"
            for name in _ruled(other, rules, alone, {})
        ),
        *_not_held(other, rules, left, held),
    ]


def _not_held(
    other: Side,
    rules: Sequence[Rule],
    alone: Sequence[str],
    held: Collection[tuple[str, str]],
) -> Iterator[str]:
    """A sentence for each rule that no judgement is of, and of which nothing was said yet."""
    there = {point.cell.experiment for point in other.points}
    for rule in rules:
        if any(rule.metric == metric and rule.experiment in {None, name} for name, metric in held):
            continue
        named = f"the rule for {rule.metric}" + f" of {rule.experiment}" * bool(rule.experiment)
        if rule.experiment is not None and rule.experiment not in there:
            yield (
                f"{named} was held against nothing, because no such experiment was run: correct "
                "the rule's experiment, or run it"
            )
        elif not _ruled(other, [rule], alone, {}):
            yield (
                f"{named} was held against nothing: both sides must have a cell that it is about, "
                "so run those too"
            )


def about(rule: Rule, experiment: str, workload: Mapping[str, Any]) -> bool:
    """Whether the rule holds in the experiment: of questions and of steps only their own do."""
    own = {"questions": HEADLINE, KIND: TIME}.get(workload.get("kind", ""))
    fits = rule.metric == own if own else rule.metric not in {HEADLINE, TIME}
    return fits and rule.experiment in {None, experiment}


def _ruled(
    side: Side, rules: Sequence[Rule], alone: Iterable[str], renamed: Mapping[str, str]
) -> list[str]:
    """Those of the cells that are the side's and that rules are about, under either name."""
    names = set()
    for point in side.points:
        called = {point.cell.experiment, renamed.get(point.cell.experiment, point.cell.experiment)}
        workload = point.cell.workload
        if any(about(rule, name, workload) for rule in rules for name in called):
            names.add(label((point,)))
    return [name for name in alone if name in names]
