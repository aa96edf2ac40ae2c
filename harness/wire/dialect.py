"""How a request is worded for an OpenAI-compatible server."""

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from harness.client import Request
from harness.wire.render import Renderer

Mode = Literal["ids", "chat", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What every request says beside its prompt.

    In chat, `thinking` is always sent, so that no engine's default decides it. `exact_output` asks
    for all the tokens whatever comes (`ignore_eos`, `min_tokens`), `chunk_usage` for a count in
    each frame (`continuous_usage_stats`). `body` adds fields, replaces them, or takes one out where
    it is None.
    """

    model: str
    mode: Mode = "ids"
    thinking: bool = False
    reasoning_effort: str | None = None
    exact_output: bool = True
    chunk_usage: bool = False
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where requests go."""
        return "/v1/chat/completions" if self.mode == "chat" else "/v1/completions"


async def worded(dialect: Dialect, request: Request, renderer: Renderer) -> bytes:
    """The body of a request."""
    fields: dict[str, Any] = {"model": dialect.model}
    match dialect.mode:
        case "ids":
            fields["prompt"] = await renderer.ids(request.prompt)
        case "text":
            fields["prompt"] = await renderer.text(request.prompt)
        case "chat":
            fields["messages"] = await renderer.messages(request.prompt)
            fields |= _thinking(dialect)
    fields |= {
        "max_tokens": request.output,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if dialect.chunk_usage:
        fields["stream_options"]["continuous_usage_stats"] = True
    if dialect.exact_output:
        fields |= {"ignore_eos": True, "min_tokens": request.output}
    fields |= dialect.body
    kept = {name: value for name, value in fields.items() if value is not None}
    return orjson.dumps(kept, option=orjson.OPT_SERIALIZE_NUMPY)


def _thinking(dialect: Dialect) -> dict[str, Any]:
    """The two names under which chat templates know thinking, and its effort."""
    switches = {"thinking": dialect.thinking, "enable_thinking": dialect.thinking}
    return {"chat_template_kwargs": switches, "reasoning_effort": dialect.reasoning_effort}
