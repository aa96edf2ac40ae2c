"""Whether a point's numbers may be used: every sentence here is a reason why not."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtr

from results import machine, protocol
from results.batches import FEWEST, batch_windows
from results.cell import Cell
from results.columns import Columns, Mask, columns, number, of_phase, text
from results.evidence import Evidence
from results.samples import disagreements, strays
from results.scores import asks
from results.steps import is_stepwise

MOST_FAILED = 0.10
"""The share of failed requests up to which a point is valid: InferenceX's own limit."""

BLOCKS = 2 * 64
"""Tokens by which a hit may exceed what the session has sent: two blocks of 64."""

TEMPLATE_TOKENS, TEMPLATE_SHARE = 32, 0.01
"""What a real server's chat template may add to a prompt: the greater of the two."""

MESSAGE_TOKENS = 8
"""What it may add for each message beyond the first: every turn of a chat has two more."""

RELIEF = "give paceline a core of its own, lower the concurrency, or serve elsewhere"
"""What helps a client that is late."""

LAG, LAG_SHARE = 0.010, 0.05
"""How late a client may send: seconds, or a share of the median TTFT, the greater of the two."""

MOST_LATE = 0.01
"""The share of requests that may be sent later than that; one may be, however few there are."""

CERTAIN = 0.95
"""How sure it must be that more are, by the binomial distribution of so many requests."""

TOGETHER = 0.001
"""Seconds from the opening of the window in which all lanes start."""

# Offsets are kept in whole microseconds, moments are not.
ROUNDING = 2e-6


def problems(
    rows: pa.Table,
    cell: Cell,
    evidence: Evidence | None,
    samples: pa.Table | None = None,
    window: Columns | None = None,
) -> tuple[str, ...]:
    """Why the point must not be used; empty for a valid point.

    `window` are the rows of the window where they are arrays already.
    """
    table = of_phase(rows)
    window = columns(rows) if window is None else window
    observed = (*_observed(cell, evidence), *_foreign(rows, cell), *_twice(rows))
    if is_stepwise(cell):
        return observed
    if asks(cell):
        # Nothing of it is about times, and neither lengths nor cached prefixes are asked for.
        return (*observed, *overload(window))
    if not window.ok.any():
        return (*observed, *overload(window))
    simulated = evidence is not None and evidence.observed.provenance == "simulated"
    return (
        *observed,
        *overload(window),
        *_cached(table, window, cell),
        *_delivered(table, window, cell, simulated=simulated),
        *_client_bound(window, evidence),
        *_impossible(table, window),
        *_apart(table, window, cell),
        *_beside(rows, window),
        *protocol.shortfalls(table, window, evidence),
        *((*disagreements(rows, samples), *strays(rows, samples)) if samples is not None else ()),
        *(machine.compiled(samples, evidence) if samples is not None and evidence else ()),
    )


def _observed(cell: Cell, evidence: Evidence | None) -> Iterator[str]:
    """Where the server is not what was asked for."""
    if evidence is None:
        yield "there is no evidence of what ran"
        return
    observed = evidence.observed
    if observed.gpus is not None and observed.gpus != cell.gpus:
        yield f"GPUs: the server runs on {observed.gpus}, asked for {cell.gpus}"
    for name, asked in observed.requested.items():
        if name not in observed.features:
            yield f"{name}: asked for {asked}, and nothing shows what it was"
        elif observed.features[name] != asked:
            proof = f": {observed.proofs[name]}" if name in observed.proofs else ""
            yield f"{name}: asked for {asked}, observed {observed.features[name]}{proof}"
    yield from observed.faults


def overload(rows: Columns) -> Iterator[str]:
    """Where requests came to nothing, as too much load alone can make them."""
    if not rows.ok.any():
        yield "no request succeeded"
        return
    failed, ended = int(rows.failed.sum()), int((rows.failed | rows.ok).sum())
    if failed > MOST_FAILED * ended:
        yield f"{failed} of {ended} requests failed, more than {MOST_FAILED:.0%}"


def _cached(table: pa.Table, rows: Columns, cell: Cell) -> Iterator[str]:
    """Where more came from the cache than this run can have put there.

    What a chat template adds to a prompt may be in the prefix that was sent before.
    """
    told = rows.ceiling + np.maximum(rows.input - number(table, "asked_input"), 0)
    yield from _rows(rows.ok & (rows.cached > rows.input), "report more cached than input tokens")
    beyond = rows.ok & (rows.cached > told + BLOCKS)
    if cell.workload.get("kind") == "single":
        beyond = rows.ok & (rows.cached > told + np.where(rows.ceiling > 0, BLOCKS, 0))
    yield from _rows(
        beyond,
        "report more cached tokens than their session had sent: the cache holds content of an "
        "earlier run",
    )


def _delivered(table: pa.Table, rows: Columns, cell: Cell, *, simulated: bool) -> Iterator[str]:
    """Where lengths are not those asked for."""
    asked = number(table, "asked_input")
    tolerance = np.maximum(TEMPLATE_TOKENS, asked * TEMPLATE_SHARE)
    if cell.deployment.get("engine", {}).get("mode") == "chat":
        tolerance += 2 * MESSAGE_TOKENS * number(table, "turn")
    tolerance *= not simulated
    apart = np.abs(rows.input - asked)
    yield from _rows(
        rows.ok & (apart > tolerance),
        f"have another input length than asked, by up to {apart[rows.ok].max():.0f} tokens",
    )
    told, wanted = number(table, "output_tokens"), number(table, "asked_output")
    exact = cell.deployment.get("engine", {}).get("exact_output", True)
    bound = rows.ok & ~np.isnan(told) & (exact | (text(table, "finish_reason") == "length"))
    yield from _rows(bound & (told != wanted), "have another output length than asked")
    pieces = rows.pieces
    held = np.bincount(pieces.row, minlength=len(told))
    counted = np.bincount(pieces.row, weights=pieces.tokens, minlength=len(told))
    yield from _rows(
        rows.ok & (held > told), "came in more pieces than the server says they have tokens"
    )
    yield from _rows(
        rows.ok & pieces.known & (np.abs(counted - told) > 0.5),
        "have other tokens in their pieces than in all",
    )


def _apart(table: pa.Table, rows: Columns, cell: Cell) -> Iterator[str]:
    """Where a batch did not decode as one."""
    if cell.workload.get("kind") != "batch":
        return
    windows = batch_windows(table)
    batches, together = len(np.unique(rows.tree)), len(windows)
    asked = cell.workload.get("requests")
    if any(window.size != asked for window in windows):
        yield f"not every batch has its {asked} requests: some were never sent"
    if behind := sum(window.behind > 0 for window in windows):
        yield (
            f"{behind} of {batches} batches did not decode as one: a request stood still while the "
            "others went on, as after a preemption: take a smaller batch or a shorter context"
        )
    few = np.bincount(rows.pieces.row, minlength=len(rows.ok)) < FEWEST
    if together < batches and not rows.ok.all():
        yield f"{batches - together} of {batches} batches have a request that failed or was cut"
    elif together < batches and few.any():
        yield (
            f"{batches - together} of {batches} batches have an answer of fewer than "
            f"{FEWEST} pieces, too few for a span: take a longer output"
        )
    elif together < batches:
        first, last = np.nanmin(rows.last), np.nanmax(rows.first)
        yield (
            f"{batches - together} of {batches} batches never decoded together: requests still "
            f"waited for their first token at {last:.1f} s, and the first had ended at {first:.1f} "
            "s: take a smaller batch, a shorter context, or a longer output"
        )


def _beside(table: pa.Table, rows: Columns) -> Iterator[str]:
    """Where primers, which do not count, ran beside requests that do."""
    primers = columns(table, "primer")
    if not len(primers.ok) or not len(rows.ok):
        return
    begins, ends = np.sort(rows.sent[~np.isnan(rows.sent)]), np.sort(rows.closed)
    # Those that began before a primer ended, less those that ended before it began.
    begun = np.searchsorted(begins, primers.closed, side="left")
    over = np.searchsorted(ends, primers.sent, side="right")
    if count := int((begun > over).sum()):
        yield (
            f"{count} of {len(primers.ok)} primers ran beside requests that are measured: use "
            "concurrency 1, so that they come before"
        )


def _foreign(rows: pa.Table, cell: Cell) -> Iterator[str]:
    """Where rows belong to another point."""
    if foreign := int((text(rows, "point") != cell.id).sum()):
        yield f"{foreign} of {rows.num_rows} rows belong to another point: the folder was changed"


def _twice(rows: pa.Table) -> Iterator[str]:
    """Where a request stands in more than one row."""
    if again := rows.num_rows - pc.count_distinct(rows["request_id"]).as_py():
        yield (
            f"{again} of {rows.num_rows} rows have the request id of another one: the folder was "
            "changed"
        )


def _client_bound(rows: Columns, evidence: Evidence | None) -> Iterator[str]:
    """Where the client was so late that it shows in the results."""
    stood = evidence.client_late if evidence else None
    if stood is not None and stood > LAG:
        yield (
            f"the client was the bottleneck: its event loop came {stood * 1e3:.1f} ms late in one "
            f"of a hundred looks, and {LAG * 1e3:.0f} ms are allowed, as what arrives then is "
            f"stamped late: {RELIEF}"
        )
    # All that starts with the window starts at one moment, and nothing can send it at one moment.
    opened = evidence.opened if evidence else 0.0
    held = ~np.isnan(rows.lag) & (rows.planned > opened + TOGETHER)
    lag, ttft = rows.lag[held], (rows.first - rows.sent)[rows.ok]
    ttft = ttft[~np.isnan(ttft)]
    if not len(lag) or not len(ttft):
        return
    median = float(np.median(ttft))
    limit = max(LAG, LAG_SHARE * median)
    late, mean, worst = int((lag > limit).sum()), float(lag.mean()), float(lag.max())
    # Pauses of the client's machine fall on a few requests by chance, which is no bottleneck; one
    # that is as long as many together is.
    if (late > 1 and bdtr(late - 1, len(lag), MOST_LATE) > CERTAIN) or mean > limit:
        yield (
            f"the client was the bottleneck: it sent {late} of {len(lag)} requests more than "
            f"{limit * 1e3:.1f} ms late, by up to {worst * 1e3:.1f} ms and {mean * 1e3:.1f} ms on "
            f"average, at a median TTFT of {median * 1e3:.1f} ms: {RELIEF}"
        )


def _impossible(table: pa.Table, rows: Columns) -> Iterator[str]:
    """Where a row contradicts itself."""
    ordered = (
        (rows.sent < rows.first)
        & (rows.first <= rows.last)
        & (rows.last <= rows.closed + ROUNDING)
        & ~(rows.first_answer < rows.first)
        & ~(rows.first_answer > rows.last)
    )
    yield from _rows(rows.ok & ~ordered, "do not have sent < first <= last <= closed")
    pieces = rows.pieces
    step = np.diff(pieces.stamp, prepend=0.0)
    back = np.zeros(len(rows.ok), dtype=bool)
    back[pieces.row[(step < 0) & (pieces.ordinal > 0)]] = True
    yield from _rows(rows.ok & back, "have a piece before the one it follows")
    ends = np.full((2, len(rows.ok)), np.nan)
    ends[1, pieces.row] = pieces.stamp
    ends[0, pieces.row[::-1]] = pieces.stamp[::-1]
    apart = np.abs(ends - [rows.first, rows.last]).max(axis=0)
    yield from _rows(rows.ok & ~(apart <= ROUNDING), "have pieces that do not add up to E2E")
    silent = ~rows.ok & table["reason"].is_null().to_numpy()
    yield from _rows(silent, "did not succeed and do not say why")


def _rows(wrong: Mask, what: str) -> Iterator[str]:
    if count := int(wrong.sum()):
        yield f"{count} of {len(wrong)} requests {what}"
