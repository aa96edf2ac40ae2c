"""The named definitions of AgentX-style load; runs of different ones are never compared."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What tells agents apart that were recorded as one flat list of requests.

    A call goes on with a context that another call ended with, unless it starts more than
    `longest_gap` seconds later and keeps less than `least_share` of it: that is another agent's.
    `group` overlapping agents from one context are a worker group. An agent of at most
    `aside_calls` calls is an aside if its model differs, or its first input is less than
    `aside_input` tokens or `aside_share` of the main stream's peak; so is a single large call that
    answers with less than `reduction_output` tokens, `reduction_ratio` times smaller than its
    input. A first call that shares nothing is a preamble up to `preamble_output` tokens of output.
    """

    longest_gap: float = 3600.0
    least_share: float = 0.5
    group: int = 3
    aside_calls: int = 1
    aside_input: int = 16_384
    aside_share: float = 0.10
    reduction_output: int = 4000
    reduction_ratio: float = 20.0
    preamble_output: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Every parameter of a replay: seconds, shares from 0 to 1, and None where it has none.

    A lane starts between `start_from` and `start_to` of its trace's time. Warm-up sends a primer
    for each stream under way, then `pressure` further requests a lane. `tree_idle_cap` and
    `system_idle_cap` bound how long a tree, and everything together, may be idle. A turn that joins
    sub-agents keeps its own recorded delay where `joins_keep_delay`, and else follows the last of
    them at once. Where `starts_at_first`, the window opens with the earliest request. A turn that
    only repeats the context is sent whole again where `repeats_are_whole`.
    """

    id: str
    duration: float
    least_duration: float
    start_from: float
    start_to: float
    pressure: int
    warmup_grace: float
    grace: float
    tree_idle_cap: float | None
    system_idle_cap: float
    joins_keep_delay: bool
    starts_at_first: bool
    repeats_are_whole: bool
    seed: int | None
    traces: int | None
    error_share: float | None
    overflow_share: float
    coverage: float | None
    slice: float
    generated: bool = False
    published: bool = True
    detection: Detection = field(default_factory=Detection)

    @property
    def hash(self) -> str:
        """16 hex digits over every parameter."""
        told = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


AGENTX_V1 = Profile(
    id="agentx-v1",
    duration=3600.0,
    least_duration=900.0,
    start_from=0.25,
    start_to=0.75,
    pressure=10,
    warmup_grace=1800.0,
    grace=30.0,
    tree_idle_cap=300.0,
    system_idle_cap=10.0,
    joins_keep_delay=True,
    starts_at_first=True,
    repeats_are_whole=True,
    seed=42,
    traces=393,
    error_share=0.10,
    overflow_share=0.01,
    coverage=0.95,
    slice=1.0,
)
"""What the public client agentx-harness 1.0.12 does."""

AGENTX_FAST = replace(AGENTX_V1, id="agentx-fast", duration=1200.0, pressure=1, published=False)
"""A shorter look that is never published."""

AIPERF_MVP = replace(
    AGENTX_V1,
    id="aiperf-mvp-0.13",
    duration=1800.0,
    start_from=0.0,
    start_to=1.0,
    pressure=0,
    tree_idle_cap=None,
    joins_keep_delay=False,
    starts_at_first=False,
    repeats_are_whole=False,
    seed=None,
    traces=None,
    error_share=None,
    coverage=None,
)
"""What aiperf 0.13.0 does."""

CI_SYNTH = replace(
    AGENTX_V1,
    id="ci-synth",
    duration=60.0,
    least_duration=0.0,
    pressure=2,
    warmup_grace=30.0,
    tree_idle_cap=5.0,
    system_idle_cap=1 / 6,
    grace=30.0,
    seed=None,
    traces=None,
    coverage=None,
    generated=True,
    published=False,
)
"""agentx-v1 with its times divided by 60, over generated sessions; comparable with nothing else.

Its seed is the point's, so that repeats are of other sessions.
"""

PROFILES: Mapping[str, Profile] = {
    profile.id: profile for profile in (AGENTX_V1, AGENTX_FAST, AIPERF_MVP, CI_SYNTH)
}
"""The profiles by id."""
