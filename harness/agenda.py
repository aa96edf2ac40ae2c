"""What falls due when, in one order and with one timer, so that all of it can be moved at once."""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from harness.clock import now

HAIR = 1e-9
"""Seconds by which a moment may be early and count as reached: the event loop's own measure."""


class Entry(NamedTuple):
    """Something of a tree that is due; of one moment, what was put down first comes first."""

    due: float
    order: int
    tree: int
    stream: str


class Agenda:
    """Entries in the order in which they fall due. `ring` is called when the first has.

    Must be closed, because a timer would outlive it.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._entries: list[Entry] = []
        self._orders = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def add(self, due: float, tree: int, stream: str = "") -> None:
        """Puts an entry down."""
        self._orders += 1
        heappush(self._entries, Entry(due, self._orders, tree, stream))
        self._wind()

    def take(self) -> list[Entry]:
        """The entries that are due by now, which are struck out."""
        reached = now() + HAIR
        found = []
        while self._entries and self._entries[0].due <= reached:
            found.append(heappop(self._entries))
        self._wind()
        return found

    def first(self, tree: int | None = None) -> float | None:
        """When the next entry is due, of all trees or of one."""
        if tree is None:
            return self._entries[0].due if self._entries else None
        return min((entry.due for entry in self._entries if entry.tree == tree), default=None)

    def advance(self, seconds: float, tree: int | None = None) -> None:
        """Moves all entries, or those of one tree, so much nearer; their distances stay."""
        moment = now()
        self._entries = [
            entry._replace(due=max(moment, entry.due - seconds))
            if tree is None or entry.tree == tree
            else entry
            for entry in self._entries
        ]
        heapify(self._entries)
        self._wind()

    def clear(self) -> None:
        """Strikes all entries out."""
        self._entries.clear()
        self._wind()

    def close(self) -> None:
        """Never rings again."""
        self._closed = True
        self.clear()

    def _wind(self) -> None:
        """Sets the timer for the first entry."""
        due = self._entries[0].due if self._entries else None
        if self._timer is not None:
            if due is not None and self._timer.when() == due and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(due, self._rung)

    def _rung(self) -> None:
        self._timer = None
        self._ring()
