"""Chats that grow: each prompt is the one before, its answer, and a new question."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, pairwise
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from workloads.prompt import Prompt, Role, Tokens, marked, seed_of
from workloads.session import Key, Session, Turn

WARMUP_OUTPUT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """Sessions of up to `turns` turns, the first of `first` tokens, each later one longer.

    A turn adds the reply before it (`output` tokens, made from a seed, not what the engine said)
    and `fresh` user tokens. Between turns the user thinks for `delay` seconds, always
    (`spread: constant`) or on average (`exponential`). `variation` is the log-sigma of the three
    lengths around the stated medians; a session whose first draw passes the limit starts as stated.
    A session ends before a turn whose prompt and answer would pass `context_limit`.
    """

    turns: Annotated[int, Ge(1), Le(100_000)]
    first: Tokens
    fresh: Tokens
    output: Tokens
    kind: Literal["growing"] = "growing"
    delay: Annotated[float, Ge(0), Le(1e6)] = 0.0
    spread: Literal["exponential", "constant"] = "exponential"
    variation: Annotated[float, Ge(0), Le(3)] = 0.0
    context_limit: Tokens | None = None

    def __post_init__(self) -> None:
        if self.context_limit is not None and self.first + self.output > self.context_limit:
            raise ValueError(
                f"context_limit {self.context_limit} is less than first + output = "
                f"{self.first + self.output}, so not even the first turn fits: raise it"
            )

    @property
    def label(self) -> str:
        """The kind and its size, for names and tables."""
        return f"growing {self.turns}x{self.fresh}"

    def identity(self) -> dict[str, Any]:
        """Its settings."""
        return asdict(self)

    def sessions(self, seed: int) -> Iterator[Session]:
        """Sessions without end, the same for the same seed."""
        for number in count():
            yield self._session(f"growing-{number}", seed_of(seed, self.kind, number))

    def warmup(self, seed: int) -> Iterator[Session]:
        """The first prompt and the largest one, each in a session of its own."""
        largest = self.first + (self.turns - 1) * (self.output + self.fresh)
        if self.context_limit is not None:
            largest = min(largest, self.context_limit - self.output)
        for number, length in enumerate(sorted({self.first, largest})):
            trace = f"warm-up-{number}"
            content = seed_of(seed, self.kind, trace)
            prompt = marked((content, length))
            prompt = marked((content, length), messages=(("user", len(prompt.seeds)),))
            output = min(WARMUP_OUTPUT, self.output)
            yield Session(
                trace=trace, turns=(Turn(key=Key(trace, 0), prompt=prompt, output=output),)
            )

    def _session(self, trace: str, content: int) -> Session:
        random = np.random.default_rng(content)
        lengths = self._lengths(random)
        delays = self._delays(random)
        turns = [
            Turn(
                key=Key(trace, number),
                prompt=prompt,
                output=output,
                previous=Key(trace, number - 1) if number else None,
                delay=delays[number] if number else 0.0,
            )
            for number, (prompt, (_, output)) in enumerate(
                zip(_prompts(content, lengths), lengths, strict=True)
            )
        ]
        return Session(trace=trace, turns=tuple(turns))

    def _lengths(self, random: np.random.Generator) -> list[tuple[int, int]]:
        """(User tokens, answer tokens) of each turn that fits."""
        medians = np.array(
            [[self.first, self.output]] + [[self.fresh, self.output]] * (self.turns - 1)
        )
        drawn = medians * np.exp(self.variation * random.standard_normal(medians.shape))
        lengths: list[tuple[int, int]] = [
            tuple(row) for row in np.maximum(1, np.rint(drawn)).astype(int).tolist()
        ]
        if self.context_limit is None:
            return lengths
        if sum(lengths[0]) > self.context_limit:
            lengths[0] = (self.first, self.output)
        ends = np.cumsum([sum(turn) for turn in lengths])
        return lengths[: int(np.searchsorted(ends, self.context_limit, side="right"))]

    def _delays(self, random: np.random.Generator) -> list[float]:
        if self.spread == "constant":
            return [self.delay] * self.turns
        delays: list[float] = random.exponential(self.delay, self.turns).tolist()
        return delays


def _prompts(content: int, lengths: list[tuple[int, int]]) -> list[Prompt]:
    """One prompt a turn, all of them views of the last one's segments."""
    segments = [(seed_of(content, "first"), lengths[0][0])]
    for number, ((_, reply), (fresh, _)) in enumerate(pairwise(lengths)):
        segments.append((seed_of(content, number, "reply"), reply))
        segments.append((seed_of(content, number + 1, "fresh"), fresh))
    whole = marked(*segments)
    opening = len(whole.seeds) - len(segments) + 1
    pair: tuple[tuple[Role, int], ...] = (("assistant", 1), ("user", 1))
    return [
        Prompt(
            seeds=whole.seeds[: opening + 2 * number],
            tokens=whole.tokens[: opening + 2 * number],
            marker=0,
            messages=(("user", opening), *(pair * number)),
        )
        for number in range(len(lengths))
    ]
