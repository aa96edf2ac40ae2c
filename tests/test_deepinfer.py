"""DeepInfer as an engine kind, its worker run on a simulated engine of the published names."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness import processes
from harness.client import Request
from harness.deepinfer.engine import DeepInfer
from harness.engine import Deployment
from harness.load import Closed, Open
from harness.point import Point
from harness.run import run
from harness.topology import parse
from results.comparison import compare
from results.errors import EngineError, UnsupportedError
from results.folder import create
from results.metrics import summarise
from results.run import read
from results.samples import increase
from results.side import within
from tests.sim_server import Quiet
from tests.test_vllm_engine import engine as vllm
from workloads.agentx import AgentX
from workloads.batch import Batch
from workloads.growing import Growing
from workloads.prompt import marked
from workloads.single import Single

FAKE = str(Path(__file__).with_name("fake_deepinfer.py"))
CHILD = "import subprocess; subprocess.Popen(['sleep', '60'], stdin=-3, stdout=-3)"
ALONE = Closed(concurrency=1, sessions=2)


def engine(*, environment=None, **settings) -> DeepInfer:
    settings = {"model": "m", "worker": FAKE, "ready_timeout": 20, "stop_timeout": 2, **settings}
    return DeepInfer(python=sys.executable, environment=environment or {}, **settings)


def deployment(made=None, topology="TP1", **settings) -> Deployment:
    return Deployment(engine=made or engine(), topology=parse(topology), **settings)


def point(made, workload, load=ALONE, topology="TP1", position=0, repeat=0, **settings) -> Point:
    return Point(
        experiment="offline",
        deployment=deployment(made, topology, **settings),
        workload=workload,
        load=load,
        position=position,
        repeat=repeat,
    )


def measured(folder, *points):
    """The run of these points, each in its place."""
    placed = [replace(one, position=number) for number, one in enumerate(points)]
    plan = {"points": [one.facts() for one in placed], "hash": "00000000"}
    made = create(folder, "offline", "suite: offline\n", plan, {"gpus": []}, 1)
    run(placed, made, Quiet())
    return read(made.path)


@asynccontextmanager
async def started(wanted, folder):
    log = folder / "point/server.log"
    log.parent.mkdir(exist_ok=True)
    async with wanted.engine.start(wanted, seed=1, log=log, keys={}) as server:
        yield server


def replies(wanted, folder, *requests):
    """What comes of requests that are sent together, and what was observed."""

    async def main():
        async with started(wanted, folder) as server:
            sends = [
                server.client.send(one, cut=asyncio.Event(), on_first=lambda _: None)
                for one in requests
            ]
            return await asyncio.gather(*sends), server.observe()

    return asyncio.run(main())


def request(name, tokens=16, output=4, rank=None) -> Request:
    return Request(id=name, prompt=marked((1, tokens)), output=output, session=name, rank=rank)


def test_what_would_start_is_said_for_each_rank():
    made = DeepInfer(
        python="env/bin/python",
        worker="w.py",
        arguments={"max_model_len": 8192},
        environment={"DEEPINFER_USE_NEXTN_DECODE": "0"},
        devices=(4, 6),
    )
    first, second, call = made.describe(deployment(made, "DEP2", replay="on"))
    switches = (
        "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE=compact DEEPINFER_YOCO_PREFILL_KEEP_TOKENS=140 "
        "DEEPINFER_USE_NEXTN_DECODE=0 env/bin/python -P w.py"
    )
    assert first == f"CUDA_VISIBLE_DEVICES=4 {switches}"
    assert second == f"CUDA_VISIBLE_DEVICES=6 {switches}"
    assert call == (
        "LLM(model='deepseek-ai/DeepSeek-V4.1-Flash', max_model_len=8192, expert_parallel_size=2, "
        "data_parallel_size=2, engine_rank=0, decode_sequence=False, disable_log_stats=False)"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"topology": "TP4"}, "neither tensor nor pipeline parallelism .* no TP4: write TP1"),
        ({"topology": "DEP2xPP2"}, "no DEP2xPP2"),
        ({"topology": "DEP2", "made": engine(devices=(1,))}, "takes 2 GPUs, and devices names 1"),
        ({"replay": "on-eager"}, "no way without graphs: write replay off or on"),
        ({"flags": ("--x",)}, "takes no flags: write them as the engine's arguments"),
        (
            {
                "replay": "on",
                "environment": {"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE": "mask"},
            },
            "replay is on, and DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE is stated too",
        ),
    ],
)
def test_a_deployment_it_cannot_be_is_unsupported_with_the_reason(settings, words):
    wanted = deployment(**settings)
    with pytest.raises(UnsupportedError, match=words):
        wanted.engine.describe(wanted)


@pytest.mark.parametrize(
    ("workload", "load", "words"),
    [
        (AgentX(generated=2), ALONE, "no prefix cache, and agentx"),
        (Growing(turns=2, first=64, fresh=8, output=4), ALONE, "no prefix cache, and growing"),
        (Single(prompt=64, output=4, cached=64), ALONE, r"no prefix cache, and single 64\+64"),
        (Single(prompt=64, output=4), Closed(concurrency=2, sessions=4), "at most one for each"),
        (Single(prompt=64, output=4), Open(rate=1, sessions=4), "no open load: write a closed"),
    ],
)
def test_work_it_cannot_do_is_unsupported_with_the_reason(workload, load, words):
    made = engine()
    with pytest.raises(UnsupportedError, match=words):
        made.check(workload, load, deployment(made))


@pytest.mark.parametrize(
    ("workload", "concurrency", "topology"),
    [
        (Single(prompt=64, output=4), 1, "TP1"),
        (Single(prompt=64, output=4), 2, "DEP2"),
        (Batch(requests=4, context=64, output=8), 1, "TP1"),
    ],
)
def test_single_prompts_and_batches_are_what_it_can_do(workload, concurrency, topology):
    made = engine()
    load = Closed(concurrency=concurrency, sessions=4)
    assert made.check(workload, load, deployment(made, topology)) is None


def test_what_follows_from_the_topology_is_no_argument():
    with pytest.raises(ValueError, match="arguments hold engine_rank, which is set"):
        DeepInfer(arguments={"engine_rank": 1})


def test_what_holds_a_secret_is_refused():
    sentence = "^HF_TOKEN holds a secret, .* which workers inherit$"
    with pytest.raises(ValueError, match=sentence):
        DeepInfer(environment={"HF_TOKEN": "hf_1"})
    wanted = deployment(environment={"HF_TOKEN": "hf_1"})
    with pytest.raises(UnsupportedError, match=sentence):
        wanted.engine.describe(wanted)


def test_single_prompts_and_batches_become_valid_points(tmp_path):
    made = engine(environment={"DEEPINFER_USE_NEXTN_DECODE": "0"})
    alone = point(made, Single(prompt=256, output=12), replay="on")
    together = point(made, Batch(requests=4, context=64, output=120), replay="on")
    kept = measured(tmp_path, alone, together)
    single, batch = map(summarise, kept.points)
    for summary in (single, batch):
        assert (summary.status, summary.provenance) == ("finished", "simulated")
        # Whoever runs the tests may have little time for the client.
        assert [one for one in summary.problems if "client was the bottleneck" not in one] == []
    assert single.figures["tpot.p50"].value > 0.001
    assert single.figures["cache_hit"].reason == "the server does not tell cached tokens"
    assert batch.figures["batch_size"].value == 4
    samples = kept.points[1].samples()
    (stepping,) = increase(samples, "paceline:step_seconds_total").values()
    assert stepping > 0.2
    assert "deepinfer:balancedness" in samples["name"].to_pylist()
    evidence = kept.points[0].evidence.observed
    assert (evidence.gpus, evidence.features) == (1, {"replay": "on"})
    assert evidence.configuration["version"] == {"deepinfer": "0.1.0"}
    assert evidence.configuration["arguments"]["max_model_len"] == 4096
    assert evidence.configuration["environment"]["DEEPINFER_USE_NEXTN_DECODE"] == 0
    assert processes.writers(tmp_path) == []


def test_a_replay_that_is_not_on_makes_the_point_invalid(tmp_path):
    made = engine(environment={"FAKE_MODE": "off"})
    kept = measured(tmp_path, point(made, Single(prompt=32, output=2), replay="on"))
    assert "replay: asked for on, observed off" in summarise(kept.points[0]).problems


def test_a_worker_that_ends_is_a_failed_point_with_its_last_words(tmp_path):
    made = engine(environment={"FAKE_DEATH": "20"})
    (lost,) = measured(tmp_path, point(made, Single(prompt=32, output=8))).points
    assert lost.status == "failed"
    assert "the worker of rank 0 ended with status 3" in lost.reason
    assert "CUDA error: an illegal memory access" in lost.reason
    assert {"ok", "failed"} == set(lost.rows()["state"].to_pylist())


def test_a_gpu_that_is_none_for_it_is_unsupported(tmp_path):
    made = engine(environment={"FAKE_GPU": "sm90"})
    (refused,) = measured(tmp_path, point(made, Single(prompt=32, output=2))).points
    assert refused.status == "unsupported"
    assert "compute capability 10" in refused.reason


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"arguments": {"tensor_parallel_size": 2}}, "unexpected keyword .*tensor_parallel_size"),
        ({"worker": "/nowhere.py"}, "ended with status 2: .*can't open file"),
    ],
)
def test_a_worker_that_does_not_come_up_is_said_to(settings, words, tmp_path):
    with pytest.raises(EngineError, match=words):
        replies(deployment(engine(**settings)), tmp_path)
    assert processes.writers(tmp_path) == []


@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        ("print('hello')", 20, "said what is no JSON line"),
        ('print(\'{"ev": "ready", "now": 1.0}\')', 20, "says that it is 1.0 on its clock"),
        ('print(\'{"ev": "ready", "protocol": 2}\')', 20, "speaks protocol 2 and not 1"),
        (f"{CHILD}; raise SystemExit(4)", 20, "ended with status 4"),
        ("import time; time.sleep(60)", 0.3, r"not ready within 0.3 s \(ready_timeout\)"),
    ],
)
def test_a_worker_that_is_none_is_refused(script, seconds, words, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(script)
    with pytest.raises(EngineError, match=words):
        replies(
            deployment(engine(worker=str(worker), ready_timeout=seconds, stop_timeout=0.8)),
            tmp_path,
        )


def test_an_interpreter_that_is_none_is_refused(tmp_path):
    made = replace(engine(), python="/nowhere/python")
    with pytest.raises(EngineError, match="/nowhere/python cannot be started"):
        replies(deployment(made), tmp_path)


def test_what_an_engine_refuses_fails_and_counts_no_token(tmp_path):
    made = engine(arguments={"max_model_len": 64})
    long, short = request("long", tokens=65), request("short", tokens=60)
    (one, other), _ = replies(deployment(made), tmp_path, long, short)
    assert (one.error, len(one.stamps)) == ("the engine ended it: prompt_length_exceeded", 0)
    assert (other.error, other.output_tokens) == (None, 4)


def test_work_it_cannot_do_is_a_row_that_says_why_and_starts_nothing(tmp_path):
    made = replace(engine(), python="/nowhere/python")
    (row,) = measured(tmp_path, point(made, Single(prompt=64, output=4, cached=64))).points
    assert row.status == "unsupported"
    assert "no prefix cache, and single 64+64" in row.reason


def test_each_rank_has_its_own_requests_and_drafts_are_counted(tmp_path):
    made = engine(environment={"DEEPINFER_USE_NEXTN_DECODE": "2"})
    sent = (request("a", rank=1, output=7), request("b"), request("c"), request("d"))
    (pinned, *free), observed = replies(deployment(made, "DEP2"), tmp_path, *sent)
    assert (pinned.rank, pinned.error, observed.gpus) == (1, None, 2)
    assert [reply.rank for reply in free] == [0, 0, 1]
    # One token from the prompt, then two drafts and one of its own, twice.
    assert pinned.tokens.tolist() == [1, 3, 3]
    assert (pinned.output_tokens, pinned.draft_tokens, pinned.accepted_tokens) == (7, 4, 4)
    assert pinned.sent < pinned.stamps[0] <= pinned.stamps[-1] <= pinned.closed


def test_a_request_is_cut_with_what_has_arrived(tmp_path):
    async def main():
        async with started(deployment(), tmp_path) as server:
            cut = asyncio.Event()
            reply = await server.client.send(
                request("r", output=100_000), cut=cut, on_first=lambda _: cut.set()
            )
            after = await server.client.send(
                request("s"), cut=asyncio.Event(), on_first=lambda _: None
            )
            return reply, after

    reply, after = asyncio.run(main())
    assert (reply.cut, reply.error, reply.finish_reason) == (True, None, None)
    assert 1 <= len(reply.stamps) < 1000
    assert (after.error, after.output_tokens, after.input_tokens) == (None, 4, 16)


def test_a_worker_that_falls_silent_fails_its_requests(tmp_path):
    made = engine(environment={"FAKE_PREFILL": "60"}, silence=0.3, stop_timeout=0.8)
    (reply,), _ = replies(deployment(made), tmp_path, request("r"))
    assert reply.error == "the worker of rank 0 said nothing for 0.3 s"
    assert processes.writers(tmp_path) == []


SUITE = """
suite: killed
seed: 1
experiments:
  - name: offline
    engine:
      kind: deepinfer
      python: {python}
      worker: {worker}
      environment: {{FAKE_LOADING: "60"}}
      stop_timeout: 2
    model: m
    topology: DP2
    workload: {{kind: single, prompt: 64, output: 4}}
    load: {{kind: closed, concurrency: 1, sessions: 2}}
"""


def test_workers_that_listen_to_nobody_are_gone_soon_after_paceline_is_killed(tmp_path):
    suite = tmp_path / "killed.yaml"
    suite.write_text(SUITE.format(python=sys.executable, worker=FAKE))
    told = (tmp_path / "told").open("wb")
    paceline = subprocess.Popen(
        [sys.executable, "-m", "cli", "run", str(suite), "--out", str(tmp_path / "run")],
        stdout=told,
        stderr=told,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 60
    while logged(tmp_path).count("loading weights") < 2:
        assert paceline.poll() is None, (tmp_path / "told").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    members = [one for one in processes.writers(tmp_path) if one.pid != paceline.pid]
    paceline.kill()
    paceline.wait()
    told.close()
    # Of each rank the worker, and two keepers before it.
    assert len(members) == 6
    deadline = time.monotonic() + 10
    while processes.writers(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(tmp_path.glob("paceline-*")) == []


def logged(folder: Path) -> str:
    """What the workers of the runs in a folder have logged."""
    return "".join(log.read_text() for log in folder.glob("run/**/server.log"))


def test_it_is_compared_with_vllm_in_every_cell_that_both_can_do(tmp_path):
    # One is simulated and the other is not, which is all that stands between them.
    offline, served = engine(environment={"FAKE_DECODE": "0.002"}), vllm(tmp_path)
    once = Closed(concurrency=1, sessions=1, warmup=0)
    works = Single(prompt=64, output=4), Batch(requests=2, context=64, output=16)
    kept = measured(
        tmp_path,
        *(point(made, work, once, replay="on") for work in works for made in (offline, served)),
    )
    ((base, other),) = within(kept)
    (refusal,) = compare(base, other).refusals
    assert refusal.startswith("provenance: simulated against measured")
    told = compare(base, other, allow=["provenance"])
    assert (told.refusals, told.unmatched, len(told.cells)) == ((), (), 2)
