"""Rows as tests make them, and that they keep what they are given."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from results.cell import Cell
from results.evidence import Evidence, Observed
from results.record import SCHEMA, RequestRecord, batch

_MADE: dict[str, Any] = {
    "run": "suite-0123abcd-00000001",
    "point": "0123abcd",
    "arm": "sim TP4 replay=on",
    "repeat": 0,
    "position": 0,
    "trace": "trace",
    "tree": 0,
    "lane": 0,
    "stream": "main",
    "turn": 0,
    "depth": 0,
    "phase": "window",
    "state": "ok",
    "reason": None,
    "status": 200,
    "finish_reason": "length",
    "asked_input": 1000,
    "input_tokens": 1000,
    "cached_tokens": 0,
    "ceiling_tokens": 0,
    "prompt_hash": "0" * 16,
    "rank": None,
    "request_id": "request",
    "client_lag": 0.0,
    "server_queue": None,
    "server_ttft": None,
    "draft_tokens": None,
    "accepted_tokens": None,
}


def made(
    stamps: Sequence[float] = (), tokens: Sequence[int] | None = None, **changes: Any
) -> RequestRecord:
    """A row whose pieces came at these seconds after it was sent; one token each unless said."""
    sent = changes.get("sent", 0.0)
    each = np.ones(len(stamps), np.int32) if tokens is None else np.asarray(tokens, np.int32)
    moments = [sent + stamp for stamp in stamps]
    output = int(each.sum())
    row = {
        **_MADE,
        "planned": sent,
        "ready": sent,
        "sent": sent,
        "first": moments[0] if moments else None,
        "first_answer": moments[0] if moments else None,
        "last": moments[-1] if moments else None,
        "closed": moments[-1] if moments else sent,
        "asked_output": output,
        "output_tokens": output,
        "piece_offsets": np.rint(np.asarray(stamps, float) * 1e6).astype(np.int64),
        "piece_tokens": each,
    }
    return RequestRecord(**{**row, **changes})


def failed(**changes: Any) -> RequestRecord:
    """A row of a request that failed before its first token."""
    return made(
        **{
            "state": "failed",
            "reason": "connection refused",
            "status": None,
            "finish_reason": None,
            "input_tokens": None,
            "output_tokens": None,
            "cached_tokens": None,
            "asked_output": 10,
            **changes,
        }
    )


def table(*records: RequestRecord) -> pa.Table:
    """The rows as a table; of several, those that were not given an id have one of their own."""
    told = [
        replace(one, request_id=f"request-{place}")
        if len(records) > 1 and one.request_id == "request"
        else one
        for place, one in enumerate(records)
    ]
    return pa.Table.from_batches([batch(told)], schema=SCHEMA)


def cell(**changes: Any) -> Cell:
    """A point of a closed load on one GPU."""
    made_up: dict[str, Any] = {
        "id": "0123abcd",
        "pairing": "aaaa0000",
        "cell": "bbbb0000",
        "name": "agents-sim-TP4-on-closed-8-r0",
        "experiment": "agents",
        "arm": "sim TP4 replay=on",
        "engine": "sim",
        "gpus": 1,
        "seed": 7,
        "repeat": 0,
        "position": 0,
        "deployment": {},
        "workload": {"kind": "growing"},
        "load": {"kind": "closed", "concurrency": 8},
        "objectives": {"ttft": None, "tpot": None, "e2el": None},
    }
    return Cell(**{**made_up, **changes})


def evidence(opened: float = 0.0, closed: float = 60.0, **changes: Any) -> Evidence:
    """A measured server on one GPU, and the window."""
    observed: dict[str, Any] = {"provenance": "measured", "gpus": 1, **changes}
    return Evidence(observed=Observed(**observed), clock="wall", opened=opened, closed=closed)


def test_a_row_keeps_every_value_and_what_is_absent_is_null() -> None:
    record = made([0.5, 0.75], [1, 3], rank=None, client_lag=None)
    kept = table(record).to_pylist()[0]
    for field in fields(RequestRecord):
        value = getattr(record, field.name)
        assert kept[field.name] == (value.tolist() if isinstance(value, np.ndarray) else value)


def test_pieces_without_token_counts_are_null_and_not_an_empty_list() -> None:
    rows = table(made([0.5], piece_tokens=None), made([0.5, 0.6]))
    assert rows["piece_tokens"].to_pylist() == [None, [1, 1]]
