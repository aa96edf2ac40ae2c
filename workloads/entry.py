"""One object of a trace file, read field by field; whatever is wrong with it is told."""

from array import array
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from results.errors import InputError

MOST = 1_000_000_000
"""A length or a moment beyond this is a mistake."""

WIDE = 2.0**63
"""From here on a whole number does not fit 64 bits, and the parser may have made it a float."""

LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong in one place: fatal where the record cannot be used, else what is made of it.

    `times` is how often a file has it, the first time in this place.
    """

    place: str
    field: str
    wrong: str
    fatal: bool
    times: int = 1

    @property
    def sentence(self) -> str:
        """Place, field and what is wrong: `a.jsonl: line 7: requests[3].in: expected …`."""
        dot = "." if self.place.endswith("]") else ": "
        field = f"{dot}{self.field}" if self.field else ""
        return f"{self.place}{field}: {self.wrong}"


Tell = Callable[[Problem], None]


def refuse(problem: Problem) -> None:
    """Raises InputError where the problem is fatal."""
    if problem.fatal:
        raise InputError(problem.sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An object and its place in words; where a field is wrong, `tell` hears of it.

    Every method gives something to go on with, in case `tell` returns. `exact` says that whole
    numbers of any size are as they were written.
    """

    values: dict[str, Any]
    place: str
    tell: Tell
    exact: bool = False

    def wrong(self, name: str, wanted: str) -> None:
        """Tells that the record cannot be used, because of this field."""
        got = shown(self.values[name]) if name in self.values else "nothing"
        problem = Problem(
            place=self.place, field=name, wrong=f"expected {wanted}, got {got}", fatal=True
        )
        self.tell(problem)

    def note(self, name: str, made: str) -> None:
        """Tells what is made of a field that is not as it should be."""
        self.tell(Problem(place=self.place, field=name, wrong=made, fatal=False))

    def whole(self, name: str, *, least: int, absent: int | None = None) -> int:
        """A whole number, or `absent` where there is none."""
        value = self.values.get(name)
        value = absent if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST:
            return value
        self.wrong(name, f"a whole number from {least} to {MOST:,}")
        return least

    def seconds(self, name: str, *, absent: float | None = None) -> float:
        """A number, or `absent` where there is none."""
        value = self.values.get(name)
        value = absent if value is None else value
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST:
            return float(value)
        self.wrong(name, f"a number from {-MOST:,} to {MOST:,}")
        return 0.0

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self.values.get(name)
        if isinstance(value, str) and value:
            return value
        self.wrong(name, "a text")
        return ""

    def ids(self, name: str) -> NDArray[Any]:
        """A list of whole numbers: of int64, or of Python's own where one does not fit.

        Raises OverflowError where whole numbers may have been rounded.
        """
        value = self.values.get(name)
        items = value if isinstance(value, list) else [None]
        try:
            # Refuses what is no whole number, which numpy would make one.
            return np.array(array("q", items))
        except (TypeError, OverflowError):
            if all(type(item) is int for item in items):
                return np.array(items, dtype=object)
        if not self.exact and any(type(item) is float and abs(item) >= WIDE for item in items):
            raise OverflowError
        self.wrong(name, "a list of whole numbers")
        return np.zeros(0, dtype=np.int64)

    def aside(self, known: Set[str]) -> dict[str, Any]:
        """The fields that the format does not know."""
        unknown = {name: self.values[name] for name in self.values if name not in known}
        for name in unknown:
            self.note(name, "is not in the format, and is kept aside: nothing is made of it")
        return unknown


def shown(value: Any) -> str:
    """The value as a message can hold it."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        text = str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
