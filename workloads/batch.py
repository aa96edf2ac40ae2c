"""A batch that decodes together: equal contexts, filled first, then answered at once."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from workloads.prompt import Tokens, marked, seed_of
from workloads.session import Key, Session, Turn

FRESH_TOKENS = 16
"""What a request adds to its primed context, so that its prompt is never a full cache hit."""

WARMUP_OUTPUT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sessions of `requests` streams that decode side by side.

    Each stream's primer fills the cache with `context` tokens; when all primers have ended, every
    stream sends its context and a few fresh tokens, and generates `output` tokens. Only the window
    in which all of them decode counts: the metrics find it in the rows, from the latest first
    token to the earliest last one.
    """

    requests: Annotated[int, Ge(1), Le(100_000)]
    context: Tokens
    output: Annotated[int, Ge(2), Le(10_000_000)]
    kind: Literal["batch"] = "batch"

    @property
    def label(self) -> str:
        """The kind and its size, for names and tables."""
        return f"batch {self.requests}x{self.context}"

    def identity(self) -> dict[str, Any]:
        """Its settings."""
        return asdict(self)

    def sessions(self, seed: int) -> Iterator[Session]:
        """Sessions without end, the same for the same seed."""
        for number in count():
            content = seed_of(seed, self.kind, number)
            yield self._session(f"batch-{number}", content, self.output)

    def warmup(self, seed: int) -> Iterator[Session]:
        """One session of as many streams, with short answers."""
        content = seed_of(seed, self.kind, "warm-up")
        yield self._session("warm-up-0", content, min(WARMUP_OUTPUT, self.output))

    def _session(self, trace: str, content: int, output: int) -> Session:
        streams = [f"{trace}::{number}" for number in range(self.requests)]
        contexts = [(seed_of(content, number), self.context) for number in range(self.requests)]
        primers = [
            Turn(key=Key(stream, 0), prompt=marked(context), output=1, primer=True)
            for stream, context in zip(streams, contexts, strict=True)
        ]
        everyone = tuple(primer.key for primer in primers)
        requests = [
            Turn(
                key=Key(stream, 1),
                prompt=marked(context, (seed_of(content, number, "fresh"), FRESH_TOKENS)),
                output=output,
                previous=Key(stream, 0),
                after=everyone,
            )
            for number, (stream, context) in enumerate(zip(streams, contexts, strict=True))
        ]
        return Session(trace=trace, turns=(*primers, *requests), apart=True)
