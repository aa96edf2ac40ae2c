"""An answer on its way: frames written as its steps end, whole or as a fault would have them."""

import asyncio
from time import monotonic

import orjson

from harness.sim.job import Job
from harness.sim.server.answer import Answer, Frame
from harness.sim.server.asked import error_body
from harness.sim.server.faults import BREAKING, Fault

DONE = b"data: [DONE]\n\n"
FAULT = "The simulated server breaks this answer off, as its script says."


class Outlet:
    """Writes frames on one connection, and notes the moment of every write.

    Write i happened at `writes[i]`, on the monotonic clock, with `tokens[i]` tokens, `lags[i]`
    seconds after the step they belong to.
    """

    def __init__(self, transport: asyncio.WriteTransport, *, together: int, split: bool) -> None:
        self.writes: list[float] = []
        self.tokens: list[int] = []
        self.lags: list[float] = []
        self._transport = transport
        self._together = together
        self._split = split
        self._held: list[tuple[bytes, int, int]] = []

    def put(self, data: bytes, tokens: int, due: int) -> None:
        """Writes one frame, or keeps it until there are enough to be written together."""
        self._held.append((b"%x\r\n%b\r\n" % (len(data), data), tokens, due))
        if len(self._held) >= self._together:
            self.flush()

    def flush(self) -> None:
        """Writes what is kept."""
        held, self._held = self._held, []
        if not held or self._transport.is_closing():
            return
        data = b"".join(frame for frame, _, _ in held)
        for start in range(len(data) - 1 if self._split else 0):
            self._transport.write(data[start : start + 1])
        moment = monotonic()
        self._transport.write(data[-1:] if self._split else data)
        for _, tokens, due in held:
            self.writes.append(moment)
            self.tokens.append(tokens)
            self.lags.append(moment - due / 1e6)

    def close(self) -> None:
        """Closes the connection."""
        self.flush()
        self._transport.close()


class Delivery:
    """One answer under way; `ended` is set when nothing more of it will be written."""

    def __init__(self, answer: Answer, fault: Fault, drafts: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.Future()
        self.outlet: Outlet | None = None
        self.answer = answer
        self._fault = fault
        self._drafts = drafts
        self._given = 0
        self._frames = 0
        self._broken = False
        self._early: list[tuple[Job, int, int]] = []

    def open(self, transport: asyncio.WriteTransport, due: int) -> None:
        """Begins to write, the head of the response being out since a moment."""
        fault = self._fault
        together = fault.frames if fault.fault == "coalesce" else 1
        split = fault.fault == "split-bytes"
        self.outlet = Outlet(transport, together=together, split=split)
        self._break(self.outlet, due)
        for job, end, tokens in self._early:
            self._say(self.outlet, job, end, tokens)

    def take(self, job: Job, end: int, tokens: int) -> None:
        """Says the tokens of a step that ended at this moment."""
        if not self.answer.asked.stream:
            self._given += tokens
            if self._given == job.output:
                self._stop()
        elif self.outlet is None:
            self._early.append((job, end, tokens))
        else:
            self._say(self.outlet, job, end, tokens)

    def _say(self, outlet: Outlet, job: Job, end: int, tokens: int) -> None:
        if self._broken:
            return
        late = self._fault.after if self._fault.fault == "role-late" else 0
        if self._frames == late == 0:
            self._role(outlet, end)
        outlet.put(_event(self.answer.piece(self._given, tokens)), tokens, end)
        self._given += tokens
        self._frames += 1
        if self._frames == late:
            self._role(outlet, end)
        self._break(outlet, end)
        if self._given == job.output and not self._broken:
            self._end(outlet, job, end)

    def _role(self, outlet: Outlet, due: int) -> None:
        if self.answer.asked.chat:
            outlet.put(_event(self.answer.role()), 0, due)

    def _break(self, outlet: Outlet, due: int) -> None:
        """Breaks the answer off where the script has it so."""
        fault = self._fault
        if fault.fault not in BREAKING or self._frames != fault.after:
            return
        self._broken = True
        match fault.fault:
            case "drop":
                outlet.close()
                self._stop()
            case "error-frame":
                outlet.put(_event(error_body(500, FAULT)), 0, due)
                outlet.put(DONE, 0, due)
                self._stop()

    def _end(self, outlet: Outlet, job: Job, due: int) -> None:
        if self.answer.asked.usage:
            total = _event(self.answer.total(job, self._drafts))
            for _ in range(2 if self._fault.fault == "duplicate-usage" else 1):
                outlet.put(total, 0, due)
        if self._fault.fault != "no-done":
            outlet.put(DONE, 0, due)
        outlet.flush()
        self._stop()

    def _stop(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _event(frame: Frame) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(frame)
