import json
from pathlib import Path

import pytest

from results.errors import InputError
from suites.suite import load, shipped
from suites.words import listed

TEXT = """
suite: s
seed: 7
experiments:
  - name: a
    engine: {kind: sim}
    topology: [TP4, DEP2]
    replay: [off, on]
    workload: {kind: single, prompt: [1, 2], output: 1}
    load: {kind: closed, concurrency: [1, 2], sessions: 9}
"""


@pytest.fixture
def suite(tmp_path):
    def read(text=TEXT, *overrides):
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return load(str(path), overrides)

    return read


def grid_of(suite):
    return suite.experiments[0].grid


def test_a_suite_keeps_its_text_name_path_and_overrides(suite, tmp_path):
    read = suite(TEXT, "seed=3")
    assert (read.name, read.text, read.path) == ("s", TEXT, str(tmp_path / "s.yaml"))
    assert (read.asked, load("smoke").asked) == (read.path, "smoke")
    assert (read.seed, read.overrides) == (3, ("seed=3",))
    assert (read.repeats, read.order, read.budget) == (1, "as-written", None)


def test_the_first_axis_that_is_written_changes_slowest(suite):
    grid = grid_of(suite())
    seen = [
        (p.deployment.topology.name, p.deployment.replay, p.workload.prompt, p.load.concurrency)
        for p in grid
    ]
    assert seen == [
        (topology, replay, prompt, concurrency)
        for topology in ("TP4", "DEP2")
        for replay in ("off", "on")
        for prompt in (1, 2)
        for concurrency in (1, 2)
    ]


def test_a_load_that_is_written_first_changes_slowest(suite):
    load_line = "    load: {kind: closed, concurrency: [1, 2], sessions: 9}\n"
    text = TEXT.replace(load_line, "").replace("    engine", load_line + "    engine")
    assert [p.load.concurrency for p in grid_of(suite(text))] == [1] * 8 + [2] * 8


def test_a_list_of_mappings_is_an_axis_of_their_grids(suite):
    text = TEXT.replace(
        "{kind: closed, concurrency: [1, 2], sessions: 9}",
        "[{kind: closed, concurrency: [1, 2], duration: 2m}, {kind: open, rate: 1, sessions: 4}]",
    )
    loads = [point.load for point in grid_of(suite(text))][:3]
    assert [load.kind for load in loads] == ["closed", "closed", "open"]
    assert (loads[0].duration, loads[2].rate) == (120.0, 1.0)


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("7", 7), ("500ms", 0.5)]
)
def test_a_duration_may_have_a_unit(suite, written, seconds):
    assert suite(TEXT, f"budget={written}").budget == seconds
    changes = (f"experiments.a.load.duration={written}", f"experiments.a.load.grace={written}")
    first = grid_of(suite(TEXT, *changes))[0].load
    assert (first.duration, first.grace) == (seconds, seconds)


@pytest.mark.parametrize(
    ("written", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("7ms", 0.007), ("0.05", 0.05)]
)
def test_an_objective_may_have_a_unit(suite, written, seconds):
    goals = [f"experiments.a.objectives.{name}={written}" for name in ("ttft", "tpot", "e2el")]
    aims = grid_of(suite(TEXT, *goals))[0].objectives
    assert (aims.ttft, aims.tpot, aims.e2el) == (seconds,) * 3


def test_a_variable_that_is_called_like_a_duration_stays_text(suite):
    point = grid_of(suite(TEXT, "experiments.a.environment={duration: 5s}"))[0]
    assert point.deployment.environment == {"duration": "5s"}


def test_everything_else_of_a_deployment_is_taken(suite):
    text = TEXT + (
        "    model: m\n    pinned: false\n    flags: [--a, b]\n    environment: {A: on}\n"
        "    objectives: {ttft: 2, tpot: 0.05}\n"
    )
    point = grid_of(suite(text))[-1]
    deployment = point.deployment
    assert (deployment.model, deployment.flags) == ("m", ("--a", "b"))
    assert (deployment.environment, deployment.pinned) == ({"A": "on"}, False)
    assert (point.objectives.ttft, point.objectives.tpot) == (2.0, 0.05)
    assert deployment.arm == "sim DEP2 replay=on unpinned"


def test_one_rank_is_planned_once_whether_pinned_or_not(suite):
    grid = grid_of(suite(TEXT + "    pinned: [true, false]\n"))
    arms = list(dict.fromkeys(point.deployment.arm for point in grid))
    assert len(grid) == 24
    assert arms == [
        "sim TP4 replay=off",
        "sim TP4 replay=on",
        "sim DEP2 replay=off",
        "sim DEP2 replay=off unpinned",
        "sim DEP2 replay=on",
        "sim DEP2 replay=on unpinned",
    ]


def test_engines_of_one_name_are_told_apart_by_what_differs(suite):
    text = TEXT.replace("{kind: sim}", "{kind: sim, noise: 0.1, slowdown: [1, 1.1]}")
    names = [point.deployment.engine.name for point in grid_of(suite(text))]
    assert list(dict.fromkeys(names)) == ["sim slowdown=1.0", "sim slowdown=1.1"]
    text = TEXT.replace("{kind: sim}", "[{kind: sim}, {kind: sim, name: other, noise: 0.1}]")
    names = [point.deployment.engine.name for point in grid_of(suite(text))]
    assert list(dict.fromkeys(names)) == ["sim", "other"]


def test_a_nested_setting_reaches_the_engine(suite):
    engine = grid_of(suite(TEXT, "experiments.a.engine={kind: sim, cost: {host: 1}}"))[0]
    assert engine.deployment.engine.cost.host == 1.0


def test_an_override_finds_an_experiment_by_name_or_index(suite):
    for key in ("a", "0"):
        grid = grid_of(suite(TEXT, f"experiments.{key}.load.concurrency=[4, 5, 6]"))
        assert [point.load.concurrency for point in grid[:3]] == [4, 5, 6]


def test_an_override_reads_its_value_as_a_suite_does(suite):
    point = grid_of(suite(TEXT, "experiments.a.replay=on"))[0]
    assert point.deployment.replay == "on"


def test_an_override_may_add_a_key(suite):
    read = suite(TEXT, "repeats=2", "experiments.a.objectives.ttft=3", "experiments.a.load.grace=4")
    point = grid_of(read)[0]
    assert (read.repeats, point.objectives.ttft, point.load.grace) == (2, 3.0, 4.0)


def test_an_override_may_change_one_entry_of_a_list(suite):
    grid = grid_of(suite(TEXT, "experiments.a.load.concurrency.1=9"))
    assert [point.load.concurrency for point in grid[:2]] == [1, 9]


def test_an_anchor_is_shared_and_not_changed_for_all(suite):
    text = TEXT.replace("  - name", "  - &first\n    name") + "  - {<<: *first, name: b}\n"
    read = suite(text, "experiments.b.load.sessions=5")
    assert [experiment.grid[0].load.sessions for experiment in read.experiments] == [9, 5]


def test_traces_are_looked_for_beside_the_suite(suite, tmp_path):
    (tmp_path / "t").mkdir()
    text = TEXT.replace("{kind: single, prompt: [1, 2], output: 1}", "{kind: agentx, traces: t}")
    (tmp_path / "t" / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"s\.yaml: experiments\[0\]\.workload\.traces: .*/t"):
        suite(text)
    request = {"t": 0.0, "type": "n", "in": 128, "out": 5, "hash_ids": [0, 1]}
    trace = {"id": "x", "block_size": 64, "requests": [request]}
    (tmp_path / "t" / "x.json").write_text(json.dumps(trace))
    assert grid_of(suite(text))[0].workload.traces == str(tmp_path / "t")


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_suite_is_found_by_name(name):
    read = load(name)
    assert read.name == name
    first = read.text.splitlines()[0]
    schema = first.removeprefix("# yaml-language-server: $schema=")
    assert (Path(read.path).parent / schema).is_file()


@pytest.mark.parametrize(
    ("name", "way"),
    [("smok", "did you mean smoke?"), ("x", "a file needs its suffix, as in my.yaml")],
)
def test_an_unknown_name_lists_what_ships(name, way):
    with pytest.raises(InputError) as caught:
        load(name)
    assert str(caught.value) == (
        f'expected a suite file or {listed(shipped())}, got "{name}": {way}'
    )
