"""Annotations and values in words, for the sentences that say what is wrong with a suite."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types as limits
import orjson
from pydantic import StringConstraints

_NO = frozenset({"no", "off", "false", "none"})
_YES = frozenset({"yes", "on", "true"})


def bare(annotation: Any) -> Any:
    """The annotation without its constraints and without None."""
    if get_origin(annotation) is Annotated:
        return bare(get_args(annotation)[0])
    left = [option for option in _options(annotation) if option is not NoneType]
    return bare(left[0]) if _options(annotation) and len(left) == 1 else annotation


def constraints(annotation: Any) -> list[Any]:
    """What stands beside the type, from the inside out."""
    if get_origin(annotation) is Annotated:
        inner, *outer = get_args(annotation)
        return [*constraints(inner), *outer]
    return [limit for option in _options(annotation) for limit in constraints(option)]


def _options(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else ()


def expected(annotation: Any) -> str:
    """What a field takes: `a whole number of at least 1`."""
    inner = bare(annotation)
    each = get_args(inner)
    if get_origin(inner) is Literal:
        return listed(each)
    if get_origin(inner) is tuple:
        return f"a list whose every entry is {expected(each[0])}"
    if get_origin(inner) is dict:
        return f"a mapping whose every value is {expected(each[1])}"
    if is_dataclass(inner):
        return f"a mapping with keys of {listed([field.name for field in fields(inner)])}"
    if _options(inner):
        return listed([expected(option) for option in each if option is not NoneType])
    name = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[inner]
    return name + _limits(constraints(annotation))


_LIMITS = {
    limits.Ge: ("ge", " of at least {}", "{} or more"),
    limits.Gt: ("gt", " above {}", "more than {}"),
    limits.Le: ("le", " of at most {}", "{} or less"),
    limits.Lt: ("lt", " below {}", "less than {}"),
}
"""What each limit calls its number, how it is said of a value, and how one keeps it."""


def _limits(given: list[Any]) -> str:
    match given:
        case [limits.Ge(ge=low), limits.Le(le=high)]:
            return f" from {_digits(low)} to {_digits(high)}"
        case [StringConstraints(pattern=pattern)]:
            return f" matching {str(pattern).strip('^$')}"
    return " and".join(_each(given, 1))


def _each(given: list[Any], place: int) -> list[str]:
    told = [(_LIMITS[type(limit)], limit) for limit in given]
    return [words[place].format(_digits(getattr(limit, words[0]))) for words, limit in told]


def _digits(limit: Any) -> str:
    return f"{limit:,.10g}"


def bounded(annotation: Any) -> str | None:
    """How a number must be written to keep its limits: `1 or more`, `1 to 8`."""
    given = constraints(annotation)
    match given:
        case [limits.Ge(ge=low), limits.Le(le=high)]:
            return f"{_digits(low)} to {_digits(high)}"
        case [StringConstraints()]:
            return None
    return listed(_each(given, 2), "and") if given else None


def listed(words: Iterable[object], last: str = "or") -> str:
    """Words with commas between them and `or` before the last."""
    *most, end = map(str, words)
    return f"{', '.join(most)} {last} {end}" if most else end


def quoted(value: Any) -> str:
    """A value as YAML would have it, cut where it is long."""
    if value is None:
        return "nothing"
    text = orjson.dumps(value).decode()
    return text if len(text) <= 60 else f"{text[:60]}..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, in whatever case it was written."""
    lower = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), lower, 1)
    return lower[near[0]] if near else None


def candidates(annotation: Any, value: Any) -> Iterator[Any]:
    """What may have been meant by a value that does not fit, the likeliest first."""
    if isinstance(value, list | dict | None):
        return
    text = (value if isinstance(value, str) else quoted(value)).lower()
    inner = bare(annotation)
    if get_origin(inner) is Literal:
        yield from filter(None, [nearest(text, get_args(inner))])
        yield "on" if text in _YES else "off"
    elif inner is bool:
        yield text in _YES | {"1"}
    elif inner is str:
        yield from (text, re.sub(r"[^a-z0-9-]+", "-", text).strip("-"))
    elif text in _NO:
        # No limit at all where there may be none, else none of something, else the least of it.
        yield from (None, 0, 1)
    elif text in _YES:
        yield 1
    elif (number := _number(text)) is not None:
        yield number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or abs(number) > 1e15:
        return None
    return int(number) if number == int(number) else number
