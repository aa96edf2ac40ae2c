"""Grids as they are written: a list where one value belongs is an axis."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from math import prod
from typing import Any, get_args

from suites.field import annotations, build, check, check_keys, is_scalar, required
from suites.reading import Path, Problem
from suites.words import listed, nearest, quoted

Finish = Callable[[Any, Path, list[Problem]], Any]

POINTS = 10_000
"""The most points that a suite may stand for."""


def kinds(union: Any) -> dict[str, type]:
    """The dataclasses of a union by their `kind`."""
    classes = get_args(union) or (union,)
    return {get_args(annotations(cls)["kind"])[0]: cls for cls in classes}


def expand(
    union: Any,
    written: Any,
    path: Path,
    problems: list[Problem],
    *,
    finish: Finish = lambda value, path, problems: value,  # noqa: ARG005
) -> list[Any]:
    """Every value that a mapping with a `kind`, or a list of such mappings, stands for.

    In the order in which they are written; within a mapping the first axis changes slowest.
    Each goes through `finish`, which may add problems of its own.
    """
    values: dict[str, Any] = {}
    for place, mapping in _entries(written, path, problems):
        made = {repr(value): value for value in _product(union, mapping, place, problems, finish)}
        if made.keys() & values.keys():
            sentence = "expected mappings that differ, got the same settings twice: remove one"
            problems.append(Problem(place, sentence))
        values |= made
        if len(values) > POINTS:
            problems.append(too_large(path, f"more than {POINTS:,}"))
            break
    return list(values.values())


def axis(
    read: Callable[[Any, Path, list[Problem]], Any],
    written: Any,
    path: Path,
    problems: list[Problem],
) -> list[Any]:
    """The values of one field: one, or those of a list, each read and none there twice."""
    values: dict[str, Any] = {}
    for place, value in _entries(written, path, problems):
        before = len(problems)
        made = read(value, place, problems)
        if repr(made) in values and len(problems) == before:
            sentence = f"expected every value once, got {quoted(value)} again: remove it"
            problems.append(Problem(place, sentence))
        if len(problems) == before:
            values[repr(made)] = made
    return list(values.values())


def too_large(path: Path, points: str) -> Problem:
    """The problem of a grid that nobody would wait for."""
    return Problem(
        path, f"expected at most {POINTS:,} points, got {points}: shorten a list of its grid"
    )


def _entries(written: Any, path: Path, problems: list[Problem]) -> Iterable[tuple[Path, Any]]:
    if not isinstance(written, list):
        return [(path, written)]
    if not written:
        sentence = "expected at least one value, got an empty list: write one or remove the key"
        problems.append(Problem(path, sentence))
    return [((*path, index), value) for index, value in enumerate(written)]


def _product(
    union: Any, mapping: Any, path: Path, problems: list[Problem], finish: Finish
) -> list[Any]:
    """The values of one mapping; none where there is a problem."""
    before = len(problems)
    cls = _kind(union, mapping, path, problems)
    if cls is None:
        return []
    hints = annotations(cls)
    check_keys(mapping, hints, required(cls), path, problems, partial(_home, union))
    axes = {
        key: _values(hints[key], value, (*path, key), problems)
        for key, value in mapping.items()
        if key in hints and key != "kind"
    }
    points = prod(map(len, axes.values()))
    if points > POINTS:
        problems.append(too_large(path, f"{points:,}"))
    if len(problems) > before:
        return []
    settings = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
    made = [build(partial(cls, **chosen), path, problems) for chosen in settings]
    return [finish(value, path, problems) for value in made if value is not None]


def _values(annotation: Any, written: Any, path: Path, problems: list[Problem]) -> list[Any]:
    if is_scalar(annotation):
        return axis(partial(check, annotation), written, path, problems)
    return [check(annotation, written, path, problems)]


def _kind(union: Any, mapping: Any, path: Path, problems: list[Problem]) -> type | None:
    known = kinds(union)
    if not isinstance(mapping, dict):
        near = _near(mapping, known) or next(iter(known))
        sentence = f"expected a mapping, got {quoted(mapping)}: write {{kind: {near}}}"
        problems.append(Problem(path, sentence))
        return None
    kind = mapping.get("kind")
    if isinstance(kind, str) and kind in known:
        return known[kind]
    meant = _near(kind, known)
    words = "the kinds are" if len(known) > 1 else "the only kind is"
    way = f"write it as {meant}" if meant else f"{words} {listed(known, 'and')}"
    if "kind" in mapping:
        problems.append(Problem((*path, "kind"), f"expected a kind, got {quoted(kind)}: {way}"))
    else:
        problems.append(Problem(path, f"kind is missing: {way}"))
    return None


def _near(kind: Any, known: Iterable[str]) -> str | None:
    return nearest(kind, known) if isinstance(kind, str) else None


def _home(union: Any, key: str) -> str | None:
    """The kinds of a union that have a key, in words."""
    having = [kind for kind, cls in kinds(union).items() if key in annotations(cls)]
    return f"kind: {listed(having)}" if having else None
