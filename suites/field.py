"""One written value, checked against the annotation of the field that it is for."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import Any, get_args, get_origin, get_type_hints

import orjson
from pydantic import TypeAdapter, ValidationError

from results.errors import InputError
from suites import duration
from suites.reading import Path, Problem, one_line
from suites.words import bare, bounded, candidates, expected, listed, nearest, quoted


@cache
def annotations(cls: type) -> dict[str, Any]:
    """The annotation of each field of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


@cache
def required(cls: type) -> dict[str, str]:
    """What the fields of a dataclass that have no default take, in words."""
    hints = annotations(cls)
    return {
        field.name: expected(hints[field.name])
        for field in fields(cls)
        if field.default is MISSING and field.default_factory is MISSING
    }


def is_scalar(annotation: Any) -> bool:
    """Whether a field holds one value, so that a list written for it is an axis of the grid."""
    inner = bare(annotation)
    return not (get_origin(inner) in {tuple, dict} or is_dataclass(inner))


def check(annotation: Any, value: Any, path: Path, problems: list[Problem]) -> Any:
    """The value as the field holds it; where it does not fit, None and a problem."""
    inner = bare(annotation)
    each = get_args(inner)
    if get_origin(inner) is tuple and isinstance(value, list):
        return tuple(check(each[0], v, (*path, i), problems) for i, v in enumerate(value))
    if get_origin(inner) is dict and isinstance(value, dict):
        return {k: check(each[1], v, (*path, k), problems) for k, v in value.items()}
    if is_dataclass(inner) and isinstance(value, dict):
        return check_mapping(inner, value, path, problems)
    is_time = inner is float and _name(path) in duration.FIELDS
    held = duration.seconds(value) if is_time else value
    try:
        return _valid(annotation, held)
    except ValidationError:
        wanted = expected(annotation) + " or a duration such as 500ms, 90s or 10m" * is_time
        meant = duration.meant(value) if is_time else None
        new = meant and meant != value
        way = f"write it as {meant}" if new else _way(annotation, held, path)
        problems.append(Problem(path, f"expected {wanted}, got {quoted(value)}: {way}"))
        return None


def check_mapping(cls: Any, value: Any, path: Path, problems: list[Problem]) -> Any:
    """A dataclass made of a mapping of its fields; None, and problems, where it cannot be."""
    before = len(problems)
    hints = annotations(cls)
    if not check_keys(value, hints, required(cls), path, problems):
        return None
    made = {k: check(hints[k], value[k], (*path, k), problems) for k in value if k in hints}
    return build(partial(cls, **made), path, problems) if len(problems) == before else None


def check_keys(
    value: Any,
    known: Iterable[str],
    needed: Mapping[str, str],
    path: Path,
    problems: list[Problem],
    elsewhere: Callable[[str], str | None] = lambda _: None,
) -> bool:
    """Whether a value is a mapping; adds a problem for each unknown and each missing key.

    `needed` holds, for each key that must be there, what it takes in words. `elsewhere` says in
    words where a key that is unknown here belongs, if anywhere.
    """
    if not isinstance(value, dict):
        wanted = f"a mapping with keys of {listed(known)}"
        problems.append(Problem(path, f"expected {wanted}, got {quoted(value)}: write a mapping"))
        return False
    for key in [key for key in value if key not in known]:
        near, home = nearest(key, known), elsewhere(key)
        way = f"write it as {near}" if near else "remove it"
        if home:
            way = f"it belongs to {home}, so write that or remove the key"
        sentence = f"expected a key of {listed(known)}, got {quoted(key)}: {way}"
        problems.append(Problem((*path, key), sentence))
    for key, words in needed.items():
        if key not in value:
            problems.append(Problem(path, f"{key} is missing: add it, {words}"))
    return True


def build(make: Callable[[], Any], path: Path, problems: list[Problem]) -> Any:
    """What `make` gives; where it refuses, None and a problem in its own words."""
    try:
        return make()
    except (ValueError, InputError) as error:
        problems.append(Problem(path, one_line(error)))
        return None


def _name(path: Path) -> str:
    return next((part for part in reversed(path) if isinstance(part, str)), "")


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _valid(annotation: Any, value: Any) -> Any:
    # Only from JSON is strict pydantic exact about numbers and still content with lists for tuples.
    return _adapter(annotation).validate_json(orjson.dumps(value), strict=True)


def _way(annotation: Any, value: Any, path: Path) -> str:
    """How to write it instead."""
    meant = [_meant(annotation, value)]
    if isinstance(value, str) and "," in value:
        meant = [_meant(annotation, part.strip()) for part in value.split(",")]
    if None not in meant:
        text = ", ".join(map(str, meant))
        return (
            f"write it as [{text}]"
            if meant[1:] and isinstance(path[-1], str)
            else f"write it as {text}"
        )
    if value is None:
        return "write a value or remove the key"
    if isinstance(value, list | dict):
        return "write one value"
    limits = bounded(annotation)
    return f"write {'a number, ' * isinstance(value, str)}{limits}" if limits else "change it"


def _meant(annotation: Any, value: Any) -> str | None:
    for candidate in candidates(annotation, value):
        try:
            _valid(annotation, candidate)
        except ValidationError:
            continue
        is_text = isinstance(candidate, str) and bare(annotation) is str
        if candidate is None:
            return "null"
        return quoted(candidate) if is_text or not isinstance(candidate, str) else candidate
    return None
