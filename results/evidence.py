"""What was observed of a point while it ran, kept beside its rows in evidence.json."""

from dataclasses import dataclass, field
from typing import Any, Literal

Provenance = Literal["measured", "simulated", "plumbing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a server turned out to be. `plumbing` is real code whose speed means nothing.

    `proofs` quote, for what is not as it was `requested`, what shows it; `faults` are sentences on
    why else it is not what it claims. `effective` are all settings that it says it runs with,
    stated or not. `start` is what this one start of it showed and the next one may not, such as
    its seconds and its memory: nothing that a comparison looks at.
    """

    provenance: Provenance
    gpus: int | None
    requested: dict[str, Any] = field(default_factory=dict)
    features: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    effective: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The profile by which sessions were replayed, and what came of its clocks.

    `departures` are sentences on what was not as it says. A share is None where it bounds none:
    `coverage` is how far into the window tokens must have come. Tokens and steps of whole traces
    are `intended`, by figure and quantile. `hurried` says how often, and by how many seconds in
    all, timers were moved because a tree (`tree`) or everything (`system`) was idle for too long.
    `recycled` counts sessions that began at their first turn after another one of their lane, and
    `unready` those of them that a free lane had to wait for. `traces` is how many there are, `seed`
    what the profile fixes it to. Results of a profile that is not `published` are for a look.
    """

    profile: str
    hash: str
    departures: tuple[str, ...] = ()
    coverage: float | None = None
    overflow_share: float | None = None
    intended: dict[str, dict[str, float]] = field(default_factory=dict)
    hurried: dict[str, tuple[int, float]] = field(default_factory=dict)
    recycled: int = 0
    unready: int = 0
    traces: int = 0
    seed: int | None = None
    published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which questions were asked, how, and by which key they were graded.

    `questions_hash` and `key_hash` are those of results/answers.py. `version` is that of the task,
    with the hash of its file; `headline` names the score that counts. `synthetic_acceptance` says
    whether the server made its drafts' acceptance up; None where nothing tells.
    """

    task: str
    version: str
    lm_eval: str | None
    questions: int
    questions_hash: str
    key_hash: str
    shots: int
    epochs: int
    sampling: dict[str, Any]
    thinking: bool | None
    effort: str | None
    headline: str
    synthetic_acceptance: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A point's server as observed, and the window that counts, in seconds of the point.

    `client_late` is by how many seconds, in one look of a hundred, the client's own event loop came
    too late to what it had to do; None on the virtual clock, where nothing is ever late. `restless`
    says that its warm-up never settled. `protocol` is there where sessions were replayed by a
    profile, `accuracy` where questions were asked.
    """

    observed: Observed
    clock: Literal["virtual", "wall"]
    opened: float
    closed: float
    client_late: float | None = None
    restless: str | None = None
    protocol: Protocol | None = None
    accuracy: Asked | None = None
