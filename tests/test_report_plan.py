"""What a plan looks like before anything starts."""

from reports.plan import plan_table

CLOSED = {"kind": "closed", "sessions": None, "duration": 90.0, "warmup": 1}
AGENTS = {"kind": "agentx", "generated": 12, "context_limit": None}
BATCH = {"kind": "batch", "context": 2048}


def row(position, experiment, workload, load, seconds=2.0):
    return {
        "position": position,
        "experiment": experiment,
        "arm": "sim TP4 replay=on",
        "repeat": 0,
        "workload": workload,
        "load": load,
        "seconds": seconds,
    }


ROWS = [
    row(0, "agents", AGENTS, CLOSED | {"concurrency": 1}, 0.01),
    row(1, "agents", AGENTS, CLOSED | {"concurrency": 16}, 61.0),
    row(2, "batches", BATCH | {"requests": 4}, CLOSED | {"concurrency": 1, "duration": None}),
    row(3, "batches", BATCH | {"requests": 64}, CLOSED | {"concurrency": 1, "duration": None}),
]
STARTS = {"sim TP4 replay=on": ["SIMULATED", "a line " * 20]}

PLAN = f"""\
Plan: 4 points, about 1 min 05 s in all, simulating at least 3 min 00 s

Points in their order

 position  experiment  arm                repeat  workload  load             time
 ────────────────────────────────────────────────────────────────────────────────
        0  agents      sim TP4 replay=on       0  agentx    closed 1        0.1 s
        1  agents      sim TP4 replay=on       0  agentx    closed 16  1 min 01 s
        2  batches     sim TP4 replay=on       0  batch 4   closed 1        2.0 s
        3  batches     sim TP4 replay=on       0  batch 64  closed 1        2.0 s

every point of agents: agentx, generated 12; closed, duration 1 min 30 s, warmup 1
every point of batches: batch, context 2048; closed 1, warmup 1

What starting each arm does

sim TP4 replay=on
    SIMULATED
    {"a line " * 20}"""


def first_line(rows=ROWS, **totals):
    return plan_table(rows, STARTS, width=200, **totals).splitlines()[0]


def test_a_plan_is_what_it_comes_to_then_a_row_a_point_then_the_starts():
    assert plan_table(ROWS, STARTS, seconds=65.01, simulated=180.0, width=100) == PLAN


def test_a_plan_is_as_wide_as_paper_where_there_is_no_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert plan_table(ROWS, STARTS, seconds=65.01, simulated=180.0) == PLAN


def test_settings_that_differ_stand_in_the_row():
    rows = [
        row(0, "a", {"kind": "single", "prompt": 8, "output": 1}, {"kind": "open", "rate": 0.5}),
        row(1, "a", {"kind": "growing", "output": 1}, {"kind": "recorded", "speed": 2.0}),
    ]
    table = plan_table(rows, STARTS, seconds=4, width=100)
    assert "single, prompt 8  open 0.5/s" in table
    assert "growing           recorded 2x" in table
    assert "every point of a: output 1\n" in table


def test_how_many_recorded_traces_fit_is_said_below_the_plan():
    recorded = {"kind": "agentx", "traces": "t/", "context_limit": 65_536}
    rows = [row(n, "agents", recorded, CLOSED) | {"fitting": [13, 24]} for n in range(2)]
    assert "\nagents: 13 of 24 traces fit context_limit 65,536\n" in plan_table(
        rows, STARTS, seconds=4, width=100
    )


def test_traces_that_are_not_the_profiles_are_told_once_for_all_experiments():
    rows = [
        row(n, name, AGENTS, CLOSED) | {"departures": ["other traces"]}
        for n, name in enumerate(("a", "a", "b"))
    ]
    assert plan_table(rows, STARTS, seconds=4, width=100).count("\na, b: other traces\n") == 1


def test_what_is_unsupported_is_not_in_the_total():
    refused = ROWS[0] | {"seconds": None, "unsupported": "why"}
    told = plan_table([refused, *ROWS[1:]], STARTS, seconds=65.0, width=100)
    assert told.startswith("Plan: 4 points, 1 unsupported, 3 to run, about 1 min 05 s in all\n")
    assert "closed 1   unsupported\n" in told
    assert first_line([refused], seconds=0) == "Plan: 1 point, 1 unsupported, none to run"


def test_why_points_are_unsupported_is_said_above_the_rows_once():
    reasons = ("too many", "too many", "too few")
    refused = [ROWS[0] | {"seconds": None, "unsupported": why} for why in reasons]
    told = plan_table([*refused, *ROWS[1:]], STARTS, seconds=65.0, width=100).split("\n\n")[0]
    assert told.splitlines()[1:] == [
        "2 points unsupported: too many",
        "1 point unsupported: too few",
    ]


def test_arms_without_repeats_are_warned_of_in_one_line():
    def warned(*rows):
        summary = plan_table(rows, STARTS, seconds=4, width=200).split("\n\n")[0]
        return summary.splitlines()[1:]

    why = "compare will not tell how much runs vary; repeats: 3 or more"
    other = [one | {"arm": "sim DEP2"} for one in ROWS]
    assert warned(*ROWS) == []
    assert warned(*ROWS, *other) == [f"one repeat: {why}"]
    again = [one | {"repeat": 1} for one in ROWS[:2]]
    assert warned(*ROWS, *other, *again) == [f"one repeat of batches: {why}"]
    assert warned(*ROWS, *(one | {"unsupported": "why"} for one in other))[1:] == []
    asked = {"workload": {"kind": "questions", "task": "gsm8k"}}
    assert warned(*(one | asked for one in (ROWS[0], other[0]))) == []


def test_what_nobody_knows_is_not_in_the_total():
    assert first_line(seconds=32.4) == "Plan: 4 points, about 32 s in all"
    unknown = [one | {"seconds": None} for one in ROWS]
    assert first_line([unknown[0], *ROWS[1:]], seconds=0.2, unknown=1) == (
        "Plan: 4 points, at least 1 s (3 points); 1 point lasts until its requests are answered"
    )
    assert first_line(unknown[:1], seconds=0, unknown=1, servers=1) == (
        "Plan: 1 point; 1 point lasts until its requests are answered; 1 start of a server and the "
        "warm-ups come on top"
    )
    steps = unknown[1] | {"workload": {"kind": "forward"}}
    assert first_line([unknown[0], steps], seconds=0, unknown=2) == (
        "Plan: 2 points; 2 points last until their requests are answered or steps are timed"
    )
    assert first_line(ROWS[:1], seconds=120, warmups=1) == (
        "Plan: 1 point, about 2 min 00 s in all; the warm-ups come on top"
    )
    assert "unknown" in plan_table([ROWS[0] | {"seconds": None}], STARTS, seconds=0, width=100)


def test_gpus_and_what_time_is_a_guess_stand_in_the_summary():
    assert (
        first_line(seconds=32.4, gpus=4)
        == "Plan: 4 points, at most 4 GPUs at once, about 32 s in all"
    )
    told = plan_table(ROWS, STARTS, seconds=4, guessed=True, width=100).split("\n\n")[0]
    assert "What is simulated starts nothing, and may take half or twice as long" in told


def test_servers_that_stay_up_are_told_with_the_arms_that_share_one():
    def summary(*servers):
        return plan_table(ROWS, STARTS, seconds=4, resident=servers, width=200).splitlines()[1]

    assert summary(("a",)) == "Started once, and then up to the end: a"
    assert summary(("a",), ("b", "b unpinned")) == (
        "Started once, and then up beside each other on the same GPUs to the end: a, b and "
        "b unpinned (one server)"
    )


def test_what_is_missing_stands_before_the_rows():
    told = plan_table(ROWS, STARTS, seconds=4, missing=["missing: x: make it"], width=100)
    assert told.splitlines()[1] == "missing: x: make it"
