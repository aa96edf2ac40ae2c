"""The KV memory of one rank: blocks that requests own, and cached prompt blocks that they share."""

from bisect import bisect_left
from collections import deque

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int64]

NO_SLOTS: Slots = np.zeros(0, dtype=np.int64)

_IN_USE = -1


class Cache:
    """Counts blocks and remembers which prompt prefixes are in them.

    A key stands for the whole prefix that ends with its block. Unused blocks are evicted in the
    order in which they were last released, the deeper first. A request holds every block above one
    that it holds, so what is cached is always a full chain from the start, and `bisect` finds
    where a chain ends.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.owned = 0
        self._slot: dict[int, int] = {}
        self._spare = list(range(blocks))
        self._key = np.zeros(blocks, dtype=np.uint64)
        self._users = np.zeros(blocks, dtype=np.int32)
        self._released = np.full(blocks, _IN_USE, dtype=np.int64)
        self._unused = 0
        self._releases = 0
        # Releases in order, each deepest block first: the front is always the least recently used.
        # A slot counts only where its release is still its last.
        self._queue: deque[tuple[int, Slots]] = deque()
        self._queued = 0

    @property
    def available(self) -> int:
        """Blocks that are free or can be evicted."""
        return self.blocks - self.used

    @property
    def used(self) -> int:
        """Blocks that a running request holds."""
        return self.owned + len(self._slot) - self._unused

    def find(self, keys: list[int]) -> int:
        """How many of the leading keys are cached."""
        return bisect_left(keys, True, key=lambda key: key not in self._slot)

    def unused(self, keys: list[int]) -> int:
        """How many of these cached keys nobody holds."""
        users, slot = self._users, self._slot
        return len(keys) - bisect_left(keys, True, key=lambda key: users[slot[key]] == 0)

    def hold(self, keys: list[int]) -> Slots:
        """The slots of these cached keys, kept from eviction until they are released."""
        slots = np.fromiter(map(self._slot.__getitem__, keys), np.int64, len(keys))
        idle = slots[self._users[slots] == 0]
        self._released[idle] = _IN_USE
        self._unused -= len(idle)
        self._users[slots] += 1
        return slots

    def own(self, blocks: int) -> None:
        """Gives a request blocks of its own, evicting what it must. Needs as many available."""
        self.owned += blocks
        short = self.owned + len(self._slot) - self.blocks
        if short > 0:
            self._evict(short)

    def publish(self, keys: list[int]) -> Slots:
        """Makes owned blocks, now computed, findable; they stay held by their request.

        What another request has published meanwhile is shared, and the second copy is freed.
        """
        known = self.find(keys)
        shared = self.hold(keys[:known])
        self.owned -= len(keys)
        fresh = keys[known:]
        if not fresh:
            return shared
        taken = self._spare[-len(fresh) :]
        del self._spare[-len(fresh) :]
        self._slot.update(zip(fresh, taken, strict=True))
        slots = np.array(taken, dtype=np.int64)
        self._key[slots] = np.array(fresh, dtype=np.uint64)
        self._users[slots] = 1
        return np.concatenate([shared, slots])

    def release(self, slots: Slots, owned: int) -> None:
        """Takes back what a request held: its chain of slots, and blocks of its own."""
        self.owned -= owned
        self._users[slots] -= 1
        idle = slots[self._users[slots] == 0][::-1]
        if not len(idle):
            return
        self._releases += 1
        self._released[idle] = self._releases
        self._unused += len(idle)
        self._queue.append((self._releases, idle))
        self._queued += len(idle)
        if self._queued > 4 * self.blocks:
            self._tidy()

    def _evict(self, blocks: int) -> None:
        while blocks:
            release, slots = self._queue.popleft()
            self._queued -= len(slots)
            current = np.flatnonzero(self._released[slots] == release)
            chosen = current[:blocks]
            self._forget(slots[chosen])
            blocks -= len(chosen)
            if len(current) > len(chosen):
                rest = slots[chosen[-1] + 1 :]
                self._queue.appendleft((release, rest))
                self._queued += len(rest)

    def _forget(self, slots: Slots) -> None:
        for key in self._key[slots].tolist():
            del self._slot[key]
        self._released[slots] = _IN_USE
        self._unused -= len(slots)
        self._spare.extend(slots.tolist())

    def _tidy(self) -> None:
        current = ((turn, slots[self._released[slots] == turn]) for turn, slots in self._queue)
        self._queue = deque((turn, slots) for turn, slots in current if len(slots))
        self._queued = sum(len(slots) for _, slots in self._queue)
