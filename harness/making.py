"""Requests of replayed trees, made ready ahead of the moments at which they are sent."""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

from harness.client import Request
from harness.live import Live
from harness.trial import Trial, rank_of
from workloads.session import Key
from workloads.stream import Step


class Made(NamedTuple):
    """A request, and the task that makes it ready, where that was begun ahead of time."""

    request: Request
    preparing: asyncio.Task[object] | None = None


Ahead = MutableMapping[tuple[int, Key], Made]
"""What has been made for the steps of trees, by their numbers."""


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
    """Begins to make a step's request ready, so that sending it takes no time; once is enough."""
    if (tree.number, step.key) in made:
        return
    request = make(trial, tree, step, step.output).request
    preparing = asyncio.ensure_future(trial.client.prepare(request))
    made[tree.number, step.key] = Made(request, preparing)


def next_of(trial: Trial, made: Ahead, tree: Live, step: Step) -> None:
    """Begins with what may follow a step: its stream's next one, and those it will spawn."""
    for one in _next(tree, step):
        ahead(trial, made, tree, one)


async def all_of(made: Ahead) -> None:
    """Waits until everything begun is ready."""
    for one in [one for one in made.values() if one.preparing is not None]:
        assert one.preparing is not None
        await one.preparing


def forget_next(made: Ahead, tree: Live, step: Step) -> None:
    """Drops what was made to follow a step that nothing follows."""
    for one in _next(tree, step):
        _drop(made.pop((tree.number, one.key), None))


def forget_all(made: Ahead) -> None:
    """Drops everything."""
    for one in made.values():
        _drop(one)
    made.clear()


def _next(tree: Live, step: Step) -> Iterator[Step]:
    """The next step of the stream, and the first ones of streams that begin when it has ended."""
    stream, turn = step.key
    yield from tree.streams[stream].steps[turn + 1 : turn + 2]
    for name in step.spawns:
        if name not in tree.live:
            yield tree.streams[name].steps[0]


def _drop(one: Made | None) -> None:
    if one is not None and one.preparing is not None:
        one.preparing.cancel()
