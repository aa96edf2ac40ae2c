"""A gate as JUnit XML: a test case for each rule in each cell."""

import re
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from reports.account import Account, CellAccount
from reports.comparison import sides
from reports.gate import confirmation
from reports.labels import marked
from reports.notation import harmless, measured
from reports.verdict_tables import rule
from reports.verdicts import gated, limit, more, share, signed
from results.verdict import Judgement

# What XML 1.0 cannot hold, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(account: Account) -> str:
    """The document: a rule that failed is a failure, an inconclusive one is skipped.

    What is not valid, and a refusal, are errors; a cell that only one side has is skipped.
    """
    cases = list(_cases(account)) or [
        _told("gate", "no rule was judged", "error", "no rule was judged: state one")
    ]
    counts = {
        "tests": str(len(cases)),
        "failures": _count(cases, "failure"),
        "errors": _count(cases, "error"),
        "skipped": _count(cases, "skipped"),
        "time": "0",
    }
    # The common schema counts the skipped in a suite and not above it.
    above = {name: count for name, count in counts.items() if name != "skipped"}
    root = Element("testsuites", {"name": "paceline", **above})
    title = marked("paceline gate", account.mark)
    suite = SubElement(root, "testsuite", {"name": _clean(title), **counts})
    suite.extend(cases)
    out = SubElement(suite, "system-out")
    out.text = _lines(*sides(account), *confirmation(account))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _cases(account: Account) -> Iterator[Element]:
    """What was refused, the rules in each cell, and what was not judged or not compared."""
    comparison = account.comparison
    for sentence in comparison.refusals:
        yield _told("comparability", sentence.partition(":")[0], "error", sentence)
    for cell in account.cells:
        # Where there are rules, their own cases say it.
        if cell.cell.problems and not cell.cell.judgements:
            problems = "; ".join(cell.cell.problems)
            yield _told(cell.cell.experiment, f"valid: {cell.place}", "error", problems)
    for cell, one in gated(account):
        yield _case(account, cell, one)
    for sentence in comparison.missing:
        yield _told("coverage", sentence, "error", sentence)
    for sentence in comparison.unjudged:
        yield _told("coverage", sentence, "skipped", sentence)
    for name in comparison.unmatched:
        alone = f"not compared: {name} is on one side only"
        yield _told("comparability", name, "skipped", alone)


def _case(account: Account, cell: CellAccount, one: Judgement) -> Element:
    name = marked(f"{rule(one)}: {cell.place}", account.mark)
    made = Element("testcase", _names(cell.cell.experiment, name))
    message = "; ".join(filter(None, [f"{one.verdict}: {one.reason}", more(one)]))
    tags = {"fail": "failure", "inconclusive": "skipped", "invalid": "error"}
    if one.gate in tags:
        made.append(_element(tags[one.gate], message, _numbers(one)))
    else:
        SubElement(made, "system-out").text = _lines(message, _numbers(one))
    return made


def _numbers(one: Judgement) -> str:
    effect, unit = one.effect, one.effect.unit
    if effect.ratio is None:
        return f"margin {limit(one)}"
    values = [measured(value, unit, with_unit=True) for value in (effect.base, effect.other)]
    return (
        f"base {values[0]}, other {values[1]}, change {signed(effect)}, margin "
        f"{limit(one)}, smallest detectable difference {share(effect, effect.detectable, 2)}"
    )


def _told(group: str, name: str, tag: str, message: str) -> Element:
    made = Element("testcase", _names(group, name))
    made.append(_element(tag, message, ""))
    return made


def _element(tag: str, message: str, text: str) -> Element:
    attributes = {"message": _clean(message)}
    # The common schema gives a skipped test no type.
    made = Element(tag, attributes if tag == "skipped" else {**attributes, "type": "paceline"})
    made.text = _clean(text)
    return made


def _names(group: str, name: str) -> dict[str, str]:
    return {"classname": _clean(f"paceline.{group}"), "name": _clean(name), "time": "0"}


def _count(cases: Sequence[Element], tag: str) -> str:
    return str(sum(case.find(tag) is not None for case in cases))


def _lines(*lines: str) -> str:
    return "\n".join(map(_clean, lines))


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("\ufffd", harmless(words))
