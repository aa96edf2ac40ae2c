"""Runs a command, and ends all that has come of it once nobody holds a pipe to it any more.

Whoever started it holds that until it dies, however it dies, also at the other end of a connection.
It runs on its own, by any Python of any machine, so it imports nothing of ours. Needs Linux.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

NEAR, FAR = "near", "far"
"""Whether whoever started it sees the processes of its machine, and ends what a command leaves."""

PAUSE = 0.1
"""Seconds between two looks at processes that should end."""

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108

FAILED = 1 << 8
"""The status of a process that ended by itself and could not do what it was for."""

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): whoever loses its parent below here becomes our child."""

_POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Keeps the command in its arguments.

    These are near or far, the seconds in which it must end, its folder of temporary files, the
    descriptor of the pipe, words. Where that is not standard input, the command has this, and
    whatever is said to it; standard output is the command's alone.
    """
    place, seconds, folder, number, *command = sys.argv[1:]
    pipe = int(number)
    for signalled in _POLITE:
        # Not ignored, because the command would inherit that.
        signal.signal(signalled, lambda *_: None)
    tell = _stayed_behind() if place == NEAR else None
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        child = subprocess.Popen(command, stdin=None if pipe else subprocess.DEVNULL)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")
    if pipe:
        _step_out()
    released, before = threading.Event(), set(SHARED_MEMORY.iterdir())
    wanted = (pipe, float(seconds), folder, released, before)
    letting_go = threading.Thread(target=_let_go, args=wanted, daemon=True)
    letting_go.start()
    status = _buried(child.pid)
    if tell is not None:
        os.write(tell, str(status).encode())
        _buried(None)
    elif not released.is_set():
        _end(float(seconds))
    if released.is_set():
        letting_go.join()
    _end_as(status)


def _stayed_behind() -> int:
    """Goes on in another process, and ends this one with the status that is written to what it is.

    So the end of a command is heard of at once, and what outlives it is kept all the same.
    """
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        status = os.read(told, 16)
        _end_as(int(status) if status else FAILED)
    os.close(told)
    return tell


def _step_out() -> None:
    """Holds no end of what the command is spoken to by, so that its end is heard of."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)


def _end_as(status: int) -> NoReturn:
    """Ends as a process with that status has."""
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _buried(pid: int | None) -> int:
    """Buries whatever ends, until that process has, or until nothing is left; its status."""
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            return 0
        if ended == pid:
            return status


def _let_go(
    pipe: int, seconds: float, folder: str, released: threading.Event, before: set[Path]
) -> None:
    """Ends everything once the pipe is closed at its other end.

    New shared memory that was held then, and that nobody holds afterwards, goes too, as does the
    folder.
    """
    while os.read(pipe, 1 << 12):
        continue
    released.set()
    held = {path for pid in _descendants() for path in shared_memory(pid)} - before
    _end(seconds)
    for path in held - {path for pid in _parents() for path in shared_memory(pid)}:
        path.unlink(missing_ok=True)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def shared_memory(pid: int) -> set[Path]:
    """The shared memory that the process has mapped and that still has a name."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    paths = {line[line.index("/") :] for line in lines if f" {SHARED_MEMORY}/" in line}
    return {Path(path) for path in paths if not path.endswith(" (deleted)")}


def _end(seconds: float) -> None:
    """Ends all descendants, politely at first."""
    for number, share in ((signal.SIGINT, 0.5), (signal.SIGTERM, 0.25), (signal.SIGKILL, 0.25)):
        told: set[int] = set()
        deadline = None
        while alive := _descendants():
            # A first look may take longer than all the time that there is.
            deadline = time.monotonic() + seconds * share if deadline is None else deadline
            if time.monotonic() >= deadline:
                break
            for pid in alive - told:
                told.add(pid)
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            time.sleep(PAUSE)


def _descendants() -> set[int]:
    """The processes below this one that live."""
    parents, ours, size = _parents(), {os.getpid()}, 0
    while size != len(ours):
        size = len(ours)
        ours |= {pid for pid, parent in parents.items() if parent in ours}
    return ours - {os.getpid()}


def _parents() -> dict[int, int]:
    """Every process that lives, with its parent."""
    parents = {}
    for path in Path("/proc").glob("[1-9]*/stat"):
        try:
            told = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        state, parent = told.rpartition(")")[2].split()[:2]
        if state not in "ZX":
            parents[int(path.parent.name)] = int(parent)
    return parents


if __name__ == "__main__":
    main()
