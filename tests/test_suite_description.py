import sys
from dataclasses import asdict, dataclass, replace

import orjson
import pytest

from suites.description import describe
from suites.plan import plan
from suites.suite import load


@dataclass(frozen=True, kw_only=True)
class WallEngine:
    """An engine of the wall clock that says which flags it would be started with."""

    kind: str = "wall"
    name: str = "wall"
    clock: str = "wall"

    def describe(self, deployment):
        return [f"serve {' '.join(deployment.flags)}"]


EXPERIMENT = """
  - name: {name}
    engine: {{kind: sim}}
    topology: TP4
    replay: [off, on]
    workload: {{kind: single, prompt: 1, output: 1}}
    load: {{kind: closed, concurrency: [1, 2], duration: 90s}}
"""
TEXT = "suite: s\nexperiments:" + EXPERIMENT.format(name="a") + EXPERIMENT.format(name="b")


@pytest.fixture
def planned(tmp_path):
    def make(*overrides):
        path = tmp_path / "s.yaml"
        path.write_text(TEXT)
        return plan(load(str(path), overrides))

    return make


def on_the_wall(made, flags):
    """The plan with its points on a real engine, each experiment with flags of its own."""
    deployments = {name: {"engine": WallEngine(), "flags": (flag,)} for name, flag in flags.items()}
    points = tuple(
        replace(p, deployment=replace(p.deployment, **deployments[p.experiment]))
        for p in made.points
    )
    return replace(made, points=points)


def test_a_row_says_what_a_point_is_in_numbers(planned):
    row = describe(planned()).rows[1]
    assert (row.position, row.experiment, row.arm, row.repeat) == (1, "a", "sim TP4 replay=off", 0)
    assert row.workload == {"kind": "single", "prompt": 1, "output": 1, "cached": 0}
    assert (row.load["concurrency"], row.load["duration"]) == (2, 90.0)
    assert 0 < row.seconds < 10


def test_a_description_is_json(planned):
    described = orjson.loads(orjson.dumps(asdict(describe(planned()))))
    assert [row["position"] for row in described["rows"]] == list(range(8))
    assert isinstance(described["seconds"], float)


def test_an_arm_is_told_once_with_what_starting_it_does(planned):
    starts = describe(planned("repeats=2")).starts
    assert list(starts) == ["sim TP4 replay=off (4 GPUs)", "sim TP4 replay=on (4 GPUs)"]
    assert starts["sim TP4 replay=off (4 GPUs)"][0].startswith("SIMULATED, nothing is started: TP4")


def test_an_arm_that_starts_in_two_ways_is_told_twice(planned):
    starts = describe(on_the_wall(planned(), {"a": "-x", "b": "-y"})).starts
    assert starts["wall TP4 replay=off (4 GPUs) in a"] == ("serve -x",)
    assert starts["wall TP4 replay=off (4 GPUs) in b"] == ("serve -y",)


def test_what_an_engine_cannot_do_is_shown(planned):
    lines = describe(planned("experiments.a.flags=[-x]")).starts["sim TP4 replay=off (4 GPUs) in a"]
    assert lines[0].startswith("unsupported: ")
    assert "flags" in lines[0]


@pytest.mark.parametrize(
    "changes",
    [
        ["flags=[-x]"],
        ["topology=1xTP4+1xTP4"],
        [
            "workload={kind: questions, task: paceline-arithmetic, max_tokens: 8}",
            "load={kind: closed}",
        ],
        ["engine={kind: vllm, gpus_per_node: 2}", "load.warmup=1"],
    ],
)
def test_a_point_that_is_unsupported_takes_no_time_starts_nothing_and_asks_nothing(
    planned, changes
):
    described = describe(planned(*(f"experiments.a.{change}" for change in changes)))
    refused = [row for row in described.rows if row.experiment == "a"]
    assert all(row.unsupported and row.seconds is row.answers is None for row in refused)
    assert described.seconds == sum(row.seconds for row in described.rows if not row.unsupported)
    assert (described.unknown, described.simulated) == (0, 4 * 90.0)
    assert (described.servers, described.warmups) == (0, 0)
    told = [line for lines in described.starts.values() for line in lines]
    assert sum(refused[0].unsupported in line for line in told) == 2


def test_points_that_the_engine_refuses_among_others_are_counted(planned):
    engine = "experiments.a.engine={kind: deepinfer}"
    described = describe(planned(engine, "experiments.a.topology=TP1"))
    assert [bool(row.unsupported) for row in described.rows[:4]] == [False, True] * 2
    told = described.starts["deepinfer TP1 replay=off (1 GPU)"]
    assert told[-1] == f"unsupported in 1 point: {described.rows[1].unsupported}"
    assert described.servers == 2


@pytest.mark.parametrize(
    ("settings", "asked", "different"),
    [
        ("task: gsm8k", 1319, 1319),
        ("task: gsm8k, epochs: 3", 3 * 1319, 1319),
        ("task: gsm8k, epochs: 3, temperature: 0.7", 3 * 1319, 3 * 1319),
        ("task: gpqa-diamond, epochs: 12", 12 * 198, 12 * 198),
        ("task: another, epochs: 3", None, None),
    ],
)
def test_a_question_that_is_asked_again_in_the_same_way_is_no_other_answer(
    planned, settings, asked, different
):
    questions = f"experiments.a.workload={{kind: questions, max_tokens: 8, {settings}}}"
    engine = "experiments.a.engine={kind: sim, accuracy: {right: 0.9}}"
    row = describe(planned(questions, engine, "experiments.a.load={kind: closed}")).rows[0]
    assert (row.answers, row.different) == (asked, different)


def test_a_row_says_in_what_its_traces_are_not_those_of_its_profile(planned):
    workload = "experiments.a.workload={kind: agentx, profile: agentx-v1, generated: 2}"
    rows = describe(planned(workload)).rows
    assert rows[0].departures == (
        "sessions are generated, and agentx-v1 replays recorded ones",
        "traces: 2, not the 393 of agentx-v1",
    )
    assert rows[-1].departures == ()


def test_totals_are_of_what_can_be_known(planned):
    described = describe(planned("experiments.b.load.sessions=3"))
    assert described.seconds == pytest.approx(sum(row.seconds for row in described.rows))
    assert (described.unknown, described.simulated, described.servers) == (0, 4 * 90.0, 0)


def test_a_point_that_ends_by_sessions_on_the_wall_is_of_unknown_length(planned):
    made = planned("experiments.b.load={kind: closed, sessions: 3}")
    described = describe(on_the_wall(made, {"a": "-x", "b": "-x"}))
    assert [row.seconds for row in described.rows[-2:]] == [None, None]
    assert (described.unknown, described.seconds, described.servers) == (2, 4 * 90.0, 6)
    assert described.simulated == 0


def test_an_endpoint_is_warmed_up_and_not_started(planned):
    engine = "{kind: endpoint, url: http://127.0.0.1:1, model: m}"
    changes = [f"experiments.a.{key}" for key in (f"engine={engine}", "topology=TP1", "replay=off")]
    described = describe(planned(*changes, "experiments.a.load.warmup=[0, 1]"))
    assert (described.servers, described.warmups) == (0, 2)


def test_a_row_says_how_many_recorded_traces_fit(planned, tmp_path):
    call = {"t": 0.0, "type": "n", "in": 500, "out": 5, "hash_ids": [1, 2]}
    traces = [{"id": str(n), "requests": [call | {"in": n * 500}]} for n in (1, 2, 9)]
    (tmp_path / "traces.jsonl").write_bytes(b"\n".join(map(orjson.dumps, traces)))
    workload = "{kind: agentx, traces: traces.jsonl, context_limit: 2000}"
    rows = describe(planned(f"experiments.a.workload={workload}")).rows
    assert [row.fitting for row in rows[::4]] == [[2, 3], None]


def test_a_server_that_stays_up_is_started_once(planned):
    engine = "{kind: vllm, resident_share: 0.4, model: m}"
    changes = [f"experiments.a.{key}" for key in (f"engine={engine}", "topology=TP1")]
    described = describe(planned(*changes, "repeats=3"))
    assert (described.servers, described.gpus) == (2, 1)
    assert described.resident == (("vllm TP1 replay=off",), ("vllm TP1 replay=on",))


def test_arms_that_differ_in_who_keeps_sessions_at_ranks_share_a_server(planned):
    engine = "{kind: vllm, resident_share: 0.4, model: m}"
    changes = ("topology=DP2", "replay=on", "pinned=[true, false]", f"engine={engine}")
    described = describe(planned(*(f"experiments.a.{change}" for change in changes)))
    assert described.resident == (("vllm DP2 replay=on", "vllm DP2 replay=on unpinned"),)
    assert (described.servers, described.gpus) == (1, 2)


def test_only_simulated_time_is_guessed(planned):
    made = planned()
    assert describe(made).guessed
    assert describe(made).gpus == 0
    assert not describe(on_the_wall(made, {"a": "-x", "b": "-x"})).guessed


@pytest.mark.parametrize("kind", ["vllm", "deepinfer"])
def test_an_interpreter_and_a_model_that_are_not_there_are_told_once_with_a_way_out(
    planned, tmp_path, kind
):
    def told(python, model):
        engine = f"{{kind: {kind}, python: {python}, model: {model}}}"
        changes = (f"engine={engine}", "topology=TP1", "load.concurrency=1")
        return describe(planned(*(f"experiments.a.{change}" for change in changes))).missing

    gone = tmp_path / "gone"
    assert told(sys.executable, tmp_path) == told("python3", "some/model") == ()
    interpreter, model = told(gone, gone / "v41-shrunk-drafts")
    assert interpreter == (
        f"missing: {gone}, which {kind} runs in: install {kind} there, or add "
        "--set experiments.a.engine.python=PATH"
    )
    assert model.endswith(f": run `paceline model v41-shrunk {gone}/v41-shrunk-drafts --drafts`")
    assert told(sys.executable, gone)[0].endswith(": put it there, or correct the path")


def test_what_is_said_to_be_missing_is_there_once_the_line_is_followed(planned):
    vllm, deepinfer = "{kind: vllm, model: m, python: /gone", "{kind: deepinfer, model: m}"
    changes = [
        f"experiments.a.engine=[{vllm}, name: one}}, {deepinfer}, {vllm}, name: two}}]",
        f"experiments.b.engine={vllm}}}",
        *(f"experiments.{name}.topology=TP1" for name in "ab"),
    ]
    line, other = describe(planned(*changes)).missing
    said = line.split(" or add ")[1].replace("PATH", sys.executable).split("--set ")[1:]
    assert [change.split("=")[0] for change in said] == [
        "experiments.a.engine.0.python",
        "experiments.a.engine.2.python",
        "experiments.b.engine.python",
    ]
    assert line.startswith("missing: /gone, which one, two and vllm run in: install vllm there")
    assert describe(planned(*changes, *map(str.strip, said))).missing == (other,)


def test_an_interpreter_of_several_is_named_by_its_place(planned):
    engine = f"{{kind: vllm, model: m, python: [{sys.executable}, /gone]}}"
    changes = [f"experiments.a.{change}" for change in (f"engine={engine}", "topology=TP1")]
    (line,) = describe(planned(*changes)).missing
    assert line.endswith("add --set experiments.a.engine.python.1=PATH")


def test_what_lies_on_other_machines_is_not_looked_for(planned):
    engine = "{kind: vllm, python: /gone, model: /gone, nodes: [a], launcher: 'ssh {host}'}"
    changes = [f"experiments.a.{change}" for change in (f"engine={engine}", "topology=TP1")]
    assert describe(planned(*changes)).missing == ()
