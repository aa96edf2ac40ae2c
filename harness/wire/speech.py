"""What an answer says, read out of the whole of it where its words count."""

from collections.abc import Iterable

import orjson

from harness.wire.stream import payloads


def speech(parts: Iterable[bytes]) -> tuple[str, str]:
    """The text of a chat's answer, and its reasoning where the server tells it apart.

    Frames that cannot be read are for those who count: they make the request fail.
    """
    text: list[str] = []
    reasoning: list[str] = []
    for _, payload in payloads((0.0, part) for part in parts):
        try:
            delta = orjson.loads(payload)["choices"][0]["delta"]
            text.append(delta.get("content") or "")
            reasoning.append(delta.get("reasoning") or delta.get("reasoning_content") or "")
        except (orjson.JSONDecodeError, AttributeError, IndexError, KeyError, TypeError):
            continue
    return _joined(text), _joined(reasoning)


def _joined(pieces: list[str]) -> str:
    return "".join(piece for piece in pieces if isinstance(piece, str))
