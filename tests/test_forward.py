"""Steps timed alone, with a script in the place of vllm bench forward."""

import shutil
from pathlib import Path

import pytest

from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.run import run
from harness.sim.engine import SimulatedEngine
from harness.topology import parse
from harness.vllm.engine import Vllm
from harness.vllm.forward import command
from reports.charts import charts, styles
from reports.steps import SCOPE
from reports.tables import summary_table
from results import rows
from results.errors import UnsupportedError
from results.folder import create
from results.metrics import pool, summarise
from results.run import read
from suites.description import describe
from suites.plan import plan
from suites.suite import load
from tests.sim_server import Quiet
from tests.test_gpus import surroundings
from tests.test_vllm_engine import engine
from workloads.forward import Forward

CURVE = Forward(batch=(1, 8, 64), context=(0, 2048), iterations=4, samples=2)


def point(vllm, workload=CURVE, topology="TP1", **settings) -> Point:
    deployment = Deployment(engine=vllm, topology=parse(topology), **settings)
    once = Closed(sessions=1)
    return Point(experiment="curve", deployment=deployment, workload=workload, load=once)


def ran(folder: Path, *points: Point):
    facts = {"hash": "0" * 8, "points": [one.facts() for one in points]}
    with create(folder / "runs", "probe", "", facts, {}, 1) as made:
        run(points, made, Quiet())
    return read(made.path)


def words(workload=CURVE, topology="TP1", **settings) -> list[str]:
    vllm = Vllm(python="env/bin/python", model="m", **settings)
    deployment = Deployment(engine=vllm, topology=parse(topology))
    return command(vllm, deployment, workload, Path("out.json"))


def cases(told: list[str]) -> list[str]:
    return [told[n + 1] for n, word in enumerate(told) if word == "--case"]


def test_every_run_of_a_step_is_a_row_and_none_is_a_request(tmp_path):
    (point_,) = ran(tmp_path, point(engine(tmp_path), replay="on")).points
    steps = rows.read_steps(point_.path)
    assert (point_.status, point_.reason) == ("finished", None)
    assert point_.rows().num_rows == 0
    assert steps.num_rows == 6 * 8
    contexts = dict.fromkeys(steps["context_tokens"].to_pylist())
    assert (list(contexts), set(steps["batch"].to_pylist())) == ([0, 2048], {1, 8, 64})
    assert steps["sample"].to_pylist()[:8] == [0, 0, 0, 0, 1, 1, 1, 1]
    observed = point_.evidence.observed
    assert (observed.features["replay"], observed.gpus) == ("on", 1)
    assert observed.configuration["routing"] == "balanced"


def test_figures_and_charts_are_of_steps_and_say_that_they_are(tmp_path):
    run_ = ran(tmp_path, point(engine(tmp_path), replay="on"))
    summaries = pool([summarise(one) for one in run_.points])
    (summary,) = summaries
    assert summary.valid
    time, rate = (summary.figures[f"{key}.8x2048+1"] for key in ("step_time", "step_rate_per_gpu"))
    assert time.value == pytest.approx((100 + 8 + 2049 / 1024 + 0.01) / 1e6)
    assert rate.value == pytest.approx(8 / time.value)
    told = summary_table(summaries, 120)
    assert "engine level" in told
    assert "8 x 1 on 2048" in told
    drawn = charts(summaries, styles(["vllm TP1 replay=on"]))
    assert [chart.title for chart in drawn] == [
        f"Step time against batch size ({SCOPE}): context {context}" for context in (0, 2048)
    ]
    assert drawn[0].figure["data"][0]["x"] == [1, 8, 64]


def test_what_ran_otherwise_than_asked_is_invalid(tmp_path):
    vllm = engine(tmp_path, "--fake-jitter")
    (one,) = ran(tmp_path, point(vllm, replay="on")).points
    assert "step 1x0+1 ran with other requests than asked for" in summarise(one).problems
    off = engine(tmp_path, "--fake-no-replay")
    (two,) = ran(tmp_path, point(off, replay="on")).points
    (problem,) = summarise(two).problems
    assert problem.startswith("replay: asked for on, observed off: server.log has no line")


def test_a_tool_that_fails_fails_the_point_with_what_it_said(tmp_path):
    (one,) = ran(tmp_path, point(engine(tmp_path, "--fake-failure"))).points
    assert one.status == "failed"
    assert "ended with status 1: " in one.reason
    assert "needs 9 KV blocks, but only 8 exist" in one.reason


def test_a_step_that_was_timed_less_often_than_asked_is_invalid(tmp_path):
    (point_,) = ran(tmp_path, point(engine(tmp_path, "--fake-times", "[101.5]"))).points
    assert (point_.status, rows.read_steps(point_.path).num_rows) == ("finished", 6)
    problem = "step 1x0+1 was timed 1 times, and other steps, or samples, are 2"
    assert problem in summarise(point_).problems


@pytest.mark.parametrize("told", ["[null]", "[0]", "5", "[1e999]"])
def test_times_that_are_none_fail_the_point_and_not_the_run(told, tmp_path):
    (point_,) = ran(tmp_path, point(engine(tmp_path, "--fake-times", told))).points
    assert point_.status == "failed"
    assert "forward.json" in point_.reason


def test_a_vllm_without_the_tool_is_unsupported_and_says_which_has_it(tmp_path):
    vllm = engine(tmp_path)
    script = Path(vllm.python).parent / "vllm"
    shutil.copy(script, script.with_name("whole"))
    script.write_text("import sys\nsys.exit(sys.stderr.write(\"invalid choice: 'forward'\") and 2)")
    (one,) = ran(tmp_path, point(vllm)).points
    assert one.status == "unsupported"
    assert "has no bench forward, by its own help, and vLLM 0.33.0 has" in one.reason


def test_other_engines_say_that_they_cannot(tmp_path):
    (one,) = ran(tmp_path, point(SimulatedEngine())).points
    assert one.status == "unsupported"
    assert one.reason.startswith("kind sim cannot time single steps: write kind: vllm")


def test_steps_are_worded_for_each_rank():
    told = words(Forward(batch=(8, 64), context=(8192,)), "DEP2")
    assert cases(told) == ["8x8192+1=4*1@8193", "64x8192+1=32*1@8193"]
    assert told[:10] == [
        *("env/bin/python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "vllm.entrypoints.cli.main", "bench", "forward"),
    ]
    assert " ".join(told).count("--data-parallel-size 2 --enable-expert-parallel") == 1
    prefill = Forward(batch=(1,), context=(0, 131072), new_tokens=(4096,))
    assert cases(words(prefill)) == ["1x0+4096=1*4096@4096", "1x131072+4096=1*4096@135168"]
    drafted = Forward(batch=(8,), context=(8192,), drafts=5)
    assert cases(words(drafted, speculation="synthetic")) == ["8x8192+6=8*6@8198:5"]


@pytest.mark.parametrize(
    ("workload", "topology", "settings", "why"),
    [
        (CURVE, "DEP2", {}, "a batch of 1 cannot be dealt out evenly to 2 ranks"),
        (CURVE, "1xTP1+1xTP1", {}, "more than one engine on this machine"),
        (CURVE, "TP8", {"gpus_per_node": 4}, "more than one engine on this machine"),
        (CURVE, "TP1", {"nodes": ("a",), "launcher": "ssh {host}"}, "and no launcher"),
        (CURVE, "TP1", {"max_sequences": 32}, "64 requests a rank are more than max_sequences 32"),
        (Forward(batch=(1,), context=(0,), new_tokens=(9000,)), "TP1",
         {"max_batched_tokens": 8192}, "up to 9000 tokens a rank"),
        (Forward(batch=(1,), context=(9,), drafts=5), "TP1", {}, "5 drafts a step need"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_alone_is_said_before_anything_starts(workload, topology, settings, why):
    with pytest.raises(UnsupportedError, match=why):
        words(workload, topology, **settings)


def test_the_arm_that_is_no_arm_of_a_step_alone_is_unsupported(tmp_path):
    (one,) = ran(tmp_path, point(engine(tmp_path), replay="on-eager")).points
    assert one.status == "unsupported"
    assert "write replay: [off, on]" in one.reason


def test_lists_of_sizes_are_one_point_and_a_load_is_refused(tmp_path):
    suite = tmp_path / "probe.yaml"
    text = (
        "suite: probe\nexperiments:\n"
        "  - {name: curve, engine: {kind: vllm}, topology: TP1, replay: [off, on],\n"
        "     workload: {kind: forward, batch: [1, 8], context: [2048]},\n"
        "     load: {kind: closed, sessions: 1}}\n"
    )
    suite.write_text(text)
    (experiment,) = load(str(suite)).experiments
    assert [one.workload.label for one in experiment.grid] == ["forward 1-8x2048+1"] * 2
    (line,) = describe(plan(load(str(suite)))).starts["vllm TP1 replay=off (1 GPU)"]
    assert " bench forward " in line
    suite.write_text(text.replace("vllm}", "sim}"))
    (line,) = describe(plan(load(str(suite)))).starts["sim TP1 replay=off (1 GPU)"]
    assert line.startswith("unsupported: kind sim cannot time single steps")
    suite.write_text(text.replace("sessions: 1", "sessions: 2"))
    with pytest.raises(Exception, match="expected no load beside forward, which sends nothing"):
        load(str(suite))


def test_what_gpus_show_while_steps_are_timed_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", surroundings(tmp_path)["PATH"])
    (one,) = ran(tmp_path, point(engine(tmp_path))).points
    assert "gpu:power_watts" in one.samples()["name"].to_pylist()
    assert not one.rows().num_rows


V41 = {"recipe": "deepseek-v4.1", "engram": "host", "capture_size": 512}
LINES = {
    "TP1": ("TP1", "on", CURVE, {"model": "m"}),
    "TP4": (
        *("TP4", "on", Forward(batch=(8, 64), context=(8192,), drafts=5)),
        V41 | {"speculation": "synthetic", "sparse_logits": True, "max_sequences": 256},
    ),
    "DEP2": (
        *("DEP2", "off", Forward(batch=(2,), context=(0, 131072), new_tokens=(4096, 65536))),
        V41 | {"prefix_caching": False},
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_command_line_is_word_for_word_as_it_was(name):
    topology, replay, workload, settings = LINES[name]
    vllm = Vllm(python="env/bin/python", **settings)
    deployment = Deployment(engine=vllm, topology=parse(topology), replay=replay)
    (line,) = vllm.probing(deployment, workload)
    golden = Path(__file__).parent / f"golden/forward/{name}.txt"
    assert f"{line}\n" == golden.read_text()
