"""Steps that were timed alone, each as a row of a table and a point of a chart."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from results import steps
from results.figure import Figure, Summary
from results.steps import is_stepwise

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
    for cell in steps.apart(summary.cell):
        sizes = {
            figure: Figure(value=float(cell.workload[name]), unit="count", n=1)
            for name, figure in AXES.items()
        }
        found = steps.of_step(summary.figures, cell)
        yield replace(summary, cell=cell, figures={**found, **sizes})


def axis(summaries: Sequence[Summary]) -> str:
    """What is drawn across: that in which the steps differ most."""
    told = [summary.cell.workload for summary in summaries if is_stepwise(summary.cell)]
    return max(AXES, key=lambda name: len({step[name] for step in told}))
