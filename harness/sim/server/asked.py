"""What a request for an answer asks, read from its body and checked."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from aiohttp import web

from harness.sim.server.words import Ids, Vocabulary
from workloads.prompt import Prompt, seed_of

Fields = dict[str, Any]

COMPLETION_TOKENS, CHAT_TOKENS = 16, 256
"""How long an answer is where the request does not say."""

Messages = tuple[tuple[str, int], ...]
"""Role and tokens of each message of a chat, without those of the template."""

_ROLES = ("system", "user", "assistant", "tool", "developer")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """One answer that is wanted. `bounded` is true where the request says how long it may be.

    `question` is the last message of a chat, `seed` what the request would have sampling begin at.
    """

    chat: bool
    prompt: Prompt
    ids: Ids
    messages: Messages
    output: int
    bounded: bool
    stream: bool
    usage: bool
    chunk_usage: bool
    token_ids: bool
    thinking: bool
    tool: str | None
    question: str
    seed: int | None


def refused(kind: type[web.HTTPError], message: str) -> web.HTTPError:
    """A refusal as OpenAI's clients know it, to be raised."""
    body = error_body(kind.status_code, message)
    return kind(text=orjson.dumps(body).decode(), content_type="application/json")


def error_body(status: int, message: str) -> Fields:
    """The object that says what went wrong."""
    names = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}
    kind = names.get(status, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def fields_of(body: bytes) -> Fields:
    """What a body holds. Raises a refusal where it is not a JSON object."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise refused(web.HTTPBadRequest, f"The body is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise refused(web.HTTPBadRequest, "The body is not a JSON object.")
    return found


async def asked(fields: Fields, *, chat: bool, vocabulary: Vocabulary, calls: bool) -> Asked:
    """What a body asks; `calls` answers with a tool call where the body offers tools.

    Raises a refusal where it cannot be used.
    """
    if _whole(fields, "n", 1) != 1:
        raise refused(web.HTTPBadRequest, "n: the simulated server gives one answer only.")
    options = fields.get("stream_options") or {}
    thinking = fields.get("chat_template_kwargs") or {}
    if not isinstance(options, dict) or not isinstance(thinking, dict):
        raise refused(
            web.HTTPBadRequest, "stream_options and chat_template_kwargs must be objects."
        )
    thinks = chat and bool(thinking.get("thinking") or thinking.get("enable_thinking"))
    limit = _limit(fields)
    ids, messages = await prompt_ids(fields, chat=chat, vocabulary=vocabulary)
    return Asked(
        chat=chat,
        prompt=_prompt(ids, fields.get("cache_salt")),
        ids=ids,
        messages=messages,
        output=limit or (CHAT_TOKENS if chat else COMPLETION_TOKENS),
        bounded=limit is not None,
        stream=bool(fields.get("stream")),
        usage=bool(options.get("include_usage")),
        chunk_usage=bool(options.get("continuous_usage_stats")),
        token_ids=bool(fields.get("return_token_ids")),
        thinking=thinks,
        tool=_tool(fields) if chat and calls else None,
        question=_text(fields["messages"][-1].get("content")) if chat else "",
        seed=_whole(fields, "seed", 0, least=0) if "seed" in fields else None,
    )


async def prompt_ids(fields: Fields, *, chat: bool, vocabulary: Vocabulary) -> tuple[Ids, Messages]:
    """The token ids of a body's prompt, or of its messages under our template, and these."""
    if chat:
        return await _message_ids(fields.get("messages"), vocabulary)
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list | str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return await vocabulary.encode(prompt), ()
    return _given(prompt), ()


def _given(prompt: object) -> Ids:
    if isinstance(prompt, list) and prompt and set(map(type, prompt)) == {int}:
        try:
            ids = np.array(prompt, dtype=np.int64)
        except OverflowError:
            ids = np.array([-1])
        if ids.min() < 0:
            raise refused(web.HTTPBadRequest, "prompt: a token id is out of the vocabulary.")
        return ids
    raise refused(web.HTTPBadRequest, "prompt: expected a text or token ids, and one prompt only.")


async def _message_ids(messages: object, vocabulary: Vocabulary) -> tuple[Ids, Messages]:
    """One token for the role and one for the end of each message, and one to begin the answer."""
    if not isinstance(messages, list) or not messages:
        raise refused(web.HTTPBadRequest, "messages: expected a list with at least one message.")
    end = vocabulary.size + len(_ROLES)
    parts: list[Ids] = []
    told: list[tuple[str, int]] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise refused(web.HTTPBadRequest, f"messages: role: expected one of {_ROLES}.")
        text = _text(message.get("content"))
        if calls := message.get("tool_calls"):
            text += orjson.dumps(calls).decode()
        ids = await vocabulary.encode(text)
        told.append((role, len(ids)))
        parts += [_one(vocabulary.size + _ROLES.index(role)), ids, _one(end)]
    begins = _one(vocabulary.size + _ROLES.index("assistant"))
    return np.concatenate([*parts, begins]), tuple(told)


def _one(token: int) -> Ids:
    return np.array([token], dtype=np.int64)


def _text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise refused(web.HTTPBadRequest, "messages: content: expected a text or a list of parts.")


def _prompt(ids: Ids, salt: object) -> Prompt:
    """One segment a token; a salt makes every one of them other content."""
    seeds = ids.astype(np.uint64)
    if salt:
        seeds ^= np.uint64(seed_of("salt", salt))
    return Prompt(seeds=seeds, tokens=np.ones(len(ids), dtype=np.int64))


def _limit(fields: Fields) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        if fields.get(name) is not None:
            return _whole(fields, name, 1)
    return None


def _whole(fields: Fields, name: str, default: int, *, least: int = 1) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or value < least:
        raise refused(web.HTTPBadRequest, f"{name} must be a whole number of at least {least}.")
    return value


def _tool(fields: Fields) -> str | None:
    """The name of the first tool offered."""
    tools = fields.get("tools")
    if not isinstance(tools, list) or not tools or not isinstance(tools[0], dict):
        return None
    function = tools[0].get("function")
    return str(function.get("name", "tool")) if isinstance(function, dict) else None
