"""Where sides change places, in sentences."""

from collections.abc import Iterator

from reports.notation import label, number
from results.comparison import Comparison
from results.crossing import Crossing, crossings

_AHEAD = {
    frozenset({1}): "other ahead",
    frozenset({-1}): "base ahead",
    frozenset({1, 0}): "other ahead, if anybody",
    frozenset({-1, 0}): "base ahead, if anybody",
    frozenset({0}): "nobody ahead",
}


def crossing_lines(comparison: Comparison, mark: str = "") -> Iterator[str]:
    """A sentence for each change of places, and one for each series on what never changes.

    `mark` says of each that nothing was measured, where that is so.
    """
    yield from (f"{mark}. {line}" if mark else line for line in _lines(comparison))


def _lines(comparison: Comparison) -> Iterator[str]:
    found = list(crossings(comparison))
    experiments = len({one.experiment for one in found}) > 1
    arms = len({one.arms for one in found}) > 1
    settled: dict[str, list[str]] = {}
    for one in found:
        # Arms are told apart where each is compared with its namesake of another folder.
        names = [*([one.experiment] if experiments else []), *([one.arms[1]] if arms else [])]
        prefix = f"{', '.join(names)}: " if names else ""
        name = "batch size" if one.load == "requests" else one.load
        if one.at is None:
            span = f"{prefix}nobody overtakes from {name} {one.loads[0]:g} to {one.loads[-1]:g}: "
            told = f"{label(one.metric)}: {_AHEAD[frozenset(one.ahead)]}"
            settled.setdefault(span, []).append(told)
        else:
            yield f"{prefix}{label(one.metric)}: {_overtaking(one, name)}"
    for span, metrics in settled.items():
        yield span + "; ".join(metrics)


def _overtaking(one: Crossing, name: str) -> str:
    before, after = ("base", "other") if one.overtakes > 0 else ("other", "base")
    assert one.between
    low, at, high = (number(value or 0.0) for value in (one.low, one.at, one.high))
    return (
        f"{before} is ahead at {name} {one.between[0]:g} and {after} at {one.between[1]:g}; were "
        f"the change straight in between, they would be equal at {at}, and nobody surely ahead "
        f"from {low} to {high}"
    )
