import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from results.errors import InputError
from suites.plan import estimate, plan
from suites.suite import load
from tests.test_suite_description import WallEngine

TEXT = """
suite: s
seed: 7
repeats: 2
experiments:
  - name: a
    engine: {kind: sim}
    topology: TP4
    replay: [off, on]
    workload: {kind: single, prompt: 1, output: 1}
    load: {kind: closed, concurrency: [1, 2], sessions: 2}
"""


@pytest.fixture
def planned(tmp_path):
    def make(*overrides, text=TEXT, only=()):
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return plan(load(str(path), overrides), only)

    return make


def steps(made):
    return [f"{p.repeat}{p.deployment.replay}{p.load.concurrency}" for p in made.points]


def test_as_written_goes_repeat_by_repeat(planned):
    assert steps(planned()) == [
        "0off1", "0off2", "0on1", "0on2",
        "1off1", "1off2", "1on1", "1on2",
    ]  # fmt: skip


def test_an_experiment_has_repeats_of_its_own_unless_an_override_says_how_many(planned):
    own = TEXT.replace("  - name: a", "  - name: a\n    repeats: 3")
    assert Counter(point.repeat for point in planned(text=own).points) == {0: 4, 1: 4, 2: 4}
    overridden = planned("repeats=1", text=own).points
    assert Counter(point.repeat for point in overridden) == {0: 4}


def test_servers_that_stay_up_and_do_not_fit_are_refused_before_anything_starts(planned):
    kept = TEXT.replace("{kind: sim}", "{kind: vllm, model: m, resident_share: 0.6}")
    assert len(planned("experiments.0.replay=off", text=kept).points) == 4
    with pytest.raises(
        InputError, match=r"s: the arms that stay up together ask for 1\.20 of each"
    ):
        planned(text=kept)
    second = kept[kept.index("  - name") :].replace("name: a", "name: b").replace("off, on", "off")
    assert planned(text=kept.replace("off, on", "off") + second.replace("0.6", "0.7"), only=("b",))


def test_servers_that_stay_up_cannot_have_one_port(planned):
    kept = TEXT.replace("{kind: sim}", "{kind: vllm, model: m, resident_share: 0.4, port: 8123}")
    with pytest.raises(InputError, match=r"s: arms that stay up together all state port 8123: "):
        planned(text=kept)
    assert planned(text=kept.replace(", port: 8123", ""))


def test_as_written_finishes_an_experiment_first(planned):
    second = TEXT[TEXT.index("  - name") :].replace("name: a", "name: b")
    experiments = [point.experiment for point in planned(text=TEXT + second).points]
    assert experiments == ["a"] * 8 + ["b"] * 8


def test_abba_turns_two_arms_round_every_other_repeat(planned):
    assert steps(planned("order=abba")) == [
        "0off1", "0on1", "1on1", "1off1",
        "0off2", "0on2", "1on2", "1off2",
    ]  # fmt: skip


def test_abba_turns_three_arms_round_every_other_repeat(planned):
    replays = [
        (point.repeat, point.deployment.replay)
        for point in planned(
            "order=abba", "repeats=3", "experiments.a.replay=[off, on-eager, on]"
        ).points
        if point.load.concurrency == 1
    ]
    there = ["off", "on-eager", "on"]
    assert replays == [
        (repeat, replay)
        for repeat, arms in enumerate([there, there[::-1], there])
        for replay in arms
    ]


def test_shuffled_is_a_permutation_that_the_seed_decides(planned):
    shuffled = steps(planned("order=shuffled", "repeats=5"))
    assert shuffled == steps(planned("order=shuffled", "repeats=5"))
    assert shuffled != steps(planned("order=shuffled", "repeats=5", "seed=8"))
    assert shuffled != steps(planned("repeats=5"))
    assert sorted(shuffled) == sorted(steps(planned("repeats=5")))


def test_positions_count_up_and_ids_are_unique(planned):
    points = planned("order=abba").points
    assert [point.position for point in points] == list(range(8))
    assert len({point.id for point in points}) == 8


def test_a_pairing_is_the_same_under_every_arm_and_new_for_each_repeat_and_load(planned):
    pairs = {}
    for point in planned("order=abba").points:
        pairs.setdefault((point.repeat, point.load.concurrency), set()).add(point.pairing)
    assert all(len(pairing) == 1 for pairing in pairs.values())
    assert len(set.union(*pairs.values())) == 4


def test_the_hash_is_the_same_in_every_process(planned, tmp_path):
    made = planned("order=shuffled")
    code = (
        "import sys; from suites.plan import plan; from suites.suite import load; "
        "print(plan(load(sys.argv[1], ['order=shuffled'])).hash)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s.yaml")]
    other = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == made.hash
    assert len(made.hash) == 8
    int(made.hash, 16)


@pytest.mark.parametrize(
    "override",
    [
        "suite=t",
        "seed=8",
        "repeats=3",
        "order=abba",
        "experiments.a.name=b",
        "experiments.a.engine.noise=0.1",
        "experiments.a.engine.cost={host: 1}",
        "experiments.a.topology=TP8",
        "experiments.a.pinned=false",
        "experiments.a.model=m",
        "experiments.a.flags=[-x]",
        "experiments.a.environment={A: b}",
        "experiments.a.workload.prompt=2",
        "experiments.a.load.grace=1",
        "experiments.a.objectives.ttft=1",
    ],
)
def test_the_hash_changes_with_what_is_planned(planned, override):
    assert planned(override).hash != planned().hash


def test_the_hash_does_not_change_with_budget_comments_or_spelling(planned):
    text = TEXT.replace("sessions: 1", "sessions: 2, grace: 0, warmup: 1") + "# a comment\n"
    assert planned("budget=10m", text=text).hash == planned().hash


def test_the_facts_say_how_the_plan_was_asked_for_which_is_not_hashed(planned, tmp_path):
    facts = planned("seed=7", "budget=1h").facts()
    assert facts["suite_path"] == str(tmp_path / "s.yaml")
    assert facts["overrides"] == ["seed=7", "budget=1h"]
    assert facts["hash"] == planned().hash
    assert [one["id"] for one in facts["points"]] == [one.id for one in planned().points]
    assert plan(load("smoke")).facts()["suite_path"] == "smoke"


@pytest.mark.parametrize(
    "load",
    [
        "{kind: closed, concurrency: 8, duration: 1h}",
        "{kind: closed, sessions: 3}",
        "{kind: open, rate: 2, duration: 60}",
        "{kind: recorded, sessions: 3, duration: 60}",
    ],
)
def test_a_simulated_point_is_guessed(planned, load):
    seconds = [estimate(point) for point in planned(f"experiments.a.load={load}").points]
    assert all(0 < second < 600 for second in seconds)


def test_a_point_on_the_wall_takes_its_window_and_its_grace_where_they_are_known(planned):
    point = planned("experiments.a.load.duration=10m", "experiments.a.load.grace=5").points[0]
    on_the_wall = replace(point.deployment, engine=WallEngine())
    assert estimate(replace(point, deployment=on_the_wall)) == 605
    endless = planned().points[0]
    assert estimate(replace(endless, deployment=on_the_wall)) is None


def test_smoke_is_guessed_at_about_what_it_was_measured_at():
    # `paceline run smoke` took 30 s of one core.
    assert 20 < sum(map(estimate, plan(load("smoke")).points)) < 45


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("workload.output=10", "workload.output=1000"),
        ("load.warmup=0", "load.warmup=50"),
        ("load={kind: closed, duration: 10}", "load={kind: closed, duration: 1000}"),
        ("load={kind: open, rate: 1, duration: 10}", "load={kind: open, rate: 9, duration: 10}"),
    ],
)
def test_what_a_simulated_point_has_more_of_takes_longer(planned, less, more):
    few, many = (estimate(planned(f"experiments.a.{one}").points[0]) for one in (less, more))
    assert few * 1.3 < many


def test_a_window_holds_as_many_requests_as_answers_leave_time_for(planned):
    # An answer of 100 tokens takes about a second of virtual time: 600 of them, at 1.6 ms each.
    window = (
        "experiments.a.workload.output=100",
        "experiments.a.load={kind: closed, duration: 600}",
    )
    assert estimate(planned(*window).points[0]) == pytest.approx(1.0, rel=0.1)


def test_replay_ttft_compares_three_arms_there_and_back():
    points = plan(load("replay-ttft")).points[:12]
    assert [point.deployment.topology.name for point in points[::3]] == [
        "TP4", "DEP2", "DEP2", "TP4",
    ]  # fmt: skip
    assert [point.deployment.replay for point in points[:3]] == ["off", "on-eager", "on"]
    assert [point.deployment.replay for point in points[-3:]] == ["on", "on-eager", "off"]
