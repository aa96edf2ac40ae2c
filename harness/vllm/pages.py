"""The counters of several servers as those of one."""

import asyncio
import re
from collections.abc import Sequence

from harness.client import Page
from harness.vllm.nodes import Launch

_RANK = re.compile(r'(?<=[{,])engine="(\d+)"')
_SERIES = re.compile(r"^vllm:", re.MULTILINE)
_DECODED = re.compile(r"^vllm:(?!generation_tokens_total|num_requests_)", re.MULTILINE)


def joined(pages: Sequence[tuple[Launch, Page]]) -> Page:
    """A page with the lines of all, beneath those of the first the ones that name a rank.

    Ranks that servers count from 0 are moved on, so that no two share a number. Both pools count
    the same prompts, so only what decode generates keeps its name: it is what clients see. It is
    None where one of them cannot be had.
    """
    if len(pages) == 1:
        return pages[0][1]

    async def read() -> str | None:
        told = await asyncio.gather(*(page.read() for _, page in pages))
        parts = [
            _told(launch, text, first=number == 0)
            for number, ((launch, _), text) in enumerate(zip(pages, told, strict=True))
            if text is not None
        ]
        return "\n".join(parts) if len(parts) == len(pages) else None

    return Page(url=pages[0][1].url, read=read)


def _told(launch: Launch, text: str, *, first: bool) -> str:
    if launch.counted:
        text = _RANK.sub(lambda rank: f'engine="{int(rank[1]) + launch.counted}"', text)
    if launch.role == "prefill":
        text = _SERIES.sub("prefill:", text)
    elif launch.role == "decode":
        text = _DECODED.sub("decode:", text)
    if first:
        return text
    return "\n".join(line for line in text.splitlines() if _RANK.search(line))
