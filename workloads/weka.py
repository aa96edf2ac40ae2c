"""Recorded agent sessions in the weka format, read leniently."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from results.errors import InputError

BLOCK = 64
"""Tokens in a hashed block; the format knows no other size."""

EPSILON = 1e-6
"""Seconds by which recorded moments may miss one another."""

PREAMBLE = ("tool_tokens", "system_tokens")
LONGEST_SHOWN = 60

MOST = 1_000_000_000
"""A length or a moment beyond this is a mistake."""

Ids = NDArray[np.int64]
Stamps = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One recorded request: `start` and `duration` in seconds, lengths in tokens.

    Equal hash ids of one trace are equal blocks at equal places.
    """

    start: float
    duration: float
    input: int
    output: int
    hash_ids: Ids

    @property
    def end(self) -> float:
        """When the answer was complete."""
        return self.start + self.duration

    @property
    def blocks(self) -> int:
        """How many whole blocks the hash ids cover."""
        return min(len(self.hash_ids), self.input // BLOCK)

    @property
    def tail(self) -> int:
        """The tokens after the covered blocks."""
        return self.input - self.blocks * BLOCK


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agent:
    """A sub-agent: its calls, how many main calls stand before it, and when it had ended."""

    id: str
    place: int
    end: float
    preamble: int
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A recorded session; `preamble` is the tokens of its tools and system prompt."""

    id: str
    preamble: int
    calls: tuple[Call, ...]
    agents: tuple[Agent, ...]

    def all_calls(self) -> Iterator[Call]:
        """The calls of the main stream, then those of each sub-agent."""
        yield from self.calls
        for agent in self.agents:
            yield from agent.calls

    @property
    def peak(self) -> int:
        """The largest input and output of one call together."""
        return max(call.input + max(1, call.output) for call in self.all_calls())


def read(path: str) -> tuple[Trace, ...]:
    """The traces of a .json or .jsonl file, gzipped or not, or of a folder's in name order.

    A file that has not changed is parsed once. Raises InputError, naming file, line or request and
    field, for whatever cannot be read.
    """
    return _parsed(_stamps(path))


def corpus(path: str) -> str:
    """16 hex digits over the content of the files that `read` takes, whatever they are called."""
    return _digest(_stamps(path))


def _stamps(path: str) -> Stamps:
    """Each file with the moment of its last change."""
    try:
        return tuple((str(file), file.stat().st_mtime_ns) for file in _files(Path(path)))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=4)
def _digest(stamps: Stamps) -> str:
    digest = hashlib.sha256()
    for file, _ in stamps:
        digest.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()[:16]


def share(arrays: Sequence[Ids]) -> list[Ids]:
    """Equal arrays, each a view of the next one where that one begins with it."""
    shared = list(arrays)
    for place in reversed(range(len(shared) - 1)):
        view = shared[place + 1][: len(shared[place])]
        if np.array_equal(view, shared[place]):
            shared[place] = view
    return shared


def _files(path: Path) -> list[Path]:
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _format(file))
    for file in files:
        # Reading a pipe or a device might never end.
        if file.exists() and not file.is_file():
            raise InputError(f"{file}: is not a file: take it out, or name the traces themselves")
    if not files:
        raise InputError(f"{path}: has no .json or .jsonl file (.gz is fine too)")
    return files


def _format(path: Path) -> str | None:
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    return suffix if suffix in {".json", ".jsonl"} else None


@lru_cache(maxsize=4)
def _parsed(stamps: Stamps) -> tuple[Trace, ...]:
    places: dict[str, str] = {}
    traces = []
    for file, _ in stamps:
        for place, record in _records(Path(file)):
            trace = _trace(record, place)
            if trace.id in places:
                raise InputError(
                    f'{place}: id: "{trace.id}" is also in {places[trace.id]}; give each its own'
                )
            places[trace.id] = place
            traces.append(trace)
    if not traces:
        raise InputError(f"{stamps[0][0]}: holds no trace")
    return tuple(traces)


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """Each JSON value of a file, with its place in words."""
    form = _format(path)
    if form is None:
        raise InputError(f"{path}: expected a .json or .jsonl file (.gz is fine too) or a folder")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if form == ".json":
                yield str(path), _json(file.read(), str(path))
                return
            for number, line in enumerate(file, start=1):
                if line.strip():
                    place = f"{path}: line {number}"
                    yield place, _json(line, place)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _json(text: bytes, place: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{place}: is not one JSON value: {error}") from error


def _trace(record: Any, place: str) -> Trace:
    entries = _entries(record, place)
    if record.get("block_size", BLOCK) != BLOCK:
        raise _refusal(record, "block_size", place, f"{BLOCK}, the only size there is")
    if record.get("hash_id_scope", "local") != "local":
        raise _refusal(record, "hash_id_scope", place, '"local"')
    calls: list[tuple[str, dict[str, Any]]] = []
    agents: dict[str, Agent] = {}
    for where, entry in entries:
        if entry.get("type") != "subagent":
            calls.append((where, entry))
        elif entry.get("requests") != []:
            agent = _agent(entry, where, len(calls))
            if agent.id in agents:
                raise _refusal(entry, "agent_id", where, "a name that no other sub-agent has")
            agents[agent.id] = agent
    if not calls:
        raise InputError(f"{place}: requests: expected at least one outside sub-agents, got none")
    preamble = _preamble(record, place)
    return Trace(
        id=_text(record, "id", place),
        preamble=preamble,
        calls=_calls(calls, preamble),
        agents=tuple(agents.values()),
    )


def _agent(entry: dict[str, Any], place: str, before: int) -> Agent:
    start = _seconds(entry, "t", place)
    preamble = _preamble(entry, place)
    calls = _calls(_entries(entry, place, separator="."), preamble, start)
    end = max(call.end for call in calls)
    if entry.get("duration_ms") is not None:
        end = start + _seconds(entry, "duration_ms", place) / 1000
    return Agent(
        id=_text(entry, "agent_id", place), place=before, end=end, preamble=preamble, calls=calls
    )


def _calls(
    entries: list[tuple[str, dict[str, Any]]], preamble: int, origin: float = 0.0
) -> tuple[Call, ...]:
    ids = share([_ids(entry, place) for place, entry in entries])
    system = ceil(preamble / BLOCK)
    if len(ids[0]) < system:
        raise InputError(
            f"{entries[0][0]}.hash_ids: expected at least {system}, for {preamble} tool and system "
            f"tokens, got {len(ids[0])}"
        )
    return tuple(
        _call(entry, place, hashes, origin)
        for (place, entry), hashes in zip(entries, ids, strict=True)
    )


def _call(entry: dict[str, Any], place: str, hash_ids: Ids, origin: float) -> Call:
    if entry.get("type", "n") not in {"n", "s"}:
        raise _refusal(entry, "type", place, '"n" or "s"')
    start = _seconds(entry, "t", place)
    # Older files count a sub-agent's times from its spawn.
    if start + EPSILON < origin:
        start += origin
    return Call(
        start=start,
        duration=max(0.0, _seconds(entry, "api_time", place, absent=0.0)),
        input=_whole(entry, "in", place, least=1),
        output=_whole(entry, "out", place, least=0),
        hash_ids=hash_ids,
    )


def _entries(record: Any, place: str, separator: str = ": ") -> list[tuple[str, dict[str, Any]]]:
    """The requests of a trace or sub-agent, each with its place in words."""
    if not isinstance(record, dict):
        raise InputError(f"{place}: expected an object with requests, got {_shown(record)}")
    requests = record.get("requests")
    if not isinstance(requests, list) or not requests:
        raise _refusal(record, "requests", place, "a list of at least one request")
    placed = [(f"{place}{separator}requests[{n}]", entry) for n, entry in enumerate(requests)]
    for where, entry in placed:
        if not isinstance(entry, dict):
            raise InputError(f"{where}: expected an object, got {_shown(entry)}")
    return placed


def _ids(entry: dict[str, Any], place: str) -> Ids:
    value = entry.get("hash_ids")
    try:
        ids = np.array(value if isinstance(value, list) else None)
    except ValueError:
        ids = np.array(None)
    if ids.shape == (0,):
        return np.zeros(0, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype != np.int64:
        raise _refusal(entry, "hash_ids", place, "a list of whole numbers")
    return ids


def _preamble(record: dict[str, Any], place: str) -> int:
    return sum(_whole(record, name, place, least=0, absent=0) for name in PREAMBLE)


def _text(record: dict[str, Any], name: str, place: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise _refusal(record, name, place, "a text")
    return value


def _whole(
    record: dict[str, Any], name: str, place: str, *, least: int, absent: int | None = None
) -> int:
    value = record.get(name)
    value = absent if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise _refusal(record, name, place, f"a whole number from {least} to {MOST:,}")
    return value


def _seconds(
    record: dict[str, Any], name: str, place: str, *, absent: float | None = None
) -> float:
    value = record.get(name)
    value = absent if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= MOST:
        raise _refusal(record, name, place, f"a number from {-MOST:,} to {MOST:,}")
    return float(value)


def _refusal(record: dict[str, Any], name: str, place: str, wanted: str) -> InputError:
    dot = "." if place.endswith("]") else ": "
    got = _shown(record[name]) if name in record else "nothing"
    return InputError(f"{place}{dot}{name}: expected {wanted}, got {got}")


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
