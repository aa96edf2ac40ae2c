"""Run folders of made-up answers to questions, for tests of what compares and shows them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from results import answers, folder
from results.evidence import Asked
from results.run import Run, read
from tests.run_folders import facts
from tests.test_results_record import evidence, made

Scores = Callable[[int], Sequence[float | None]]
"""The score of each question in a repeat; None where the request failed."""


def row(number: int, score: float | None, **changes: Any) -> dict[str, Any]:
    """The answer to a question, and its score."""
    ok = score is not None
    scores = [{"name": "exact_match,strict-match", "value": score}] if ok else []
    told = {
        "task": "sums",
        "question": f"q{number}",
        "epoch": 0,
        "group": None,
        "prompt_hash": digest(f"prompt {number}"),
        "target_hash": digest(f"target {number}"),
        "request": f"request-{number}",
        "state": "ok" if ok else "failed",
        "reason": None if ok else "HTTP 500",
        "finish_reason": "stop" if ok else None,
        "truncated": False,
        "empty": False,
        "parsed": ok,
        "input_tokens": 100,
        "output_tokens": 20 if ok else None,
        "retries": 0,
        "score": score,
        "scores": scores,
        "extracted": "4" if ok else None,
        "target": "4",
        "text": f"The answer is {score}" if ok else None,
        "reasoning": None,
        "text_hash": digest(f"{number} {score}") if ok else None,
    }
    return {**told, **changes}


def digest(words: str) -> str:
    """A short hash, as rows have them."""
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def graded(*rows: Mapping[str, Any]) -> pa.Table:
    """Answers as a table."""
    return pa.Table.from_pylist([dict(one) for one in rows], schema=answers.SCHEMA)


def asked(table: pa.Table, **changes: Any) -> Asked:
    """What the evidence tells of the questions that were asked."""
    told: dict[str, Any] = {
        "task": "sums",
        "version": "1 0123abcd",
        "lm_eval": "0.4.13",
        "questions": table.num_rows,
        "questions_hash": answers.questions_hash(table),
        "key_hash": answers.key_hash(table),
        "shots": 0,
        "epochs": 1,
        "sampling": {"temperature": 0.0, "max_tokens": 512},
        "thinking": None,
        "effort": None,
        "headline": "exact_match,flexible-extract",
        "synthetic_acceptance": False,
    }
    return Asked(**{**told, **changes})


def asked_folder(
    out: Path,
    arms: Mapping[str, Scores],
    repeats: int = 1,
    *,
    salt: int = 0,
    changed: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    told: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Run:
    """A run of the arms in turns, every one of which answered the same questions.

    `changed` alters each answer's row, `told` what the evidence says of the questions.
    """
    order = [(name, repeat) for repeat in range(repeats) for name in arms]
    stated = {"experiment": "sums", "workload": {"kind": "questions"}, **changes}
    points = [
        facts(name, repeat, place, **stated) | {"name": f"sums-{name}-closed-8-r{repeat}"}
        for place, (name, repeat) in enumerate(order)
    ]
    with folder.create(
        out, "suite", "suite: suite\n", {"hash": "0" * 8, "points": points}, {}, salt
    ) as whole:
        for point in points:
            table = graded(
                *(
                    changed(row(number, score))
                    for number, score in enumerate(arms[point["arm"]](point["repeat"]))
                )
            )
            with whole.open_point(point) as writer:
                for number, one in enumerate(table.to_pylist()):
                    stamps = [0.1, 0.2] if one["state"] == "ok" else []
                    failure = {} if stamps else {"state": "failed", "reason": one["reason"]}
                    writer.add(
                        made(
                            stamps,
                            point=point["id"],
                            arm=point["arm"],
                            repeat=point["repeat"],
                            position=point["position"],
                            trace=one["question"],
                            tree=number,
                            request_id=one["request"],
                            prompt_hash=one["prompt_hash"],
                            **failure,
                        )
                    )
                answers.write(writer.path / answers.NAME, table)
                found = replace(evidence(), accuracy=asked(table, **(told or {})))
                writer.finish("finished", None, found, None)
    return read(whole.path)
