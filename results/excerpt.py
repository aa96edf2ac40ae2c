"""A point's requests, cut down to what a comparison reads, so that a small file can hold them."""

import base64
import zlib
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from results.columns import columns, of_phase
from results.record import SCHEMA

_PLACE = ("trace", "stream", "turn", "prompt_hash")
_COUNTS = ("asked_input", "asked_output", "input_tokens", "output_tokens")
_MOMENTS = ("planned", "first", "first_answer", "last")

DIGITS = 8
"""Of every time, so that what is rounded away is far below what can be measured."""


def excerpt(rows: pa.Table) -> pa.Table:
    """The window's successes, told from the moment they were sent, in two pieces at most."""
    window = of_phase(rows)
    read = columns(rows)
    kept = window.filter(pa.array(read.ok))
    index = np.flatnonzero(read.ok)
    first = np.full(len(read.ok), -1)
    begins = read.pieces.ordinal == 0
    first[read.pieces.row[begins]] = read.pieces.tokens[begins]
    several = np.bincount(read.pieces.row, minlength=len(read.ok)) > 1
    told = kept["piece_tokens"].is_valid().to_pylist()
    head = [int(first[i]) if known else None for i, known in zip(index, told, strict=True)]
    moments = {name: pc.subtract(kept[name], kept["sent"]) for name in _MOMENTS}
    return _table(
        {
            **{name: kept[name].to_pylist() for name in (*_PLACE, *_COUNTS)},
            **{name: [_rounded(one) for one in moments[name].to_pylist()] for name in _MOMENTS},
            "head": head,
            "several": several[index].tolist(),
        }
    )


def packed(rows: pa.Table) -> str:
    """An excerpt as one word."""
    tokens, offsets = rows["piece_tokens"].to_pylist(), rows["piece_offsets"].to_pylist()
    content = {
        **{name: rows[name].to_pylist() for name in (*_PLACE, *_COUNTS, *_MOMENTS)},
        "head": [one[0] if one else None for one in tokens],
        "several": [len(one) > 1 for one in offsets],
    }
    return base64.b64encode(zlib.compress(orjson.dumps(content), 9)).decode()


def unpacked(word: str) -> pa.Table:
    """The excerpt that a word holds. Raises ValueError where it holds none."""
    try:
        content = orjson.loads(zlib.decompress(base64.b64decode(word, validate=True)))
        return _table(content)
    except (zlib.error, KeyError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"requests that cannot be read: {error}") from error


def _table(content: dict[str, list[Any]]) -> pa.Table:
    """Rows of SCHEMA that have these columns, and nothing in the others."""
    count = len(content["trace"])
    pieces = list(zip(content["head"], content["several"], content["output_tokens"], strict=True))
    whole = {
        **{name: content[name] for name in (*_PLACE, *_COUNTS, *_MOMENTS)},
        "sent": [0.0] * count,
        "ready": [0.0] * count,
        "closed": content["last"],
        "phase": ["window"] * count,
        "state": ["ok"] * count,
        "piece_offsets": [
            [_micro(first), _micro(last)] if several else [_micro(first)]
            for first, last, (_, several, _) in zip(
                content["first"], content["last"], pieces, strict=True
            )
        ],
        "piece_tokens": [
            None if head is None else [head, (output or head) - head] if several else [head]
            for head, several, output in pieces
        ],
    }
    return pa.table([_column(field, whole.get(field.name), count) for field in SCHEMA], SCHEMA)


def _column(field: pa.Field, values: list[Any] | None, count: int) -> pa.Array:
    if pa.types.is_dictionary(field.type):
        return pa.array(values or [""] * count, pa.string()).dictionary_encode()
    if values is not None:
        return pa.array(values, field.type)
    absent = "" if pa.types.is_string(field.type) else 0
    return pa.array([None if field.nullable else absent] * count, field.type)


def _micro(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1e6)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds:.{DIGITS}g}")
