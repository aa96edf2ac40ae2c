"""Sessions: trees of streams whose turns wait for one another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from workloads.chat import Chat
from workloads.prompt import Prompt


class Key(NamedTuple):
    """A turn's name within its session."""

    stream: str
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a session.

    It is due `delay` seconds after the turn `previous` ended (after the session's start where that
    is None; where it is `early`, after that turn was sent) and is held until every turn of `after`
    has ended, whatever became of it.
    `recorded` is its start in seconds since the session's start, where it comes from a recording.
    A primer only fills the cache: it is a row, and never part of a result. A question has a `chat`,
    whose messages are sent instead of the prompt.
    """

    key: Key
    prompt: Prompt
    output: int
    previous: Key | None = None
    early: bool = False
    delay: float = 0.0
    after: tuple[Key, ...] = ()
    recorded: float | None = None
    depth: int = 0
    primer: bool = False
    chat: Chat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A tree of streams (main and sub-agents) that share one trace and one salt.

    Turns stand in an order in which each comes after all that it waits for. Where `apart` is set
    the streams are strangers to one another, and are dealt out over data-parallel ranks.
    """

    trace: str
    turns: tuple[Turn, ...]
    apart: bool = False


class Workload(Protocol):
    """A source of sessions: a pure function of a seed that knows no network and no clock."""

    @property
    def kind(self) -> str:
        """The name of this kind in a suite."""

    @property
    def label(self) -> str:
        """The kind and its size, for names and tables."""

    def identity(self) -> dict[str, Any]:
        """All that decides what the sessions hold, wherever the files lie that it is read from."""

    def sessions(self, seed: int) -> Iterator[Session]:
        """Sessions without end, the same for the same seed."""

    def warmup(self, seed: int) -> Iterator[Session]:
        """One small session for each shape that the sessions contain."""
