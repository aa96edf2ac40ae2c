"""What the simulated model answers to questions: rightly as often as it is told to, and no oftener.

Whether it knows an answer depends on the question alone; which answers a run draws anew depends on
the run; what replay loses depends on the question again. So the true difference between two arms
is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from harness.engine import Replay
from workloads.prompt import seed_of

Share = Annotated[float, Ge(0), Le(1)]

_LETTERS = "ABCD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Shares of the questions: those it knows, and those that each run draws anew at that rate.

    `loss` of the answers it knows are wrong where replay is on, with graphs or without; `unclear`
    ones say no answer at all.
    """

    right: Share = 0.9
    redrawn: Share = 0.05
    loss: Share = 0.0
    unclear: Share = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer in words, and the reasoning before it; empty where it does not think."""

    text: str
    reasoning: str


def said(
    accuracy: Accuracy,
    question: str,
    target: str,
    *,
    replay: Replay,
    run: object,
    thinks: bool,
) -> Said:
    """The answer of one run to a question; `run` is whatever tells runs, and epochs, apart."""
    known = _share("knows", question) < accuracy.right
    anew = _share("draws", question, run) < accuracy.redrawn
    if anew:
        known = _share("drawn", question, run) < accuracy.right
    if replay != "off" and _share("loses", question) < accuracy.loss:
        known = False
    mood = seed_of("mood", question, run if anew else "")
    steps = "\n".join(_STEPS[(mood >> 8 * n) % len(_STEPS)] for n in range(2 + mood % 4))
    if _share("unclear", question) < accuracy.unclear:
        last = "It cannot be told from this."
    else:
        last = _worded(target if known else _wrong(target, mood), mood)
    return Said(text=last if thinks else f"{steps}\n{last}", reasoning=steps if thinks else "")


_STEPS = (
    "First I write down what is given.",
    "What is asked for follows from the amounts that are named.",
    "I take one amount after the other, and keep what is left.",
    "Then I put the parts together.",
    "Checking it once more gives the same.",
)

_NUMBERS = ("#### {}", "#### {}", "#### {}", "The answer is **{}**.", "So it is \\boxed{{{}}}.")
_CHOICES = ("The answer is ({})", "The answer is ({})", "**Answer: {}**", "\\boxed{{{}}}")


def _worded(answer: str, mood: int) -> str:
    ways = _CHOICES if answer in _LETTERS else _NUMBERS
    return ways[(mood >> 4) % len(ways)].format(answer)


def _wrong(target: str, mood: int) -> str:
    """Another letter, another number, or other words."""
    if target in _LETTERS:
        return _LETTERS[(_LETTERS.index(target) + 1 + mood % (len(_LETTERS) - 1)) % len(_LETTERS)]
    try:
        return f"{float(target) + 1 + mood % 9:g}"
    except ValueError:
        return "something else"


def _share(*parts: object) -> float:
    """A number below 1, evenly spread over all there are."""
    return seed_of(*parts) / 2**64


def found(key: Mapping[str, str], asked: str) -> tuple[str, str] | None:
    """The question of a key that stands last in a text, and its right answer.

    Where the text offers choices, that is the letter before the right one.
    """
    places = [(asked.rfind(question) + len(question), question) for question in key]
    end, question = max(
        ((end, question) for end, question in places if end >= len(question)), default=(0, "")
    )
    if not question:
        return None
    right = key[question]
    letters = [letter for letter in _LETTERS if f"({letter}) {right}" in asked[end:]]
    return question, letters[0] if letters else right
