"""In what two sides differ, what of it refuses, and that no secret is shown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.endpoint import Endpoint
from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.sim.engine import SimulatedEngine
from harness.topology import parse
from harness.vllm.engine import Vllm
from results.cell import Cell
from results.comparability import Difference, differences, refusals
from results.errors import InputError
from results.evidence import Evidence, Observed
from results.objectives import Objectives
from results.run import Run, RunPoint
from results.side import Side
from workloads.agentx import AgentX
from workloads.single import Single

GPU = {
    "index": "0",
    "name": "NVIDIA H200",
    "uuid": "GPU-1",
    "memory.total": "143771 MiB",
    "driver_version": "580.1",
    "power.limit": "700.00 W",
}
MACHINE: dict[str, Any] = {
    "host": "one",
    "system": "Linux-6.1",
    "processor": "EPYC",
    "cores": 16,
    "memory_bytes": 128 * 2**30,
    "python": "3.12.4",
    "packages": {"paceline": "0.1.0", "numpy": "2.4.6", "plotly": "6.0"},
    "gpus": [GPU],
    "git": {"commit": "abc", "changed": False},
}
VLLM = Vllm(model="/models/nano")


def observed(**changes: Any) -> Observed:
    told: dict[str, Any] = {
        "provenance": "measured",
        "gpus": 4,
        "configuration": {"version": {"version": "0.32.0"}, "models": ["vllm"]},
        "features": {"replies": 100, "replies with usage": 100, "fingerprints": ["a"]},
    }
    return Observed(**{**told, **changes})


def side(
    *points: Point,
    name: str = "one",
    seen: Observed | None = None,
    machine: dict[str, Any] | None = None,
    clock: Any = "wall",
) -> Side:
    """A side of one run with these points."""
    evidence = Evidence(observed=seen or observed(), clock=clock, opened=0.0, closed=1.0)
    told = [point.facts() for point in points]
    run = Run(
        path=Path(name),
        suite="suite",
        run_id=name,
        plan={"points": told},
        environment=machine or MACHINE,
        points=tuple(
            RunPoint(
                path=Path(name) / facts["name"],
                cell=Cell(**{field: facts[field] for field in Cell.__slots__}),
                status="finished",
                reason=None,
                evidence=evidence,
            )
            for facts in told
        ),
        planned=(),
    )
    return Side(name=name, runs=(run,), points=run.points)


def point(engine: Any = VLLM, **changes: Any) -> Point:
    """A point; settings of a deployment and of a point may change."""
    own = {key: changes.pop(key) for key in ("replay", "flags", "environment") if key in changes}
    topology = parse(changes.pop("topology", "TP4"))
    deployment = Deployment(engine=engine, topology=topology, **own)
    content: dict[str, Any] = {
        "experiment": "experiment",
        "workload": Single(prompt=1000, output=10),
        "load": Closed(sessions=4),
    }
    return Point(deployment=deployment, **{**content, **changes})


def found(base: Side, other: Side, **options: Any) -> dict[str, Difference]:
    return {one.key: one for one in differences(base, other, **options)}


def standings(base: Side, other: Side, **options: Any) -> dict[str, str]:
    return {key: one.standing for key, one in found(base, other, **options).items()}


def test_equal_sides_of_two_runs_do_not_differ() -> None:
    assert differences(side(point()), side(point(), name="two")) == ()


def test_what_deployments_state_is_compared_where_no_factor_is_named() -> None:
    base = side(point(replay="off", topology="TP2"), seen=observed(gpus=2))
    other = side(point(replay="on", topology="TP4"), name="two")
    assert standings(base, other) == {
        "deployment.replay": "factor",
        "deployment.topology": "factor",
        "evidence.gpus": "factor",
    }


def test_experiments_that_ask_the_same_of_other_engines_are_compared_each_with_its_own() -> None:
    def both(name: str, replay: Any, last: str) -> Side:
        flags = {"one": ("--max-num-seqs", "8"), "two": ("--max-num-seqs", last)}
        asked = (point(experiment=each, replay=replay, flags=flags[each]) for each in flags)
        return side(*asked, name=name)

    assert standings(both("a", "off", "16"), both("b", "on", "16")) == {
        "deployment.replay": "factor"
    }
    told = found(both("a", "off", "16"), both("b", "on", "32"))["deployment.flags.--max-num-seqs"]
    assert (told.base, told.other, told.standing) == ("16", "32", "factor")


def test_a_named_factor_makes_every_other_difference_refuse() -> None:
    base = side(point(replay="off", topology="TP2"), seen=observed(gpus=2))
    other = side(point(replay="on", topology="TP4"), name="two")
    assert standings(base, other, factors=["replay"]) == {
        "deployment.topology": "refusing",
        "evidence.gpus": "refusing",
        "deployment.replay": "factor",
    }


def test_a_factor_that_nothing_states_is_an_error() -> None:
    with pytest.raises(InputError, match="--factor reply names nothing"):
        differences(side(point()), side(point(), name="two"), factors=["reply"])


@pytest.mark.parametrize(
    ("key", "change", "standing"),
    [
        ("environment.host", {"host": "two"}, "harmless"),
        ("environment.git.commit", {"git": {"commit": "def", "changed": False}}, "harmless"),
        ("environment.gpus.uuid", {"gpus": [GPU | {"uuid": "GPU-2"}]}, "harmless"),
        ("environment.gpus.count", {"gpus": [GPU, GPU]}, "refusing"),
        ("environment.gpus.name", {"gpus": [GPU | {"name": "NVIDIA H100"}]}, "refusing"),
        ("environment.gpus.driver_version", {"gpus": [GPU | {"driver_version": "1"}]}, "refusing"),
        ("environment.gpus.power.limit", {"gpus": [GPU | {"power.limit": "500 W"}]}, "refusing"),
        ("environment.cores", {"cores": 8}, "refusing"),
        ("environment.memory", {"memory_bytes": 2**30}, "refusing"),
        ("environment.python", {"python": "3.13.0"}, "refusing"),
        ("environment.processor", {"processor": None}, "harmless"),
        (
            "environment.packages.paceline",
            {"packages": MACHINE["packages"] | {"paceline": "0.2.0"}},
            "refusing",
        ),
        (
            "environment.packages.plotly",
            {"packages": MACHINE["packages"] | {"plotly": "7.0"}},
            "harmless",
        ),
    ],
)
def test_machines_refuse_by_what_shows_in_speed(
    key: str, change: dict[str, Any], standing: str
) -> None:
    other = side(point(), name="two", machine=MACHINE | change)
    assert standings(side(point()), other) == {key: standing}


def test_a_side_without_gpus_is_not_comparable_with_one_that_has_them() -> None:
    other = side(point(), name="two", machine=MACHINE | {"gpus": None})
    told = found(side(point()), other)
    assert told["environment.gpus.count"].standing == "refusing"
    assert (told["environment.gpus.count"].base, told["environment.gpus.count"].other) == ("1", "0")


def test_sides_of_the_same_run_share_their_environment() -> None:
    both = side(point(replay="off"), point(replay="on"))
    base, other = (replace(both, points=both.points[n : n + 1]) for n in (0, 1))
    assert standings(base, other) == {"deployment.replay": "factor"}


def test_the_machine_does_not_show_in_simulated_time_but_the_simulator_does() -> None:
    seen = observed(provenance="simulated", configuration={}, features={})
    engine = SimulatedEngine()
    machine = MACHINE | {
        "cores": 8,
        "packages": {"paceline": "0.2.0", "numpy": "2.4.6", "plotly": "6.0"},
    }
    base = side(point(engine), seen=seen, clock="virtual")
    other = side(point(engine), name="two", seen=seen, clock="virtual", machine=machine)
    assert standings(base, other) == {
        "environment.packages.paceline": "refusing",
        "environment.cores": "harmless",
    }


def test_a_refusal_names_the_key_both_values_and_the_way_out() -> None:
    other = side(point(), name="two", machine=MACHINE | {"gpus": [GPU | {"name": "NVIDIA H100"}]})
    assert refusals(differences(side(point()), other)) == (
        "environment.gpus.name: NVIDIA H200 against NVIDIA H100: compare runs that agree in it, "
        "or add --allow environment.gpus.name",
    )


def test_what_no_side_has_in_common_refuses_whatever_is_allowed() -> None:
    base = side(point(replay="off"), point(replay="on"))
    told = differences(base, side(point(topology="TP2"), name="two"), allow=["arm"])
    (refused,) = (one for one in refusals(told) if one.startswith("arm"))
    assert refused.endswith(
        "(no arm is on both sides: name one of each, such as 'one:vllm TP4 replay=off' two)"
    )
    other = side(point(workload=Single(prompt=2000, output=10)), name="two")
    for allow in ([], ["workload"]):
        (refused,) = refusals(differences(side(point()), other, allow=allow))
        assert refused == (
            "workload.prompt: 1000 against 2000 (no workload under one load is on both sides): "
            "compare runs that agree in it"
        )


def test_an_allowed_key_refuses_nothing_and_is_told() -> None:
    other = side(point(), name="two", machine=MACHINE | {"cores": 8})
    for allow in ("environment.cores", "environment"):
        told = differences(side(point()), other, allow=[allow])
        assert refusals(told) == ()
        assert [one.standing for one in told] == ["allowed"]
    assert refusals(differences(side(point()), other, allow=["environment.core"]))


@pytest.mark.parametrize("other", ["simulated", "plumbing"])
def test_measured_is_not_compared_with_anything_else(other: Any) -> None:
    told = found(side(point()), side(point(), name="two", seen=observed(provenance=other)))
    assert told["provenance"].standing == "refusing"
    assert {told["provenance"].base, told["provenance"].other} == {"measured", other}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thinking", True),
        ("mode", "ids"),
        ("tokenizer", "other.json"),
        ("chunk_usage", False),
        ("exact_output", False),
        ("reasoning_effort", "high"),
        ("body", {"top_p": 0.5}),
    ],
)
def test_a_client_that_asks_in_another_way_refuses(name: str, value: Any) -> None:
    engine = replace(VLLM, mode="chat", tokenizer="tokenizer.json")
    other = side(point(replace(engine, **{name: value})), name="two")
    (told,) = differences(side(point(engine)), other)
    assert told.key.startswith(f"deployment.engine.{name}")
    assert told.standing == "refusing"
    assert standings(side(point(engine)), other, factors=[name]) == {told.key: "factor"}


def test_a_body_refuses_also_where_engines_are_of_two_kinds() -> None:
    endpoint = Endpoint(url="http://there:8000", model="nano", body={"top_p": 0.5})
    told = standings(side(point()), side(point(endpoint), name="two"))
    assert told["deployment.engine.body.top_p"] == "refusing"
    assert told["deployment.engine.kind"] == "factor"
    assert "deployment.engine.ready_timeout" not in told


def test_models_differ_unless_only_their_place_does() -> None:
    for model, standing in {"/other/nano": "harmless", "/models/micro": "refusing"}.items():
        other = side(point(replace(VLLM, model=model)), name="two")
        assert standings(side(point()), other) == {"deployment.model": standing}


def test_a_new_version_is_compared_where_nothing_else_is_and_refuses_beside_something() -> None:
    new = observed(configuration={"version": {"version": "0.33.0"}, "models": ["vllm"]})
    key = "evidence.configuration.version.version"
    assert standings(side(point()), side(point(), name="two", seen=new)) == {key: "factor"}
    base = side(point(replay="off"))
    other = side(point(replay="on"), name="two", seen=new)
    assert standings(base, other) == {key: "refusing", "deployment.replay": "factor"}
    engine = replace(VLLM, python="/other/python")
    assert standings(side(point()), side(point(engine), name="two", seen=new)) == {
        "deployment.engine.python": "factor",
        key: "factor",
    }


def test_a_changed_default_refuses_though_the_version_is_compared() -> None:
    seen = [
        observed(configuration={"version": version, "max_model_len": length})
        for version, length in (("0.32", 131_072), ("0.33", 65_536))
    ]
    told = found(side(point(), seen=seen[0]), side(point(), name="two", seen=seen[1]))
    assert told["evidence.configuration.version"].standing == "factor"
    changed = told["evidence.configuration.max_model_len"]
    assert (changed.standing, changed.base, changed.other) == ("refusing", "131072", "65536")


def test_what_a_stated_flag_changed_follows_from_it() -> None:
    def run(name: str, length: str) -> Side:
        command = f"python vllm serve nano --port {len(name)} --max-model-len {length}"
        seen = observed(configuration={"max_model_len": int(length), "command": command})
        return side(point(flags=("--max-model-len", length)), name=name, seen=seen)

    assert standings(run("one", "1000"), run("three", "2000")) == {
        "deployment.flags.--max-model-len": "factor",
        "evidence.configuration.max_model_len": "factor",
    }


def test_flags_are_compared_by_name_wherever_they_are_stated() -> None:
    base = side(point(replace(VLLM, flags=("--max_model_len=1000", "--enforce-eager"))))
    same = point(flags=("--enforce-eager", "--max-model-len", "1000"))
    assert differences(base, side(same, name="two")) == ()
    without = point(flags=("--max-model-len", "1000"))
    told = found(base, side(without, name="two"))["deployment.flags.--enforce-eager"]
    assert (told.base, told.other) == ("set", "not set")


def test_evidence_of_one_side_alone_is_a_note_and_not_equality() -> None:
    told = found(
        side(point(), seen=observed(features={}, configuration={"version": None})),
        side(point(), name="two"),
    )
    assert {one.standing for one in told.values()} == {"harmless"}
    version = told["evidence.configuration.version.version"]
    assert (version.base, version.other) == ("not told", "0.32.0")
    assert version.reason == "only one side tells it"


def test_counts_of_replies_do_not_differ_but_whether_all_tell_does() -> None:
    fewer = observed(features={"replies": 90, "replies with usage": 90, "fingerprints": ["a"]})
    assert differences(side(point()), side(point(), name="two", seen=fewer)) == ()
    some = observed(features={"replies": 90, "replies with usage": 9, "fingerprints": ["a"]})
    told = found(side(point()), side(point(), name="two", seen=some))
    assert told["evidence.features.replies.with_usage"].other == "some replies"


def test_a_server_where_another_model_answers_refuses() -> None:
    alias = observed(features={"replies": 9, "model served": ["other"]})
    told = found(side(point(), seen=observed(features={})), side(point(), name="two", seen=alias))
    one = told["evidence.features.model_served"]
    assert (one.standing, one.base, one.other) == ("refusing", "as asked", "other")


def test_an_observed_feature_that_nobody_stated_refuses() -> None:
    seen = [observed(features={"replay": arm}) for arm in ("off", "on")]
    told = standings(side(point(), seen=seen[0]), side(point(), name="two", seen=seen[1]))
    assert told == {"evidence.chosen.replay": "refusing"}


def test_workloads_and_loads_refuse_where_no_cell_is_on_both_sides() -> None:
    base = side(point(load=Closed(sessions=8, concurrency=8)))
    other = side(
        point(load=Closed(sessions=16, concurrency=16), workload=Single(prompt=2000, output=10)),
        name="two",
    )
    told = found(base, other)
    assert {key for key, one in told.items() if one.standing == "refusing"} == {
        "load.concurrency",
        "load.sessions",
        "workload.prompt",
    }
    assert (told["load.concurrency"].base, told["load.concurrency"].other) == ("8", "16")


def test_traces_that_changed_refuse_and_traces_that_moved_do_not(tmp_path: Path) -> None:
    def run(name: str, folder: str, content: str) -> Side:
        traces = tmp_path / folder
        traces.mkdir(exist_ok=True)
        (traces / "trace.json").write_text(content)
        first = point(load=Closed(sessions=9))
        return side(first, point(workload=AgentX(traces=str(traces))), name=name)

    base = run("one", "here", "{}")
    assert differences(base, run("two", "there", "{}")) == ()
    told = found(base, run("three", "here", "[]"))
    assert {key: one.standing for key, one in told.items()} == {"workload.traces": "refusing"}


def test_cells_of_one_side_alone_do_not_stand_in_the_way() -> None:
    loads = [Closed(sessions=8, concurrency=n) for n in (1, 2)]
    base = side(*(point(load=load) for load in loads))
    assert differences(base, side(point(load=loads[1]), name="two")) == ()


def test_an_experiment_without_a_common_cell_is_noted_where_another_one_has_some() -> None:
    def run(name: str, sessions: int) -> Side:
        load = Closed(sessions=sessions)
        return side(point(), point(load=load, experiment="second"), name=name)

    told = found(run("one", 5), run("two", 6))
    assert {key: one.standing for key, one in told.items()} == {"load.sessions": "harmless"}
    assert "second has no cell on both sides" in (told["load.sessions"].reason or "")


def test_another_seed_and_other_objectives_refuse() -> None:
    limited = point(suite_seed=1, objectives=Objectives(ttft=2.0))
    told = standings(side(point()), side(limited, name="two"))
    assert told == {"suite_seed": "refusing", "objectives.ttft": "refusing"}


def test_a_side_that_is_not_one_thing_refuses() -> None:
    machines = [MACHINE, MACHINE | {"cores": 8}]
    base, other, third = (
        side(point(), name=name, machine=machine)
        for name, machine in zip("abc", (*machines, MACHINE), strict=True)
    )
    both = Side(name="both", runs=base.runs + other.runs, points=base.points + other.points)
    told = found(both, third)["environment.cores"]
    assert (told.standing, told.base, told.other) == ("refusing", "16, 8", "16")


def test_arms_of_one_name_are_compared_and_no_common_arm_refuses() -> None:
    base = side(point(replay="off"), point(replay="on"))
    assert differences(base, side(point(replay="off"), point(replay="on"), name="two")) == ()
    assert differences(base, side(point(replay="on"), name="two")) == ()
    told = found(base, side(point(topology="TP2"), name="two", seen=observed(gpus=2)))
    assert told["arm"].standing == "refusing"


def test_secrets_are_compared_and_never_shown() -> None:
    def run(name: str, word: str) -> Side:
        engine = Endpoint(
            url="http://there",
            model="nano",
            headers={"X-Tenant": f"{word}", "X-Route": f"by {word}"},
            body={"note": f"my token: {word}", "extra": {"text": f"password : {word}"}},
        )
        deployed = point(
            engine,
            flags=("--api-key", word, "--config", f'{{"hub_token": "{word}"}}'),
            environment={"AWS_SECRET_ACCESS_KEY": word, "PLACE": f"s3/{word}", "WORKERS": "3"},
        )
        command = f"python serve m --api-key {word} --proxy http://user:{word}@there"
        return side(deployed, name=name, seen=observed(configuration={"command": command}))

    told = differences(run("one", "sesame1"), run("two", "abracadabra2"))
    assert len(told) >= 8
    for one in told:
        assert "sesame1" not in f"{one.base}{one.other}", one.key
        assert "abracadabra2" not in f"{one.base}{one.other}", one.key
    assert {one.other for one in told if one.base == "hidden"} == {"hidden, another one"}


def test_a_variable_that_is_a_switch_is_shown() -> None:
    base, other = (
        side(point(environment={"VLLM_USE_V2": value}), name=value) for value in ("0", "1")
    )
    told = found(base, other)["deployment.environment.VLLM_USE_V2"]
    assert (told.standing, told.base, told.other) == ("factor", "0", "1")


KERNELS = ({"attention": "flashmla", "moe": "humming"}, {"attention": "flashinfer"})


def test_a_kernel_that_the_topology_chose_is_a_stated_difference() -> None:
    one, two = (observed(features=features) for features in KERNELS)
    base = side(point(topology="TP4"), seen=one)
    other = side(point(topology="DEP4"), name="two", seen=two)
    told = found(base, other, factors=["topology"])
    assert told["evidence.chosen.attention"].standing == "factor"
    assert told["evidence.chosen.moe"].standing == "harmless"
    assert refusals(told.values()) == ()


def test_a_kernel_that_was_asked_for_and_differs_refuses() -> None:
    one, two = (observed(features=each, requested=each) for each in KERNELS)
    base = side(point(topology="TP4"), seen=one)
    other = side(point(topology="DEP4"), name="two", seen=two)
    (refused,) = refusals(differences(base, other, factors=["topology"]))
    assert refused.startswith("evidence.features.attention: flashmla against flashinfer")


@pytest.mark.parametrize(
    ("feature", "flag", "values"),
    [
        ("max_sequences", "--max-num-seqs", (64, 32)),
        ("attention", "--attention-backend", ("flashmla", "flashinfer")),
        ("kv_format", "--kv-cache-dtype", ("fp8_ds_mla", "nvfp4_ds_mla")),
    ],
)
def test_a_feature_that_flags_asked_for_follows_from_them(feature, flag, values):
    sides = [
        side(
            point(flags=(flag, str(value))),
            name=name,
            seen=observed(features={feature: value}, requested={feature: value}),
        )
        for name, value in zip(("one", "two"), values, strict=True)
    ]
    assert refusals(differences(*sides)) == ()


def test_a_kernel_that_changes_by_itself_on_one_topology_refuses() -> None:
    one, two = (observed(features=features) for features in KERNELS)
    told = standings(side(point(), seen=one), side(point(), name="two", seen=two))
    assert told["evidence.chosen.attention"] == "refusing"
    newer = {"version": {"version": "0.33.0"}, "models": ["vllm"]}
    later = observed(features=KERNELS[1], configuration=newer)
    told = standings(side(point(), seen=one), side(point(), name="two", seen=later))
    assert told["evidence.chosen.attention"] == "factor"


BATCHED = {"scheduler_config.max_num_batched_tokens": 8192, "model_config.model": "/a/model"}


def effective(**changes: Any) -> Observed:
    told = {name.replace("__", "."): value for name, value in changes.items()}
    return observed(effective=BATCHED | told)


def test_what_an_engine_says_it_runs_with_refuses_where_nothing_stated_differs() -> None:
    one, two = (
        effective(),
        effective(env__VLLM_GEMM="1", scheduler_config__max_num_batched_tokens=9),
    )
    told = found(side(point(), seen=one), side(point(), name="two", seen=two))
    assert {key: (each.base, each.other, each.standing) for key, each in told.items()} == {
        "evidence.effective.env.VLLM_GEMM": ("not told", "1", "refusing"),
        "evidence.effective.scheduler_config.max_num_batched_tokens": ("8192", "9", "refusing"),
    }


def test_what_it_says_of_its_place_or_beside_what_is_compared_is_told_and_refuses_nothing() -> None:
    one, two = effective(), effective(model_config__model_path="/b", cache_config__block_size=64)
    three = effective(model_config__model_path="/c", cache_config__block_size=128)
    told = standings(side(point(), seen=two), side(point(), name="two", seen=three))
    assert told["evidence.effective.model_config.model_path"] == "harmless"
    base = side(point(topology="TP2"), seen=one)
    other = side(point(topology="TP4"), name="two", seen=three)
    assert standings(base, other)["evidence.effective.cache_config.block_size"] == "harmless"


def test_what_changes_from_start_to_start_is_no_difference() -> None:
    base = side(point(), seen=effective(a=1))
    again = side(point(repeat=1), seen=effective(a=2))
    both = replace(base, points=(*base.points, *again.points))
    assert standings(both, side(point(), name="two", seen=effective(a=3))) == {}
