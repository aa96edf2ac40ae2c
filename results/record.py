"""One row a request, and the Arrow schema it is kept in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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


_TEXT = pa.string()
_LABEL = pa.dictionary(pa.int32(), pa.string())
_COUNT = pa.int64()
_MOMENT = pa.float64()

SCHEMA = pa.schema(
    [
        pa.field("run", _LABEL, nullable=False),
        pa.field("point", _LABEL, nullable=False),
        pa.field("arm", _LABEL, nullable=False),
        pa.field("repeat", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("trace", _TEXT, nullable=False),
        pa.field("tree", _COUNT, nullable=False),
        pa.field("lane", pa.int32(), nullable=False),
        pa.field("stream", _TEXT, nullable=False),
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("depth", pa.int32(), nullable=False),
        pa.field("phase", _LABEL, nullable=False),
        pa.field("planned", _MOMENT, nullable=False),
        pa.field("ready", _MOMENT, nullable=False),
        pa.field("sent", _MOMENT),
        pa.field("first", _MOMENT),
        pa.field("first_answer", _MOMENT),
        pa.field("last", _MOMENT),
        pa.field("closed", _MOMENT, nullable=False),
        pa.field("state", _LABEL, nullable=False),
        pa.field("reason", _TEXT),
        pa.field("status", pa.int32()),
        pa.field("finish_reason", _TEXT),
        pa.field("asked_input", _COUNT),
        pa.field("asked_output", _COUNT, nullable=False),
        pa.field("input_tokens", _COUNT),
        pa.field("output_tokens", _COUNT),
        pa.field("cached_tokens", _COUNT),
        pa.field("ceiling_tokens", _COUNT),
        pa.field("prompt_hash", _TEXT, nullable=False),
        pa.field("rank", pa.int32()),
        pa.field("request_id", _TEXT, nullable=False),
        pa.field("client_lag", _MOMENT),
        pa.field("server_queue", _MOMENT),
        pa.field("server_ttft", _MOMENT),
        pa.field("draft_tokens", _COUNT),
        pa.field("accepted_tokens", _COUNT),
        pa.field("piece_offsets", pa.list_(pa.int64()), nullable=False),
        pa.field("piece_tokens", pa.list_(pa.int32())),
    ]
)


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
