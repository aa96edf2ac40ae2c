"""What a set of traces looks like: the distributions by which agent corpora are published."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from results.figure import Figure, Unit
from results.quantile import too_small
from workloads.ceiling import reuses
from workloads.layout import common
from workloads.prompt import MARKER_TOKENS
from workloads.weka import BLOCK, Agent, Call, Trace

UNITS: Mapping[str, Unit] = {
    "main_turns": "count",
    "main_input": "tokens",
    "agent_input": "tokens",
    "input": "tokens",
    "main_output": "tokens",
    "output": "tokens",
    "new": "tokens",
    "later_new": "tokens",
    "gap": "s",
    "context": "tokens",
    "agents": "count",
    "agent_turns": "count",
    "parallel_agents": "count",
}
"""The distributions, and the unit of each."""

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}

LONG_GAPS = {"gap.beyond_300": 300.0, "gap.beyond_1800": 1800.0}

ENGINE_BLOCKS = (16, 64, 256)
"""Cache blocks of engines, in tokens, for which the ceiling is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """The samples of every distribution, and what is counted over all sessions.

    `seen` and `blocks` are recorded blocks, `cached` the tokens that engines with these cache
    blocks find of `sent`, which has the marker. `busy` and `recorded` are seconds: with a request
    in flight, and from first start to last end.
    """

    samples: Mapping[str, NDArray[np.float64]]
    sessions: int
    with_agents: int
    seen: int
    blocks: int
    cached: Mapping[int, int]
    sent: int
    busy: float
    recorded: float


def describe(traces: Iterable[Trace]) -> Portrait:
    """The portrait of these traces, which are looked at one by one.

    New tokens of a request are those that the one before it in its stream does not begin with, so
    all of a first one; `later_new` leaves the first ones out. A gap is from the end of a main
    request to the start of the next. `context` is a session's average main input over time.
    """
    samples: defaultdict[str, list[float]] = defaultdict(list)
    totals: Counter[str] = Counter()
    cached: Counter[int] = Counter()
    busy = recorded = 0.0
    for trace in traces:
        for name, values in _samples(trace):
            samples[name] += values
        totals.update(sessions=1, with_agents=int(bool(trace.agents)))
        for reuse in reuses(trace):
            totals.update(seen=reuse.seen, blocks=reuse.blocks, sent=MARKER_TOKENS + reuse.input)
            cached.update({block: reuse.cached(block, MARKER_TOKENS) for block in ENGINE_BLOCKS})
        worked, lasted = _busy(trace)
        busy, recorded = busy + worked, recorded + lasted
    return Portrait(
        samples={name: np.array(samples[name]) for name in UNITS},
        sessions=totals["sessions"],
        with_agents=totals["with_agents"],
        seen=totals["seen"],
        blocks=totals["blocks"],
        cached=dict(cached),
        sent=totals["sent"],
        busy=busy,
        recorded=recorded,
    )


def figures(portrait: Portrait) -> dict[str, Figure]:
    """Every figure of a portrait: `main_input.p50`, `gap.mean`, `hit`.

    A percentile of too few samples has no value but a reason, as has the share of nothing.
    """
    made: dict[str, Figure] = {}
    for name, unit in UNITS.items():
        values = portrait.samples[name]
        for statistic, share in QUANTILES.items():
            made[f"{name}.{statistic}"] = _quantile(values, share, unit)
        made[f"{name}.mean"] = _ratio(values.sum(), len(values), unit, len(values))
    gaps = portrait.samples["gap"]
    for name, limit in LONG_GAPS.items():
        made[name] = _ratio((gaps > limit).sum(), len(gaps), "share", len(gaps))
    return made | _overall(portrait)


def _overall(portrait: Portrait) -> dict[str, Figure]:
    sessions, samples = portrait.sessions, portrait.samples
    output, given = float(samples["output"].sum()), float(samples["input"].sum())
    requests, main = len(samples["input"]), len(samples["main_input"])
    missed = portrait.blocks - portrait.seen
    return {
        "requests": _ratio(requests, sessions, "count", sessions),
        "main_requests": _ratio(main, sessions, "count", sessions),
        "agent_requests": _ratio(requests - main, sessions, "count", sessions),
        "input_tokens": _ratio(given, sessions, "tokens", sessions),
        "output_tokens": _ratio(output, sessions, "tokens", sessions),
        "input_per_output": _ratio(given, output, "count", requests),
        "agent_groups": _ratio(len(samples["agent_turns"]), sessions, "count", sessions),
        "with_agents": _ratio(portrait.with_agents, sessions, "share", sessions),
        "hit": _ratio(portrait.seen, portrait.blocks, "share", requests),
        "missed": _ratio(missed, portrait.blocks, "share", requests),
        "prefill_per_output": _ratio(missed * BLOCK, output, "count", requests),
        "busy": _ratio(portrait.busy, portrait.recorded, "share", sessions),
        "idle": _ratio(portrait.recorded - portrait.busy, portrait.recorded, "share", sessions),
        **{
            f"ceiling_{block}": _ratio(
                portrait.cached.get(block, 0), portrait.sent, "share", requests
            )
            for block in ENGINE_BLOCKS
        },
    }


def _samples(trace: Trace) -> Iterator[tuple[str, list[float]]]:
    streams = [trace.calls, *(agent.calls for agent in trace.agents)]
    main, inner = trace.calls, [call for agent in trace.agents for call in agent.calls]
    new = [_new(stream) for stream in streams]
    yield "main_turns", [len(main)]
    yield "main_input", [call.input for call in main]
    yield "agent_input", [call.input for call in inner]
    yield "input", [call.input for call in (*main, *inner)]
    yield "main_output", [call.output for call in main]
    yield "output", [call.output for call in (*main, *inner)]
    yield "new", [tokens for stream in new for tokens in stream]
    yield "later_new", [tokens for stream in new for tokens in stream[1:]]
    yield "gap", [max(0.0, after.start - before.end) for before, after in pairwise(main)]
    yield "context", _context(main)
    if trace.agents:
        yield "agents", [len(trace.agents)]
        yield "agent_turns", [len(agent.calls) for agent in trace.agents]
        yield "parallel_agents", [_peak(trace.agents)]


def _new(calls: Sequence[Call]) -> list[float]:
    """The tokens of each call that the one before it does not begin with."""
    kept = (common(before, after) for before, after in pairwise(calls))
    return [
        calls[0].input,
        *(call.input - blocks * BLOCK for call, blocks in zip(calls[1:], kept, strict=True)),
    ]


def _context(calls: Sequence[Call]) -> list[float]:
    """The average over time of the main input that was last sent, where any time passed."""
    lengths = [max(0.0, after.start - before.start) for before, after in pairwise(calls)]
    held = sum(call.input * seconds for call, seconds in zip(calls[:-1], lengths, strict=True))
    return [held / sum(lengths)] if sum(lengths) else []


def _peak(agents: Sequence[Agent]) -> int:
    """How many sub-agents were at work at once at most."""
    moments = [(agent.end, -1) for agent in agents]
    moments += [(min(call.start for call in agent.calls), 1) for agent in agents]
    alive = peak = 0
    for _, change in sorted(moments):
        alive += change
        peak = max(peak, alive)
    return peak


def _busy(trace: Trace) -> tuple[float, float]:
    """Seconds with any request in flight, and from the first start to the last end."""
    spans = sorted((call.start, call.end) for call in trace.all_calls())
    busy, until = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy, until - spans[0][0]


def _quantile(values: NDArray[np.float64], share: float, unit: Unit) -> Figure:
    if not len(values):
        return Figure(value=None, unit=unit, n=0, reason="there is none")
    small = too_small(len(values), share, f"{values.max():.4g} {unit}")
    value = None if small else float(np.quantile(values, share))
    return Figure(value=value, unit=unit, n=len(values), reason=small)


def _ratio(part: float, whole: float, unit: Unit, n: int) -> Figure:
    if not whole:
        return Figure(value=None, unit=unit, n=n, reason="there is none")
    return Figure(value=float(part) / float(whole), unit=unit, n=n)
