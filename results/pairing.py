"""The same request on both sides: found by its session, its place in it, and what was sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from results.columns import Columns, Floats, Ints, Mask, columns, number, of_phase
from results.direction import REQUESTS
from results.series import tpot

Keys = NDArray[np.uint64]
Singles = NDArray[np.float32]

MOST_LOST = 0.05
"""The share of the smaller side's requests that may have no partner."""

_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_SPREAD = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """The requests of a run's window that were cut.

    `values` are logarithms of how long each had waited, NaN where it had what it waited for.
    """

    keys: Keys
    values: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """What one side answered and the other had cut: logarithms, NaN where none was waited for.

    `waited` is how long it had waited when it was cut, `over` that less what the answer took.
    """

    waited: Singles
    over: Singles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """The requests of a run's window that succeeded, each key once.

    `keys` name session, stream, turn and unsalted prompt; `shapes` the same without the prompt's
    content, which a repeat of the same trace shares. `values` are logarithms, NaN where a request
    has none; `input` is what the server told, NaN where it did not. Of that, else of what was
    asked, `computed` were not in the cache, NaN where the server does not tell; `fresh` had not
    been sent by the session before, all where that is not known. `output` is the logarithm of the
    output tokens that the server told. `rows` are their places among the rows of the window, the
    first where one was sent several times. `cut` are those that came to no end.
    """

    keys: Keys
    shapes: Keys
    sessions: Keys
    input: Floats
    computed: Singles
    fresh: Singles
    values: Mapping[str, Floats]
    output: Floats
    rows: Ints
    cut: Waits

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """The requests that both runs of a pair answered.

    `base` are logarithms, `changes` what other has less that, NaN where a side has none; single
    precision does for what is then averaged in double. `new` are the input tokens that were not in
    the cache on the side that found more of them, so that both sides are sorted alike; where a
    side does not tell, those that the session had not sent before.
    `unmatched` counts those that only base and only other answered; `apart` those whose servers
    tell different input tokens for the same message, and `told` an example of it. `longer` are the
    changes of the output tokens, `held` what only base and only other had cut, by metric.
    """

    shapes: Keys
    sessions: Keys
    new: Singles
    base: Mapping[str, Singles]
    changes: Mapping[str, Singles]
    longer: Singles
    held: tuple[Mapping[str, Held], Mapping[str, Held]]
    unmatched: tuple[int, int]
    apart: int
    told: tuple[float, float] | None

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.shapes)

    def of(self, chosen: Mask) -> Self:
        """Those that are chosen."""
        if chosen.all():
            return self
        return replace(
            self,
            shapes=self.shapes[chosen],
            sessions=self.sessions[chosen],
            new=self.new[chosen],
            base={name: values[chosen] for name, values in self.base.items()},
            changes={name: values[chosen] for name, values in self.changes.items()},
            longer=self.longer[chosen],
        )


def requests(table: pa.Table, rows: Columns | None = None) -> Requests:
    """The window's successes of a point's rows; `rows` are its window's as arrays, where known."""
    whole = of_phase(table)
    rows = columns(table) if rows is None else rows
    kept = np.flatnonzero(rows.ok)
    window = whole.take(pa.array(kept)) if len(kept) < whole.num_rows else whole
    session, place = _placed(window)
    # What is sent as text has no length that was asked for.
    asked = (np.nan_to_num(number(window, name)) for name in ("asked_input", "asked_output"))
    return _once(
        Requests(
            keys=_mixed(place, _words(window["prompt_hash"])),
            shapes=_mixed(place, *asked),
            sessions=session,
            input=number(window, "input_tokens"),
            computed=(rows.input - rows.cached)[kept].astype(np.float32),
            fresh=(rows.input - np.nan_to_num(rows.ceiling))[kept].astype(np.float32),
            values={name: _log(each[kept]) for name, each in times(rows).items()},
            output=_log(number(window, "output_tokens")),
            rows=kept,
            cut=_cut(whole, rows),
        )
    )


def joined(runs: Sequence[Requests]) -> Requests:
    """The requests of several runs of one workload as those of one, their logarithms averaged."""
    if len(runs) == 1:
        return runs[0]
    whole = {
        name: np.concatenate([getattr(run, name) for run in runs])
        for name in ("keys", "shapes", "sessions", "input", "computed", "fresh", "output", "rows")
    }
    values = {name: np.concatenate([run.values[name] for run in runs]) for name in REQUESTS}
    cut = Waits(
        keys=np.concatenate([run.cut.keys for run in runs]),
        values={
            name: np.concatenate([run.cut.values[name] for run in runs])
            for name in runs[0].cut.values
        },
    )
    return _once(Requests(values=values, cut=cut, **whole))


def pair(base: Requests, other: Requests) -> Pairs:
    """The requests that both have."""
    _, one, two = np.intersect1d(base.keys, other.keys, assume_unique=True, return_indices=True)
    told = base.input[one], other.input[two]
    # Where one side does not tell, nothing can differ.
    apart = np.flatnonzero(np.abs(told[0] - told[1]) > 0)
    example = (float(told[0][apart[0]]), float(told[1][apart[0]])) if len(apart) else None
    computed = np.minimum(base.computed[one], other.computed[two])
    before: dict[str, Singles] = {}
    changes: dict[str, Singles] = {}
    for name, values in base.values.items():
        kept = values[one]
        changes[name] = (other.values[name][two] - kept).astype(np.float32)
        before[name] = kept.astype(np.float32)
    return Pairs(
        shapes=base.shapes[one],
        sessions=base.sessions[one],
        new=np.where(np.isnan(computed), np.minimum(base.fresh[one], other.fresh[two]), computed),
        base=before,
        changes=changes,
        longer=(other.output[two] - base.output[one]).astype(np.float32),
        held=(_held(base, other), _held(other, base)),
        unmatched=(len(base) - len(one), len(other) - len(one)),
        apart=len(apart),
        told=example,
    )


def common(runs: Sequence[Requests]) -> Keys:
    """The keys that every one of the runs has, in order."""
    found = np.sort(min(runs, key=len).keys)
    for run in runs:
        ordered = np.sort(run.keys)
        place = np.minimum(np.searchsorted(ordered, found), max(0, len(ordered) - 1))
        found = found[ordered[place] == found] if len(ordered) else ordered
    return found


def among(keys: Keys, ordered: Keys) -> Mask:
    """Which of the keys are among these, which are in order."""
    if not len(ordered):
        return np.zeros(len(keys), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return np.asarray(ordered[place] == keys, dtype=np.bool_)


def distinct(keys: Keys) -> Keys:
    """Each key once, in order; sorting takes a tenth of the time that numpy's own way does."""
    ordered = np.sort(keys)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=ordered[:1] + np.uint64(1)))]


def times(rows: Columns) -> dict[str, Floats]:
    """What each request has of every metric that is compared request by request, by its name."""
    length = rows.last - rows.sent
    with np.errstate(divide="ignore", invalid="ignore"):
        normal = length / rows.output
    return {
        "ttft": rows.first - rows.sent,
        "first_answer": rows.first_answer - rows.sent,
        "tpot": tpot(rows),
        "e2el": length,
        "norm_e2el": normal,
        "schedule_ttft": rows.first - rows.planned,
        "schedule_e2el": rows.last - rows.planned,
    }


def _cut(window: pa.Table, rows: Columns) -> Waits:
    """How long the requests of the window that were cut had waited until then."""
    cut = np.flatnonzero(rows.cut)
    window = window.take(pa.array(cut))
    never = np.full(len(rows.ok), np.nan)
    waits = {
        "ttft": (rows.first, rows.sent),
        "first_answer": (rows.first_answer, rows.sent),
        "e2el": (never, rows.sent),
        "schedule_ttft": (rows.first, rows.planned),
        "schedule_e2el": (never, rows.planned),
    }
    return Waits(
        keys=_mixed(_placed(window)[1], _words(window["prompt_hash"])),
        values={
            name: _log(np.where(np.isnan(reached), rows.closed - begun, np.nan)[cut])
            for name, (reached, begun) in waits.items()
        },
    )


def _held(side: Requests, answered: Requests) -> dict[str, Held]:
    """What the side never answered and had cut, of what the other one answered."""
    keys, first = np.unique(side.cut.keys, return_index=True)
    never = ~np.isin(keys, side.keys)
    _, here, there = np.intersect1d(
        keys[never], answered.keys, assume_unique=True, return_indices=True
    )
    rows = first[never][here]
    return {
        name: Held(
            waited=waited[rows].astype(np.float32),
            over=(waited[rows] - answered.values[name][there]).astype(np.float32),
        )
        for name, waited in side.cut.values.items()
    }


def _placed(window: pa.Table) -> tuple[Keys, Keys]:
    """The session of each request, and its place in it."""
    session = _names(window["trace"])
    return session, _mixed(session, _names(window["stream"]), number(window, "turn"))


def _log(values: Floats) -> Floats:
    """The logarithms, NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def _once(rows: Requests) -> Requests:
    """Each key once: what was sent again is averaged on the log scale."""
    if len(distinct(rows.keys)) == len(rows.keys):
        return rows
    keys, first, place = np.unique(rows.keys, return_index=True, return_inverse=True)
    return Requests(
        keys=keys,
        shapes=rows.shapes[first],
        sessions=rows.sessions[first],
        input=_means(rows.input, place, len(keys)),
        computed=rows.computed[first],
        fresh=rows.fresh[first],
        values={name: _means(logs, place, len(keys)) for name, logs in rows.values.items()},
        output=_means(rows.output, place, len(keys)),
        rows=rows.rows[first],
        cut=rows.cut,
    )


def _means(values: Floats, place: Ints, count: int) -> Floats:
    held = ~np.isnan(values)
    times = np.bincount(place[held], minlength=count)
    sums = np.bincount(place[held], weights=values[held], minlength=count)
    return np.where(times > 0, sums / np.maximum(times, 1), np.nan)


def _names(column: pa.ChunkedArray) -> Keys:
    """64 bits for each word of few different ones."""
    coded = pc.dictionary_encode(column.cast(pa.large_string())).unify_dictionaries()
    if not coded.num_chunks:
        return np.zeros(0, dtype=np.uint64)
    index = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    digest = _words(pa.chunked_array([coded.chunk(0).dictionary]))
    return np.asarray(digest[index], dtype=np.uint64)


def _words(column: pa.ChunkedArray) -> Keys:
    """64 bits for each word, the same for the same word in every table (FNV-1a)."""
    chunks = column.cast(pa.large_string()).chunks
    words = pa.concat_arrays([pa.array([], pa.large_string()), *chunks])
    offsets = np.frombuffer(words.buffers()[1], np.int64)[words.offset :][: len(words) + 1]
    letters = np.frombuffer(words.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    digest = np.full(len(words), _BASIS, dtype=np.uint64)
    for length in np.flatnonzero(np.bincount(lengths)):
        alike = lengths == length
        begins, some = offsets[:-1][alike], digest[alike]
        for step in range(length):
            some = (some ^ letters[begins + step]) * _PRIME
        digest[alike] = some
    return digest


def _mixed(first: Keys, *others: Any) -> Keys:
    """One 64-bit key of several (the finaliser of splitmix64, after each)."""
    mixed = first
    for other in others:
        mixed = mixed * _PRIME + np.asarray(other).astype(np.uint64)
        for shift, factor in zip((30, 27), _SPREAD, strict=True):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed
