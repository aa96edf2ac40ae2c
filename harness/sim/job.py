"""A request inside the simulated engine: how far it has come, and what it has been given."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.sim.cache import NO_SLOTS, Slots

Moments = NDArray[np.int64]
Finish = Literal["length", "cut"]


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One request of a rank. Moments are whole microseconds.

    `keys` has one entry a full block of the prompt. `target` is how many tokens must be computed
    before the next one can be sampled. `pace` says how many tokens come with decode steps.
    """

    id: str
    prompt: int
    output: int
    keys: list[int]
    pace: NDArray[np.int64]
    arrived: int
    target: int
    computed: int = 0
    generated: int = 0
    decodes: int = 0
    slots: Slots = field(default_factory=lambda: NO_SLOTS)
    owned: int = 0
    scheduled: int | None = None
    first: int | None = None
    last: int | None = None
    finish: Finish | None = None
    cached: int = 0
    reused: int = 0
    preemptions: int = 0
    ends: list[Moments] = field(default_factory=list)
    counts: list[NDArray[np.int64]] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    full: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.full = np.diff(self.pace)

    @property
    def decoding(self) -> bool:
        """Whether all that comes before its next token is computed."""
        return self.computed >= self.target

    @property
    def held(self) -> int:
        """Blocks it holds."""
        return len(self.slots) + self.owned

    def steps_left(self) -> int:
        """Decode steps until its last token."""
        wanted = self.pace[self.decodes] + self.output - self.generated
        return int(np.searchsorted(self.pace, wanted)) - self.decodes

    def ahead(self, steps: int) -> int:
        """Tokens that its next decode steps would bring if its output did not end."""
        return int(self.pace[self.decodes + steps] - self.pace[self.decodes])

    def sample(self, end: int) -> None:
        """Takes the one token that comes with the last chunk of a prefill."""
        self.sampled.append(end)
        self._take(np.array([end]), np.ones(1, dtype=np.int64), 1)

    def decode(self, ends: Moments) -> None:
        """Takes the tokens of decode steps that end at these moments."""
        steps = len(ends)
        counts = self.full[self.decodes : self.decodes + steps]
        tokens = min(self.ahead(steps), self.output - self.generated)
        beyond = self.ahead(steps) - tokens
        if beyond:
            counts = np.append(counts[:-1], counts[-1] - beyond)
        self.decodes += steps
        self.computed += tokens
        self._take(ends, counts, tokens)

    def _take(self, ends: Moments, counts: NDArray[np.int64], tokens: int) -> None:
        self.generated += tokens
        self.ends.append(ends)
        self.counts.append(counts)
        self.last = int(ends[-1])
        if self.first is None:
            self.first = int(ends[0])

    def pieces(self, until: int) -> tuple[Moments, NDArray[np.int64]]:
        """When tokens came, and how many, up to and including a moment."""
        if not self.ends:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        ends = np.concatenate(self.ends)
        number = int(np.searchsorted(ends, until, side="right"))
        return ends[:number], np.concatenate(self.counts)[:number]

    def samples(self, until: int) -> int:
        """How many pieces up to and including a moment came from a prefill, without drafts."""
        return bisect_right(self.sampled, until)
