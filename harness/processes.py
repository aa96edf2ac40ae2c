"""Programs started with all that they start in turn, and ended so that nothing of it is left.

Needs Linux: what a program has started is read from /proc.
"""

import asyncio
import os
import shlex
import shutil
import signal
import socket
import struct
import sys
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from harness.keeper import FAR, NEAR, SHARED_MEMORY, shared_memory
from results.errors import EngineError, InputError

MARK = "PACELINE_SERVER"
"""The environment variable by which everything that a program starts is known."""

PAUSE = 0.1
"""Seconds between two looks at processes that should end."""

LEAST = 19
"""The nice value of whoever lets everybody else go first."""

PARTING = 10.0
"""Seconds in which a program must end by itself once its paceline is gone."""

KEEPER = Path(__file__).with_name("keeper.py")
"""What stands between us and a program, and outlives us for as long as it takes to end that."""

_PROC = Path("/proc")

_LOOPBACK = f"{struct.unpack('=I', socket.inet_aton('127.0.0.1'))[0]:08X}"
"""How the kernel's tables write 127.0.0.1, also at the end of what it is among longer addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A living process; with the tick it began at, its number is never another's."""

    pid: int
    began: int
    parent: int
    name: str

    @property
    def identity(self) -> tuple[int, int]:
        """What no other process has, before or after it."""
        return self.pid, self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How another machine is reached: words that take a line for its shell, and a Python there."""

    words: tuple[str, ...]
    python: str


class Program:
    """A started program; must be stopped.

    Its members are all processes that descend from it, carry its mark, or write into its log. The
    last are orphans that gave themselves a new title, which wipes out the environment they show:
    vLLM's engine core does.
    """

    def __init__(
        self,
        root: asyncio.subprocess.Process,
        mark: str,
        log: Path,
        place: Path | None,
        hold: int,
        *,
        far: bool,
    ) -> None:
        self.exit = asyncio.ensure_future(root.wait())
        self._root = root
        self._far = far
        self._mark = mark
        self._log = log.resolve()
        self._place = place
        self._hold: int | None = hold
        self._known: set[tuple[int, int]] = set()
        self._shared: set[Path] = set()
        self._before = set(SHARED_MEMORY.iterdir())

    @property
    def pid(self) -> int:
        """The number of the process that was started."""
        return self._root.pid

    @property
    def lines(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        """What it is told and what it says, where it was started to be spoken to."""
        assert self._root.stdin is not None
        assert self._root.stdout is not None
        return self._root.stdin, self._root.stdout

    @property
    def status(self) -> str | None:
        """How its first process ended; None while it lives."""
        code = self._root.returncode
        if code is None:
            return None
        return f"status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def members(self) -> list[Process]:
        """All that is alive of it; remembers them, and the shared memory they hold."""
        alive = living()
        ours = {process.pid for process in alive if self._ours(process)}
        found = _descendants(alive, ours)
        new = [process for process in found if process.identity not in self._known]
        self._known.update(process.identity for process in new)
        return found

    def listens(self, port: int) -> bool:
        """Whether it is a member of this program, and nobody else, who answers at the port."""
        ours = {one for process in self.members() for one in _sockets(process.pid)}
        sockets = _listening(port)
        return bool(sockets) and sockets <= ours

    def note(self) -> None:
        """Remembers what it has started and which shared memory that holds.

        Reads every mapping of every member: not to be called while something is measured.
        """
        for process in self.members():
            self._shared |= shared_memory(process.pid) - self._before

    async def stop(self, seconds: float) -> list[str]:
        """Ends it with all its members, politely at first; what had to be cleared away after it.

        Raises EngineError where something is still there after so many seconds.
        """
        self.note()
        if self._far:
            # No signal of ours reaches the other machine, and the end of this does.
            self._let_go()
            await asyncio.wait({self.exit}, timeout=seconds)
        try:
            for number, share in ((signal.SIGINT, 0.5), (signal.SIGTERM, 0.25)):
                if await self._ended(number, seconds * share):
                    break
            else:
                await self._ended(signal.SIGKILL, seconds * 0.25)
        except BaseException:
            self._kill()
            raise
        finally:
            self._let_go()
            cleared = self._clear()
        if left := self.members():
            raise EngineError(
                f"the server did not end within {seconds:g} s: {named(left)}: end them before "
                "anything else is measured here"
            )
        await self.exit
        return cleared

    def _let_go(self) -> None:
        """Lets go of the pipe to its keeper, which ends what is left."""
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    async def _ended(self, number: signal.Signals, seconds: float) -> bool:
        """Sends every member the signal once, and waits until none is alive."""
        told: set[tuple[int, int]] = set()
        loop = asyncio.get_running_loop()
        deadline = None
        while members := self.members():
            # A first look may take longer than all the time that there is.
            deadline = loop.time() + seconds if deadline is None else deadline
            if loop.time() >= deadline:
                return False
            for process in members:
                if process.identity not in told:
                    told.add(process.identity)
                    _send(process, number)
            await asyncio.sleep(PAUSE)
        return True

    def _kill(self) -> None:
        """Ends everything at once, for a caller who cannot wait."""
        for _ in range(20):
            if not (members := self.members()):
                return
            for process in members:
                _send(process, signal.SIGKILL)
            sleep(PAUSE / 2)

    def _clear(self) -> list[str]:
        """Removes the shared memory and the temporary files that were left; their names."""
        left = sorted(str(path) for path in self._shared if path.exists())
        for path in left:
            Path(path).unlink(missing_ok=True)
        if self._place:
            shutil.rmtree(self._place, ignore_errors=True)
        return left

    def _ours(self, process: Process) -> bool:
        return (
            process.identity in self._known
            or _mark(process.pid) == self._mark
            or self._log in _outputs(process.pid)
        )


async def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    background: bool = False,
    through: Reach | None = None,
    seconds: float = PARTING,
    line: int | None = None,
) -> Program:
    """Starts a program in a session of its own, with its output in `log`.

    Its own folder of temporary files goes when it is stopped; in the `background` it has the cores
    only when nobody else wants them. Where paceline dies, all of it ends within `seconds`. With a
    `line` it is spoken to here, in lines of at most so many bytes, and only its standard error is
    added to the log. Raises EngineError where there is no such program, or this is not Linux.
    """
    _check(through.words[0] if through else command[0])
    mark = f"{os.getpid()}-{uuid.uuid4().hex}"
    # Another machine has temporary files of its own.
    place = None if through else Path(tempfile.mkdtemp(prefix="paceline-"))
    around = {"TMPDIR": str(place), **environment} if place else {}
    # A pipe of asyncio's own would be closed as soon as the first process has ended.
    held, hold = os.pipe()
    kept = (str(KEEPER), NEAR, str(seconds), str(place), str(held if line else 0), *command)
    words = (sys.executable, "-I", "-S", *kept)
    if through:
        words = (*through.words, far_line(through.python, command, environment, seconds))
    try:
        root = await _spawned(words, {**os.environ, **around, MARK: mark}, log, held, line)
    except BaseException:
        os.close(hold)
        raise
    finally:
        os.close(held)
    if background:
        _step_back(root.pid)
    return Program(root, mark, log, place, hold, far=through is not None)


async def _spawned(
    words: Sequence[str], environment: Mapping[str, str], log: Path, held: int, line: int | None
) -> asyncio.subprocess.Process:
    """A keeper that has the pipe `held`, as its standard input where nobody speaks to it."""
    pipe = asyncio.subprocess.PIPE if line else None
    with log.open("ab" if line else "wb") as output:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=pipe or held,
            stdout=pipe or output,
            stderr=output,
            limit=line or 0,
            pass_fds=(held,) if line else (),
            env=environment,
            start_new_session=True,
        )


def _check(program: str) -> None:
    if not (_PROC / "self/stat").exists():
        raise EngineError(
            "servers can be started on Linux only: what they start is read from /proc"
        )
    if shutil.which(program) is None:
        raise EngineError(f"{program} cannot be started: there is no such program")


def far_line(
    python: str, command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> str:
    """What a shell of another machine is told, so that all ends there when it has to end here."""
    named = [f"{name}={value}" for name, value in environment.items()]
    keeper = ["-I", "-S", "-c", KEEPER.read_text(encoding="utf-8"), FAR, str(seconds), "", "0"]
    return shlex.join(["exec", "env", *named, python, *keeper, *command])


def _step_back(pid: int) -> None:
    """Gives a new session the least priority, as a process and as a group.

    Where sessions are scheduled as groups (sched(7), autogroup) only the group's counts: without
    it, a client on the same two cores was runnable for up to 3 s and did not run.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, pid, LEAST)
        (_PROC / f"{pid}/autogroup").write_text(str(LEAST))


def leftovers(folder: Path) -> list[Process]:
    """Living members of programs whose paceline is gone, or which write into the folder."""
    alive = living()
    pids, inside = {process.pid for process in alive}, writers(folder, alive)
    return [one for one in alive if one in inside or _orphaned(_mark(one.pid), pids)]


def writers(folder: Path, alive: Sequence[Process] | None = None) -> list[Process]:
    """Those of the living, of all where none are named, that write into the folder."""
    folder = folder.resolve()
    among = living() if alive is None else alive
    return [one for one in among if any(folder in out.parents for out in _outputs(one.pid))]


async def refuse_leftovers(
    folder: Path, seconds: float, staying: Collection[tuple[int, int]] = ()
) -> None:
    """Waits until nothing of earlier runs is left but `staying`, by their identities.

    What a killed paceline leaves is ended within as many seconds as its servers may take to stop.
    Raises InputError where something is still there after them: no point could be measured.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while left := [one for one in leftovers(folder) if one.identity not in staying]:
        if asyncio.get_running_loop().time() >= deadline:
            raise InputError(
                f"a server of an earlier run is still here: {named(left)}: end these processes "
                "first, since nothing can be measured beside them"
            )
        await asyncio.sleep(PAUSE)


def living() -> list[Process]:
    """Every process of this machine that has not ended."""
    found = (_process(int(path.name)) for path in _PROC.iterdir() if path.name.isdigit())
    return [process for process in found if process]


def named(processes: Sequence[Process]) -> str:
    """Their names and numbers: `VLLM::Worker 17, python 18`."""
    return ", ".join(f"{process.name} {process.pid}" for process in processes)


def _process(pid: int) -> Process | None:
    """The process, where it lives: neither gone nor waiting to be buried."""
    try:
        head, _, tail = (_PROC / f"{pid}/stat").read_text().rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    if fields[0] in {"Z", "X"}:
        return None
    name = head.partition("(")[2]
    return Process(pid=pid, began=int(fields[19]), parent=int(fields[1]), name=name)


def _descendants(alive: Sequence[Process], pids: set[int]) -> list[Process]:
    """The processes of these numbers, with all their descendants."""
    size = 0
    while size != len(pids):
        size = len(pids)
        pids = pids | {process.pid for process in alive if process.parent in pids}
    return [process for process in alive if process.pid in pids]


def _mark(pid: int) -> str | None:
    try:
        content = (_PROC / f"{pid}/environ").read_bytes()
    except OSError:
        return None
    wanted = f"{MARK}=".encode()
    marks = (entry for entry in content.split(b"\0") if entry.startswith(wanted))
    mark = next(marks, None)
    return mark.removeprefix(wanted).decode(errors="replace") if mark else None


def _orphaned(mark: str | None, pids: set[int]) -> bool:
    owner = mark.partition("-")[0] if mark else ""
    return owner.isdigit() and int(owner) not in pids


def _outputs(pid: int) -> list[Path]:
    """Where the process's standard output and error go."""
    found = []
    for number in (1, 2):
        with suppress(OSError):
            found.append((_PROC / f"{pid}/fd/{number}").readlink())
    return found


def _listening(port: int) -> set[str]:
    """The sockets that take what is sent to a port of 127.0.0.1, as descriptors show them.

    Columns as in proc(5): the second is the address, 0A in the fourth is listening.
    """
    found = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in (_PROC / table).read_text().splitlines()[1:]:
            fields = line.split()
            address, _, number = fields[1].rpartition(":")
            here = int(address, 16) == 0 or address.endswith(_LOOPBACK)
            if fields[3] == "0A" and int(number, 16) == port and here:
                found.add(f"socket:[{fields[9]}]")
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for descriptor in (_PROC / f"{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(str(descriptor.readlink()))
    except OSError:
        return found
    return found


def _send(process: Process, number: signal.Signals) -> None:
    found = _process(process.pid)
    if found and found.identity == process.identity:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
