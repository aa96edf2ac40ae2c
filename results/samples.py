"""What a server told of itself while a point ran, and whether the requests agree with it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results import document, rows
from results.columns import Mask, number, text

UP = "up"
"""The name of our own sample: 1 for every look that was answered, 0 for every other."""

_LABEL = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        pa.field("moment", pa.float64(), nullable=False),
        pa.field("source", _LABEL, nullable=False),
        pa.field("name", _LABEL, nullable=False),
        pa.field("labels", _LABEL, nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ],
    metadata={"format": str(document.FORMAT)},
)

GROWING, COMPLETE = "server.arrow", "server.parquet"
"""The file of a point's samples while they come in, and the file of all of them."""

COUNTERS = {
    "vllm:prompt_tokens_total": ("input_tokens", "asked_input", "prompt tokens"),
    "vllm:generation_tokens_total": ("output_tokens", "asked_output", "generated tokens"),
    "vllm:prefix_cache_hits_total": (
        "cached_tokens",
        "ceiling_tokens",
        "cached tokens",
    ),
}
"""Counters, the column that should add up to each, and what bounds it where it is absent."""

SLACK = {"ceiling_tokens": 2 * 64}
"""Two blocks by which a hit may exceed what the session had sent."""


_RANK = re.compile(r'"engine":"(\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A value that is new or has changed since the look before.

    `moment` is in seconds since the point began, 0 for the first look; `labels` is JSON.
    """

    moment: float
    source: str
    name: str
    labels: str
    value: float


def batch(samples: Sequence[Sample]) -> pa.RecordBatch:
    """The samples as one Arrow batch of SCHEMA, in their order."""
    columns = []
    for field in SCHEMA:
        values = [getattr(sample, field.name) for sample in samples]
        plain = pa.string() if pa.types.is_dictionary(field.type) else field.type
        column = pa.array(values, type=plain)
        columns.append(column if plain == field.type else column.dictionary_encode())
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def read(folder: Path) -> pa.Table | None:
    """The samples of a point's folder; None where it has none."""
    growing, complete = folder / GROWING, folder / COMPLETE
    if complete.exists() and not growing.exists():
        return pq.read_table(complete).unify_dictionaries()
    batches = list(rows.stream(growing)) if growing.exists() else []
    return pa.Table.from_batches(batches, schema=SCHEMA).unify_dictionaries() if batches else None


def keep(folder: Path) -> None:
    """Turns the samples that came in into the file of all of them."""
    samples = read(folder)
    if samples is not None:
        with document.published(folder / COMPLETE) as temporary:
            pq.write_table(samples, temporary, compression="zstd", version="2.6")


def increase(samples: pa.Table, name: str) -> dict[tuple[str, str], float]:
    """How far a counter rose over the point, by source and labels; empty where nobody told it.

    One that appears after the first look began at 0.
    """
    chosen = samples.filter(pc.equal(samples["name"].cast(pa.string()), name))
    moment, value = number(chosen, "moment"), number(chosen, "value")
    places: dict[tuple[str, str], list[int]] = {}
    for place, series in enumerate(
        zip(text(chosen, "source"), text(chosen, "labels"), strict=True)
    ):
        places.setdefault(series, []).append(place)
    return {
        series: float(value[at[-1]] - (value[at[0]] if moment[at[0]] == 0 else 0.0))
        for series, at in places.items()
    }


def silent(samples: pa.Table) -> str | None:
    """Why the counters prove nothing: the server did not tell them at first, or at last."""
    looks = samples.filter(pc.equal(samples["name"].cast(pa.string()), UP))
    answered = number(looks, "value")
    if not len(answered) or not answered.any():
        return None
    # Only what has changed is kept, so the last entry is how it was at the end.
    if not answered[0] or not answered[-1]:
        when = "at the start" if not answered[0] else "any more at the end"
        return f"the server did not tell its counters {when}, so they could not be checked"
    return None


def disagreements(requests: pa.Table, samples: pa.Table) -> Iterator[str]:
    """Where the server's counters rose by something else than what all the requests add up to.

    One that did not end well may have taken more than it was told, up to what it asked for: a
    server goes on until it hears that nobody listens.
    """
    if reason := silent(samples):
        yield reason
        return
    for counter, (_, _, words) in COUNTERS.items():
        risen = increase(samples, counter)
        counted = sum(risen.values())
        if not risen or not np.isfinite(counted):
            continue
        span = _span(requests, counter)
        if min(risen.values()) < 0:
            yield f"{counter} fell: the server was started again while it was measured"
        elif not span[0] <= counted <= span[1]:
            yield (
                f"the server counted {counted:,.0f} {words}, and the requests add up to "
                f"{_said(span)}: somebody else used it, or it tells requests something else than "
                "it counts"
            )


def strays(requests: pa.Table, samples: pa.Table) -> Iterator[str]:
    """Where a data-parallel rank counted something else than the requests that were sent to it.

    Nothing is said where requests name no rank, or counters tell none apart.
    """
    counter = "vllm:prompt_tokens_total"
    risen: dict[int, float] = {}
    for (_, labels), value in increase(samples, counter).items():
        if named := _RANK.search(labels):
            risen[int(named[1])] = risen.get(int(named[1]), 0.0) + value
    taken = requests.filter(pa.array(~_refused(requests)))
    ranks = number(taken, "rank")
    if silent(samples) or len(risen) < 2 or not len(ranks) or np.isnan(ranks).any():
        return
    for rank, counted in sorted(risen.items()):
        span = _span(taken.filter(pa.array(ranks == rank)), counter)
        if not span[0] <= counted <= span[1]:
            yield (
                f"rank {rank} counted {counted:,.0f} prompt tokens, and the requests that were "
                f"sent to it add up to {_said(span)}: sessions did not stay at their ranks"
            )


def _span(requests: pa.Table, counter: str) -> tuple[float, float]:
    """The least and the most that a counter may have risen by for these requests."""
    column, limit, _ = COUNTERS[counter]
    open_end = (text(requests, "state") != "ok") & ~_refused(requests)
    told, most = number(requests, column), number(requests, limit) + SLACK.get(limit, 0)
    least = float(np.nansum(told))
    untold = open_end | (np.isnan(told) & ~_refused(requests))
    return least, least + float(np.maximum(most - np.nan_to_num(told), 0)[untold].sum())


def _said(span: tuple[float, float]) -> str:
    return f"{span[0]:,.0f}" + (f" to {span[1]:,.0f}" if span[1] > span[0] else "")


def _refused(requests: pa.Table) -> Mask:
    """Which requests the server never took up."""
    status, sent = number(requests, "status"), number(requests, "sent")
    refused: Mask = np.isnan(sent) | ((status >= 400) & (status < 500))
    return refused
