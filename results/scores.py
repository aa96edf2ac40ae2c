"""What the graded answers of a run come to: accuracy with its interval, and what went wrong."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results import answers
from results.cell import Cell
from results.columns import Floats, Ints, Mask
from results.evidence import Evidence
from results.figure import Figure
from results.gap import standard_error, wilson

HEADLINE = "accuracy"

LIMITS = {"failed": 0.005, "truncated": 0.05, "empty": 0.01, "unparsed": 0.05}
"""The shares of answers up to which a point is valid, where its workload states no others."""

AMISS = ("unanswered", "truncated", "empty", "unparsed", "stopped")
"""What can come of a question in place of a whole answer; `stopped` at a string that ends it."""

ITEM = ("task", "question", "epoch")
"""What names an answer among those of a run."""

QUESTION = ("task", "question")


def metrics(tables: Sequence[pa.Table], headline: str | None = None) -> list[str]:
    """The accuracy metrics that all of these have: the headline, then each other score."""
    told = [pc.unique(_field(table, "name")).to_pylist() for table in tables]
    shared = (name for name in told[0] if name != headline and all(name in n for n in told))
    return [HEADLINE, *(f"{HEADLINE}.{name}" for name in shared)]


def _field(table: pa.Table, name: str) -> pa.ChunkedArray:
    """One field of every score, answer by answer."""
    return pc.struct_field(pc.list_flatten(table["scores"]), name)


def items(table: pa.Table, metric: str) -> pa.Table:
    """The value of a metric of every answer that has one: task, question, epoch, group, value."""
    name = metric.partition(".")[2]
    if not name:
        graded = table.filter(pc.is_finite(table["score"]))
        return graded.select([*ITEM, "group"]).append_column("value", graded["score"])
    parents = pc.list_parent_indices(table["scores"].combine_chunks())
    values = _field(table, "value")
    chosen = pc.and_(pc.equal(_field(table, "name"), name), pc.is_finite(values)).combine_chunks()
    rows = table.select([*ITEM, "group"]).take(parents.filter(chosen))
    return rows.append_column("value", values.filter(chosen))


def by_question(rows: pa.Table, columns: Sequence[str]) -> tuple[list[Floats], Ints | None]:
    """The means of columns over each question's epochs, and the groups where all have one."""
    means = rows.group_by([*QUESTION], use_threads=False).aggregate(
        [*((name, "mean") for name in columns), ("group", "min")]
    )
    values = [means[f"{name}_mean"].to_numpy().astype(np.float64) for name in columns]
    groups = means["group_min"]
    if groups.null_count == len(groups):
        return values, None
    # A question without a group shares nothing with any other.
    named = [
        f"alone {number}" if name is None else f"group {name}"
        for number, name in enumerate(groups.to_pylist())
    ]
    return values, np.unique(named, return_inverse=True)[1]


def asks(cell: Cell) -> bool:
    """Whether the cell asks questions, whose answers are graded."""
    return bool(cell.workload.get("kind") == "questions")


def figures(table: pa.Table | None, evidence: Evidence | None) -> dict[str, Figure]:
    """Every figure of the answers, keyed as in docs/metrics.md; none where there are none."""
    if table is None:
        return {}
    names = metrics([table], headline(evidence))
    result = {metric: _share(items(table, metric)) for metric in names}
    count = table.num_rows
    for name, happened in {"answers": None, **_marks(table)}.items():
        value = count if happened is None else int(happened.sum())
        result[name] = Figure(value=value, unit="count", n=count)
    return result


def _marks(table: pa.Table) -> dict[str, Mask]:
    """Which answers did not come, and which of the others came to nothing."""
    state = np.array(table["state"].to_pylist())
    # What cannot be graded is left out of every accuracy, like what did not come.
    ok = (state == "ok") & np.isfinite(table["score"].to_numpy())
    flags = {name: table[name].to_numpy() for name in ("truncated", "empty", "parsed")}
    stopped = np.array(table["finish_reason"].to_pylist(), dtype=object) == answers.STOPPED
    told = (~ok, ok & flags["truncated"], ok & flags["empty"], ok & ~flags["parsed"], ok & stopped)
    return dict(zip(AMISS, told, strict=True))


def accuracy(table: pa.Table) -> Figure:
    """The share of right answers, by the headline."""
    return _share(items(table, HEADLINE))


def _share(rows: pa.Table) -> Figure:
    """The mean over questions with Wilson's interval, of as many as their spread is worth."""
    if not rows.num_rows:
        return Figure(value=None, unit="share", n=0, reason="no question was answered")
    (values,), groups = by_question(rows, ["value"])
    share, count = float(values.mean()), len(values)
    worth = float(count if groups is None else len(np.unique(groups)))
    if not 0 <= values.min() <= values.max() <= 1:
        return Figure(value=share, unit="share", n=count, doubt="it is no share of right answers")
    repeated = groups is not None or bool(((values > 0) & (values < 1)).any())
    if repeated and worth > 1 and (error := standard_error(values, groups)):
        worth = share * (1 - share) / error**2
    low, high = wilson(share, worth)
    return Figure(value=share, unit="share", n=count, low=low, high=high)


def headline(evidence: Evidence | None) -> str | None:
    """What the score that counts is called."""
    return evidence.accuracy.headline if evidence and evidence.accuracy else None


def problems(table: pa.Table | None, cell: Cell, evidence: Evidence | None) -> Iterator[str]:
    """Why the answers must not be used."""
    if table is None or not table.num_rows:
        yield "there are no answers: the folder was changed, or the questions were not asked"
        return
    limits = {**LIMITS, **(cell.workload.get("limits") or {})}
    for name, happened in _marks(table).items():
        share = float(happened.mean())
        # Strings that end answers are the task's own, and may end every one.
        limit = limits.get("failed" if name == "unanswered" else name, 1.0)
        if share > limit:
            yield (
                f"{int(happened.sum())} of {table.num_rows} answers are {name}, {share:.1%}, and "
                f"{limit:.1%} are allowed"
            )
    if again := table.num_rows - table.group_by([*ITEM]).aggregate([]).num_rows:
        yield f"{again} answers are of a question and epoch that has one: the folder was changed"
    yield from _another(table, evidence)


def _another(table: pa.Table, evidence: Evidence | None) -> Iterator[str]:
    """Where the answers are not those of the questions, or graded by the key, that were told."""
    told = evidence.accuracy if evidence else None
    if told is None:
        yield "nothing tells which questions were asked, and how"
        return
    if told.synthetic_acceptance:
        yield "the server made up which drafts are accepted, so its answers are none: leave it out"
    if table.num_rows != told.questions * told.epochs:
        yield (
            f"there are {table.num_rows} answers, and {told.questions} questions in {told.epochs} "
            "epochs were asked: the folder was changed"
        )
    if answers.questions_hash(table) != told.questions_hash:
        yield "the answers are of other questions or prompts than the evidence says"
    if answers.key_hash(table) != told.key_hash:
        yield "the answers are graded by another key than the evidence says"
