"""What was observed of a point while it ran, kept beside its rows in evidence.json."""

from dataclasses import dataclass, field
from typing import Any, Literal

Provenance = Literal["measured", "simulated", "plumbing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a server turned out to be. `plumbing` is real code whose speed means nothing."""

    provenance: Provenance
    gpus: int | None
    requested: dict[str, Any] = field(default_factory=dict)
    features: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A point's server as observed, and the window that counts, in seconds of the point.

    `client_late` is by how many seconds, in one look of a hundred, the client's own event loop came
    too late to what it had to do; None on the virtual clock, where nothing is ever late.
    """

    observed: Observed
    clock: Literal["virtual", "wall"]
    opened: float
    closed: float
    client_late: float | None = None
