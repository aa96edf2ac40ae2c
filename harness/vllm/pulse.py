"""Whether a server that has work goes on with it, and what it compiles meanwhile."""

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

from harness.client import Page
from harness.clock import now
from harness.sampling import values
from harness.vllm.evidence import LINES

COMPILED = "log:kernels_compiled_total"
"""The name of our own sample: how many kernels the log says were compiled since serving began."""

_MOVES = re.compile(
    r"vllm:(prompt_tokens|generation_tokens|request_success)_total\b|"
    r"vllm:iteration_tokens_total_count\b"
)
_WORK = re.compile(r"vllm:num_requests_(running|waiting)\b(?!_by)")
_JIT = re.compile(LINES["jit"])


class Pulse:
    """Reads a server's page, with a line of our own beneath it, and notes when it last moved.

    A server that has requests and whose counters stand still for `patience` seconds hangs, and so
    does one that answers no question for so long.
    """

    def __init__(self, page: Page, logs: Iterable[Path], patience: float) -> None:
        self.page = Page(url=page.url, read=self._read)
        self._source = page
        self._places = {log: log.stat().st_size if log.exists() else 0 for log in logs}
        self._compiled = 0
        self._patience = patience
        self._moved = now()
        self._last: float | None = None
        self._hung: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def hung(self) -> str:
        """Why it is to be given up, once it is."""
        return await asyncio.shield(self._hung)

    @property
    def over(self) -> bool:
        """Whether it was given up."""
        return self._hung.done()

    async def _read(self) -> str | None:
        told = await self._source.read()
        self._note(told)
        if told is None:
            return None
        self._count()
        return f"{told}\n{COMPILED} {self._compiled}\n"

    def _note(self, told: str | None) -> None:
        """Takes a look into account."""
        moves, work = None, None
        for series, value in values((told or "").splitlines()):
            if _MOVES.match(series):
                moves = (moves or 0.0) + value
            elif _WORK.match(series):
                work = (work or 0.0) + value
        if told is not None and (not work or moves is None or moves != self._last):
            self._moved, self._last = now(), moves
        still = now() - self._moved
        if still > self._patience and not self._hung.done():
            what = "answers no question" if told is None else f"has {work:g} requests and no step"
            self._hung.set_result(f"the server hangs: it {what} since {still:.0f} s")

    def _count(self) -> None:
        """Counts the kernels in what the logs have new, up to the last whole line of each."""
        for log, place in self._places.items():
            try:
                with log.open("rb") as file:
                    file.seek(place)
                    new = file.read()
            except OSError:
                continue
            whole = new[: new.rfind(b"\n") + 1]
            self._places[log] += len(whole)
            self._compiled += len(_JIT.findall(whole.decode(errors="replace")))
