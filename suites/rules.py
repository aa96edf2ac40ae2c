"""Gate rules as they are written: `ttft.p90: no worse than 5 % and 20 ms`."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from results.direction import DIRECTIONS
from results.errors import InputError
from results.scores import HEADLINE
from results.verdict import Margin, Rule
from suites import reading
from suites.reading import Problem, place
from suites.words import listed, nearest, quoted

KEY = "gate"

EXAMPLE = "no worse than 5 % and 20 ms"

PATTERN = re.compile(r"no worse than (\S.*)")

_MARGIN = re.compile(
    r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<noise> ?x noise)?(?: ?(?P<unit>\D+))?", re.ASCII
)

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_UNITS = {
    "s": _TIMES,
    "s/token": _TIMES | {f"{unit}/token": seconds for unit, seconds in _TIMES.items()},
    "share": {"points": 0.01, "point": 0.01, "pp": 0.01},
}


def load(path: Path, experiments: Collection[str] | None = None) -> tuple[Rule, ...]:
    """The rules in a file: a mapping of them, alone or under `gate`, or a suite that has a `gate`.

    Raises InputError with a line for each thing that is wrong. `experiments` are those there are.
    """
    tree, problems = reading.read(reading.contents(path), str(path))
    names = experiments or ()
    is_suite = isinstance(tree, dict) and "experiments" in tree
    if is_suite and KEY not in tree:
        raise InputError(f"{path}: {KEY} is missing: add {KEY}: {_example()}")
    # An experiment may be called so too.
    inside = is_suite or (isinstance(tree, dict) and [*tree] == [KEY] and KEY not in names)
    rules = read(tree[KEY] if inside else tree, (KEY,) if inside else (), problems, experiments)
    if problems:
        raise InputError("\n".join(_line(path, problem) for problem in problems))
    return rules


def read(
    written: Any,
    path: reading.Path,
    problems: list[Problem],
    experiments: Collection[str] | None = None,
) -> tuple[Rule, ...]:
    """The rules of a mapping: from metric to words, or from experiment to such a mapping.

    Those that hold everywhere come first, so that an experiment's own come after them. Where
    `experiments` is None, every name of one is taken.
    """
    if not isinstance(written, dict) or not written:
        sentence = f"expected rules, got {quoted(written)}: write {_example()}"
        problems.append(Problem(path, sentence))
        return ()
    everywhere = [
        _rule(metric, words, (*path, metric), problems)
        for metric, words in written.items()
        if not isinstance(words, dict)
    ]
    inside = []
    for name, mapping in written.items():
        if isinstance(mapping, dict):
            inside += _inside(name, mapping, (*path, name), problems, experiments)
    return tuple(rule for rule in (*everywhere, *inside) if rule is not None)


def _inside(
    experiment: str,
    mapping: dict[str, Any],
    path: reading.Path,
    problems: list[Problem],
    experiments: Collection[str] | None,
) -> list[Rule | None]:
    """The rules of one experiment."""
    if experiments is not None and experiment not in experiments:
        near = nearest(experiment, experiments)
        way = f"write it as {near}" if near else "write one of them"
        known = listed(experiments) if experiments else "an experiment"
        sentence = f"expected {known}, got {quoted(experiment)}: {way}"
        problems.append(Problem(path, sentence))
    if not mapping:
        problems.append(Problem(path, f"expected rules, got none: write {_example()}"))
    return [
        _rule(metric, words, (*path, metric), problems, experiment)
        for metric, words in mapping.items()
    ]


def _rule(
    metric: str,
    words: Any,
    path: reading.Path,
    problems: list[Problem],
    experiment: str | None = None,
) -> Rule | None:
    if metric not in DIRECTIONS:
        near = nearest(metric, DIRECTIONS)
        way = f"write it as {near}" if near else "docs/metrics.md lists them"
        sentence = f"expected a metric that can be compared, got {quoted(metric)}: {way}"
        problems.append(Problem(path, sentence))
        return None
    try:
        return Rule(metric=metric, margin=_margin(metric, words), experiment=experiment)
    except ValueError as error:
        sentence = f"expected a rule such as `{_fitting(metric)}`, got {quoted(words)}: {error}"
        problems.append(Problem(path, sentence))
        return None


def _margin(metric: str, words: Any) -> Margin:
    """The margin in the words of a rule. Raises ValueError, which says how to write it instead."""
    match = PATTERN.fullmatch(" ".join(words.split())) if isinstance(words, str) else None
    if match is None:
        raise ValueError("begin with `no worse than`, then say by how much it may be worse")
    stated: dict[str, float] = {}
    for part in match[1].split(" and "):
        kind, amount = _part(metric, part.strip())
        if kind in stated:
            raise ValueError("write a share, an amount and a multiple of the noise once each")
        if not amount > 0:
            raise ValueError("write more than 0, since nothing is ever measured twice the same")
        stated[kind] = amount
    return Margin(**stated)


def _part(metric: str, part: str) -> tuple[str, float]:
    """One part of a margin: the field of Margin that it states, and how much."""
    match = _MARGIN.fullmatch(part)
    if match is None:
        raise ValueError(f"`{part}` is no amount with a unit, write one such as 5 %")
    number, unit = float(match["number"]), match["unit"]
    if metric == HEADLINE and (match["noise"] or unit not in _units(metric)):
        raise ValueError(f"{metric} is compared in points: write how many, such as 1 pp")
    if match["noise"] and unit is None:
        return "noise", number
    if unit == "%":
        return "relative", _share(metric, number)
    units = _units(metric)
    if unit not in units or match["noise"]:
        got = f"got {unit.strip()}" if unit else "no unit was stated"
        raise ValueError(f"{metric} is in {listed(['%', *units, 'x noise'])}, and {got}")
    return "absolute", number * units[unit]


def _share(metric: str, percents: float) -> float:
    """A share of the baseline. Raises ValueError where a rule by it would hardly ever fail."""
    whole = DIRECTIONS[metric].better == "higher" and percents == 100
    if whole or percents > 100:
        most = "less than 100 %, since it cannot fall by more" if whole else "100 % at most"
        raise ValueError(f"write {most}, or the rule passes whatever comes")
    return percents / 100


def _units(metric: str) -> dict[str, float]:
    unit = DIRECTIONS[metric].unit
    return _UNITS.get(unit, {unit: 1.0})


def _fitting(metric: str) -> str:
    """A rule that would do for the metric."""
    amounts = {"s": "20 ms", "s/token": "1 ms", "share": "2 points"}
    if metric == HEADLINE:
        return "no worse than 1 pp"
    unit = DIRECTIONS[metric].unit
    return f"no worse than 5 % and {amounts[unit]}" if unit in amounts else "no worse than 5 %"


def _example() -> str:
    return f"{{ttft.p90: {EXAMPLE}}}"


def _line(path: Path, problem: Problem) -> str:
    return ": ".join(filter(None, [str(path), place(problem.path), problem.sentence]))
