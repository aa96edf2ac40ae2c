"""One row a request, and the Arrow schema it is kept in."""

from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from types import UnionType
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Phase = Literal["primer", "warm-up", "window", "drain"]
State = Literal["ok", "failed", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestRecord:
    """Everything known of one request; what is absent is None, never 0.

    Moments are seconds since the point began; `piece_offsets` are whole microseconds since `sent`.
    A piece is whatever arrived in one frame: its tokens may be several or unknown.
    """

    run: str
    point: str
    arm: str
    repeat: int
    position: int

    trace: str
    tree: int
    lane: int
    stream: str
    turn: int
    depth: int
    phase: Phase

    planned: float
    ready: float
    sent: float | None
    first: float | None
    first_answer: float | None
    last: float | None
    closed: float

    state: State
    reason: str | None
    status: int | None
    finish_reason: str | None

    asked_input: int | None
    asked_output: int
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    ceiling_tokens: int | None

    prompt_hash: str
    rank: int | None
    request_id: str
    client_lag: float | None
    server_queue: float | None
    server_ttft: float | None
    draft_tokens: int | None
    accepted_tokens: int | None

    piece_offsets: NDArray[np.int64]
    piece_tokens: NDArray[np.int32] | None


_LABELS = frozenset(("run", "point", "arm", "phase", "state"))
_SMALL = frozenset(("repeat", "position", "lane", "turn", "depth", "status", "rank"))
_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    NDArray[np.int64]: pa.list_(pa.int64()),
    NDArray[np.int32]: pa.list_(pa.int32()),
}


def _column(field: Field[Any]) -> pa.Field:
    """The column of a field; what may be None may be null."""
    optional = isinstance(field.type, UnionType)
    if field.name in _LABELS:
        kind = pa.dictionary(pa.int32(), pa.string())
    elif field.name in _SMALL:
        kind = pa.int32()
    else:
        kind = _TYPES[get_args(field.type)[0] if optional else field.type]
    return pa.field(field.name, kind, nullable=optional)


SCHEMA = pa.schema(map(_column, fields(RequestRecord)))


def batch(records: Sequence[RequestRecord]) -> pa.RecordBatch:
    """The records as one Arrow batch of SCHEMA, in their order."""
    columns = []
    for field in SCHEMA:
        values = [getattr(record, field.name) for record in records]
        columns.append(
            _lists(values, field) if pa.types.is_list(field.type) else _scalars(values, field)
        )
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _scalars(values: list[object], field: pa.Field) -> pa.Array:
    if pa.types.is_dictionary(field.type):
        return pa.array(values, type=pa.string()).dictionary_encode()
    return pa.array(values, type=field.type)


def _lists(values: list[NDArray[np.int64] | None], field: pa.Field) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    present = [value for value in values if value is not None]
    flat = np.concatenate(present) if present else np.zeros(0)
    absent = np.array([value is None for value in values])
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        pa.array(flat, type=field.type.value_type),
        type=field.type,
        mask=pa.array(absent) if absent.any() else None,
    )
