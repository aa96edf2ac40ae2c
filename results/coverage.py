"""What rules are about and could not be held against anything: a gate must not pass over it."""

from collections.abc import Iterable, Sequence

from results.matching import label
from results.side import Side
from results.verdict import Rule


def missing(base: Side, other: Side, rules: Sequence[Rule], alone: Iterable[str]) -> list[str]:
    """A sentence for each cell that rules are about and other lacks: base has it, or its plan.

    `alone` are the cells that only one side has.
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
            for name in _ruled(base, rules, alone)
        ),
        *(
            f"{point['name']} of {other.name} has not begun: finish the run first"
            for point in planned
            if any(about(rule, point.get("experiment", "")) for rule in rules)
        ),
    ]


def unjudged(base: Side, other: Side, rules: Sequence[Rule], alone: Iterable[str]) -> list[str]:
    """A sentence for each cell of other that base lacks, and for each rule about no cell."""
    found = [
        f"{name} is not in the baseline {base.name}, so nothing says how it should be: add a run "
        "that has it"
        for name in _ruled(other, rules, alone)
    ]
    there = {point.cell.experiment for point in other.points}
    return found + [
        f"the rule for {rule.metric} of {rule.experiment} was held against nothing, because no "
        "such experiment was run: correct the rule's experiment, or run it"
        for rule in rules
        if rule.experiment is not None and rule.experiment not in there
    ]


def about(rule: Rule, experiment: str) -> bool:
    """Whether the rule holds in the experiment."""
    return rule.experiment in {None, experiment}


def _ruled(side: Side, rules: Sequence[Rule], alone: Iterable[str]) -> list[str]:
    names = {
        label((point,))
        for point in side.points
        if any(about(rule, point.cell.experiment) for rule in rules)
    }
    return [name for name in alone if name in names]
