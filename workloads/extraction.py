"""The answer in a model's words: a number, or the letter of a choice."""

import re
from collections.abc import Iterator
from fractions import Fraction

THOUGHT = "</think>"
"""What ends the reasoning of a model whose server does not tell it apart."""

_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}

# Digits with thousands separators or without, never part of a word or of a longer number.
_NUMBER = re.compile(
    r"(?<![\w.,/])(?P<sign>-?)(?:[$€£]\s?)?(?P<minus>-?)"
    r"(?P<digits>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:(?:\s+(?P<top>\d+))?\s?/\s?(?P<bottom>\d+)(?![\d.,/]*\d))?"
    rf"(?:\s(?P<scale>{'|'.join(_SCALES)})\b)?"
)

_IS = r"\W{0,4}(?:(?i:is|(?:w|sh)ould be|must be|equals)\b|[:=>])(?!\s*(?i:not)\b)"
_MARKS = (
    # Not a heading, such as "#### Step 2".
    re.compile(r"#{4}\s*\**\s*(?=[-$€£\d.])(?P<said>[^\n]*)"),
    re.compile(r"\\boxed\s*\{(?P<said>(?:[^{}\n]|\{[^{}\n]*\})*)\}"),
    re.compile(r"(?i:answer)" + _IS + r"(?P<said>[^\n]*)"),
    re.compile(r"(?i:final answer)[\s*:]*(?P<said>[^\n]*)"),
)
_BOLD = re.compile(r"\*\*(?P<said>[^*\n]+)\*\*(?P<colon>\s*:)?")
_HEADING = re.compile(r"\s*(?:(?i:step|part|case|day)\b|\d+[.)]\s)|.*:\s*$")

# Thousands set apart by spaces, where nothing else is said.
_SPACED = re.compile(r"(?<=\d)\s(?=\d{3}(?:\s\d{3})*\D*$)")

_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{(-?\d+)\}\s*\{(\d+)\}"), r" \1/\2"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\{,\}"), ","),
    (re.compile("(?<=\\d)[\u00a0\u2009\u202f](?=\\d{3}\\b)"), ""),
    (re.compile(r"(?<=\d)\\[,!;: ]\s?(?=\d{3}\b)"), ""),
    (re.compile(r"\\[$%]"), lambda found: found.group()[1]),
    (re.compile(r"\\[()\[\],!;: ]"), " "),
    (re.compile("[−–](?=[$€£]?\\d)"), "-"),
)

# Not the words A and I, and not the beginning of D-glucose.
_CHOICE = (
    r"\(?\s*(?P<letter>[A-J])(?:\s*\)|\b)(?!['’-]\w|\w|\s+(?:or|and)\s)"
    r"(?:(?<![AI])|(?!\s+(?!because|since)[a-z]))"
)
_LETTERS = (
    re.compile(
        r"\\boxed\s*\{\s*(?:\\\w+\s*\{)?\s*(?:(?i:option|choice)\s+)?\(?(?P<letter>[A-Ja-j])"
        r"(?=\s*[}).:,]|\\)"
    ),
    re.compile(
        r"(?i:answer|option|choice)" + _IS + r"(?:\s+(?i:therefore|thus|clearly|most likely)\b)?"
        r"[\s*:_\"'`$\[{‘“]*(?:(?i:option|choice)\s+)?[\s*\\]*(?:\w+\s*\{)?" + _CHOICE
    ),
    re.compile(r"\*\*\s*(?:(?i:option|choice)\s+)?" + _CHOICE + r"[^*\n]*\*\*"),
    re.compile(r"(?m)^[\s#]*(?:(?i:option|choice)\s+)?\(?(?P<letter>[A-J])\)?\s*[.:]?\s*$"),
    re.compile(r"\(?\b(?P<letter>[A-H])\b\)?\s+(?i:is|must be)\s+(?:the\s+)?(?i:correct|right)\b"),
    re.compile(r"\((?P<letter>[A-Ja-j])\)"),
)


def answer_part(text: str) -> str:
    """The text after its reasoning; nothing where the reasoning never ended."""
    _, ended, after = text.rpartition(THOUGHT)
    if ended:
        return after
    return text.partition("<think>")[0] if text.lstrip().startswith("<think>") else text


def number(text: str) -> str | None:
    """The number that an answer comes to, as few digits as say it; None where there is none.

    What is marked as the answer counts before what is bold, and that before the last number of all;
    of several marks the last one counts.
    """
    plain = _plain(answer_part(text))
    marked = [found for mark in _MARKS for found in mark.finditer(plain)]
    for found in sorted(marked, key=lambda found: found.start(), reverse=True):
        if (value := _settled(found["said"])) is not None:
            return value
    for found in reversed(list(_BOLD.finditer(plain))):
        if found["colon"] or _HEADING.match(found["said"]):
            continue
        if (value := _settled(found["said"])) is not None:
            return value
    return next(reversed(list(_values(plain))), None)


def letter(text: str) -> str | None:
    """The letter of the choice that an answer settles on; None where it settles on none."""
    part = answer_part(text)
    for mark in _LETTERS:
        found = [match["letter"] for match in mark.finditer(part)]
        if found:
            return str(found[-1]).upper()
    return None


def _plain(text: str) -> str:
    for pattern, instead in _LATEX:
        text = pattern.sub(instead, text)
    return text


def _settled(said: str) -> str | None:
    """The number said after a mark: the one after the last sign of equality, else the first."""
    said = _SPACED.sub("", said)
    return next(_values(said.rpartition("=")[2]), None) or next(_values(said), None)


def _values(text: str) -> Iterator[str]:
    for found in _NUMBER.finditer(text):
        value = Fraction(found["digits"].replace(",", ""))
        if found["bottom"]:
            if not int(found["bottom"]):
                continue
            part = Fraction(int(found["top"] or 1), int(found["bottom"]))
            value = value + part if found["top"] else value * part
        value *= _SCALES.get(found["scale"] or "", 1)
        yield _told(-value if found["sign"] or found["minus"] else value)


def _told(value: Fraction) -> str:
    """The number in digits, or as a fraction where digits never end."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, 19):
        if (value * 10**places).denominator == 1:
            whole = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
            return f"{'-' * (value < 0)}{whole[:-places]}.{whole[-places:]}"
    return f"{value.numerator}/{value.denominator}"
