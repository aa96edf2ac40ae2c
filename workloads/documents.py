"""The questions of the tasks that ship here, out of a user's file or the Hugging Face hub."""

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from results.errors import InputError
from workloads import arithmetic
from workloads.extraction import number
from workloads.recording import Stamps, records, stamps, value

Row = Mapping[str, Any]
Document = dict[str, str]
"""A question as its task file reads it; `id` stays the same whatever else is asked."""

GSM8K, GPQA, ARITHMETIC = "gsm8k", "gpqa-diamond", "paceline-arithmetic"
OWN = (GSM8K, GPQA, ARITHMETIC)

SIZES = {GSM8K: 1319, GPQA: 198, ARITHMETIC: arithmetic.QUESTIONS}

OPTIONS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
LETTERS = "ABCD"

_HUB = {
    GSM8K: ("openai/gsm8k", "main", "test"),
    GPQA: ("Idavidrein/gpqa", "gpqa_diamond", "train"),
}
_COLUMNS = {GSM8K: ("question", "answer"), GPQA: ("Record ID", "Question", *OPTIONS)}


_ONE_NUMBER = re.compile(r"\D*[\d.,/]+\D*")


def perm(question: str, seed: int, epoch: int) -> tuple[int, ...]:
    """In which order the options of a question are shown, by where they stood.

    By the SHA-256 of `seed:epoch:question:option`, so of nothing else: neither of the other
    questions, nor of processes, caches or the order of calls.
    """

    def place(option: int) -> str:
        return hashlib.sha256(f"{seed}:{epoch}:{question}:{option}".encode()).hexdigest()

    return tuple(sorted(range(len(OPTIONS)), key=place))


def rows(task: str, path: str | None) -> list[Row]:
    """The rows of a task's data; raises InputError where they are not to be had as they should."""
    if task == ARITHMETIC:
        if path:
            raise InputError(f"{task} is made here and reads no file: remove data")
        return list(arithmetic.questions())
    return list(_read(task, stamps(path)) if path else _fetched(task))


def documents(task: str, found: Iterable[Row], *, seed: int, epoch: int) -> list[Document]:
    """The rows as the task file reads them, in their order."""
    made = [_choice(row, seed, epoch) if task == GPQA else _problem(row) for row in found]
    twice = [name for name, count in Counter(one["id"] for one in made).items() if count > 1]
    if twice:
        raise InputError(
            f"{task}: question {twice[0]} is there more than once, and would count as often: leave "
            "it out, or give each an id of its own"
        )
    return made


def key(task: str, path: str) -> dict[str, str]:
    """The right answer of each question of a file by its text: a number, or the option's words."""
    if task == GPQA:
        return {row["Question"].strip(): row[OPTIONS[0]].strip() for row in rows(task, path)}
    return {made["question"]: made["target"] for made in map(_problem, rows(task, path))}


def task_of(path: str) -> str:
    """The task whose data a file holds, by its suffix."""
    return GPQA if path.endswith(".csv") else GSM8K


@lru_cache(maxsize=4)
def _read(task: str, files: Stamps) -> tuple[Row, ...]:
    ((path, _),) = files
    if task == GPQA:
        found = _table(Path(path))
    else:
        found = [(place, value(text, place)) for place, text in records(Path(path))]
    if not found:
        raise InputError(f"{path}: has no question")
    for place, row in found:
        missing = [name for name in _COLUMNS[task] if not _told(row, name)]
        if missing:
            raise InputError(
                f"{place}: expected {', '.join(_COLUMNS[task])}, got nothing for {missing[0]}: "
                f"is this the data of {task}?"
            )
    return tuple(row for _, row in found)


def _told(row: Any, name: str) -> bool:
    return isinstance(row, dict) and isinstance(row.get(name), str) and bool(row[name].strip())


def _table(path: Path) -> list[tuple[str, Row]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [(f"{path}: row {n}", row) for n, row in enumerate(csv.DictReader(file), 1)]
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as CSV: {type(error).__name__}") from error


def _fetched(task: str) -> Iterable[Row]:
    import datasets  # noqa: PLC0415 - takes seconds, and only the hub needs it

    path, name, split = _HUB[task]
    try:
        found: Iterable[Row] = datasets.load_dataset(path, name, split=split)
    except Exception as error:  # datasets raises whatever its many parts raise
        raise InputError(
            f"{task}: {path} cannot be had from the Hugging Face hub ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else 'no reason given'}): state its file "
            "as data, or log in there"
        ) from error
    return found


def _problem(row: Row) -> Document:
    said = row["answer"].rpartition("####")[2].strip()
    target = number(said) if _ONE_NUMBER.fullmatch(said) else None
    if target is None:
        raise InputError(
            f"a question has not one number after #### in its answer: {row['answer']!r}"
        )
    question = row["question"].strip()
    name = row.get("id") or hashlib.sha256(question.encode()).hexdigest()[:16]
    return {"id": name, "question": question, "answer": row["answer"], "target": target}


def _choice(row: Row, seed: int, epoch: int) -> Document:
    name = row["Record ID"].strip()
    order = perm(name, seed, epoch)
    shown = {LETTERS[at]: row[OPTIONS[option]].strip() for at, option in enumerate(order)}
    target = LETTERS[order.index(0)]
    return {"id": name, "question": row["Question"].strip(), "target": target, **shown}
