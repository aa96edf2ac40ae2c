"""Suite files as plain values: YAML in which only `true` and `false` are booleans."""

import json
import math
import pathlib
import re
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple, Never

import yaml

from results.errors import InputError

Path = tuple[str | int, ...]

BYTES = 1 << 20
VALUES = 100_000
DEPTH = 30
"""The largest file, the most values once every alias is followed, and the deepest nesting."""

_YAML = "tag:yaml.org,2002:"
_NUMBER = r"[-+]?(?:0|[1-9][0-9]{0,17})"
_POWER = r"(?:[eE][-+]?[0-9]+)"
_UNCLOSED = re.compile(r"expected ',' or|but found '<stream end>'|unexpected end of stream")
_OTHER = {"[": "]", "{": "}", '"': 'other "', "'": "other '"}
"""What PyYAML says where something is not closed, and what closes it."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Problem(NamedTuple):
    """Where a suite is wrong, and the sentence that says what to do about it."""

    path: Path
    sentence: str


def place(path: Path) -> str:
    """A path as people write it: `experiments[1].load.concurrency[2]`."""
    return "".join(map(_part, path)).removeprefix(".")


def _part(part: str | int) -> str:
    if isinstance(part, str) and re.fullmatch(r"[\w.-]{1,60}", part):
        return f".{part}"
    return f"[{part}]" if isinstance(part, int) else f"[{json.dumps(part[:60])}]"


def one_line(words: object) -> str:
    """Words without line breaks, so that a problem stays one line."""
    return " ".join(str(words).split())


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars, so no on, off, octals, sexagesimals or dates; nesting is bounded."""

    yaml_implicit_resolvers = {}  # noqa: RUF012
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        self.depth += 1
        if self.depth > DEPTH:
            _refuse(event, f"is nested deeper than {DEPTH}")
        if getattr(event, "tag", None) not in {None, "!", _YAML + "str"}:
            _refuse(event, f"the tag {event.tag} means nothing here")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("int", _NUMBER, "-+0123456789"),
    ("float", rf"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+){_POWER}?|{_NUMBER}{_POWER}", "-+.0123456789"),
    ("null", r"~|null|", ["~", "n", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(_YAML + _tag, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def contents(path: pathlib.Path) -> str:
    """What a file of at most 1 MiB holds. Raises InputError where it cannot be read."""
    try:
        with path.open("rb") as file:
            written = file.read(BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "no reason given").lower()
        raise InputError(f"{path}: cannot be read, {reason}: check the path") from None
    except ValueError as error:
        raise InputError(f"{path}: cannot be read, {error}: check the path") from None
    if len(written) > BYTES:
        raise InputError(f"{path}: expected at most 1 MiB, got more: check that it is a suite")
    try:
        return written.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 at byte {error.start}: save it as UTF-8") from None


def read(text: str, name: str) -> tuple[Any, list[Problem]]:
    """The value that a YAML text holds, and a problem for each key that is written twice.

    Raises InputError with `name`, line and column where it is not YAML.
    """
    try:
        node = _compose(text)
        problems: list[Problem] = []
        return (_value(node, (), count(), problems) if node else None), problems
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = one_line(", ".join(filter(None, [error.context, error.problem])))
        raise InputError(f"{where}: {problem}: {error.note or 'correct the YAML'}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {one_line(error)}: correct the YAML") from None
    except (ValueError, OverflowError) as error:
        # PyYAML lets these out for characters and versions that do not exist.
        raise InputError(f"{name}: is not YAML ({error}): correct it") from None


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _plainly(error, text, loader.marks) from None
    finally:
        loader.dispose()


def _plainly(
    error: yaml.MarkedYAMLError, text: str, begun: list[yaml.Mark]
) -> yaml.MarkedYAMLError:
    """The same error, told of the bracket or the quote that was never closed if that is why.

    `begun` is where the collections begin that PyYAML was still in.
    """
    context, problem, met = error.context or "", str(error.problem), error.problem_mark
    opened = begun[-1] if "while parsing a flow" in context and begun else error.context_mark
    sign = text[opened.index] if opened else ""
    if opened is None or met is None or sign not in _OTHER or not _UNCLOSED.search(problem):
        return error
    if "end>'" in problem or "end of stream" in problem:
        sentence, way = f"the {sign} here is never closed", f"add the {_OTHER[sign]}"
    else:
        here = met.line == opened.line
        spot = f"column {met.column + 1}" if here else f"line {met.line + 1}"
        sentence = f"the {sign} here is not closed before {spot}"
        way = f"add the {_OTHER[sign]} or the comma that is missing"
    return yaml.MarkedYAMLError(problem=sentence, problem_mark=opened, note=way)


def _value(node: yaml.Node, path: Path, seen: Iterator[int], problems: list[Problem]) -> Any:
    if next(seen) >= VALUES or len(path) > DEPTH:
        _refuse(node, f"aliases make more than {VALUES:,} values, or nest deeper than {DEPTH}")
    match node:
        case yaml.MappingNode():
            return _mapping(node, path, seen, problems)
        case yaml.SequenceNode():
            return [_value(n, (*path, i), seen, problems) for i, n in enumerate(node.value)]
    return _scalar(node)


def _mapping(
    node: yaml.MappingNode, path: Path, seen: Iterator[int], problems: list[Problem]
) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    written: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            _refuse(key_node, "a key must be a plain name")
        key: str = key_node.value
        value = _value(value_node, (*path, key), seen, problems)
        if key_node.tag == _YAML + "merge":
            merged = _merged(value_node, value) | merged
        elif key in written:
            line = key_node.start_mark.line + 1
            sentence = f"expected a key once, got it again on line {line}: remove one of them"
            problems.append(Problem((*path, key), sentence))
        else:
            written[key] = value
    return {key: merged[key] for key in merged if key not in written} | written


def _merged(node: yaml.Node, value: Any) -> dict[str, Any]:
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        _refuse(node, "<< merges mappings only")
    # The earlier of two merged mappings wins, as YAML says.
    return {key: part[key] for part in reversed(parts) for key in part}


def _scalar(node: yaml.Node) -> Any:
    text: str = node.value
    if _SURROGATE.search(text):
        _refuse(node, "half of a surrogate pair is not text")
    match node.tag.removeprefix(_YAML):
        case "bool":
            return text == "true"
        case "int":
            return int(text)
        case "float":
            number = float(text)
            return number if math.isfinite(number) else text
        case "null":
            return None
    return text


def _refuse(at: yaml.Node, problem: str) -> Never:
    mark: Any = at.start_mark
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
