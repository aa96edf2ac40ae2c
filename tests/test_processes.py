"""Programs are ended with all that they started, however it tries to get away."""

import asyncio
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import processes
from results.errors import EngineError

STUBBORN = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; "
SLEEP = "time.sleep(60)"
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True{more})
print("started", flush=True)
time.sleep({seconds})
"""


async def started(log: Path, *words: str, **environment: str) -> processes.Program:
    program = await processes.start([sys.executable, *words], environment, log)
    while "started" not in log.read_text():  # noqa: ASYNC110, ASYNC240 - it is another process
        await asyncio.sleep(0.02)
    return program


def outlives(folder: Path, parent: str, child: str = STUBBORN + SLEEP, seconds: float = 2.0):
    """The members of a program before and after it was stopped, and how long that took."""

    async def main():
        program = await started(folder / "log", "-c", parent, child)
        await asyncio.wait({program.exit}, timeout=0.2 if "sleep(60)" in parent else None)
        before = program.members()
        begun = time.monotonic()
        await program.stop(seconds)
        return before, program.members(), time.monotonic() - begun

    return asyncio.run(main())


def test_a_polite_program_ends_at_once(tmp_path):
    words = "import time; print('started', flush=True); time.sleep(60)"

    async def main():
        program = await started(tmp_path / "log", "-c", words)
        begun = time.monotonic()
        assert await program.stop(10) == []
        return program.status, time.monotonic() - begun

    status, seconds = asyncio.run(main())
    assert status == "signal SIGINT"
    assert seconds < 5


def test_a_child_in_another_session_that_ignores_signals_is_ended(tmp_path):
    before, after, seconds = outlives(tmp_path, PARENT.format(more="", seconds=60))
    # With the two keepers that stand before them.
    assert (len(before), after) == (4, [])
    assert seconds < 4


@pytest.mark.parametrize("more", ["", ", env={}", ", stdout=subprocess.DEVNULL, stderr=-3"])
def test_an_orphan_is_known_by_its_mark_or_by_its_log(more, tmp_path):
    before, after, _ = outlives(tmp_path, PARENT.format(more=more, seconds=0))
    # It, and the keeper that stays with it.
    assert (len(before), after) == (2, [])


def test_shared_memory_and_temporary_files_go_with_a_program(tmp_path):
    name = Path(f"/dev/shm/paceline-test-{os.getpid()}")
    words = (
        "import mmap, sys, tempfile, time; f = open(sys.argv[1], 'w+b'); f.truncate(4096); "
        "m = mmap.mmap(f.fileno(), 4096); print('started', tempfile.mkdtemp(), flush=True); "
        "time.sleep(60)"
    )

    async def main():
        program = await started(tmp_path / "log", "-c", words, str(name))
        return await program.stop(4)

    assert asyncio.run(main()) == [str(name)]
    assert not name.exists()
    place = Path((tmp_path / "log").read_text().split()[1])
    assert place.parent.name.startswith("paceline-")
    assert not place.parent.exists()


def test_shared_memory_of_others_is_left_alone(tmp_path):
    name = Path(f"/dev/shm/paceline-other-{os.getpid()}")
    words = (
        "import mmap, sys, time; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4096); "
        "print('started', flush=True); time.sleep(60)"
    )
    with name.open("w+b") as file:
        file.truncate(4096)
        memory = mmap.mmap(file.fileno(), 4096)

        async def main():
            program = await started(tmp_path / "log", "-c", words, str(name))
            return await program.stop(4)

        assert asyncio.run(main()) == []
        assert name.exists()
        memory.close()
    name.unlink()


def test_what_cannot_be_ended_in_time_is_named(tmp_path):
    async def main():
        program = await started(
            tmp_path / "log", "-c", PARENT.format(more="", seconds=60), STUBBORN + SLEEP
        )
        with pytest.raises(EngineError, match=r"did not end within 0 s: python\d?\S* \d+"):
            await program.stop(0)
        await program.stop(1.2)

    asyncio.run(main())


def test_a_stop_that_is_broken_off_still_ends_everything(tmp_path):
    async def main():
        program = await started(
            tmp_path / "log", "-c", PARENT.format(more="", seconds=60), STUBBORN + SLEEP
        )
        stopping = asyncio.ensure_future(program.stop(60))
        await asyncio.sleep(0.3)
        stopping.cancel()
        await asyncio.wait({stopping})
        return program.members()

    assert asyncio.run(main()) == []


def test_a_program_in_the_background_lets_others_go_first(tmp_path):
    words = "import os; print('started', os.getpriority(os.PRIO_PROCESS, 0), flush=True)"

    async def main():
        program = await processes.start(
            [sys.executable, "-c", f"import time; time.sleep(0.2); {words}"],
            {},
            tmp_path / "log",
            background=True,
        )
        await program.exit
        await program.stop(1)

    asyncio.run(main())
    assert (tmp_path / "log").read_text() == "started 19\n"


def test_it_is_known_who_listens(tmp_path):
    words = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
        "print('started', s.getsockname()[1], flush=True); time.sleep(60)"
    )

    async def main():
        program = await started(tmp_path / "log", "-c", words)
        other = await started(tmp_path / "other", "-c", words)
        port = int((tmp_path / "log").read_text().split()[1])
        found = program.listens(port), other.listens(port), program.listens(1)
        await program.stop(4)
        await other.stop(4)
        return found

    assert asyncio.run(main()) == (True, False, False)


def test_a_port_that_another_one_takes_requests_from_too_is_not_its_own(tmp_path):
    # As vLLM's own servers do, two of which may so share a port.
    words = (
        "import socket, time; s = socket.socket(); "
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); "
        "s.bind(('127.0.0.1', {port})); s.listen(); "
        "print('started', s.getsockname()[1], flush=True); time.sleep(60)"
    )

    async def main():
        program = await started(tmp_path / "log", "-c", words.format(port=0))
        port = int((tmp_path / "log").read_text().split()[1])
        alone = program.listens(port)
        with socket.create_server(("127.0.0.2", port)):
            beside = program.listens(port)
        other = await started(tmp_path / "other", "-c", words.format(port=port))
        shared = program.listens(port)
        await program.stop(4)
        await other.stop(4)
        return alone, beside, shared

    assert asyncio.run(main()) == (True, True, False)


KILLED = """
import asyncio, sys
from pathlib import Path
from harness import processes
async def main():
    words = [sys.executable, "-c", *sys.argv[3:]]
    through = processes.Reach(words=("sh", "-c"), python=sys.executable) if sys.argv[2] else None
    program = await processes.start(words, {}, Path(sys.argv[1]), through=through, seconds=1.2)
    print(program.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def kill_paceline(folder: Path, *words: str, far: str = "", keeper: bool = False) -> None:
    """Starts a program, and kills with SIGKILL who has started it, and its keeper if asked."""
    log = folder / "point/log"
    log.parent.mkdir()
    paceline = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(log), far, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert paceline.stdout is not None
    pid = int(paceline.stdout.readline())
    while not log.exists() or "started" not in log.read_text():
        time.sleep(0.02)
    if keeper:
        (second,) = [one.pid for one in processes.living() if one.parent == pid]
        os.kill(second, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    paceline.kill()
    paceline.wait()
    paceline.stdout.close()


@pytest.mark.parametrize(("far", "seconds"), [("", 60), ("", 0), ("far", 60), ("far", 0.3)])
def test_nothing_is_left_of_a_killed_paceline(far, seconds, tmp_path):
    parent = PARENT.format(more=", env={}, stdout=-3, stderr=-3", seconds=seconds)
    child = f"{STUBBORN}{SLEEP} # {tmp_path}"
    kill_paceline(tmp_path, parent, child, far=far)
    begun = time.monotonic()
    while processes.leftovers(tmp_path) or told(child):
        assert time.monotonic() - begun < 10
        time.sleep(0.05)
    assert list(tmp_path.glob("paceline-*")) == []


def told(words: str) -> list[processes.Process]:
    """The processes of this machine that were started with these words."""
    lines = ((Path(f"/proc/{one.pid}/cmdline"), one) for one in processes.living())
    return [one for path, one in lines if path.exists() and words.encode() in path.read_bytes()]


def test_what_is_left_when_its_keeper_is_killed_too_is_found(tmp_path):
    kill_paceline(
        tmp_path, "print('started', flush=True); import time; time.sleep(60)", keeper=True
    )
    (left,) = processes.leftovers(tmp_path)
    os.kill(left.pid, signal.SIGKILL)


ORPHANED = """
import os, time
first = os.getppid()
while os.getppid() == first:
    time.sleep(0.02)
time.sleep(0.3)
print("still here", flush=True)
time.sleep(60)
"""


def test_what_outlives_a_command_is_kept_until_it_is_stopped(tmp_path):
    async def main():
        program = await started(tmp_path / "log", "-c", PARENT.format(more="", seconds=1), ORPHANED)
        await asyncio.wait({program.exit})
        async with asyncio.timeout(10):
            while "still here" not in (tmp_path / "log").read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await program.stop(2)
        return program.members()

    assert asyncio.run(main()) == []


def test_a_program_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(EngineError, match="cannot be started: there is no such"):
        asyncio.run(processes.start(["/nowhere/vllm"], {}, tmp_path / "log"))
