"""The seam to a running engine: one call a request, arrays back."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.chat import Chat
from workloads.prompt import Prompt

Moments = NDArray[np.float64]

ANSWER, REASONING, TOOL = 0, 1, 2
"""What a piece carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, ready to send: its prompt salted, its session and rank settled.

    `tree` names the session tree where several streams share one; `session` names the stream.
    Where there is a `chat`, its messages are sent and `output` is the most that may come back.
    """

    id: str
    prompt: Prompt
    output: int
    session: str
    tree: str | None = None
    rank: int | None = None
    chat: Chat | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reply:
    """What came of a request. Moments are on the run's clock; absent is None.

    `stamps`, `tokens` and `kinds` have one entry a piece; `tokens` is None where the server does
    not say how many tokens a piece holds. `error` is a sentence where the request failed; `cut` is
    true where it was stopped at the end of the window, with all that had arrived by then. `text`
    and `reasoning` are kept of answers to a chat only.
    """

    sent: float | None
    stamps: Moments
    tokens: NDArray[np.int32] | None
    kinds: NDArray[np.uint8]
    closed: float
    cut: bool = False
    error: str | None = None
    status: int | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    rank: int | None = None
    server_queue: float | None = None
    server_ttft: float | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    text: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many tokens a question is, and how many the model can hold with its answer."""

    tokens: int | None
    context: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of text that a server offers; `read` gives None where it cannot be had."""

    url: str
    read: Callable[[], Coroutine[Any, Any, str | None]]


class Client(Protocol):
    """Sends requests to one server."""

    async def prepare(self, request: Request) -> object:
        """Makes ready ahead of time what sending this request takes."""

    async def send(
        self, request: Request, *, cut: asyncio.Event, on_first: Callable[[float], None]
    ) -> Reply:
        """Sends one request and gives back its reply.

        Returns early, with what has arrived, when `cut` is set. Calls `on_first` once, with the
        moment of the first token. A request that fails is a reply with an error, not an exception.
        """
