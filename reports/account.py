"""A comparison with what only its sides can say: where it stands, what it rests on, what moved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reports.command import commands
from reports.labels import differing, marks, place, settings
from results.comparison import CellComparison, Comparison
from results.evidence import Provenance
from results.matching import Match, match
from results.moved import Moved, moved
from results.run import Run, RunPoint
from results.side import Side
from results.verdict import Judgement

OF_REQUESTS = frozenset(("ttft", "tpot", "e2el", "interactivity"))
"""What single requests take, which in a fixed batch hangs on which of them was let in first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAccount:
    """A cell of a comparison, where it stands among the others, and what its numbers are.

    `moved` are the requests that got slower by most, of each gated latency that is worse.
    """

    cell: CellComparison
    place: str
    provenances: tuple[Provenance, ...]
    moved: tuple[Moved, ...]

    @property
    def mark(self) -> str:
        """What must be said beside every number of it: `SIMULATED`, or nothing where measured."""
        return marks(self.provenances)

    def aside(self, one: Judgement) -> bool:
        """Whether it is told among the rest alone: a fixed batch is judged as a whole.

        That its requests surely wait longer, or less long, is told: the batch's own time begins
        when all of them decode.
        """
        if one.gated or self.cell.workload.get("kind") != "batch":
            return False
        metric = one.effect.metric
        whole = metric in {"ttft", "e2el"} and one.verdict in {"better", "worse"}
        return metric.partition(".")[0] in OF_REQUESTS and not whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A comparison as it is told.

    `confirm` are the commands that run its other side afresh, `enlarge` those that run both with
    as many repeats as decide what is inconclusive among the rules; empty where none would.
    """

    comparison: Comparison
    cells: tuple[CellAccount, ...]
    provenances: tuple[Provenance, ...]
    confirm: tuple[str, ...]
    enlarge: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """What must be said beside every number: `SIMULATED`, or nothing where measured."""
        return marks(self.provenances)

    @property
    def gated(self) -> bool:
        """Whether any rule was judged."""
        return any(one.gated for _, one in self.judgements())

    @property
    def identical(self) -> bool:
        """Whether both sides gave the very same numbers throughout."""
        told = [one.effect for _, one in self.judgements() if one.effect.ratio is not None]
        valid = not any(cell.cell.problems for cell in self.cells)
        return valid and bool(told) and all(effect.how == "identical" for effect in told)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the runs of every cell alike."""
        told = [cell.cell.notes for cell in self.cells]
        first = told[0] if told else ()
        return tuple(note for note in first if all(note in of_cell for of_cell in told))

    def judgements(self) -> Iterator[tuple[CellAccount, Judgement]]:
        """Every judgement but those told aside with its cell, in the order of the cells."""
        for cell in self.cells:
            for one in cell.cell.judgements:
                if not cell.aside(one):
                    yield cell, one


def account(comparison: Comparison, base: Side, other: Side) -> Account:
    """The comparison of these two sides, with what they say beside it.

    Reads the rows of cells where a gated latency is worse, to name the requests that moved most.
    """
    matches = match(base, other)[0] if comparison.cells else ()
    places = _places(matches)
    return Account(
        comparison=comparison,
        cells=tuple(
            CellAccount(
                cell=cell,
                place=where,
                provenances=_provenances((*one.base, *one.other)),
                moved=_moved(cell, one),
            )
            for cell, one, where in zip(comparison.cells, matches, places, strict=True)
        ),
        provenances=_provenances((*base.points, *other.points)),
        confirm=commands(other.runs),
        enlarge=_enlarge(comparison, (*base.runs, *other.runs)),
    )


def _enlarge(comparison: Comparison, runs: Sequence[Run]) -> tuple[str, ...]:
    judged = (one for cell in comparison.cells for one in cell.judgements)
    open_rules = (one for one in judged if one.gate == "inconclusive")
    needed = max((one.runs_needed or 0 for one in open_rules), default=0)
    return commands(runs, repeats=needed) if needed else ()


def _provenances(points: Sequence[RunPoint]) -> tuple[Provenance, ...]:
    told = (point.evidence.observed.provenance for point in points if point.evidence)
    return tuple(sorted(set(told)))


def _moved(cell: CellComparison, one: Match) -> tuple[Moved, ...]:
    worse = [each.effect.metric for each in cell.judgements if each.gated and each.gate == "fail"]
    names = dict.fromkeys(metric.partition(".")[0] for metric in worse)
    return tuple(each for name in names for each in moved(one.base, one.other, name))


def _places(matches: Sequence[Match]) -> list[str]:
    """Where each cell stands: its load, and what else tells the cells apart."""
    cells = [one.base[0].cell for one in matches]
    keys = differing([settings(cell) for cell in cells])
    several = {
        name: len({getattr(cell, name) for cell in cells}) > 1 for name in ("experiment", "arm")
    }
    return [
        ", ".join(
            [
                *(getattr(cell, name) for name, told in several.items() if told),
                place(cell, keys),
            ]
        )
        for cell in cells
    ]
