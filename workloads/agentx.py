"""AgentX-style load: recorded or generated agent sessions, replayed turn by turn."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import cycle
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from results.errors import InputError
from workloads.layout import prompts
from workloads.prompt import MARKER_TOKENS, Prompt, Tokens, marked, seed_of
from workloads.session import Key, Session, Turn
from workloads.synthesis import LEAST_LIMIT, synthesize
from workloads.weka import EPSILON, Agent, Call, Trace, corpus, read

WARMUP_OUTPUT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentX:
    """Agent sessions in file order, over and over: of `traces`, or `generated` ones.

    `traces` is a weka file (.json, .jsonl, .gz of either) or a folder of them; without it,
    `generated` sessions are made from `trace_seed`. `context_limit` drops recorded traces that
    need more tokens, and scales generated ones down to it; `first` keeps that many of what is left.
    A delay is at most `max_delay` seconds.

    Replayed are chat roles, content sharing within a trace, delays, spawns, and joins, which may
    be later turns than the next. Not replayed: preamble peeling, detection of flattened agents,
    happens-before edges between streams, model names.
    """

    kind: Literal["agentx"] = "agentx"
    traces: str | None = None
    generated: Annotated[int, Ge(1), Le(100_000)] = 24
    trace_seed: Annotated[int, Ge(0)] = 0
    context_limit: Tokens | None = None
    first: Annotated[int, Ge(1)] | None = None
    max_delay: Annotated[float, Ge(0), Le(1e8)] | None = None

    def __post_init__(self) -> None:
        if self.traces is not None and (self.generated, self.trace_seed) != (24, 0):
            raise ValueError("generated and trace_seed are for sessions without traces: drop them")
        if self.traces is not None:
            return
        if self.first is not None and self.first > self.generated:
            raise ValueError(f"first {self.first} is more than generated {self.generated}")
        if self.context_limit is not None and self.context_limit < LEAST_LIMIT:
            raise ValueError(
                f"context_limit {self.context_limit} is too small to generate sessions for: "
                f"say at least {LEAST_LIMIT}"
            )

    def check(self) -> None:
        """Raises InputError when the traces cannot be read or none fits."""
        self._chosen()

    @property
    def label(self) -> str:
        """The kind and its size, for names and tables."""
        return f"agentx {Path(self.traces).stem if self.traces else 'generated'}"

    def identity(self) -> dict[str, Any]:
        """Its settings, with a hash of the traces in place of where they lie."""
        return asdict(self) | {"traces": corpus(self.traces) if self.traces else None}

    def sessions(self, seed: int) -> Iterator[Session]:
        """Sessions without end, the same for the same seed."""
        base = seed_of(seed, "dataset.coding_content.corpus")
        for trace in cycle(self._chosen()):
            yield session(trace, base, self.max_delay)

    def warmup(self, seed: int) -> Iterator[Session]:
        """One turn each of the least, the greatest and the quartile prompt lengths."""
        calls = [call for trace in self._chosen() for call in trace.all_calls()]
        lengths = np.array([call.input + MARKER_TOKENS for call in calls])
        shapes = np.unique(np.quantile(lengths, [0, 0.25, 0.5, 0.75, 1], method="nearest"))
        for number, length in enumerate(shapes.tolist()):
            trace = f"warm-up-{number}"
            prompt = marked((seed_of(seed, self.kind, trace), length), messages=(("user", 2),))
            yield Session(
                trace=trace, turns=(Turn(key=Key(trace, 0), prompt=prompt, output=WARMUP_OUTPUT),)
            )

    def _chosen(self) -> Sequence[Trace]:
        if self.traces is None:
            return synthesize(self.generated, self.trace_seed, self.context_limit)[: self.first]
        traces = read(self.traces)
        if self.context_limit is not None:
            traces = tuple(trace for trace in traces if trace.peak <= self.context_limit)
        if not traces:
            raise InputError(
                f"{self.traces}: no trace fits context_limit {self.context_limit}: raise it"
            )
        return traces[: self.first]


def session(trace: Trace, base_seed: int, max_delay: float | None = None) -> Session:
    """The session of a trace, its block contents made from `base_seed`.

    A sub-agent spawns when the main turn before it has ended, and is joined by the first later
    main turn that was recorded after its end; without one it runs in the background, and without a
    main turn before it, it is dropped.
    """
    block_seed = cache(lambda number: seed_of(base_seed, trace.id, number))
    limit = inf if max_delay is None else max_delay
    began = trace.calls[0].start
    spawned: defaultdict[int, list[Turn]] = defaultdict(list)
    joined: defaultdict[int, list[Key]] = defaultdict(list)
    for agent in trace.agents:
        if not agent.place:
            continue
        stream = f"{trace.id}::sa:{agent.id}"
        spawn = agent.place - 1
        sent = prompts(stream, agent.calls, agent.preamble, block_seed)
        origin = (Key(trace.id, spawn), trace.calls[spawn].end)
        spawned[spawn] += _turns(stream, agent.calls, sent, limit, origin, depth=1)
        join = _join(trace.calls, agent)
        if join is not None:
            joined[join].append(Key(stream, len(agent.calls) - 1))
    sent = prompts(trace.id, trace.calls, trace.preamble, block_seed)
    turns: list[Turn] = []
    for number, turn in enumerate(_turns(trace.id, trace.calls, sent, limit)):
        turns += [replace(turn, after=tuple(joined[number])), *spawned[number]]
    return Session(trace=trace.id, turns=tuple(_since(began, turn) for turn in turns))


def _since(began: float, turn: Turn) -> Turn:
    """The turn with its moment counted from the session's start."""
    return turn if turn.recorded is None else replace(turn, recorded=turn.recorded - began)


def _turns(
    stream: str,
    calls: Sequence[Call],
    sent: Sequence[Prompt],
    limit: float,
    origin: tuple[Key, float] | None = None,
    depth: int = 0,
) -> list[Turn]:
    """The turns of a stream that begins when `origin`, a turn and its recorded end, has ended."""
    turns = []
    for number, (call, prompt) in enumerate(zip(calls, sent, strict=True)):
        previous, ended = origin or (None, call.start)
        key = Key(stream, number)
        turns.append(
            Turn(
                key=key,
                prompt=prompt,
                output=max(1, call.output),
                previous=previous,
                delay=min(limit, max(0.0, call.start - ended)),
                recorded=call.start,
                depth=depth,
            )
        )
        origin = (key, call.end)
    return turns


def _join(calls: Sequence[Call], agent: Agent) -> int | None:
    """The main turn that waits for the sub-agent, or None where it runs in the background."""
    for number in range(agent.place, len(calls)):
        if calls[number].start + EPSILON >= agent.end:
            return number
    return None
