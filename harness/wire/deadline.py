"""How long each stretch of a request may take."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Annotated

from annotated_types import Gt

from harness.wire.tap import Exchange, nothing

LINGER = 0.02
"""Seconds in which a body may end after `[DONE]`, so that its connection can be used again."""

Seconds = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds; a request that meets one is a failed row that names it.

    `first_token` counts from sending, `stall` from the first token or the last read in which a data
    frame began, `total` from the call; None is no limit. Comments put nothing off, and a frame that
    takes longer than `stall` to come is late as well.
    """

    connect: Seconds = 10.0
    first_token: Seconds = 600.0
    stall: Seconds = 120.0
    total: Seconds | None = None


class Deadline:
    """Cancels a request when it meets a limit; `passed` then says which one."""

    def __init__(
        self, timeouts: Timeouts, exchange: Exchange, cancel: Callable[[], object]
    ) -> None:
        self.passed: str | None = None
        self._timeouts = timeouts
        self._exchange = exchange
        self._cancel = cancel
        self._started = monotonic()
        self._timer: asyncio.TimerHandle | None = None
        exchange.on_step = self._check
        self._check()

    def stop(self) -> None:
        """Watches no longer."""
        self._exchange.on_step = nothing
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._disarm()
        moment, sentence = min(self._limits())
        left = moment - monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._check)
            return
        self.passed = sentence
        self._cancel()

    def _limits(self) -> list[tuple[float, str]]:
        """The moments at which the request would be too late, and what to say then."""
        limits, exchange = self._timeouts, self._exchange
        found = []
        if exchange.ended is not None:
            return [(exchange.ended + LINGER, "the body went on after [DONE]")]
        if exchange.sent is None:
            sentence = f"no connection within {limits.connect:g} s (timeouts.connect)"
            found.append((self._started + limits.connect, sentence))
        elif exchange.first is None:
            sentence = f"no first token within {limits.first_token:g} s (timeouts.first_token)"
            found.append((exchange.sent + limits.first_token, sentence))
        else:
            sentence = f"the stream stood still for {limits.stall:g} s (timeouts.stall)"
            found.append((exchange.moved + limits.stall, sentence))
        if limits.total is not None:
            sentence = f"not finished within {limits.total:g} s (timeouts.total)"
            found.append((self._started + limits.total, sentence))
        return found
