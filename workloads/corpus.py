"""The model of agent sessions, fitted to the published counts of an AgentX corpus."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from workloads.curve import Curve, lognormal

CONTEXTS = (
    "limit",
    "own_limit",
    "fresh_start",
    "resumed_start",
    "kept",
    "summary",
    "most_output",
    "agent_base",
    "agent_start",
    "agent_limit",
)
"""What shrinks with the context limit."""

TURNS = ("turns", "added", "output", "agents", "agent_turns", "agent_added", "agent_output")
"""What shrinks with its square root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What sessions are drawn from: lengths in tokens, gaps in seconds, shares of one.

    Of the sessions, `resumed` begin with a long context and
    `limited` compact at a limit of their own. A main turn compacts by chance, rewrites what
    follows a kept beginning, or edits its last blocks, with the shares of these names. Answers
    take `latency`, then the rates; in tokens a second.
    """

    limit: float
    limited: float
    own_limit: Curve
    turns: Curve
    fresh_start: Curve
    resumed_start: Curve
    resumed: float
    added: Curve
    compaction: float
    rewrite: float
    edit: float
    edited_blocks: int
    kept: Curve
    summary: Curve
    output: Curve
    most_output: float
    gap: Curve
    with_agents: float
    agents: Curve
    agents_a_spawn: Curve
    agent_turns: Curve
    agent_base: float
    agent_start: Curve
    agent_added: Curve
    agent_output: Curve
    agent_limit: float
    agent_gap: Curve
    latency: float
    prefill_rate: float
    decode_rate: float

    def scaled(self, limit: int) -> "Corpus":
        """The same shapes below another limit, for a smaller model or a quick demo.

        Contexts shrink with the limit; turns, and what each adds, with its square root.
        """
        whole = min(1.0, limit / self.limit)
        factors = dict.fromkeys(CONTEXTS, whole) | dict.fromkeys(TURNS, sqrt(whole))
        return replace(
            self, **{name: _times(getattr(self, name), by) for name, by in factors.items()}
        )


def _times(value: Any, factor: float) -> Any:
    return value.times(factor) if isinstance(value, Curve) else value * factor


PUBLISHED = Corpus(
    limit=990_016,
    limited=0.31,
    own_limit=lognormal(430_000, 0.4),
    turns=lognormal(65, 1.27, most=2200),
    fresh_start=lognormal(26_000, 0.45),
    resumed_start=lognormal(110_000, 0.75),
    resumed=0.45,
    added=Curve(
        points=(
            (0.1, 460),
            (0.5, 1710),
            (0.9, 4850),
            (0.98, 23_500),
            (0.99, 48_500),
            (0.999, 118_000),
        ),
        most=200_000,
    ),
    compaction=0.0015,
    rewrite=0.002,
    edit=0.012,
    edited_blocks=8,
    kept=lognormal(30_000, 0.6),
    summary=lognormal(15_000, 0.8),
    output=Curve(points=((0.1, 125), (0.5, 616), (0.9, 3480), (0.99, 10_600), (0.999, 21_000))),
    most_output=65_536,
    gap=Curve(
        points=(
            (0.1, 0.5),
            (0.5, 4.8),
            (0.75, 18),
            (0.9, 121),
            (0.955, 252),
            (0.986, 1750),
            (0.99, 3240),
            (0.999, 64_000),
        ),
        most=604_800,
    ),
    with_agents=0.445,
    agents=lognormal(4, 1.33),
    agents_a_spawn=lognormal(4, 0.4, least=1, most=10),
    agent_turns=lognormal(16, 0.94),
    agent_base=14_500,
    agent_start=lognormal(17_000, 0.3),
    agent_added=Curve(
        points=(
            (0.1, 400),
            (0.5, 1660),
            (0.9, 5250),
            (0.98, 13_000),
            (0.99, 31_500),
            (0.999, 66_000),
        ),
        most=120_000,
    ),
    agent_output=lognormal(282, 1.32),
    agent_limit=420_000,
    agent_gap=lognormal(2.69, 1.49),
    latency=0.7,
    prefill_rate=20_000,
    decode_rate=135,
)
"""The model that `workloads.targets` are met by."""
