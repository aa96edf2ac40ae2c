"""A comparison as a gate sees it: which rules passed, what moved, and how to make sure."""

from collections import Counter
from collections.abc import Iterator

from reports.account import Account
from reports.comparison import WIDTH, refused, sides, whole, wrapped
from reports.labels import marked
from reports.notation import counted, harmless
from reports.verdict_tables import cell_notes, gate_sheet, moved_sheet
from results.verdict import Gate

ANSWERS: dict[Gate, str] = {
    "pass": "PASSED",
    "fail": "FAILED",
    "inconclusive": "INCONCLUSIVE",
    "invalid": "INVALID",
}
"""What a gate says, as it is shown."""


BECAME: tuple[tuple[Gate, str], ...] = (
    ("fail", "failed"),
    ("invalid", "not valid"),
    ("inconclusive", "inconclusive"),
    ("pass", "passed"),
)
"""What became of rules, in the order in which they are counted."""


def answer(account: Account) -> Gate:
    """What all rules together come to: a failure is one whatever else is not known.

    Without a rule that was judged, it is `invalid`: nothing that was not looked at passes.
    """
    found = {one.gate for _, one in account.judgements() if one.gated}
    found |= {"invalid" for cell in account.cells if cell.cell.problems}
    found |= {"invalid" for _ in account.comparison.missing}
    found |= {"inconclusive" for _ in account.comparison.unjudged}
    if account.comparison.refusals or not account.gated:
        return "invalid"
    order: tuple[Gate, ...] = ("fail", "invalid", "inconclusive")
    return next((gate for gate in order if gate in found), "pass")


def verdict_line(account: Account) -> str:
    """The gate's answer in one line: `Gate FAILED: 1 of 12 rules failed, 11 passed`."""
    if account.comparison.refusals:
        reasons = counted(len(account.comparison.refusals), "reason")
        refused = marked("Gate REFUSED", account.mark)
        return f"{refused}: the sides are not compared, for {reasons}."
    said = marked(f"Gate {ANSWERS[answer(account)]}", account.mark)
    counts = Counter(one.gate for _, one in account.judgements() if one.gated)
    if not counts:
        return f"{said}: no rule was judged."
    told = [f"{counts[gate]} {word}" for gate, word in BECAME if counts[gate]]
    gaps = len(account.comparison.missing) + len(account.comparison.unjudged)
    beside = f"; {counted(gaps, 'gap')} in what was to be judged" * bool(gaps)
    return f"{said}: of {counted(sum(counts.values()), 'rule')} {', '.join(told)}{beside}."


def gate_text(account: Account, width: int = WIDTH) -> str:
    """The gate's answer, its rules, the requests that moved most, and how to confirm."""
    parts = [wrapped(verdict_line(account), width)]
    parts.append("\n".join(wrapped(line, width) for line in sides(account)))
    parts.append("\n".join(wrapped(line, width) for line in refused(account.comparison)))
    if account.gated:
        parts.append(whole(gate_sheet(account), width))
        slower = moved_sheet(account)
        parts.append(whole(slower, width) if slower.rows else "")
        notes = (
            f"{cell.place}: {note}" for cell in account.cells for note in cell_notes(cell, account)
        )
        parts.append("\n".join(wrapped(note, width) for note in notes))
    parts.append("\n".join(confirmation(account)))
    return "\n\n".join(filter(None, parts))


def confirmation(account: Account) -> Iterator[str]:
    """How to make sure: of a failure by a fresh run, of what is not decided by more runs."""
    said = answer(account)
    if said == "fail" and account.confirm:
        yield "To confirm it, run the other side afresh and judge the new folder by the same rules:"
        yield from (f"    {command}" for command in map(harmless, account.confirm))
    if said == "inconclusive" and account.enlarge:
        yield "More runs would decide it. Run again, and judge the new folders by the same rules:"
        yield from (f"    {command}" for command in map(harmless, account.enlarge))
