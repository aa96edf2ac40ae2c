"""What is said below a table: why numbers are missing or in doubt, and what a row does not show."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest

from reports.labels import is_batch, limits, outcome, places, pressure, why
from reports.notation import ABSENT, figure, number, present, unscaled
from results.columns import UNCOUNTED
from results.figure import Figure, Summary
from results.level import FULL

MOST = 5
"""How many reasons of failed requests are told below a table."""

# Not the digits of a name, such as TP4.
_NUMBER = re.compile(r"(?<!\w)\d[\d,]*(?:\.\d+)?")

Told = tuple[str, str | None, Summary]
"""The name of a figure, what there is to say of it, and whose it is."""

Row = tuple[str, str]
"""The arm and the place of a row."""


def notes(summaries: Sequence[Summary], names: Mapping[str, str]) -> tuple[str, ...]:
    """Why rows are not valid or not what they say, figures absent or approximate or in doubt.

    `names` says which figures are told of, by their keys, and what they are called.
    """
    lines = [
        f"{summary.cell.arm}, {where}: {outcome(summary)}: {why(summary)}"
        for summary, where in zip(summaries, places(summaries), strict=True)
        if not summary.valid
    ]
    lines += _short_of_load(summaries)
    lines += _never_sent(summaries)
    lines += _remarked(summaries)
    lines += doubts(summaries, names)
    return tuple(dict.fromkeys(lines))


def doubts(summaries: Sequence[Summary], names: Mapping[str, str]) -> Iterator[str]:
    """Why figures are absent, approximate or without interval; `names` as for `notes`."""
    finished = [summary for summary in summaries if summary.status == "finished"]
    figures = [(name, figure(one, key), one) for key, name in names.items() for one in finished]
    shown = [told for told in figures if present(told[1])]
    hidden = [told for told in figures if not present(told[1]) and told[1] is not ABSENT]
    everything = len(set(names.values()))
    yield from _told_once("{} not shown", _reasons(hidden), everything)
    yield from _told_once("~ {}", _reasons(shown), everything)
    yield from _undoubted(shown, summaries, everything)


def limited(summaries: Sequence[Summary]) -> Iterator[str]:
    """What a request had to keep to count for goodput."""
    cells: dict[str, list[Summary]] = {}
    for summary in summaries:
        cells.setdefault(limits(summary.cell), []).append(summary)
    for words, members in cells.items():
        if words:
            yield f"{_prefix(members, summaries)}goodput: {words}"


def failed(summaries: Sequence[Summary]) -> Iterator[str]:
    """Why requests failed, a line for each reason: in which cells, and how often in all of them."""
    found: dict[str, list[Summary]] = {}
    counts: Counter[str] = Counter()
    for summary in summaries:
        for reason, count in summary.failures:
            found.setdefault(reason, []).append(summary)
            counts[reason] += count
    for reason, count in counts.most_common(MOST):
        yield f"{_prefix(found[reason], summaries)}failed: {number(count, 0)} x {reason}"
    told = sum(count for _, count in counts.most_common(MOST))
    more = int(sum(figure(one, "failed").value or 0 for one in summaries)) - told
    if counts and more > 0:
        yield f"failed: {number(more, 0)} for other reasons"


def failures(summary: Summary) -> str:
    """Why its requests failed, the commonest reason first: `4 x HTTP 429; 1 x HTTP 500`."""
    told = [f"{number(count, 0)} x {reason}" for reason, count in summary.failures]
    more = int(figure(summary, "failed").value or 0) - sum(count for _, count in summary.failures)
    return "; ".join([*told, *([f"{number(more, 0)} for other reasons"] if more > 0 else [])])


def whose(members: Sequence[Summary], beside: Sequence[Summary]) -> str:
    """The rows among those beside them, or those that are not meant where these are fewer."""
    meant = {id(member) for member in members}
    inside, outside = list[Row](), list[Row]()
    for summary, where in zip(beside, places(beside), strict=True):
        (inside if id(summary) in meant else outside).append((summary.cell.arm, where))
    if 0 < len(outside) < len(inside):
        return min(_named(inside, outside), f"all but {_named(outside, inside)}", key=len)
    return _named(inside, outside)


def _named(rows: Sequence[Row], others: Sequence[Row]) -> str:
    """Rows by place where every arm is meant, by arm where every place is, or else by both."""
    arms, wheres = {arm for arm, _ in others}, {where for _, where in others}
    if all(arm not in arms for arm, _ in rows) and any(where in wheres for _, where in rows):
        return "; ".join(dict.fromkeys(arm for arm, _ in rows))
    told = (where if where not in wheres else f"{arm}, {where}" for arm, where in rows)
    return "; ".join(dict.fromkeys(told))


def _prefix(members: Sequence[Summary], beside: Sequence[Summary]) -> str:
    """Whose a note is; nothing where it is every row's."""
    return f"{whose(members, beside)}: " if len(members) < len(beside) else ""


def _short_of_load(summaries: Sequence[Summary]) -> Iterator[str]:
    """Which closed loads were not the load that their names say, for want of live sessions."""
    short: dict[tuple[str, bool], list[Summary]] = {}
    for summary, where in zip(summaries, places(summaries), strict=True):
        if _live(summary) < FULL * pressure(summary.cell):
            bounded = summary.cell.load.get("sessions") is not None
            short.setdefault((where, bounded), []).append(summary)
    for (_, bounded), members in short.items():
        ends = dict.fromkeys(number(_live(one)) for one in sorted(members, key=_live))
        sessions = " to ".join(dict.fromkeys((next(iter(ends)), list(ends)[-1])))
        asked = f"{pressure(members[0].cell):g}"
        # A session whose pause outlasts the window is not counted, though it holds its lane.
        told = (
            f"as they ran out: its load is not {asked}"
            if bounded
            else "from their first request to their last: the window is short for their pauses"
        )
        yield f"{whose(members, summaries)}: on average only {sessions} sessions were live, {told}"


def _live(summary: Summary) -> float:
    """The sessions that were live on average; infinite where that says nothing of the load."""
    live = figure(summary, "live.mean")
    closed = summary.cell.load.get("kind") == "closed" and not is_batch(summary.cell)
    return live.value if closed and present(live) and live.value is not None else float("inf")


def _never_sent(summaries: Sequence[Summary]) -> Iterator[str]:
    """Where requests were due that had not been sent when the window ended, and how many."""
    members = [summary for summary in summaries if figure(summary, "unsent").value]
    if not members:
        return
    count = sum(figure(one, "unsent").value or 0 for one in members)
    due = sum(figure(one, "requests").value or 0 for one in members)
    yield (
        f"{_prefix(members, summaries)}{number(count, 0)} of {number(due, 0)} requests were never "
        "sent: they were due, and still waited when the window ended"
    )


def _remarked(summaries: Sequence[Summary]) -> Iterator[str]:
    """What else there is to know of rows: remarks that differ in one number alone are one line."""
    kinds: dict[tuple[str, ...], dict[str, list[Summary]]] = {}
    for summary in summaries:
        for remark in summary.remarks:
            alike = kinds.setdefault(tuple(_NUMBER.split(remark)), {})
            alike.setdefault(remark, []).append(summary)
    for kind, found in kinds.items():
        slots = list(zip(*map(_NUMBER.findall, found), strict=True))
        varied = [place for place, slot in enumerate(slots) if len(set(slot)) > 1]
        if len(varied) == 1:
            yield _spanned(kind, found, varied[0], summaries)
            continue
        for remark, members in found.items():
            yield f"{_prefix(members, summaries)}{remark}"


def _spanned(
    kind: Sequence[str],
    found: Mapping[str, Sequence[Summary]],
    place: int,
    summaries: Sequence[Summary],
) -> str:
    """Remarks that differ in the number at that place alone, as a span and where its ends are."""
    told = {remark: _NUMBER.findall(remark) for remark in found}
    ordered = sorted(told, key=lambda remark: float(told[remark][place].replace(",", "")))
    ends = ordered[0], ordered[-1]
    numbers = list(told[ends[0]])
    numbers[place] = " to ".join(told[end][place] for end in ends)
    members = {id(one): one for alike in found.values() for one in alike}
    least, most = ({id(one) for one in found[end]} for end in ends)
    where = ""
    if len(members) > 1 and not least & most:
        names = (whose(found[end], summaries) for end in ends)
        where = " (least in {}; most in {})".format(*names)
    said = "".join(chain.from_iterable(zip_longest(kind, numbers, fillvalue="")))
    meant = [one for one in summaries if id(one) in members]
    return f"{_prefix(meant, summaries)}{said}{where}"


def _reasons(figures: Iterable[tuple[str, Figure, Summary]]) -> Iterator[Told]:
    return (
        (name, f"{one.reason}{_hint(one, summary)}" if one.reason else None, summary)
        for name, one, summary in figures
    )


def _hint(one: Figure, summary: Summary) -> str:
    """What would make a figure exact that is none for want of tokens a piece."""
    engine = summary.cell.deployment.get("engine", {})
    # Where it was asked for, or cannot be, there is nothing more to do.
    if UNCOUNTED not in (one.reason or "") or engine.get("chunk_usage") is not False:
        return ""
    return "; engine.chunk_usage: true asks for them"


def _undoubted(
    shown: Sequence[tuple[str, Figure, Summary]], beside: Sequence[Summary], everything: int
) -> Iterator[str]:
    """Which figures have no interval, and in which rows where others have one."""
    rows: dict[str, list[Summary]] = {}
    for name, _, summary in shown:
        rows.setdefault(name, []).append(summary)
    told = [(name, one.doubt, summary) for name, one, summary in shown]
    return _told_once("{} without interval", told, everything, beside=beside, rows=rows)


def _told_once(
    words: str,
    reasons: Iterable[Told],
    everything: int,
    *,
    beside: Sequence[Summary] = (),
    rows: Mapping[str, Sequence[Summary]] | None = None,
) -> Iterator[str]:
    """A line a kind of reason: what it is true of, the first, and how many differ in numbers.

    With `rows`, those of every figure, a figure says whose it is where it is not all of these.
    """
    kinds: dict[str, list[tuple[str, str, Summary]]] = {}
    for name, reason, summary in reasons:
        if reason:
            kind = re.sub(r"\([^)]*\)|\d+", "", reason)
            kinds.setdefault(kind, []).append((name, unscaled(reason), summary))
    for told in kinds.values():
        members: dict[str, list[Summary]] = {}
        for name, _, summary in told:
            members.setdefault(name, []).append(summary)
        subject = _subject(members, everything, beside, rows or members)
        found = list(dict.fromkeys(reason for _, reason, _ in told))
        more = f" (and {len(found) - 1} more of the kind)" if len(found) > 1 else ""
        yield f"{words.format(subject)}: {found[0]}{more}"


def _subject(
    members: Mapping[str, Sequence[Summary]],
    everything: int,
    beside: Sequence[Summary],
    rows: Mapping[str, Sequence[Summary]],
) -> str:
    """The figures by name, those that are alike in this in the same rows together."""
    groups: dict[str, list[str]] = {}
    for name, of_name in members.items():
        where = whose(of_name, beside) if len(of_name) < len(rows[name]) else ""
        groups.setdefault(where, []).append(name)
    return ", ".join(
        ("all figures" if 1 < len(names) == everything else ", ".join(names))
        + (f" ({where})" if where else "")
        for where, names in groups.items()
    )
