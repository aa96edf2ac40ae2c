"""Where sides change places, in sentences."""

from collections.abc import Iterator

from reports.notation import label, number
from results.comparison import Comparison
from results.crossing import crossings

_AHEAD = {
    frozenset({1}): ("other is ahead at all", ""),
    frozenset({-1}): ("base is ahead at all", ""),
    frozenset({1, 0}): ("other is ahead at some", " and base at none"),
    frozenset({-1, 0}): ("base is ahead at some", " and other at none"),
    frozenset({0}): ("neither is ahead by more than the margin at any of the", ""),
}
"""Who is ahead, before and after the loads are named."""


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
        if one.at is None or one.low is None or one.high is None or one.between is None:
            who, rest = _AHEAD[frozenset(one.ahead)]
            loads = "batch sizes" if one.load == "requests" else "loads"
            told = f"{prefix}{who} {loads} from {one.loads[0]:g} to {one.loads[-1]:g}{rest}, in "
            settled.setdefault(told, []).append(label(one.metric))
        else:
            before, after = ("base", "other") if one.overtakes > 0 else ("other", "base")
            low, at, high = map(number, (one.low, one.at, one.high))
            yield (
                f"{prefix}{label(one.metric)}: {before} is ahead at {name} {one.between[0]:g} and "
                f"{after} at {one.between[1]:g}; were the change straight in between, they would "
                f"be equal at {at}, and neither surely ahead from {low} to {high}"
            )
    for told, metrics in settled.items():
        yield told + " and ".join(filter(None, [", ".join(metrics[:-1]), metrics[-1]]))
