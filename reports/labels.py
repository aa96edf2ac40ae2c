"""What cells, arms and outcomes are called."""

from collections.abc import Iterable, Mapping, Sequence

from reports.notation import exact
from results.cell import Cell
from results.evidence import Provenance
from results.figure import Summary
from results.steps import is_stepwise


def load_level(cell: Cell) -> str:
    """How much load the cell puts on: `closed 8`, `open 0.5/s`, `recorded 2x`."""
    value = f"{pressure(cell):g}"
    match cell.load.get("kind"):
        case "open":
            return f"open {value}/s"
        case "recorded":
            return f"recorded {value}x"
        case kind:
            return f"{kind or 'load'} {value}"


def level(cell: Cell) -> str:
    """The load level, with the cached prefix of single requests: `closed 1, cached 8192`."""
    cached = _cached(cell)
    return f"{load_level(cell)}, cached {cached}" if cached else load_level(cell)


def pressure(cell: Cell) -> float:
    """The number by which levels are ordered: batch size, or concurrency, rate or speed."""
    if is_batch(cell):
        return float(cell.workload.get("requests") or 0)
    keys = {"open": "rate", "recorded": "speed"}
    return float(cell.load.get(keys.get(cell.load.get("kind", ""), "concurrency")) or 0)


def settings(cell: Cell) -> dict[str, str]:
    """What the cell is besides its arm and its load level, in words."""
    shape = {key: value for key, value in cell.load.items() if key in {"process", "burstiness"}}
    told = {"workload": cell.workload.get("kind"), **cell.workload, **shape}
    left_out = {"kind", "requests"} if is_batch(cell) else {"kind"}
    left_out |= {"batch", "context", "new_tokens"} if is_stepwise(cell) else set()
    return {key: str(value) for key, value in told.items() if key not in left_out}


def differing(told: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """The settings in which not all are alike."""
    keys = dict.fromkeys(key for one in told for key in one)
    return tuple(key for key in keys if len({one.get(key) for one in told}) > 1)


def place(cell: Cell, keys: Iterable[str] = ()) -> str:
    """Where in its experiment the cell stands: load level, or batch size, and those settings."""
    told = settings(cell)
    if _cached(cell):
        del told["cached"]
    first = f"batch {cell.workload.get('requests', '?')}" if is_batch(cell) else level(cell)
    if is_stepwise(cell):
        first = "{batch} x {new_tokens} on {context}".format(**cell.workload)
    return ", ".join([first, *(f"{key} {told[key]}" for key in keys if key in told)])


def places(summaries: Sequence[Summary]) -> list[str]:
    """The place of each summary, with the settings that differ between them."""
    keys = differing([settings(summary.cell) for summary in summaries])
    return [place(summary.cell, keys) for summary in summaries]


def limits(cell: Cell) -> str:
    """What a request must keep to count for goodput: `TTFT <= 2 s, TPOT <= 50 ms`."""
    stated = {key: limit for key, limit in cell.objectives.items() if limit is not None}
    return ", ".join(f"{key.upper()} <= {exact(limit)}" for key, limit in stated.items())


def is_batch(cell: Cell) -> bool:
    """Whether the cell is a fixed batch, which has columns and charts of its own."""
    return bool(cell.workload.get("kind") == "batch")


def is_single(cell: Cell) -> bool:
    """Whether the cell sends one request at a time."""
    return bool(cell.workload.get("kind") == "single")


def mark(summaries: Iterable[Summary]) -> str:
    """What must be said beside every number of these: `SIMULATED`, or nothing where measured."""
    return marks(summary.provenance for summary in summaries)


def marks(provenances: Iterable[Provenance | None]) -> str:
    """The same of numbers of these provenances."""
    told = set(provenances) - {None}
    words = {
        "simulated": "SIMULATED",
        "plumbing": "PLUMBING: real code, but its speed means nothing",
    }
    found = [word for name, word in words.items() if name in told]
    if found and "measured" in told:
        return "partly " + " and ".join(found)
    return " and ".join(found)


def headed(words: str, summaries: Iterable[Summary]) -> str:
    """A heading that says so where its numbers are not measured ones."""
    return marked(words, mark(summaries))


def marked(words: str, said: str) -> str:
    """The words, and in brackets what must be said beside their numbers."""
    return f"{words} ({said})" if said else words


def outcome(summary: Summary) -> str:
    """The status as it is shown: a finished point that must not be used is `INVALID`."""
    return "INVALID" if summary.status == "finished" and summary.problems else summary.status


def why(summary: Summary) -> str:
    """Why the summary is not valid."""
    reasons = [summary.reason] if summary.reason else []
    return "; ".join([*reasons, *summary.problems]) or (
        "it was interrupted" if summary.status == "broken" else "no reason was recorded"
    )


def _cached(cell: Cell) -> int:
    """The tokens of prefix that a single request finds in the cache."""
    return int(cell.workload.get("cached") or 0) if is_single(cell) else 0
