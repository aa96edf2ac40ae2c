"""One request after another: a prompt of fixed length, cold or behind a cached prefix."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from workloads.prompt import Tokens, marked, seed_of
from workloads.session import Key, Session, Turn

WARMUP_OUTPUT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """Sessions of one request, each with content of its own.

    With `cached` tokens, a primer first sends a prefix of that length, and the request that counts
    sends the prefix and `prompt` further tokens; without, it sends `prompt` tokens.
    """

    prompt: Tokens
    output: Tokens
    kind: Literal["single"] = "single"
    cached: Annotated[int, Ge(0), Le(10_000_000)] = 0

    @property
    def label(self) -> str:
        """The kind and its size, for names and tables."""
        cached = f"{self.cached}+" if self.cached else ""
        return f"single {cached}{self.prompt}"

    def identity(self) -> dict[str, Any]:
        """Its settings."""
        return asdict(self)

    def sessions(self, seed: int) -> Iterator[Session]:
        """Sessions without end, the same for the same seed."""
        for number in count():
            content = seed_of(seed, self.kind, number)
            yield self._session(f"single-{number}", content, self.output)

    def warmup(self, seed: int) -> Iterator[Session]:
        """One session of the same lengths, with a short answer."""
        content = seed_of(seed, self.kind, "warm-up")
        yield self._session("warm-up-0", content, min(WARMUP_OUTPUT, self.output))

    def _session(self, trace: str, content: int, output: int) -> Session:
        fresh = (seed_of(content, "prompt"), self.prompt)
        if not self.cached:
            return Session(
                trace=trace,
                turns=(Turn(key=Key(trace, 0), prompt=marked(fresh), output=output),),
            )
        prefix = (seed_of(content, "prefix"), self.cached)
        primer = Turn(key=Key(trace, 0), prompt=marked(prefix), output=1, primer=True)
        request = Turn(
            key=Key(trace, 1), prompt=marked(prefix, fresh), output=output, previous=primer.key
        )
        return Session(trace=trace, turns=(primer, request))
