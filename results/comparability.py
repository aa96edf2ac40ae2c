"""In what two sides differ, and whether they may be compared all the same."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from results import facts
from results.cell import Cell
from results.errors import InputError
from results.facts import Facts
from results.matching import match
from results.side import Side
from results.standing import MANY, REQUESTED, Difference, covers, judged, within

Told = tuple[Cell, Facts]
"""A point and all its facts."""

NOTHING = "no workload under one load is on both sides"
"""Why what is asked stands in the way where allowing it would leave nothing to compare."""

Asked = frozenset[tuple[str, ...]]
"""The workload and the load of a point: their keys, each with its value."""


def differences(
    base: Side, other: Side, *, factors: Sequence[str] = (), allow: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """All that two sides differ in, what refuses first.

    What is compared are the `factors`: keys, or what keys begin with (`replay`, `engine.flags`).
    Where none is named, it is all that the deployments are stated to differ in. The keys in
    `allow`, and those below them, refuse nothing. Of sides with several arms, arms of one name are
    compared. Raises InputError where a factor names nothing.
    """
    machines = facts.environments(base.runs), facts.environments(other.runs)
    arms = _matched_arms(facts.settings(base), facts.settings(other))
    pairs = [pair for ours, theirs in arms for pair in _cells(ours, theirs)]
    _check(factors, [machines, *pairs])
    found = [one for pair in pairs for one in judged(*pair, factors, simulated=False)]
    found += [one for ours, theirs in arms for one in _unmatched(ours, theirs)]
    if not arms:
        found.append(_no_arm(base, other))
    if _made_in(base) != _made_in(other):
        found += judged(*machines, factors, simulated=_on_virtual_time(base, other))
    order = ("refusing", "factor", "allowed", "harmless")
    nothing = not match(base, other)[0]
    told = (_allowed(one, allow, nothing=nothing) for one in dict.fromkeys(found))
    return tuple(sorted(told, key=lambda one: (order.index(one.standing), one.key)))


def refusals(found: Iterable[Difference]) -> tuple[str, ...]:
    """A sentence for every difference that stands in the way, with its key and both values."""
    return tuple(
        f"{one.key}: {one.base} against {one.other}"
        f"{f' ({one.reason})' if one.reason else ''}{_way_out(one)}"
        for one in found
        if one.standing == "refusing"
    )


def _way_out(one: Difference) -> str:
    """What would be compared; what has nothing in common is not, whatever is allowed."""
    if one.key == "arm":
        return ""
    told = ": compare runs that agree in it"
    return told if one.reason == NOTHING else f"{told}, or add --allow {one.key}"


def _check(factors: Iterable[str], pairs: Iterable[tuple[Facts, Facts]]) -> None:
    known = {key for pair in pairs for side in pair for key in side}
    for name in factors:
        if not any(covers(name, key) for key in known):
            raise InputError(
                f"--factor {name} names nothing that these runs state: write a key, such as "
                "replay, topology, engine.name or flags"
            )


def _cells(base: Sequence[Told], other: Sequence[Told]) -> Iterator[tuple[Facts, Facts]]:
    """The facts of both sides in each cell that both have; in all their points where none is.

    A cell is also one that is stated alike and holds something else, such as changed traces.
    Where both sides have the same experiments, those may ask the same of different engines.
    """
    names = [dict.fromkeys(cell.experiment for cell, _ in side) for side in (base, other)]
    if len(names[0]) > 1 and names[0].keys() == names[1].keys():
        for name in names[0]:
            yield from _cells(_of(base, name), _of(other, name))
        return
    grouped = _grouped(base), _grouped(other)
    both = [(key, key) for key in grouped[0] if key in grouped[1]]
    left = [[key for key in ours if key not in theirs] for ours, theirs in (grouped, grouped[::-1])]
    both += [
        (one, two)
        for one in left[0]
        for two in left[1]
        if _stated(grouped[0][one][0][0]) == _stated(grouped[1][two][0][0])
    ]
    for one, two in both:
        yield _all(grouped[0][one]), _all(grouped[1][two])
    if not both:
        yield _all(base), _all(other)


def _of(side: Sequence[Told], experiment: str) -> list[Told]:
    return [told for told in side if told[0].experiment == experiment]


def _unmatched(base: Sequence[Told], other: Sequence[Told]) -> Iterator[Difference]:
    """Why an experiment that both sides have has no cell in common, where another one has."""
    if _grouped(base).keys().isdisjoint(_grouped(other)):
        return
    for name in dict.fromkeys(cell.experiment for cell, _ in base):
        ours, theirs = _of(base, name), _of(other, name)
        if theirs and _grouped(ours).keys().isdisjoint(_grouped(theirs)):
            for one in judged(_all(ours), _all(theirs), (), simulated=False):
                if within(one.key, REQUESTED):
                    reason = f"{name} has no cell on both sides, and is not compared"
                    yield replace(one, standing="harmless", reason=reason)


def _made_in(side: Side) -> list[tuple[str, Mapping[str, Any]]]:
    """The runs of a side: arms of the same ones met the same machine, whatever it was."""
    return sorted(((str(run.path), run.environment) for run in side.runs), key=lambda run: run[0])


def _matched_arms(
    base: Sequence[Told], other: Sequence[Told]
) -> list[tuple[Sequence[Told], Sequence[Told]]]:
    """The arms that are compared: the only ones, or those of one name."""
    arms = [dict.fromkeys(cell.arm for cell, _ in side) for side in (base, other)]
    if max(map(len, arms)) <= 1:
        return [(base, other)]
    return [
        (
            [told for told in base if told[0].arm == arm],
            [told for told in other if told[0].arm == arm],
        )
        for arm in arms[0]
        if arm in arms[1]
    ]


def _no_arm(base: Side, other: Side) -> Difference:
    one_each = (
        side.name if len(side.arms) == 1 else f"{side.name}:{next(iter(side.arms), 'ARM')}"
        for side in (base, other)
    )
    return Difference(
        key="arm",
        base=", ".join(base.arms),
        other=", ".join(other.arms),
        standing="refusing",
        reason=f"no arm is on both sides: name one of each, such as {shlex.join(one_each)}",
    )


def _grouped(side: Iterable[Told]) -> dict[Asked, list[Told]]:
    """A side's points by what is asked of them."""
    groups: dict[Asked, list[Told]] = {}
    for cell, told in side:
        asked = frozenset((key, *told[key]) for key in told if within(key, MANY))
        groups.setdefault(asked, []).append((cell, told))
    return groups


def _stated(cell: Cell) -> bytes:
    return orjson.dumps([cell.workload, cell.load], option=orjson.OPT_SORT_KEYS)


def _all(side: Iterable[Told]) -> Facts:
    return facts.joined(told for _, told in side)


def _allowed(one: Difference, allow: Sequence[str], *, nothing: bool) -> Difference:
    """As it stands with these keys allowed, which helps nowhere where `nothing` is in common."""
    if one.standing != "refusing" or one.key == "arm":
        return one
    if nothing and within(one.key, MANY):
        return replace(one, reason=NOTHING)
    return replace(one, standing="allowed") if within(one.key, allow) else one


def _on_virtual_time(base: Side, other: Side) -> bool:
    """Whether no machine can show in any result: all was simulated, on a clock that jumps."""
    told = [point.evidence for side in (base, other) for point in side.points if point.evidence]
    return bool(told) and all(
        one.clock == "virtual" and one.observed.provenance == "simulated" for one in told
    )
