"""Everything that is wrong with trace files, found by the very code that reads them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from results.errors import InputError
from workloads.ceiling import compact, highest
from workloads.entry import Problem
from workloads.recording import records, stamps
from workloads.weka import Ids, Trace, parse


def check(path: str) -> list[Problem]:
    """What is wrong in the files that `read` takes: what makes it fail, and what it makes up for.

    What is made up for stands there once a file, with how often it occurs.
    """
    try:
        files = stamps(path)
    except InputError as error:
        return [_unreadable(error)]
    found: list[Problem] = []
    places: dict[str, str] = {}
    for file, _ in files:
        told: dict[tuple[str, str, int], Problem] = {}
        for number, problem in enumerate(_problems(Path(file), places)):
            key = (problem.field, problem.wrong, number if problem.fatal else -1)
            known = told.get(key)
            told[key] = replace(known, times=known.times + 1) if known else problem
        found += told.values()
    if not places and not any(problem.fatal for problem in found):
        found.append(Problem(place=path, field="", wrong="holds no trace", fatal=True))
    return found


def _problems(file: Path, places: dict[str, str]) -> Iterator[Problem]:
    told: list[Problem] = []
    try:
        for place, text in records(file):
            try:
                trace = parse(text, place, places, told.append)
            except InputError as error:
                told.append(_unreadable(error))
            else:
                told += _unchained(trace, place) if trace else []
            yield from told
            told.clear()
    except InputError as error:
        yield _unreadable(error)


def _unreadable(error: InputError) -> Problem:
    place, _, wrong = str(error).partition(": ")
    return Problem(place=place, field="", wrong=wrong, fatal=True)


def _unchained(trace: Trace, place: str) -> list[Problem]:
    """A note where a hash id stands at two places: equal ids then do not mean equal prefixes."""
    if _one_place_each([call.hash_ids for call in trace.all_calls()]):
        return []
    wrong = (
        "one id stands at two places, so equal ids are not equal prefixes: blocks are replayed "
        "as they stand, and cache ceilings count leading ids"
    )
    return [Problem(place=place, field="hash_ids", wrong=wrong, fatal=False)]


def _one_place_each(lists: Sequence[Ids]) -> bool:
    """Whether each id stands at one place in all lists."""
    renamed = compact(lists)
    known = np.full(1 + highest(renamed), -1)
    for ids in renamed:
        places = np.arange(len(ids))
        before = known[ids]
        known[ids] = places
        if ((before >= 0) & (before != places)).any() or (known[ids] != places).any():
            return False
    return True
