"""Graded answers as rows of a table: accuracy, every other score, and what came to nothing."""

from collections.abc import Sequence

from results.figure import Summary
from results.scores import HEADLINE

COUNTS = {
    "answers": "answers",
    "unanswered": "failed",
    "truncated": "truncated",
    "empty": "empty",
    "unparsed": "unparsed",
    "stopped": "stopped",
}
"""How many answers there are, and how many of them came to nothing."""


def beside(key: str) -> bool:
    """Whether the figure is a score beside the headline."""
    return key.startswith(f"{HEADLINE}.")


def shown(summaries: Sequence[Summary]) -> dict[str, str]:
    """The columns of figures, and their headings: the headline, then all other scores."""
    names = dict.fromkeys(name for one in summaries for name in one.figures)
    others = {name: name.partition(".")[2] for name in names if beside(name)}
    return {HEADLINE: HEADLINE, **others}
