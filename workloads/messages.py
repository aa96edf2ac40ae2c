"""The chat messages of a stream's steps, and what of them is new to one who keeps what was sent."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workloads.content import tail_seed
from workloads.layout import Part, common, layouts
from workloads.prompt import MARKER_TOKENS, Counts, Prompt, Role, Seeds
from workloads.stream import Step, Stream
from workloads.weka import BLOCK, Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Everything a step sends. Those before `fresh` had been sent so by the step before.

    Where the context was cut or repeated, `reset` is set and all are sent anew. `marked` is the
    message that the marker precedes: the first of the user, None where there is none.
    """

    parts: tuple[Part, ...]
    fresh: int
    reset: bool

    @property
    def marked(self) -> int | None:
        """The place of the first message of the user."""
        return next((place for place, part in enumerate(self.parts) if part.role == "user"), None)


def messages(stream: Stream, *, repeats_are_whole: bool) -> list[Messages]:
    """The messages of every step of a stream."""
    calls = [step.call for step in stream.steps]
    found: list[Messages] = []
    for turn, layout in enumerate(layouts(calls, stream.preamble)):
        sent, reset = 0, False
        if turn:
            before = calls[turn - 1]
            sent = len(found[-1].parts)
            cut = layout.kept < before.blocks or before.tail > 0
            reset = cut or (repeats_are_whole and len(layout.parts) == sent)
        fresh = 0 if reset else sent
        found.append(Messages(parts=layout.parts, fresh=fresh, reset=reset))
    return found


def prompts(
    stream: Stream,
    planned: list[Messages],
    block_seed: Callable[[int], int],
    *,
    marker_first: bool = False,
) -> list[Prompt]:
    """The prompts of every step, each with a marker on top of the recorded input.

    `block_seed` gives the content of a hash id. The marker precedes the first user message, or
    everything where it comes first. A prompt that the next one begins with is a view of it, because
    a long session would otherwise hold each block once a turn.
    """
    made: list[Prompt] = []
    later: Call | None = None
    for step, plan in zip(reversed(stream.steps), reversed(planned), strict=True):
        call, where = step.call, 0 if marker_first else plan.marked
        marker = _before_marker(plan, where)
        whole = later is not None and not call.tail and common(call, later) == call.blocks
        if whole and made[-1].marker == marker:
            segments = call.blocks + (marker is not None)
            seeds, tokens = made[-1].seeds[:segments], made[-1].tokens[:segments]
        else:
            seeds, tokens = _segments(step, marker, block_seed)
        made.append(
            Prompt(seeds=seeds, tokens=tokens, marker=marker, messages=_counts(plan, where))
        )
        later = call
    return made[::-1]


def _segments(
    step: Step, marker: int | None, block_seed: Callable[[int], int]
) -> tuple[Seeds, Counts]:
    """Seeds and lengths of a step's blocks, of its tail, and of the marker among them."""
    call = step.call
    seeds = [block_seed(number) for number in call.hash_ids[: call.blocks].tolist()]
    tokens = [BLOCK] * len(seeds)
    if call.tail:
        seeds.append(tail_seed(step.key.stream, step.key.turn))
        tokens.append(call.tail)
    if marker is not None:
        seeds.insert(marker, 0)
        tokens.insert(marker, MARKER_TOKENS)
    return np.array(seeds, dtype=np.uint64), np.array(tokens, dtype=np.int64)


def _before_marker(plan: Messages, where: int | None) -> int | None:
    """How many segments stand before the marker, which is in the message at that place."""
    if where is None:
        return None
    return sum(part.blocks + bool(part.tail) for part in plan.parts[:where])


def _counts(plan: Messages, where: int | None) -> tuple[tuple[Role, int], ...]:
    """Roles and numbers of segments, with the marker."""
    return tuple(
        (part.role, part.blocks + bool(part.tail) + (place == where))
        for place, part in enumerate(plan.parts)
    )
