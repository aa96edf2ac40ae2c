"""Steps of an engine that were timed alone: their rows, and the figures of each step."""

from collections.abc import Mapping

import pyarrow as pa

from results.cell import Cell
from results.figure import Figure

SCHEMA = pa.schema(
    [
        pa.field("batch", pa.int32(), nullable=False),
        pa.field("context_tokens", pa.int64(), nullable=False),
        pa.field("new_tokens", pa.int64(), nullable=False),
        pa.field("draft_tokens", pa.int32(), nullable=False),
        pa.field("sample", pa.int32(), nullable=False),
        pa.field("microseconds", pa.float64(), nullable=False),
    ]
)
"""One row a run of a step, of which the slowest rank counts; several runs are a sample.

`new_tokens` are those of each request, drafts among them; `batch` counts over all ranks.
"""

KIND = "forward"
"""The kind of the workload whose points have such rows, and no requests."""

KEYS = ("batch", "context_tokens", "new_tokens", "draft_tokens")


DOUBT = "runs of one start share its memory and its clock: repeats say how much it varies"


def is_stepwise(cell: Cell) -> bool:
    """Whether the cell's point is made of steps that were timed alone."""
    return bool(cell.workload.get("kind") == KIND)


def name_of(batch: int, context: int, fresh: int) -> str:
    """What a step is called, in the keys of its figures."""
    return f"{batch}x{context}+{fresh}"


def figures(steps: pa.Table | None, cell: Cell) -> Mapping[str, Figure]:
    """The median time of every step, and the tokens that it computes a second and GPU."""
    if steps is None or steps.schema.names != SCHEMA.names:
        return {}
    found: dict[str, Figure] = {}
    runs = steps.to_pandas().groupby(list(KEYS), sort=False)["microseconds"]
    for (batch, context, fresh, drafts), times in runs:
        name = name_of(batch, context, fresh)
        time = Figure(value=float(times.median()) / 1e6, unit="s", n=len(times), doubt=DOUBT)
        found[f"step_time.{name}"] = time
        found[f"step_rate_per_gpu.{name}"] = _rate(time, batch * fresh, drafts, cell.gpus)
    return found


def _rate(time: Figure, tokens: int, drafts: int, gpus: int) -> Figure:
    if drafts or not time.value:
        reason = "how many drafts are accepted is not measured in a step alone"
        return Figure(value=None, unit="tok/s/GPU", n=0, reason=reason)
    value = tokens / time.value / gpus
    return Figure(value=value, unit="tok/s/GPU", n=time.n, doubt=time.doubt)
