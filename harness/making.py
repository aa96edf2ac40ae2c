"""Requests of replayed trees, made ready ahead of the moments at which they are sent."""

import asyncio
from collections.abc import Iterable, MutableMapping
from typing import NamedTuple

from harness.client import Request
from harness.live import Live
from harness.trial import Trial, rank_of
from workloads.stream import Step


class Made(NamedTuple):
    """A request, and the task that makes it ready, where that was begun ahead of time."""

    request: Request
    preparing: asyncio.Task[object] | None = None


Ahead = MutableMapping[tuple[int, str], Made]
"""What has been made for the next step of a tree's stream."""


def make(trial: Trial, tree: Live, step: Step, output: int) -> Made:
    """The request of a step."""
    session = f"{trial.id}-{tree.number}-{step.key.stream}"
    return Made(
        Request(
            id=f"{session}-{step.key.turn}",
            prompt=tree.replay.prompts[step.key].salted(tree.salt),
            output=output,
            session=session,
            tree=f"{trial.id}-{tree.number}",
            rank=rank_of(trial, tree.lane),
        )
    )


def ahead(trial: Trial, made: Ahead, tree: Live, step: Step) -> None:
    """Begins to make a step's request ready, so that sending it takes no time."""
    request = make(trial, tree, step, step.output).request
    preparing = asyncio.ensure_future(_prepared(trial, request))
    made[tree.number, step.key.stream] = Made(request, preparing)


def next_of(trial: Trial, made: Ahead, tree: Live, step: Step) -> None:
    """Begins with what may follow a step: its stream's next one, and those it will spawn."""
    stream, turn = step.key
    following = tree.streams[stream].steps[turn + 1 : turn + 2]
    firsts = [tree.streams[name].steps[0] for name in step.spawns]
    for one in (*following, *firsts):
        if (tree.number, one.key.stream) not in made:
            ahead(trial, made, tree, one)


async def all_of(made: Ahead) -> None:
    """Waits until everything begun is ready."""
    for one in [one for one in made.values() if one.preparing is not None]:
        assert one.preparing is not None
        await one.preparing


def forget(made: Ahead, tree: int, streams: Iterable[str]) -> None:
    """Drops what was made for streams that go no further."""
    for stream in streams:
        one = made.pop((tree, stream), None)
        if one is not None and one.preparing is not None:
            one.preparing.cancel()


async def _prepared(trial: Trial, request: Request) -> object:
    return await trial.client.prepare(request)
