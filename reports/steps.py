"""Steps that were timed alone, each as a row of a table and a point of a chart."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from results.figure import Figure, Summary
from results.steps import is_stepwise, name_of

AXES = {"batch": "step_batch", "new_tokens": "step_new_tokens", "context": "step_context"}
"""What steps differ in, and the figure that holds it."""

SHOWN = {"step_time": "step time", "step_rate_per_gpu": "computed tok/s/GPU"}
"""The columns of figures, and their headings."""

SCOPE = "engine level, no server, scheduler or sampling"


def apart(summary: Summary) -> Iterator[Summary]:
    """A summary for each step, which has one of each figure; any other summary as it is."""
    if not is_stepwise(summary.cell):
        yield summary
        return
    told = summary.cell.workload
    for fresh, context, batch in product(
        *(told[name] for name in ("new_tokens", "context", "batch"))
    ):
        name = name_of(batch, context, fresh + told["drafts"])
        sizes = {"batch": batch, "new_tokens": fresh, "context": context}
        found = {
            key: summary.figures[f"{key}.{name}"]
            for key in SHOWN
            if f"{key}.{name}" in summary.figures
        }
        found |= {
            AXES[axis]: Figure(value=float(size), unit="count", n=1) for axis, size in sizes.items()
        }
        cell = replace(summary.cell, workload={**told, **sizes})
        yield replace(summary, cell=cell, figures=found)


def axis(summaries: Sequence[Summary]) -> str:
    """What is drawn across: that in which the steps differ most."""
    steps = [summary.cell.workload for summary in summaries if is_stepwise(summary.cell)]
    return max(AXES, key=lambda name: len({step[name] for step in steps}))
