"""Single steps of an engine: exact batches, without requests, scheduler and sampling."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from results.steps import name_of
from workloads.prompt import Tokens
from workloads.session import Session

Requests = Annotated[int, Ge(1), Le(100_000)]
Context = Annotated[int, Ge(0), Le(10_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of `batch` requests, each with `context` tokens in the cache and `fresh` to compute.

    Of these, `drafts` are drafts to verify.
    """

    batch: int
    context: int
    fresh: int
    drafts: int

    @property
    def name(self) -> str:
        """What it is called: `64x8192+1`."""
        return name_of(self.batch, self.context, self.fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Steps in every combination of the lists, timed by the engine's own tool, one after another.

    A step computes `new_tokens` of each of `batch` requests, counted over all ranks, behind
    `context` tokens that the cache holds: 1 decodes, more prefill. With `drafts`, a step of decode
    verifies so many more. Each is run `samples` times `iterations` times.
    """

    batch: tuple[Requests, ...]
    context: tuple[Context, ...]
    kind: Literal["forward"] = "forward"
    new_tokens: tuple[Tokens, ...] = (1,)
    drafts: Annotated[int, Ge(0), Le(32)] = 0
    iterations: Annotated[int, Ge(1), Le(10_000)] = 20
    samples: Annotated[int, Ge(1), Le(1000)] = 5
    routing: Literal["auto", "real", "balanced"] = "auto"

    def __post_init__(self) -> None:
        for name in ("batch", "context", "new_tokens"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} {list(values)} is empty or holds a value twice: mend it")
        if self.drafts and (self.new_tokens != (1,) or 0 in self.context):
            raise ValueError(
                "drafts are verified in steps of decode: leave new_tokens out and context 0 too"
            )

    @property
    def label(self) -> str:
        """The kind and its sizes, for names and tables."""
        sizes = map(_range, (self.batch, self.context, self.new_tokens))
        return "forward {}x{}+{}".format(*sizes)

    def identity(self) -> dict[str, Any]:
        """Its settings."""
        return asdict(self)

    def steps(self) -> list[Step]:
        """Every step, in the order in which they are timed."""
        return [
            Step(batch=batch, context=context, fresh=fresh + self.drafts, drafts=self.drafts)
            for fresh, context, batch in product(self.new_tokens, self.context, self.batch)
        ]

    def sessions(self, seed: int) -> Iterator[Session]:  # noqa: ARG002
        """None: nothing is requested."""
        return iter(())

    def warmup(self, seed: int) -> Iterator[Session]:  # noqa: ARG002
        """None."""
        return iter(())


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
