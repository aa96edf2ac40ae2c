"""Whether sessions stay at their data-parallel ranks, found out by a few requests of our own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from harness import engine
from harness.client import Client, Page, Reply, Request
from harness.clock import now
from harness.sampling import labelled, values
from workloads.prompt import Prompt, seed_of

TURNS, PROMPT, OUTPUT = 3, 300, 4
"""Requests of a session, and their tokens: as many as two blocks of the largest size and more."""

SESSIONS = 2
"""How many sessions a rank a router is asked to keep apart."""

COUNTER = "vllm:prompt_tokens_total"

PATIENCE, PAUSE = 5.0, 0.05
"""Seconds in which a server must have counted a request that it has answered, and between looks."""

Counts = dict[int, float]
"""Prompt tokens that each rank has counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """How sessions were to be kept at their ranks, how they are, and the words that say why.

    It is None where nothing shows how they are.
    """

    asked: engine.Affinity
    observed: str | None
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What one session's requests came to: the ranks that counted them, and the cached tokens."""

    rank: int | None
    moved: tuple[int, ...]
    replies: tuple[Reply, ...]


async def tried(
    client: Client, page: Page, asked: engine.Affinity, ranks: int, seed: int
) -> Affinity:
    """Sends a few sessions, one request after the other, and looks whose counters move.

    Nothing else may be sent meanwhile.
    """
    if set(await _counts(page)) < set(range(ranks)):
        shown = f"its counters do not tell {ranks} ranks apart, so nothing shows where sessions are"
        return Affinity(asked=asked, observed=None, shown=shown)
    routed = asked == "router"
    wanted = [None] * SESSIONS * ranks if routed else list(range(ranks))
    sessions = []
    for number, rank in enumerate(wanted):
        session = await _session(client, page, rank, seed_of(seed, "affinity", number))
        sessions.append(session)
        if wrong := _wrong(session, number):
            return Affinity(asked=asked, observed="none", shown=wrong)
    return Affinity(asked=asked, observed=asked, shown=_shown(sessions))


async def _session(client: Client, page: Page, rank: int | None, seed: int) -> _Session:
    """The requests of one session, each after the one before it has been counted."""
    name = f"paceline-affinity-{seed}"
    prompt = Prompt(
        seeds=np.array([seed], dtype=np.uint64),
        tokens=np.array([PROMPT], dtype=np.int64),
        messages=(("user", 1),),
    )
    replies: list[Reply] = []
    moved: set[int] = set()
    for turn in range(TURNS):
        before = await _counts(page)
        request = Request(
            id=f"{name}-{turn}", prompt=prompt, output=OUTPUT, session=name, rank=rank
        )
        replies.append(await client.send(request, cut=asyncio.Event(), on_first=lambda _: None))
        if replies[-1].error:
            break
        moved |= await _moved(page, before)
    return _Session(rank=rank, moved=tuple(sorted(moved)), replies=tuple(replies))


async def _moved(page: Page, before: Counts) -> set[int]:
    """The ranks whose counters have risen since, once there are any."""
    deadline = now() + PATIENCE
    while True:
        counts = await _counts(page)
        moved = {rank for rank, count in counts.items() if count > before.get(rank, 0.0)}
        if moved or now() >= deadline:
            return moved
        await asyncio.sleep(PAUSE)


async def _counts(page: Page) -> Counts:
    counts: Counts = {}
    for series, value in values((await page.read() or "").splitlines()):
        name, labels = labelled(series)
        told = orjson.loads(labels).get("engine", "") if name == COUNTER else ""
        if told.isdigit():
            counts[int(told)] = counts.get(int(told), 0.0) + value
    return counts


def _wrong(session: _Session, number: int) -> str | None:
    """Why a session was not kept at its rank; None where it was."""
    told = f"session {number + 1} of those that it was tried with"
    if error := session.replies[-1].error:
        return f"{told} got no answer: {error}"
    moved = ", ".join(map(str, session.moved)) or "none"
    if len(session.moved) != 1:
        return f"the requests of {told} moved the counters of ranks {moved}, and not of one"
    if session.rank is not None and session.moved != (session.rank,):
        return f"the requests of {told} for rank {session.rank} moved the counters of rank {moved}"
    return None


def _shown(sessions: Sequence[_Session]) -> str:
    ranks = sorted({session.moved[0] for session in sessions})
    again = [reply.cached_tokens for session in sessions for reply in session.replies[1:]]
    told = [count for count in again if count is not None]
    cached = "they tell no cached tokens"
    if told:
        cached = f"repeats had {min(told)} to {max(told)} of {PROMPT} tokens cached"
    return (
        f"each of {len(sessions)} sessions moved the counters of one rank with all its {TURNS} "
        f"requests, and they were on {len(ranks)} ranks; {cached}"
    )
