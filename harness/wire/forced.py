"""Answers that a server is forced to give, token by token, so that every arm gives the same."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson

from harness.client import Request
from harness.wire.pool import Ids
from harness.wire.render import Renderer
from harness.wire.stream import payloads
from workloads.prompt import Prompt, seed_of

STRAYED = "the server did not answer as it was forced to"
"""What is said of one that gives other tokens, and will again."""

GENERATE = "/inference/v1/generate"
"""Where vLLM takes the tokens of an answer beside those of a prompt."""


async def answer(request: Request, renderer: Renderer) -> Ids:
    """The tokens to force: as many as are asked for, made from the prompt's content alone."""
    seed = seed_of(request.prompt.hash, "answer")
    made = Prompt(
        seeds=np.array([seed], dtype=np.uint64), tokens=np.array([request.output], dtype=np.int64)
    )
    return await renderer.ids(made)


async def forcing(request: Request, renderer: Renderer) -> dict[str, Any]:
    """The prompt of a request and its answer, as the server takes them."""
    return {
        "token_ids": await renderer.ids(request.prompt),
        "sampling_params": {
            "max_tokens": request.output,
            "temperature": 0,
            "trace_decode_token_ids": await answer(request, renderer),
        },
    }


def strayed(parts: Iterable[bytes], wanted: Ids) -> str | None:
    """A sentence on where an answer left the tokens it was forced to; None where it did not."""
    told: list[int] = []
    for _, payload in payloads((0.0, part) for part in parts):
        try:
            told += orjson.loads(payload)["choices"][0]["token_ids"] or ()
        except (orjson.JSONDecodeError, IndexError, KeyError, TypeError):
            continue
    if told == wanted.tolist():
        return None
    alike = (one == two for one, two in zip(told, wanted.tolist(), strict=False))
    place = next((number for number, same in enumerate(alike) if not same), len(told))
    return f"{STRAYED}: {len(told)} tokens of {len(wanted)}, another one from number {place + 1} on"
