"""The processes of a deployment: each with its log, ended as soon as one of them has ended."""

import asyncio
import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness import processes
from harness.processes import Process, Program, Reach
from harness.vllm.nodes import Launch

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm


class Fleet:
    """Programs that are one deployment; must be stopped.

    The first one writes into the log that it is given, each other one into one beside it.
    """

    def __init__(self, engine: "Vllm", log: Path) -> None:
        self.exit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine = engine
        self._log = log
        self._programs: dict[Program, tuple[Launch, Path]] = {}
        self._ended: Program | None = None

    async def start(self, launches: Iterable[Launch]) -> None:
        """Starts them beside those that are there. Raises EngineError where one cannot be."""
        # Speed that means nothing may wait for a client on the same cores.
        background = self._engine.provenance == "plumbing"
        for launch in launches:
            number = len(self._programs) + 1
            log = self._log if number == 1 else self._log.with_stem(f"{self._log.stem}-{number}")
            program = await processes.start(
                launch.words,
                launch.variables,
                log,
                background=background,
                through=reach(self._engine, launch.host),
                seconds=self._engine.stop_timeout,
            )
            self._programs[program] = (launch, log)
            program.exit.add_done_callback(partial(self._note_end, program))

    @property
    def status(self) -> str | None:
        """How the first of them to end has ended; None while all live."""
        if self._ended is None:
            return None
        which = f" ({self._programs[self._ended][0].title})" if len(self._programs) > 1 else ""
        return f"{self._ended.status}{which}"

    @property
    def log(self) -> Path:
        """The log that says most of its end, or of why it does not answer."""
        return self._log if self._ended is None else self._programs[self._ended][1]

    @property
    def logs(self) -> list[Path]:
        """The log of each."""
        return [log for _, log in self._programs.values()]

    @property
    def urls(self) -> list[str]:
        """Where its servers are asked, those of every node."""
        servers = (launch for launch, _ in self._programs.values() if launch.role != "router")
        return [url for launch in servers for url in launch.urls]

    def members(self) -> list[Process]:
        """All processes of this machine that are part of it."""
        return [process for program in self._programs for process in program.members()]

    def listens(self, port: int) -> bool:
        """Whether it is one of it, and nobody else, who answers at the port."""
        return any(program.listens(port) for program in self._programs)

    def note(self) -> None:
        """Remembers what they have started; not to be called while something is measured."""
        for program in self._programs:
            program.note()

    async def stop(self) -> list[str]:
        """Ends them all at once; what had to be cleared away after them.

        Raises EngineError where something of one is still there after `stop_timeout` seconds.
        """
        stopping = [program.stop(self._engine.stop_timeout) for program in self._programs]
        done = await asyncio.gather(*stopping, return_exceptions=True)
        for one in done:
            if isinstance(one, BaseException):
                raise one
        return [path for cleared in done if isinstance(cleared, list) for path in cleared]

    def _note_end(self, program: Program, _: object) -> None:
        if not self.exit.done():
            self._ended = program
            self.exit.set_result(None)


def reach(engine: "Vllm", host: str) -> Reach | None:
    """How a command gets to a host; None where that is this machine."""
    if engine.launcher is None:
        return None
    return Reach(words=launcher_words(engine.launcher, host), python=engine.python)


def launcher_words(launcher: str, host: str) -> tuple[str, ...]:
    """The words of a launcher for a host. Raises ValueError where it is no command."""
    try:
        return tuple(word.format(host=host) for word in shlex.split(launcher))
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(
            "launcher is no command with {host} in it: write one such as ssh {host}"
        ) from error


def check(engine: "Vllm") -> None:
    """Raises ValueError where commands would not get to the nodes of an engine."""
    if engine.launcher is None:
        return
    words = launcher_words(engine.launcher, "HOST")
    if not engine.nodes:
        raise ValueError("launcher starts commands on nodes, and there are none: state nodes")
    if not words or (len(engine.nodes) > 1 and not any("HOST" in word for word in words)):
        raise ValueError("launcher does not say which node it means: write {host} in it")
