"""The questions of a point: whether there is room for their answers, and what came of each."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from harness.client import Reply, Request
from harness.engine import Server
from harness.point import Point
from harness.trial import Call
from results.errors import UnsupportedError
from results.evidence import Evidence
from workloads.chat import Chat
from workloads.grading import Answer, Place, asked, graded
from workloads.questions import Questions

LONGEST = 8
"""How many of the longest questions are looked at before the first one is asked."""


@dataclass(slots=True, kw_only=True)
class Hearing:
    """What came of the last request for every question so far; `keep` is handed each in words."""

    questions: Questions
    chats: tuple[Chat, ...]
    keep: Callable[[dict[str, Any]], None]
    answers: dict[Place, Answer] = field(default_factory=dict)
    made_up: bool | None = None

    async def admit(self, server: Server) -> None:
        """Raises UnsupportedError where the server is not fit to be asked."""
        self.made_up = server.made_up
        if server.made_up:
            raise UnsupportedError(
                "the server accepts drafts without looking at them (synthetic acceptance), so its "
                "answers mean nothing: write speculation: real, or none"
            )
        longest = sorted(self.chats, key=lambda chat: sum(len(text) for _, text in chat.messages))
        for chat in longest[-LONGEST:] if server.room else ():
            await self._fits(server, chat)

    async def _fits(self, server: Server, chat: Chat) -> None:
        assert server.room is not None
        most, name = self.questions.max_tokens, f"paceline-room-{chat.question}"
        room = await server.room(
            Request(id=name, prompt=chat.prompt, output=most, session=name, chat=chat)
        )
        if room.context is not None and (room.tokens or 0) + most > room.context:
            told = "" if room.tokens is None else f"question {chat.question} has {room.tokens} and "
            raise UnsupportedError(
                f"max_tokens {most} do not fit: {told}the model holds {room.context} tokens: lower "
                "max_tokens, or serve it with a longer context"
            )

    def hear(self, call: Call, reply: Reply) -> None:
        """Takes what came of a question; what warms up is none."""
        chat = call.request.chat
        if chat is None or call.phase != "window":
            return
        answer = Answer(
            request=call.request.id,
            state="cut" if reply.cut else "failed" if reply.error else "ok",
            reason=reply.error,
            finish_reason=reply.finish_reason,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            retries=call.key.turn,
            text=reply.text,
            reasoning=reply.reasoning,
        )
        self.answers[chat.question, chat.epoch] = answer
        shown = replace(answer, text=None, reasoning=None) if chat.withheld else answer
        self.keep({"question": chat.question, "epoch": chat.epoch, **asdict(shown)})

    def marked(self, evidence: Evidence) -> tuple[Evidence, pa.Table]:
        """The evidence with what was asked, and the graded answers."""
        exam = self.questions.exam()
        table = graded(exam, self.chats, self.answers)
        most = self.questions.max_tokens
        told = asked(exam, table, self.chats[0], most, made_up=self.made_up)
        return replace(evidence, accuracy=told), table


def hearing(point: Point, keep: Callable[[dict[str, Any]], None]) -> Hearing | None:
    """What hears the answers of a point that asks questions; None where it asks none."""
    if not isinstance(point.workload, Questions):
        return None
    chats = tuple(point.workload.chats())
    return Hearing(questions=point.workload, chats=chats, keep=keep)
