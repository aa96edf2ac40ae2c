"""The highest load level that holds and the lowest that fails, on a ladder of levels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from results.level import Answer, Level

Outcome = Literal[
    "bracketed",
    "holds throughout",
    "fails throughout",
    "undecided",
    "not monotone",
    "not measured",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What a search found on one ladder: the loads of an arm under one workload, ascending.

    `levels` are those that were run, ascending; a level holds where at least the `demanded` share
    of its requests keeps every objective. `kind` is that of the load.
    """

    experiment: str
    arm: str
    workload: str
    kind: str
    demanded: float
    ladder: tuple[float, ...]
    levels: tuple[Level, ...]

    @property
    def holding(self) -> Level | None:
        """The highest level that holds below every level that fails."""
        held = [one for one in self.levels if one.answer == "holds" and self._below(one)]
        return held[-1] if held else None

    @property
    def failing(self) -> Level | None:
        """The lowest level that fails."""
        return next((one for one in self.levels if one.answer == "fails"), None)

    @property
    def astray(self) -> tuple[Level, ...]:
        """The levels that hold above one that fails."""
        return tuple(one for one in self.levels if one.answer == "holds" and not self._below(one))

    @property
    def between(self) -> tuple[Level, ...]:
        """The levels that were run between those two, and are neither."""
        low = self.holding.load if self.holding else float("-inf")
        high = self.failing.load if self.failing else float("inf")
        return tuple(one for one in self.levels if low < one.load < high)

    @property
    def needless(self) -> tuple[Level, ...]:
        """The levels that are neither and lie where others answer for them."""
        between = {one.load for one in self.between}
        return tuple(
            one
            for one in self.levels
            if one.answer not in {"holds", "fails"} and one.load not in between
        )

    @property
    def outcome(self) -> Outcome:
        """What the search came to."""
        if self.astray:
            return "not monotone"
        answers = {one.answer for one in self.between}
        if answers == {"undecided"}:
            return "undecided"
        if answers or next_rung(len(self.ladder), self._answers()) is not None:
            return "not measured"
        if self.holding and self.failing:
            return "bracketed"
        return "holds throughout" if self.holding else "fails throughout"

    def _below(self, level: Level) -> bool:
        return self.failing is None or level.load < self.failing.load

    def _answers(self) -> dict[int, Answer]:
        return {self.ladder.index(one.load): one.answer for one in self.levels}


def next_rung(rungs: int, answers: Mapping[int, Answer]) -> int | None:
    """The rung to look at next, counted from 0 at the lowest load; None where there is none.

    Assumes that more load never makes a failing level hold. Rungs that are neither are left
    between: what is sought then is the highest that holds below and the lowest that fails above
    them. One among them that could not be measured ends the search.
    """
    bottom, top = bounds(rungs, answers)
    neither = [rung for rung in answers if bottom < rung < top]
    if any(answers[rung] == "unmeasured" for rung in neither):
        return None
    gaps = [(bottom, top)]
    if neither:
        gaps = [(bottom, min(neither)), (max(neither), top)]
    return next(((low + high) // 2 for low, high in gaps if high - low > 1), None)


def bounds(rungs: int, answers: Mapping[int, Answer]) -> tuple[int, int]:
    """The highest rung that holds below all that fail, or -1; the lowest that fails, or `rungs`."""
    top = min((rung for rung, answer in answers.items() if answer == "fails"), default=rungs)
    held = (rung for rung, answer in answers.items() if answer == "holds" and rung < top)
    return max(held, default=-1), top
