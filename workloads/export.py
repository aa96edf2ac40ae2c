"""Traces written as files of the public schema, strictly: no field that it does not know."""

import gzip
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import orjson

from results import document
from results.errors import InputError
from workloads.weka import BLOCK, Agent, Call, Trace

OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def write(traces: Iterable[Trace], path: Path) -> tuple[int, int]:
    """Writes a trace a line, gzipped where the name says .gz; gives how many traces and requests.

    The file is there when it is whole. Raises InputError for another kind of name, FolderError
    where it cannot be written.
    """
    suffixes = path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:]
    if suffixes not in ([".jsonl"], [".jsonl", ".gz"]):
        raise InputError(f"{path}: expected a name that ends in .jsonl or .jsonl.gz")
    written = requests = 0
    with document.published(path) as temporary, _opened(temporary, len(suffixes) > 1) as file:
        for trace in traces:
            file.write(orjson.dumps(record(trace), option=OPTIONS))
            written += 1
            requests += sum(1 for _ in trace.all_calls())
    return written, requests


def record(trace: Trace) -> dict[str, Any]:
    """The trace as the schema has it; models and tokens of the system prompt as they are known."""
    entries: list[dict[str, Any]] = []
    left = list(trace.agents)
    for place, request in enumerate(_requests(trace.calls)):
        while left and left[0].place <= place:
            entries.append(_agent(left.pop(0)))
        entries.append(request)
    return {
        "id": trace.id,
        "models": _models(trace.all_calls()),
        "block_size": BLOCK,
        "hash_id_scope": "local",
        "tool_tokens": 0,
        "system_tokens": trace.preamble,
        "requests": [*entries, *map(_agent, left)],
    }


def _requests(calls: Sequence[Call]) -> Iterator[dict[str, Any]]:
    for number, call in enumerate(calls):
        gap = max(0.0, call.start - calls[number - 1].end) if number else None
        request = {
            "t": call.start,
            "type": "n" if call.first is None else "s",
            "model": call.model,
            "in": call.input,
            "out": call.output,
            "hash_ids": call.hash_ids,
            "api_time": call.duration,
            "think_time": None if gap is None else round(gap, 6),
        }
        yield request if call.first is None else {**request, "ttft": call.first}


def _agent(agent: Agent) -> dict[str, Any]:
    start = min(call.start for call in agent.calls)
    return {
        "t": start,
        "type": "subagent",
        "agent_id": agent.id,
        "subagent_type": "Subagent",
        "duration_ms": max(0, round((agent.end - start) * 1000)),
        "total_tokens": sum(call.input + call.output for call in agent.calls),
        "tool_use_count": None,
        "status": "completed",
        "requests": list(_requests(agent.calls)),
        "models": _models(agent.calls),
        "tool_tokens": 0,
        "system_tokens": agent.preamble,
    }


def _models(calls: Iterable[Call]) -> list[str]:
    """The models by first appearance."""
    return list(dict.fromkeys(call.model for call in calls))


@contextmanager
def _opened(path: Path, zipped: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        if not zipped:
            yield file
            return
        # Without a name and a moment, equal traces are equal files.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield cast("IO[bytes]", packed)
