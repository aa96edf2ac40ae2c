"""vLLM as an engine kind, with a script in the place of the vllm command."""

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness import gpus, processes
from harness.client import Request
from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.run import run
from harness.topology import parse
from harness.vllm import birth
from harness.vllm.engine import Vllm
from results.errors import EngineError, InputError
from results.folder import create
from results.metrics import summarise
from results.run import read
from tests.test_gpus import surroundings
from tests.test_run import Notes
from workloads.growing import Growing
from workloads.prompt import marked


def engine(folder: Path, *flags: str, **settings) -> Vllm:
    """An engine whose environment is a folder with a script named vllm."""
    place = folder / "environment/bin"
    if not place.exists():
        place.mkdir(parents=True)
        (place / "python").symlink_to(sys.executable)
        shutil.copy(Path(__file__).with_name("fake_vllm.py"), place / "vllm")
    settings = {"model": "m", "ready_timeout": 20, "stop_timeout": 1.6, **settings}
    return Vllm(python=str(place / "python"), flags=flags, **settings)


def deployment(vllm: Vllm, topology: str = "TP1", **settings) -> Deployment:
    return Deployment(engine=vllm, topology=parse(topology), **settings)


@asynccontextmanager
async def started(vllm: Vllm, folder: Path):
    log = folder / "point/server.log"
    log.parent.mkdir(exist_ok=True)
    async with vllm.start(deployment(vllm, replay="on"), seed=1, log=log, keys={}) as server:
        yield server


def start(vllm: Vllm, folder: Path) -> str:
    """Starts and stops it; what its log then says."""

    async def main():
        async with started(vllm, folder):
            pass

    asyncio.run(main())
    return (folder / "point/server.log").read_text()


def test_what_cannot_be_worded_is_said_before_anything_starts(tmp_path):
    with pytest.raises(ValueError, match="state a tokenizer"):
        Vllm(python=str(tmp_path / "python"), mode="chat")


def test_a_server_answers_and_nothing_of_it_is_left(tmp_path):  # F-20
    lock = tmp_path / "lock"

    async def main():
        vllm = engine(tmp_path, "--fake-core", str(lock))
        async with started(vllm, tmp_path) as server:
            request = Request(id="r", prompt=marked((1, 16)), output=4, session="s")
            reply = await server.client.send(request, cut=asyncio.Event(), on_first=lambda _: None)
            members = processes.writers(tmp_path)
            # Others may run at the same time on this machine: theirs are not ours.
            named = [Path(f"/dev/shm/fake-{one.pid}") for one in members]
            return reply, members, [path for path in named if path.exists()]

    reply, during, shared = asyncio.run(main())
    assert (reply.error, reply.input_tokens, reply.output_tokens) == (None, 16, 4)
    # The server, its engine core, that one's worker, and the two keepers before them.
    assert len(during) == 5
    assert processes.writers(tmp_path) == []
    (left,) = shared
    assert not left.exists()
    assert f"removed what the server left: {left}" in (tmp_path / "point/server.log").read_text()
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_early_health_is_not_readiness(tmp_path):
    vllm = engine(tmp_path, "--fake-loading", "1.2")

    async def main():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with started(vllm, tmp_path):
            return loop.time() - begun

    assert asyncio.run(main()) > 1.2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--fake-death"], r"status 3 before it had answered .* says: ValueError: no such layer"),
        (["--fake-loading", "60"], r"within 2 s \(ready_timeout\): .*HTTP 503: still loading"),
        (["--fake-mute"], r"within 2 s .* still without an answer"),
        (["--fake-refusal"], "HTTP 400: there is no chat template"),
    ],
)
def test_a_server_that_does_not_come_up_is_said_to(flags, words, tmp_path):
    with pytest.raises(EngineError, match=words):
        start(engine(tmp_path, *flags, ready_timeout=2), tmp_path)
    assert processes.writers(tmp_path) == []


def test_a_port_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} is in use"):
            start(engine(tmp_path, port=port), tmp_path)


def test_what_a_killed_paceline_left_is_given_the_time_to_end(tmp_path):
    point = tmp_path / "earlier"
    point.mkdir()

    async def main():
        program = await processes.start(["sleep", "0.5"], {}, point / "server.log")
        try:
            async with started(engine(tmp_path), tmp_path):
                pass
        finally:
            await program.stop(4)

    asyncio.run(main())


def test_a_server_that_is_left_over_is_refused(tmp_path):
    point = tmp_path / "earlier"
    point.mkdir()

    async def main():
        program = await processes.start(["sleep", "60"], {}, point / "server.log")
        try:
            with pytest.raises(InputError, match=r"still here: \w+ \d+"):
                async with started(engine(tmp_path), tmp_path):
                    pass
        finally:
            await program.stop(4)

    asyncio.run(main())


def test_without_vllm_the_way_to_get_it_is_said(tmp_path):
    with pytest.raises(EngineError, match="make vllm-cpu builds"):
        start(Vllm(python=str(tmp_path / "python")), tmp_path)


def measured(vllm: Vllm, folder: Path, watch: Notes | None = None, sessions: int = 6):
    """A point of this engine run into a folder."""
    point = Point(
        experiment="wire",
        deployment=deployment(vllm, replay="on"),
        workload=Growing(turns=4, first=40, fresh=10, output=6),
        load=Closed(concurrency=2, sessions=sessions),
    )
    return ran(folder, [point], watch)[0]


def ran(folder: Path, points: list[Point], watch: Notes | None = None):
    """Points run into one folder."""
    plan = {"hash": "0" * 8, "points": [point.facts() for point in points]}
    with create(folder / "runs", "test", "suite: test\n", plan, {"host": "here"}, 7) as run_folder:
        run(points, run_folder, watch or Notes())
    return read(run_folder.path).points


def short(vllm: Vllm, position: int, sessions: int, deployed: Deployment | None = None) -> Point:
    """A point of so many requests, one after the other and with none before them."""
    return Point(
        experiment="wire",
        deployment=deployed or deployment(vllm, replay="on"),
        workload=Growing(turns=1, first=40, fresh=10, output=4),
        load=Closed(concurrency=1, sessions=sessions, warmup=0),
        position=position,
    )


def faults(point) -> list[str]:
    """What speaks against a point, but for a client that had to share its cores."""
    problems = summarise(point).problems
    return [words for words in problems if "client was the bottleneck" not in words]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A point in whose way nothing is."""
    folder = tmp_path_factory.mktemp("plain")
    return measured(engine(folder), folder)


def test_counters_are_kept_and_agree_with_the_requests(plain):
    assert (plain.status, faults(plain)) == ("finished", [])
    samples = plain.samples().to_pylist()
    assert {row["name"] for row in samples} >= {"up", "vllm:prompt_tokens_total"}
    assert samples[0]["moment"] == 0
    assert not (plain.path / "server.arrow").exists()


def test_what_a_server_tells_of_itself_is_kept_without_secrets(plain):
    told = (plain.path / "server_info.json").read_text()
    assert "swa_bounded_replay" in told
    assert "hf_secret" not in told
    observed = plain.evidence.observed
    assert (observed.gpus, observed.provenance) == (1, "measured")
    assert observed.configuration["version"] == {"version": "fake"}
    assert observed.start["kv_tokens"] == [1000]
    assert observed.start["seconds_until_it_answered"] > 0
    assert observed.start["host"]["held_bytes"] > 0


def test_flags_to_measure_by_that_the_help_does_not_name_are_left_out(plain):
    command = plain.evidence.observed.configuration["command"]
    assert command.endswith("--max-cudagraph-capture-size 512 --enable-prompt-tokens-details")


def test_an_engine_core_that_is_killed_fails_the_point(tmp_path):
    vllm = engine(tmp_path, "--fake-core", str(tmp_path / "lock"))

    def kill(rows):
        if rows != 5:
            return
        members = processes.writers(tmp_path)
        parents = {one.pid: one.parent for one in members}
        # Of them all only the core's worker has nothing below it.
        (worker,) = parents.keys() - parents.values()
        os.kill(parents[worker], signal.SIGKILL)

    point = measured(vllm, tmp_path, Notes(on_row=kill), sessions=500)
    assert point.status == "failed"
    assert "EngineDeadError: the engine core ended with -9" in point.reason
    assert processes.writers(tmp_path) == []


def test_ctrl_c_ends_a_server_that_is_not_up_yet(tmp_path):
    vllm = engine(tmp_path, "--fake-loading", "60", ready_timeout=60)
    previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            measured(vllm, tmp_path)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert processes.writers(tmp_path) == []


def test_ctrl_c_stands_where_something_is_in_the_way_after_the_server(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # This one never listens, and at the end somebody else does.
    vllm = engine(tmp_path, "--headless", ready_timeout=60, port=port)
    taken = []

    def interrupt(*_):
        taken.append(socket.create_server(("127.0.0.1", port)))
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            measured(vllm, tmp_path)
    finally:
        signal.signal(signal.SIGALRM, previous)
        for one in taken:
            one.close()
    assert len(taken) == 1
    assert not list(tmp_path.glob("runs/*/*/outcome.json"))


def test_arms_with_a_share_stay_up_between_their_points_and_say_so(tmp_path):
    arms = [
        deployment(engine(tmp_path, resident_share=0.4), replay=arm) for arm in ("off", "on", "off")
    ]
    points = [short(arm.engine, position, 2, arm) for position, arm in enumerate(arms)]
    found = ran(tmp_path, points)
    assert [faults(point) for point in found] == [[]] * 3
    started = [point.evidence.observed.start for point in found]
    commands = [point.evidence.observed.configuration["command"] for point in found]
    assert commands[0] == commands[2] != commands[1]
    assert "--gpu-memory-utilization 0.4" in commands[0]
    assert [one.get("resident_beside") for one in started] == [
        None,
        ["vllm TP1 replay=off"],
        ["vllm TP1 replay=on"],
    ]
    log = (found[2].path / "server.log").read_text()
    assert "is up since an earlier point" in log
    assert "its prefix cache was emptied" in log
    assert processes.writers(tmp_path) == []


def test_arms_that_state_their_kv_cache_come_up_at_the_same_time(tmp_path):
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    vllm = engine(
        tmp_path,
        "--fake-meeting",
        f"{meeting}:2",
        resident_share=0.4,
        kv_cache_memory_bytes=1 << 30,
    )
    arms = [deployment(vllm, replay=arm) for arm in ("off", "on")]
    points = [short(vllm, position, sessions=2, deployed=arm) for position, arm in enumerate(arms)]
    found = ran(tmp_path, points)
    assert [faults(point) for point in found] == [[]] * 2
    assert len(list(meeting.iterdir())) == 2
    started = [point.evidence.observed for point in found]
    assert "--kv-cache-memory-bytes 1073741824" in started[0].configuration["command"]
    assert [one.start["resident_beside"] for one in started] == [
        ["vllm TP1 replay=on"],
        ["vllm TP1 replay=off"],
    ]
    assert "start-2/server.log" in (found[1].path / "server.log").read_text()
    assert processes.writers(tmp_path) == []


def test_an_arm_that_does_not_come_up_with_the_others_says_so_at_its_own_point(tmp_path):
    shared = {"resident_share": 0.3, "kv_cache_memory_bytes": 1 << 30}
    vllm = engine(tmp_path, **shared)
    arms = [
        deployment(vllm, replay="off"),
        deployment(vllm, replay="on", flags=("--fake-death",)),
        deployment(vllm),
    ]
    points = [short(vllm, position, sessions=1, deployed=arm) for position, arm in enumerate(arms)]
    found = ran(tmp_path, points)
    assert [point.status for point in found] == ["finished", "failed", "finished"]
    assert "ended with status 3 before it had answered" in found[1].reason
    assert {path.parent for path in tmp_path.glob("runs/*/*/start-*")} == {found[0].path}
    assert processes.writers(tmp_path) == []


def test_bad_input_is_told_as_itself_where_several_arms_come_up(tmp_path):
    (tmp_path / "tokenizer.json").write_text("none")
    vllm = engine(
        tmp_path,
        resident_share=0.4,
        kv_cache_memory_bytes=1 << 30,
        mode="text",
        tokenizer=str(tmp_path / "tokenizer.json"),
    )
    arms = [deployment(vllm, replay=arm) for arm in ("off", "on")]
    points = [short(vllm, position, sessions=1, deployed=arm) for position, arm in enumerate(arms)]
    with pytest.raises(InputError, match="tokenizer"):
        ran(tmp_path, points)
    assert processes.writers(tmp_path) == []


def test_pinned_and_unpinned_sessions_share_a_server_that_stays_up(tmp_path):
    vllm = engine(tmp_path, resident_share=0.4)
    arms = [deployment(vllm, "DEP2", pinned=pinned) for pinned in (True, False)]
    points = [short(vllm, position, sessions=2, deployed=arm) for position, arm in enumerate(arms)]
    found = ran(tmp_path, points)
    assert [point.status for point in found] == ["finished"] * 2
    assert [(point.path / "server_info.json").exists() for point in found] == [True, False]
    shown = [point.evidence.observed for point in found]
    assert shown[0].features["affinity"] == "rank-header"
    assert "affinity" not in shown[1].features | shown[1].requested
    assert "may go to any rank" in shown[1].start["affinity"]


def test_shares_that_add_up_to_more_than_a_gpu_are_refused(tmp_path):
    arms = [deployment(engine(tmp_path, resident_share=0.6), replay=arm) for arm in ("off", "on")]

    async def main() -> None:
        for number, arm in enumerate(arms):
            log = tmp_path / f"point{number}/server.log"
            log.parent.mkdir()
            async with arm.engine.start(arm, seed=1, log=log, keys={}):
                pass

    with pytest.raises(EngineError, match=r"ask for 1.20 of each GPU's memory: state smaller"):
        asyncio.run(main())
    assert processes.writers(tmp_path) == []


def test_what_is_otherwise_than_asked_makes_a_point_invalid_and_each_is_said(tmp_path):
    fakes = ("--fake-miscount", "3", "--fake-no-replay", "--fake-sequences", "16")
    vllm = engine(tmp_path, "--max-num-seqs", "64", *fakes)
    problems = summarise(measured(vllm, tmp_path)).problems
    assert (
        "replay: asked for on, observed encoder only: server.log has no line "
        '"Decoder SWA bounded replay: in eager prefill steps, layer"'
    ) in problems
    assert "max_sequences: asked for 64, observed 16: /server_info says so" in problems
    (counted,) = [words for words in problems if "counted" in words]
    assert "prompt tokens, and the requests add up to" in counted


def test_gpus_are_watched_counted_and_waited_for(tmp_path):
    lock = tmp_path / "lock"
    around = surroundings(tmp_path, FAKE_GPU_LOCK=str(lock))
    vllm = engine(tmp_path, "--fake-core", str(lock), environment=around, stop_timeout=3)
    point = measured(vllm, tmp_path, sessions=2)
    assert (point.status, faults(point)) == ("finished", [])
    start = point.evidence.observed.start
    assert start["gpus"] == ["1"]
    assert start["gpu_bytes"] == {"1": (90_000 - 4) << 20}
    names = {row["name"] for row in point.samples().to_pylist()}
    assert names >= {"gpu:power_watts", "gpu:throttle_reasons", "log:kernels_compiled_total"}


def test_memory_that_a_gpu_keeps_is_an_error_that_names_it(tmp_path):
    lock = tmp_path / "lock"
    around = surroundings(tmp_path, FAKE_GPU_LOCK=str(lock))
    with pytest.raises(EngineError, match=r"more memory in use than before .* GPU 1 87.9 GiB"):
        asyncio.run(_kept_by_another(lock, around))


async def _kept_by_another(lock: Path, around: dict[str, str]) -> None:
    before = await gpus.memory(around)
    with lock.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        await birth.released(before, around, 0.1)


def test_a_resident_server_that_ended_is_started_anew_at_its_next_point(tmp_path):
    # It answers the check and five requests of the first point; the second point's end it.
    vllm = engine(tmp_path, "--fake-crash-at", "9", resident_share=0.4)
    points = [short(vllm, position, sessions=5) for position in range(3)]
    found = ran(tmp_path, points)
    assert [point.status for point in found] == ["finished", "failed", "finished"]
    assert "ended with status 17 while it was measured: its engine core died" in found[1].reason
    assert "failed" in {row["state"] for row in found[1].rows().to_pylist()}
    assert processes.writers(tmp_path) == []


def test_a_resident_server_that_died_between_its_points_is_started_anew_for_the_next(tmp_path):
    class Killing(Notes):
        def point_finished(self, *_):
            for one in processes.writers(tmp_path):
                os.kill(one.pid, signal.SIGKILL)

    vllm = engine(tmp_path, resident_share=0.4)
    points = [short(vllm, position, sessions=2) for position in range(2)]
    assert [(point.status, point.reason) for point in ran(tmp_path, points, Killing())] == [
        ("finished", None)
    ] * 2


def test_a_resident_server_that_ends_is_not_blamed_for_the_memory_of_another(tmp_path):
    around = surroundings(tmp_path, FAKE_GPU_LOCK=str(tmp_path / "lock"))
    shared = {"resident_share": 0.4, "environment": around}
    ending = engine(tmp_path, "--fake-crash-at", "9", **shared)
    holding = engine(tmp_path, "--fake-core", str(tmp_path / "lock"), **shared)
    points = [
        short(vllm, position, sessions=5) for position, vllm in enumerate((ending, holding, ending))
    ]
    found = ran(tmp_path, points)
    assert [point.status for point in found] == ["finished", "finished", "failed"]
    assert "its engine core died" in found[2].reason


RESIDENTS = """
import asyncio, sys
from contextlib import AsyncExitStack
from pathlib import Path
from tests.test_vllm_engine import deployment, engine

async def main():
    folder = Path(sys.argv[1])
    async with AsyncExitStack() as stack:
        for arm in ("off", "on"):
            vllm = engine(folder, "--fake-core", str(folder / f"{arm}.lock"), resident_share=0.4)
            arm = deployment(vllm, replay=arm)
            log = folder / arm.replay / "server.log"
            log.parent.mkdir(parents=True)
            await stack.enter_async_context(vllm.start(arm, seed=1, log=log, keys={}))
        print("up", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_servers_that_stay_up_are_gone_soon_after_paceline_is_killed(tmp_path):
    place = tmp_path / "arms"
    place.mkdir()
    words = [sys.executable, "-c", RESIDENTS, str(place)]
    paceline = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    assert paceline.stdout is not None
    assert paceline.stdout.readline() == b"up\n"
    members = processes.writers(place)
    # Of each arm two keepers, the server, its engine core and that one's worker.
    assert len(members) == 10
    named = [Path(f"/dev/shm/fake-{one.pid}") for one in members]
    shared = [path for path in named if path.exists()]
    paceline.kill()
    paceline.wait()
    paceline.stdout.close()
    deadline = time.monotonic() + 10
    while processes.writers(place):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(shared) == 2
    assert not [path for path in shared if path.exists()]
