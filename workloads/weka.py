"""Recorded agent sessions in the weka format, read leniently."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.errors import InputError
from workloads.entry import Entry, Problem, Tell, refuse, shown
from workloads.recording import Stamps, digest, exact, records, stamps, value

BLOCK = 64
"""Tokens in a hashed block; the format knows no other size."""

EPSILON = 1e-6
"""Seconds by which recorded moments may miss one another."""

PREAMBLE = ("tool_tokens", "system_tokens")

TRACE = frozenset(("id", "models", "block_size", "hash_id_scope", "requests", "totals", *PREAMBLE))
REQUEST = frozenset(
    (
        *("t", "type", "model", "in", "out", "hash_ids", "input_types", "output_types", "stop"),
        *("api_time", "think_time", "ttft"),
    )
)
AGENT = frozenset(
    (
        *("t", "type", "agent_id", "subagent_type", "duration_ms", "total_tokens"),
        *("tool_use_count", "status", "requests", "models", *PREAMBLE),
    )
)
"""The fields of a trace, of a request and of a sub-agent."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One recorded request: `start` and `duration` in seconds, lengths in tokens.

    Equal hash ids of one trace are equal blocks at equal places. `first` is the recorded TTFT of a
    streamed answer, None for one that came whole; `aside` holds fields that the format lacks.
    """

    start: float
    duration: float
    input: int
    output: int
    hash_ids: Ids
    model: str = ""
    first: float | None = None
    aside: Mapping[str, Any] = field(default_factory=dict)

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
    """A sub-agent: its calls, how many main calls stand before it, and when it had ended.

    `start` is when it was spawned, None where only its calls tell.
    """

    id: str
    place: int
    end: float
    preamble: int
    calls: tuple[Call, ...]
    start: float | None = None
    aside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A recorded session; `preamble` is the tokens of its tools and system prompt."""

    id: str
    preamble: int
    calls: tuple[Call, ...]
    agents: tuple[Agent, ...]
    aside: Mapping[str, Any] = field(default_factory=dict)

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
    return _parsed(stamps(path))


def stream(path: str) -> Iterator[Trace]:
    """The same traces one at a time, for those who look at each once."""
    return _traces(stamps(path))


def corpus(path: str) -> str:
    """16 hex digits over the content of the files that `read` takes, whatever they are called."""
    return digest(stamps(path))


def share(arrays: Iterable[Ids]) -> list[Ids]:
    """Equal arrays, each a view of the next one where that one begins with it."""
    shared: list[Ids] = []
    sizes: list[int] = []
    latest: Ids = np.zeros(0, dtype=np.int64)
    for array in arrays:
        if not np.array_equal(array[: len(latest)], latest):
            shared += [latest[:size] for size in sizes]
            sizes = []
        latest = array
        sizes.append(len(array))
    return shared + [latest[:size] for size in sizes]


@lru_cache(maxsize=4)
def _parsed(files: Stamps) -> tuple[Trace, ...]:
    return tuple(_traces(files))


def _traces(files: Stamps) -> Iterator[Trace]:
    places: dict[str, str] = {}
    for file, _ in files:
        for place, text in records(Path(file)):
            trace = parse(text, place, places, refuse)
            if trace is not None:
                yield trace
    if not places:
        raise InputError(f"{files[0][0]}: holds no trace")


def parse(text: bytes, place: str, places: dict[str, str], tell: Tell) -> Trace | None:
    """The trace that one JSON value records; `tell` hears of whatever is wrong with it.

    `places` says where each id was read, and learns this one's. None where nothing can be
    replayed. Raises InputError where the text is not one JSON value.
    """
    told: list[Problem] = []
    try:
        trace = _trace(value(text, place), place, told.append, exact_numbers=False)
    except OverflowError:
        told.clear()
        trace = _trace(exact(text, place), place, told.append, exact_numbers=True)
    for problem in told:
        tell(problem)
    if trace is None:
        return None
    if trace.id in places:
        wrong = f'"{trace.id}" is also in {places[trace.id]}; give each its own'
        tell(Problem(place=place, field="id", wrong=wrong, fatal=True))
    places[trace.id] = place
    return trace


def _trace(record: Any, place: str, tell: Tell, *, exact_numbers: bool) -> Trace | None:
    if not isinstance(record, dict):
        wrong = f"expected an object with requests, got {shown(record)}"
        tell(Problem(place=place, field="", wrong=wrong, fatal=True))
        return None
    entry = Entry(values=record, place=place, tell=tell, exact=exact_numbers)
    if record.get("block_size", BLOCK) != BLOCK:
        entry.wrong("block_size", f"{BLOCK}, the only size there is")
    if record.get("hash_id_scope", "local") != "local":
        entry.wrong("hash_id_scope", '"local"')
    main: list[Entry] = []
    agents: dict[str, Agent] = {}
    for request in _requests(entry, ": "):
        if request.values.get("type") != "subagent":
            main.append(request)
        elif request.values.get("requests") != []:
            agent = _agent(request, len(main))
            if agent.id in agents:
                request.wrong("agent_id", "a name that no other sub-agent has")
            agents[agent.id] = agent
    if not main:
        wrong = "expected at least one outside sub-agents, got none"
        tell(Problem(place=place, field="requests", wrong=wrong, fatal=True))
        return None
    preamble = _preamble(entry)
    return _narrow(
        Trace(
            id=entry.text("id"),
            preamble=preamble,
            calls=_calls(main, preamble),
            agents=tuple(agents.values()),
            aside=entry.aside(TRACE),
        )
    )


def _agent(entry: Entry, before: int) -> Agent:
    if not before:
        entry.note("t", "stands before any main request: nothing spawns it, so it is not replayed")
    start = entry.seconds("t")
    preamble = _preamble(entry)
    calls = _calls(_requests(entry, "."), preamble, start)
    end = max((call.end for call in calls), default=start)
    if entry.values.get("duration_ms") is not None:
        end = start + entry.seconds("duration_ms") / 1000
    return Agent(
        id=entry.text("agent_id"),
        place=before,
        end=end,
        preamble=preamble,
        calls=calls,
        start=start,
        aside=entry.aside(AGENT),
    )


def _requests(entry: Entry, separator: str) -> list[Entry]:
    """The requests of a trace or sub-agent, those that are objects."""
    requests = entry.values.get("requests")
    if not isinstance(requests, list) or not requests:
        entry.wrong("requests", "a list of at least one request")
        return []
    found = []
    for number, values in enumerate(requests):
        place = f"{entry.place}{separator}requests[{number}]"
        if isinstance(values, dict):
            found.append(replace(entry, values=values, place=place))
        else:
            wrong = f"expected an object, got {shown(values)}"
            entry.tell(Problem(place=place, field="", wrong=wrong, fatal=True))
    return found


def _calls(entries: list[Entry], preamble: int, origin: float = 0.0) -> tuple[Call, ...]:
    ids = share(entry.ids("hash_ids") for entry in entries)
    system = ceil(preamble / BLOCK)
    if entries and len(ids[0]) < system:
        wrong = (
            f"expected at least {system}, for {preamble} tool and system tokens, got {len(ids[0])}"
        )
        place = entries[0].place
        entries[0].tell(Problem(place=place, field="hash_ids", wrong=wrong, fatal=True))
    calls = []
    latest = -inf
    for entry, hashes in zip(entries, ids, strict=True):
        calls.append(_call(entry, hashes, origin))
        if calls[-1].start < latest:
            entry.note("t", "is earlier than that of the request before: it follows at once")
        latest = calls[-1].start
    return tuple(calls)


def _call(entry: Entry, hash_ids: Ids, origin: float) -> Call:
    if entry.values.get("type", "n") not in ("n", "s"):
        entry.wrong("type", '"n" or "s"')
    start = entry.seconds("t")
    if start + EPSILON < origin:
        entry.note("t", "counts from the sub-agent's start, as in older files: that is added")
        start += origin
    took = entry.seconds("api_time", absent=0.0)
    if entry.values.get("api_time") is None or took < 0:
        entry.note("api_time", "is absent or negative, and counts as 0: the next delay is too long")
    model = entry.values.get("model")
    call = Call(
        start=start,
        duration=max(0.0, took),
        input=entry.whole("in", least=1),
        output=entry.whole("out", least=0),
        hash_ids=hash_ids,
        model=model if isinstance(model, str) else "",
        first=_first(entry),
        aside=entry.aside(REQUEST),
    )
    if call.tail >= BLOCK:
        entry.note("hash_ids", "cover less than the whole blocks of `in`: the rest is new tokens")
    elif len(hash_ids) > call.blocks:
        entry.note("hash_ids", "cover more than the whole blocks of `in`: the rest is dropped")
    return call


def _first(entry: Entry) -> float | None:
    """The recorded TTFT, of a streamed answer that has one."""
    if entry.values.get("type") != "s" or entry.values.get("ttft") is None:
        return None
    return entry.seconds("ttft")


def _preamble(entry: Entry) -> int:
    return sum(entry.whole(name, least=0, absent=0) for name in PREAMBLE)


def _narrow(trace: Trace) -> Trace:
    """The trace with its hash ids numbered by first appearance, where any is beyond 64 bits."""
    if all(call.hash_ids.dtype == np.int64 for call in trace.all_calls()):
        return trace
    names: dict[int, int] = {}

    def narrow(calls: tuple[Call, ...]) -> tuple[Call, ...]:
        ids = share(
            np.array([names.setdefault(i, len(names)) for i in call.hash_ids.tolist()], np.int64)
            for call in calls
        )
        return tuple(
            replace(call, hash_ids=of_call) for call, of_call in zip(calls, ids, strict=True)
        )

    agents = (replace(agent, calls=narrow(agent.calls)) for agent in trace.agents)
    return replace(trace, calls=narrow(trace.calls), agents=tuple(agents))
