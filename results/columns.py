"""Request rows as arrays to compute with: a number a request, and a number a piece."""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


UNCOUNTED = "do not tell the tokens of their"
"""What is said of requests whose pieces cannot be counted."""

UNTOLD = "the server does not tell its output tokens, and frames are not tokens"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pieces:
    """The pieces of all requests, one after another.

    `row` is the request of each, `stamp` its moment, `tokens` how many it holds. `ordinal` counts
    the pieces of one request from 0. `known` says of each request whether its server told the
    tokens of its pieces; where it did not, the request's tokens are spread evenly after a first
    piece of one; where their number is unknown too, each piece counts as an average one of those
    requests that tell theirs, and as NaN where none does: frames are not tokens.
    """

    row: Ints
    stamp: Floats
    tokens: Floats
    ordinal: Ints
    known: Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The rows of one phase; what is absent is NaN.

    `input` is what the server reports, else what was asked; `output` what the server reports, else
    the sum over its pieces. `ended` is when a request left: its last token where it went well.
    """

    tree: Ints
    planned: Floats
    sent: Floats
    first: Floats
    first_answer: Floats
    last: Floats
    closed: Floats
    ended: Floats
    lag: Floats
    input: Floats
    output: Floats
    cached: Floats
    ceiling: Floats
    ok: Mask
    failed: Mask
    cut: Mask
    pieces: Pieces

    @property
    def counted(self) -> Mask:
        """The requests whose tokens count: all but the failed ones."""
        return self.ok | self.cut

    @property
    def unsent(self) -> Mask:
        """The requests that were due in the window and had not been sent when it ended."""
        return self.cut & np.isnan(self.sent)

    @property
    def approximate(self) -> str | None:
        """What to know of tokens in time where pieces are not counted; None where all are."""
        asked = self.counted & ~np.isnan(self.first)
        untold = int((asked & ~self.pieces.known).sum())
        return (
            f"approximate: {untold} of {int(asked.sum())} requests {UNCOUNTED} pieces"
            if untold
            else None
        )

    def of(self, chosen: Mask) -> Self:
        """Those that are chosen, in their order."""
        if chosen.all():
            return self
        held, place = chosen[self.pieces.row], np.cumsum(chosen) - 1
        pieces = Pieces(
            row=place[self.pieces.row[held]],
            stamp=self.pieces.stamp[held],
            tokens=self.pieces.tokens[held],
            ordinal=self.pieces.ordinal[held],
            known=self.pieces.known[chosen],
        )
        names = [field.name for field in fields(self) if field.name != "pieces"]
        return replace(self, pieces=pieces, **{name: getattr(self, name)[chosen] for name in names})


def columns(rows: pa.Table, phase: str = "window") -> Columns:
    """The rows of a phase as arrays, in their order."""
    rows = of_phase(rows, phase)
    # Compared as a column, without making an object of every word.
    state = rows["state"].cast(pa.string())
    ok, failed, cut = (pc.equal(state, word).to_numpy() for word in ("ok", "failed", "cut"))
    last, closed, told = number(rows, "last"), number(rows, "closed"), number(rows, "output_tokens")
    pieces = _pieces(rows, told)
    held = np.bincount(pieces.row, weights=pieces.tokens, minlength=len(ok))
    reported = number(rows, "input_tokens")
    return Columns(
        tree=number(rows, "tree").astype(np.int64),
        planned=number(rows, "planned"),
        sent=number(rows, "sent"),
        first=number(rows, "first"),
        first_answer=number(rows, "first_answer"),
        last=last,
        closed=closed,
        ended=np.where(ok & ~np.isnan(last), last, closed),
        lag=number(rows, "client_lag"),
        input=np.where(np.isnan(reported), number(rows, "asked_input"), reported),
        output=np.where(np.isnan(told), held, told),
        cached=number(rows, "cached_tokens"),
        ceiling=number(rows, "ceiling_tokens"),
        ok=ok,
        failed=failed,
        cut=cut,
        pieces=pieces,
    )


def of_phase(rows: pa.Table, phase: str = "window") -> pa.Table:
    """The rows of a phase, in their order."""
    chosen = pc.equal(rows["phase"].cast(pa.string()), phase)
    return rows if pc.all(chosen, min_count=0).as_py() else rows.filter(chosen)


def number(rows: pa.Table, name: str) -> Floats:
    """A column as floats, NaN where it is null."""
    values = rows[name].cast(pa.float64()).to_numpy()
    return np.asarray(values, dtype=np.float64)


def text(rows: pa.Table, name: str) -> NDArray[Any]:
    """A column of words as objects, None where it is null."""
    return np.asarray(rows[name].cast(pa.string()).to_numpy(), dtype=object)


def _pieces(rows: pa.Table, told: Floats) -> Pieces:
    lengths = _lengths(rows["piece_offsets"])
    row = np.repeat(np.arange(len(lengths)), lengths)
    begins = np.cumsum(lengths) - lengths
    ordinal = np.arange(len(row)) - begins[row]
    offsets = pc.list_flatten(rows["piece_offsets"]).to_numpy()
    known = (_lengths(rows["piece_tokens"]) == lengths) & rows["piece_tokens"].is_valid().to_numpy()
    # Requests that were cut never tell their tokens: a piece of them is taken for an average one.
    whole = ~np.isnan(told) & (lengths > 0)
    average = told[whole].sum() / lengths[whole].sum() if whole.any() else np.nan
    rest = np.maximum(told - 1, 0) / np.maximum(lengths - 1, 1)
    tokens = np.where(ordinal == 0, 1.0, rest[row])
    # One piece that holds everything, or pieces of a request whose tokens nobody counted.
    tokens = np.where((lengths == 1)[row], told[row], tokens)
    tokens = np.where(np.isnan(told)[row], average, tokens)
    stated = pc.list_flatten(rows["piece_tokens"].filter(pa.array(known))).to_numpy()
    tokens[known[row]] = stated
    return Pieces(
        row=row,
        stamp=number(rows, "sent")[row] + offsets / 1e6,
        tokens=tokens,
        ordinal=ordinal,
        known=known,
    )


def _lengths(lists: pa.ChunkedArray) -> Ints:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return np.asarray(lengths, dtype=np.int64)
