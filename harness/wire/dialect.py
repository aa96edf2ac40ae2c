"""How a request is worded for an OpenAI-compatible server."""

from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from harness.client import Request
from harness.wire.forced import GENERATE, forcing
from harness.wire.render import Renderer
from workloads.chat import Chat

Mode = Literal["ids", "chat", "text"]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

# fmt: off
QUESTION = frozenset({
    "messages", "max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "temperature",
    "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "chat_template_kwargs",
    "reasoning_effort", "stream", "n",
})
# fmt: on
"""What decides an answer, so that only the question may state it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What every request says beside its prompt.

    In chat, `thinking` is always sent, so that no engine's default decides it. `exact_output` asks
    for all the tokens whatever comes (`ignore_eos`, `min_tokens`), `chunk_usage` for a count in
    each frame (`continuous_usage_stats`). With `forced_outputs` the tokens of answers are sent
    along. `body` adds fields, replaces them, or takes one out where it is None.
    """

    model: str
    mode: Mode = "ids"
    thinking: bool = False
    reasoning_effort: str | None = None
    exact_output: bool = True
    chunk_usage: bool = False
    forced_outputs: bool = False
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where requests go that are no questions; those go where chats do."""
        if self.forced_outputs:
            return GENERATE
        return CHAT if self.mode == "chat" else COMPLETIONS


async def worded(dialect: Dialect, request: Request, renderer: Renderer) -> bytes:
    """The body of a request."""
    fields: dict[str, Any] = {"model": dialect.model}
    forced = dialect.forced_outputs and not request.chat
    match "question" if request.chat else "forced" if forced else dialect.mode:
        case "forced":
            fields |= await forcing(request, renderer)
        case "ids":
            fields["prompt"] = await renderer.ids(request.prompt)
        case "text":
            fields["prompt"] = await renderer.text(request.prompt)
        case "chat":
            fields["messages"] = await renderer.messages(request.prompt)
            fields |= _thinking(dialect.thinking, dialect.reasoning_effort)
    fields |= {} if forced else {"max_tokens": request.output, "temperature": 0}
    fields |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.chat:
        fields |= _asking(request.chat)
    if dialect.chunk_usage:
        fields["stream_options"]["continuous_usage_stats"] = True
    if dialect.exact_output and not (request.chat or forced):
        fields |= {"ignore_eos": True, "min_tokens": request.output}
    fields |= dialect.body
    kept = {name: value for name, value in fields.items() if value is not None}
    return orjson.dumps(kept, option=orjson.OPT_SERIALIZE_NUMPY)


def refusal(dialect: Dialect) -> str | None:
    """Why questions cannot be asked in this dialect, if so: its body says what they must say."""
    names = sorted(dialect.body.keys() & QUESTION)
    if not names:
        return None
    return (
        f"body states {names[0]}, which a question states itself: leave it out, and state its "
        "temperature, top_p, thinking, effort and max_tokens in the workload"
    )


def _asking(chat: Chat) -> dict[str, Any]:
    """A question and how its answer is drawn."""
    messages = [{"role": role, "content": text} for role, text in chat.messages]
    drawn = {"temperature": chat.temperature, "top_p": chat.top_p, "seed": chat.seed}
    return {"messages": messages, **drawn, **_thinking(chat.thinking, chat.effort)}


def _thinking(thinking: bool | None, effort: str | None) -> dict[str, Any]:
    """The two names under which chat templates know thinking, and its effort."""
    switches = None
    if thinking is not None:
        switches = {"thinking": thinking, "enable_thinking": thinking}
    return {"chat_template_kwargs": switches, "reasoning_effort": effort}
