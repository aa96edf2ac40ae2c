"""The published counts of the cc-traces-weka-062126 corpus, by which generated sessions are judged.

Totals are stated a session. The counts of new tokens do not say whether first requests are among
them: their mean times all requests is about what the cache misses come to, so here they are. The
other reading, `later_new`, is held to the same figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from results.figure import Figure

SESSIONS = 393

NEAR, TAIL = 0.10, 0.20
"""How far, as a share of it, a figure may be from its target: a p99 further than others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A published value, and how far from it, as a share, is still met."""

    value: float
    within: float = NEAR

    def deviation(self, figure: Figure) -> float | None:
        """How far the figure is from the target, as a share of it; None without a figure."""
        return None if figure.value is None else figure.value / self.value - 1

    def met(self, figure: Figure) -> bool:
        """Whether there is a figure and it is near enough."""
        deviation = self.deviation(figure)
        return deviation is not None and abs(deviation) <= self.within


TARGETS: Mapping[str, Target] = {
    "requests": Target(value=98_827 / SESSIONS),
    "main_requests": Target(value=56_798 / SESSIONS),
    "agent_requests": Target(value=42_029 / SESSIONS),
    "input_tokens": Target(value=21_635_381_376 / SESSIONS),
    "output_tokens": Target(value=106_474_498 / SESSIONS),
    "input_per_output": Target(value=203),
    "main_turns.p50": Target(value=65),
    "main_turns.p90": Target(value=330),
    "main_turns.mean": Target(value=144.5),
    "main_input.p50": Target(value=254_080),
    "main_input.p90": Target(value=651_008),
    "main_input.p99": Target(value=897_672, within=TAIL),
    "agent_input.p50": Target(value=64_000),
    "agent_input.p90": Target(value=196_326),
    "input.p50": Target(value=142_016),
    "main_output.p50": Target(value=616),
    "main_output.p90": Target(value=3502),
    "main_output.mean": Target(value=1374),
    "output.p50": Target(value=444),
    "new.p50": Target(value=1664),
    "new.p99": Target(value=46_722, within=TAIL),
    "new.mean": Target(value=3792),
    "later_new.p50": Target(value=1664),
    "later_new.p99": Target(value=46_722, within=TAIL),
    "later_new.mean": Target(value=3792),
    "gap.p50": Target(value=4.9),
    "gap.p90": Target(value=131.5),
    "gap.p99": Target(value=3257, within=TAIL),
    "gap.mean": Target(value=395),
    "gap.beyond_300": Target(value=0.045),
    "gap.beyond_1800": Target(value=0.014),
    "hit": Target(value=0.983088),
    "missed": Target(value=1 - 0.983088),
    "prefill_per_output": Target(value=3.4),
    "idle": Target(value=0.964),
    "busy": Target(value=1 - 0.964),
    "context.mean": Target(value=207_394),
    "with_agents": Target(value=0.445),
    "agents.p50": Target(value=4),
    "agent_groups": Target(value=1697 / SESSIONS),
    "agent_turns.p50": Target(value=16),
    "parallel_agents.p50": Target(value=3),
}
"""What is published, keyed as in `workloads.portrait.figures`."""
