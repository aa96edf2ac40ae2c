"""AgentX-style load: recorded or generated agent sessions, replayed turn by turn."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from results.errors import InputError
from workloads.content import base_seed
from workloads.profile import AGENTX_V1, PROFILES, Profile
from workloads.prompt import MARKER_TOKENS, Tokens, marked, seed_of
from workloads.replay import Replay, replay, session
from workloads.session import Key, Session, Turn
from workloads.synthesis import LEAST_LIMIT, synthesize
from workloads.weka import Trace, corpus, read

WARMUP_OUTPUT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentX:
    """Agent sessions in file order, over and over: of `traces`, or `generated` ones.

    `traces` is a weka file (.json, .jsonl, .gz of either) or a folder of them; without it,
    `generated` sessions are made from `trace_seed`. `context_limit` drops recorded traces that
    need more tokens, and scales generated ones down to it; `first` keeps that many of what is left.

    With a `profile`, sessions are lanes under way since long, as that profile says: see
    docs/agentx-rules.md. Without one they start at their first turn, and `max_delay` seconds are
    the longest delay.
    """

    kind: Literal["agentx"] = "agentx"
    profile: Literal["agentx-v1", "agentx-fast", "aiperf-mvp-0.13", "ci-synth"] | None = None
    traces: str | None = None
    generated: Annotated[int, Ge(1), Le(100_000)] = 24
    trace_seed: Annotated[int, Ge(0)] = 0
    context_limit: Tokens | None = None
    first: Annotated[int, Ge(1)] | None = None
    max_delay: Annotated[float, Ge(0), Le(1e8)] | None = None

    def __post_init__(self) -> None:
        if self.profile is not None and self.max_delay is not None:
            raise ValueError("max_delay changes what the profile says of delays: drop one of them")
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
        source = Path(self.traces).stem if self.traces else "generated"
        return f"agentx {source} {self.profile}" if self.profile else f"agentx {source}"

    @property
    def rules(self) -> Profile | None:
        """The profile by which it is replayed, if any."""
        return PROFILES[self.profile] if self.profile else None

    def identity(self) -> dict[str, Any]:
        """Its settings, with hashes of the traces and the profile, and how many traces fit."""
        told = asdict(self) | {"traces": corpus(self.traces) if self.traces else None}
        if self.rules is not None:
            told["profile_hash"] = self.rules.hash
        if self.traces is not None and self.context_limit is not None:
            told["fitting"] = [len(self._fitting()), len(read(self.traces))]
        return told

    def sessions(self, seed: int) -> Iterator[Session]:
        """Sessions without end, the same for the same seed."""
        base = base_seed(seed)
        for trace in cycle(self._chosen()):
            yield session(replay(trace, AGENTX_V1, base, marker_first=True), self.max_delay)

    def replays(self, seed: int) -> Iterator[Replay]:
        """Replays by the profile without end, each trace made once, the same for the same seed."""
        assert self.rules is not None
        base = base_seed(seed)
        made: dict[str, Replay] = {}
        for trace in cycle(self._chosen()):
            if trace.id not in made:
                made[trace.id] = replay(trace, self.rules, base)
            yield made[trace.id]

    @property
    def pool(self) -> int:
        """How many different traces there are."""
        return len(self._chosen())

    def intended(self) -> dict[str, dict[str, float]]:
        """Quantiles of what one pass over all traces sends: tokens, and requests a session.

        Of all that were given, also those that do not fit: a workload that shrank must show.
        """
        traces = self._chosen() if self.traces is None else read(self.traces)
        calls = [call for trace in traces for call in trace.all_calls()]
        told = {
            "input": [call.input for call in calls],
            "output": [max(1, call.output) for call in calls],
            "turns": [sum(1 for _ in trace.all_calls()) for trace in traces],
        }
        return {
            name: {f"p{share}": float(np.percentile(values, share)) for share in (10, 50, 90, 99)}
            for name, values in told.items()
        }

    def departures(self) -> Iterator[str]:
        """In what the traces are not those that the profile is defined over."""
        rules = self.rules
        if rules is None:
            return
        if not rules.published:
            yield f"{rules.id} is for a look, and its results are never published"
        if self.traces is None and not rules.generated:
            yield f"sessions are generated, and {rules.id} replays recorded ones"
        if self.traces is not None and self.context_limit is not None:
            fitting, known = len(self._fitting()), len(read(self.traces))
            if fitting < known:
                yield f"{known - fitting} of {known} traces are left out by context_limit"
        if rules.traces is not None and self.pool != rules.traces:
            yield f"traces: {self.pool}, not the {rules.traces} of {rules.id}"

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
        traces = self._fitting()
        if not traces:
            raise InputError(
                f"{self.traces}: no trace fits context_limit {self.context_limit}: raise it"
            )
        return traces[: self.first]

    def _fitting(self) -> Sequence[Trace]:
        """The recorded traces that keep to the limit."""
        assert self.traces is not None
        limit = inf if self.context_limit is None else self.context_limit
        return tuple(trace for trace in read(self.traces) if trace.peak <= limit)
