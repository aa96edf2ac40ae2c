"""A question in the words in which it is sent, and how its answer is to be drawn."""

import hashlib
from dataclasses import dataclass

import numpy as np
import orjson

from workloads.prompt import Prompt, Role, seed_of

Messages = tuple[tuple[Role, str], ...]

LETTERS_A_TOKEN = 4
"""What a token of English is on average, where nobody has counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One question, once for each of its epochs. What is None is not sent.

    `target` is the right answer, for engines that only simulate one. Nothing of a `withheld`
    question, not even what a server says of it, may be written anywhere.
    """

    question: str
    epoch: int
    messages: Messages
    target: str
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    thinking: bool | None = False
    effort: str | None = None
    retries: int = 0
    withheld: bool = False

    @property
    def hash(self) -> str:
        """16 hex digits that identify the messages."""
        return hashlib.sha256(orjson.dumps(self.messages)).hexdigest()[:16]

    @property
    def prompt(self) -> Prompt:
        """The messages as segments of about as many tokens, for engines that only count."""
        return Prompt(
            seeds=np.array([seed_of(*message) for message in self.messages], dtype=np.uint64),
            tokens=np.array([tokens(text) for _, text in self.messages], dtype=np.int64),
            messages=tuple((role, 1) for role, _ in self.messages),
        )


def tokens(text: str) -> int:
    """About how many tokens a text is, and at least one."""
    return max(1, round(len(text) / LETTERS_A_TOKEN))
