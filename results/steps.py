"""Steps of an engine that were timed alone: their rows, and the figures of each step."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

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

TIME = "step_time"
"""The metric by which steps are compared."""

KEYS = ("batch", "context_tokens", "new_tokens", "draft_tokens")

TIMED = ("iterations", "samples")
"""How often a step was run: that makes no other step of it."""

DOUBT = "runs of one start share its memory and its clock: repeats say how much it varies"


def is_stepwise(cell: Cell) -> bool:
    """Whether the cell's point is made of steps that were timed alone."""
    return bool(cell.workload.get("kind") == KIND)


def name_of(batch: int, context: int, fresh: int) -> str:
    """What a step is called, in the keys of its figures."""
    return f"{batch}x{context}+{fresh}"


def apart(cell: Cell) -> Iterator[Cell]:
    """A cell for each step of one whose steps are timed alone; any other cell as it is."""
    if not is_stepwise(cell):
        yield cell
        return
    told = {name: value for name, value in cell.workload.items() if name not in TIMED}
    for fresh, context, batch in product(told["new_tokens"], told["context"], told["batch"]):
        name = name_of(batch, context, fresh + told["drafts"])
        yield replace(
            cell,
            name=f"{cell.experiment}-{name}-r{cell.repeat}",
            pairing=f"{cell.pairing} {name}",
            workload={**told, "batch": batch, "context": context, "new_tokens": fresh},
        )


def of_step(figures: Mapping[str, Figure], cell: Cell) -> Mapping[str, Figure]:
    """The figures of the one step that the cell is, bare of its name; all of any other cell."""
    told = cell.workload
    if not is_stepwise(cell) or not isinstance(told["batch"], int):
        return figures
    end = f".{name_of(told['batch'], told['context'], told['new_tokens'] + told['drafts'])}"
    return {
        name.removesuffix(end): figure for name, figure in figures.items() if name.endswith(end)
    }


def figures(steps: pa.Table | None, cell: Cell) -> Mapping[str, Figure]:
    """The median time of every step, and the tokens that it computes a second and GPU."""
    if steps is None or steps.schema.names != SCHEMA.names:
        return {}
    found: dict[str, Figure] = {}
    runs = steps.to_pandas().groupby(list(KEYS), sort=False)["microseconds"]
    for (batch, context, fresh, drafts), times in runs:
        name = name_of(batch, context, fresh)
        time = Figure(value=float(times.median()) / 1e6, unit="s", n=len(times), doubt=DOUBT)
        found[f"{TIME}.{name}"] = time
        found[f"step_rate_per_gpu.{name}"] = _rate(time, batch * fresh, drafts, cell.gpus)
    return of_step(found, cell)


def _rate(time: Figure, tokens: int, drafts: int, gpus: int) -> Figure:
    if drafts or not time.value:
        reason = "how many drafts are accepted is not measured in a step alone"
        return Figure(value=None, unit="tok/s/GPU", n=0, reason=reason)
    value = tokens / time.value / gpus
    return Figure(value=value, unit="tok/s/GPU", n=time.n, doubt=time.doubt)
