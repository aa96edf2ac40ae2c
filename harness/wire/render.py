"""Prompts as token ids or as text, taken from a pool."""

import asyncio
import random
from collections import OrderedDict
from functools import lru_cache
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from harness.wire.pool import Ids, Pool
from workloads.prompt import Prompt

PAUSE = 0.0005
"""Seconds of rendering after which the loop may read its sockets."""

CHARACTERS = 1 << 26
"""How much message text is kept."""


@lru_cache(maxsize=1 << 18)
def start(seed: int, size: int) -> int:
    """Where in a pool of so many tokens the segment of this seed begins.

    The rule of the AgentX reference clients for block tokens.
    """
    return random.Random(seed).randrange(size)  # noqa: S311 - the same for the same seed


class Renderer:
    """Renders prompts from one pool; the same segment is the same tokens every time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._kept = 0

    async def ids(self, prompt: Prompt) -> Ids:
        """The prompt as exactly `prompt.length` ids."""
        starts = await self._starts(prompt)
        lengths = prompt.tokens
        places = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        places += np.arange(len(places))
        return self._pool.ids.take(places, mode="wrap")

    async def text(self, prompt: Prompt) -> str:
        """The prompt as one text."""
        return (await self._spans(prompt, [len(prompt.seeds)]))[0]

    async def messages(self, prompt: Prompt) -> list[dict[str, str]]:
        """The prompt as chat messages; one message of the user's where it states none."""
        parts = prompt.messages or (("user", len(prompt.seeds)),)
        texts = await self._spans(prompt, [segments for _, segments in parts])
        return [
            {"role": role, "content": text} for (role, _), text in zip(parts, texts, strict=True)
        ]

    async def _starts(self, prompt: Prompt) -> NDArray[np.int64]:
        size = len(self._pool.ids)
        starts = []
        pause = monotonic() + PAUSE
        for seed in prompt.seeds.tolist():
            starts.append(start(seed, size))
            if monotonic() > pause:
                await asyncio.sleep(0)
                pause = monotonic() + PAUSE
        return np.array(starts, dtype=np.int64)

    async def _spans(self, prompt: Prompt, counts: list[int]) -> list[str]:
        """The texts of so many segments each, one after another."""
        starts = await self._starts(prompt)
        texts = []
        at = 0
        for count in counts:
            span = slice(at, at + count)
            texts.append(self._remembered(starts[span], prompt.tokens[span]))
            at += count
            await asyncio.sleep(0)
        return texts

    def _remembered(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> str:
        key = starts.tobytes() + lengths.tobytes()
        text = self._texts.pop(key, None)
        if text is None:
            text = self._text(starts, lengths)
            self._kept += len(text)
        self._texts[key] = text
        while self._kept > CHARACTERS and len(self._texts) > 1:
            self._kept -= len(self._texts.popitem(last=False)[1])
        return text

    def _text(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> str:
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        if self._pool.offsets is not None:
            return "".join(self._cut(first, count) for first, count in spans)
        size = len(self._pool.ids)
        places = [np.arange(first, first + count) % size for first, count in spans]
        ids = self._pool.ids[np.concatenate(places)] if places else []
        assert self._pool.tokenizer is not None
        return self._pool.tokenizer.decode(list(ids), skip_special_tokens=False)

    def _cut(self, first: int, count: int) -> str:
        """The text of so many tokens of the pool, from the first on, around its end."""
        offsets, text, size = self._pool.offsets, self._pool.text, len(self._pool.ids)
        assert offsets is not None
        parts = []
        while count > size - first:
            parts.append(text[offsets[first] :])
            count -= size - first
            first = 0
        parts.append(text[offsets[first] : offsets[first + count]])
        return "".join(parts)
