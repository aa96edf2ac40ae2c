"""What the window of a replay delivered, beside what the whole traces of its profile hold."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from results.cell import Cell
from results.columns import Columns, Floats, columns, number, of_phase, text
from results.evidence import Evidence
from results.run import RunPoint

QUANTILES = (10, 50, 90, 99)

Quantiles = Mapping[str, float | None]
"""By `p10`, `p50`, `p90` and `p99`; None where there is nothing."""

_BLOCK = re.compile(r'"block_size":"(\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far from its ceiling the cache was, over `n` requests, in blocks of `block` tokens.

    The ceiling of a request is what its tree had sent before, in whole blocks and without the last
    token, which every engine computes. `below` are the requests that found a block or more less.
    """

    block: int
    n: int
    mean: float
    most: float
    below: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What was replayed: `intended` of whole traces, `delivered` in the window.

    By `input` and `output`, tokens of a request, and `turns`, requests of a session. `traces` are
    those that were sent from, of how many. `covered` is how far into the window the last first
    token and the last token of several came, as shares of it, and `asked` how far they must have.
    `drift` is by how many tokens the server counts prompts otherwise than asked. `lag` is by how
    many seconds requests were sent late by the client.
    """

    profile: str
    hash: str
    intended: Mapping[str, Quantiles]
    delivered: Mapping[str, Quantiles]
    traces: tuple[int, int]
    covered: Mapping[str, float | None] = field(default_factory=dict)
    asked: float | None = None
    drift: Quantiles = field(default_factory=dict)
    lag: Quantiles = field(default_factory=dict)
    reach: Reach | None = None


def delivery(point: RunPoint) -> Delivery | None:
    """The delivery of a point that was replayed by a profile; None of any other."""
    evidence = point.evidence
    told = evidence.protocol if evidence else None
    if evidence is None or told is None or point.kept:
        return None
    rows = point.rows()
    window, sent = columns(rows), of_phase(rows)
    size = block_size(point.cell, point.samples())
    return Delivery(
        profile=told.profile,
        hash=told.hash,
        intended=told.intended,
        delivered=realised(rows),
        traces=(touched(rows), told.traces),
        covered=covered(window, evidence),
        asked=told.coverage,
        drift=quantiles((window.input - number(sent, "asked_input"))[window.ok]),
        lag=quantiles(window.lag[~np.isnan(window.lag)]),
        reach=reach(window, number(sent, "asked_input"), size) if size else None,
    )


def quantiles(values: Floats) -> Quantiles:
    """The quantiles of the values."""
    return {
        f"p{share}": float(np.percentile(values, share)) if len(values) else None
        for share in QUANTILES
    }


def realised(table: pa.Table) -> dict[str, Quantiles]:
    """What the window sent: tokens of a request as the server counts them, requests a session."""
    window = columns(table)
    sent = ~np.isnan(window.sent)
    _, turns = np.unique(window.tree[sent], return_counts=True)
    output = np.where(window.ok, window.output, number(of_phase(table), "asked_output"))
    return {
        "input": quantiles(window.input[sent]),
        "output": quantiles(output[sent]),
        "turns": quantiles(turns.astype(np.float64)),
    }


def touched(table: pa.Table) -> int:
    """How many traces the window sent something from."""
    window = of_phase(table)
    return len(set(text(window, "trace")[~np.isnan(number(window, "sent"))]))


def covered(rows: Columns, evidence: Evidence) -> dict[str, float | None]:
    """How far into the window the last first token, and the last ITL, came."""
    several = rows.ok & (rows.output > 1)
    told = {"first token": rows.first[rows.ok], "ITL": rows.last[several]}
    kept = {name: moments[~np.isnan(moments)] for name, moments in told.items()}
    span = evidence.closed - evidence.opened
    return {
        name: (float(moments.max()) - evidence.opened) / span if len(moments) and span else None
        for name, moments in kept.items()
    }


def block_size(cell: Cell, samples: pa.Table | None) -> int | None:
    """The tokens of a block of the engine's cache, as it was set or as the server tells it."""
    stated: int | None = cell.deployment.get("engine", {}).get("block_size")
    if stated is not None or samples is None:
        return stated
    told = text(samples, "labels")[text(samples, "name") == "vllm:cache_config_info"]
    found = _BLOCK.search(told[-1]) if len(told) else None
    return int(found[1]) if found else None


def reach(rows: Columns, asked: Floats, block: int) -> Reach | None:
    """How far the cached tokens are from the ceiling; None where no request tells them.

    A chat template puts tokens of its own before and between ours: how many of them are in the
    prefix is not known, so that all from none to all of them is at the ceiling.
    """
    told = rows.ok & ~np.isnan(rows.cached)
    if not told.any():
        return None
    extra = np.maximum(rows.input - asked, 0) * (rows.ceiling > 0)
    least, most = (
        np.minimum(tokens, rows.input - 1)[told] // block
        for tokens in (rows.ceiling, rows.ceiling + extra)
    )
    found = rows.cached[told] / block
    apart = np.maximum(np.maximum(least - found, found - most), 0.0)
    return Reach(
        block=block,
        n=int(told.sum()),
        mean=float(apart.mean()),
        most=float(apart.max()),
        below=int((least - found >= 1).sum()),
    )
