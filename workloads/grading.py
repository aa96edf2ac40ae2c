"""What became of every question, as graded rows, and what was asked, as evidence."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from results.answers import SCHEMA, STOPPED, key_hash, questions_hash
from results.evidence import Asked
from workloads.chat import Chat
from workloads.extraction import THOUGHT, answer_part

if TYPE_CHECKING:
    from workloads.exam import Exam, Grade, Question

UNASKED = "never asked: the load ended before its turn came"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of the last request for a question; absent is None. `retries` came before it."""

    request: str
    state: str
    reason: str | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    retries: int = 0
    text: str | None = None
    reasoning: str | None = None


Place = tuple[str, int]
"""A question and an epoch."""

_NEVER = Answer(request="", state="cut", reason=UNASKED)


def graded(exam: "Exam", chats: Iterable[Chat], answers: Mapping[Place, Answer]) -> pa.Table:
    """A row of results.answers for each question and epoch; what failed has no score."""
    sent = {(chat.question, chat.epoch): chat for chat in chats}
    read = {
        place: _read(answer, exam.stop, thinks=bool(sent[place].thinking))
        for place, answer in answers.items()
    }
    grades = exam.grades({place: text for place, (text, _) in read.items()})
    rows = [
        _row(
            exam,
            question,
            sent[place].hash,
            answers.get(place, _NEVER),
            read.get(place, ("", False)),
            grades[place],
        )
        for question in exam.questions
        for place in [(question.id, question.epoch)]
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def asked(exam: "Exam", table: pa.Table, chat: Chat, most: int, *, made_up: bool | None) -> Asked:
    """The evidence of what was asked, `chat` being one of its questions.

    `made_up` says whether the server accepts drafts without looking, where anybody knows.
    """
    sampling = {
        "temperature": chat.temperature,
        "top_p": chat.top_p,
        "max_tokens": most,
        "stop": list(exam.stop),
    }
    return Asked(
        task=exam.name,
        version=exam.version,
        lm_eval=metadata.version("lm_eval"),
        questions=len({question.id for question in exam.questions}),
        questions_hash=questions_hash(table),
        key_hash=key_hash(table),
        shots=exam.shots,
        epochs=max(question.epoch for question in exam.questions) + 1,
        sampling=sampling,
        thinking=chat.thinking,
        effort=chat.effort,
        headline=exam.headline,
        synthetic_acceptance=made_up,
    )


def _read(answer: Answer, stop: Iterable[str], *, thinks: bool) -> tuple[str, bool]:
    """The part of an answer that is graded, and whether a string ended it.

    Strings end answers here and not at the server, where they would end the reasoning too, and
    some servers take only four of them.
    """
    whole = answer.text or ""
    if thinks and answer.finish_reason == "length" and not (answer.reasoning or THOUGHT in whole):
        # A template may begin the reasoning, whose end is then its only mark.
        return "", False
    part = answer_part(whole)
    ends = [place for one in stop if (place := part.find(one)) >= 0]
    return (part[: min(ends)], True) if ends else (part, False)


def _row(
    exam: "Exam",
    question: "Question",
    prompt_hash: str,
    answer: Answer,
    read: tuple[str, bool],
    grade: "Grade",
) -> dict[str, Any]:
    text, stopped = read
    answered, shown, found = answer.state == "ok", not exam.withheld, grade.extracted
    row: dict[str, Any] = {
        "task": exam.name,
        "question": question.id,
        "epoch": question.epoch,
        "group": question.group if shown or question.group is None else _hash(question.group),
        "prompt_hash": prompt_hash,
        "target_hash": _hash(question.target),
        "request": answer.request,
        "state": answer.state,
        "reason": answer.reason,
        "finish_reason": STOPPED if stopped else answer.finish_reason,
        "truncated": answer.finish_reason == "length" and not stopped,
        "empty": answered and not text.strip(),
        "parsed": answered and found is not None,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "retries": answer.retries,
        "score": grade.scores.get(exam.headline) if answered else None,
        "scores": _scores(grade) if answered else [],
        # A letter says which choice was taken, and nothing of its words.
        "extracted": found if answered and (shown or len(found or "") == 1) else None,
        "text_hash": None if answer.text is None else _hash(answer.text),
    }
    if shown:
        row |= {"target": question.target, "text": answer.text, "reasoning": answer.reasoning}
    return row


def _scores(grade: "Grade") -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in grade.scores.items()]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
