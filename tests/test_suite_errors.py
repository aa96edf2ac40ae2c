import pytest

from results.errors import InputError
from suites.experiment import Engines
from suites.grid import kinds
from suites.suite import load
from suites.words import listed

GOOD = """
suite: s
experiments:
  - name: a
    engine: {kind: sim}
    topology: TP1
    workload: {kind: single, prompt: 1, output: 1}
    load: {kind: closed, sessions: 1}
"""


@pytest.fixture
def errors(tmp_path):
    """What is wrong with a suite, a line each."""

    def read(text, *overrides):
        path = tmp_path / "s.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(InputError) as caught:
            load(str(path), overrides)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return read


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


EXPERIMENT_KEYS = (
    "name, engine, topology, workload, load, replay, pinned, model, flags, environment, objectives "
    "or repeats"
)
CLOSED_KEYS = "kind, concurrency, sessions, duration, grace or warmup"
WHOLE = "expected a whole number of at least 1"
TOKENS = "expected a whole number from 1 to 10,000,000"
LANES = "expected a whole number from 1 to 100,000"
DURATION = "a number above 0 and of at most 100,000,000 or a duration such as 500ms, 90s or 10m"
ENGINES = listed(kinds(Engines), "and")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("suite: s", "suite: S 1", 'suite: expected text matching [a-z0-9-]+, got "S 1": '
         'write it as "s-1"'),
        ("suite: s", "suite: s\nseed: -1", "seed: expected a whole number of at least 0, got -1: "
         "write 0 or more"),
        ("suite: s", "suite: s\nseed:", "seed: expected a whole number of at least 0, got nothing: "
         "write a value or remove the key"),
        ("suite: s", "suite: s\nrepeats: true", f"repeats: {WHOLE}, got true: write it as 1"),
        ("suite: s", "suite: s\nrepeats: no", f'repeats: {WHOLE}, got "no": write it as 1'),
        ("suite: s", "suite: s\nseed: off", 'seed: expected a whole number of at least 0, got '
         '"off": write it as 0'),
        ("sessions: 1", "sessions: 1, duration: none", "experiments[0].load.duration: expected "
         f'{DURATION}, got "none": write it as null'),
        ("sessions: 1", "duration: 10 minutes", "experiments[0].load.duration: expected "
         f'{DURATION}, got "10 minutes": write it as 10m'),
        ("sessions: 1", "duration: 1H 30min", "experiments[0].load.duration: expected "
         f'{DURATION}, got "1H 30min": write it as 5400s'),
        ("sessions: 1", "sessions: 1, rate: 1", "experiments[0].load.rate: expected a key of "
         f'{CLOSED_KEYS}, got "rate": it belongs to kind: open, so write that or remove the key'),
        ("sessions: 1", "sessions: 1, limit: 1", "experiments[0].load.limit: expected a key of "
         f'{CLOSED_KEYS}, got "limit": it belongs to kind: open or recorded, so write that or '
         "remove the key"),
        ("suite: s", "suite: s\nrepeats: 2.0", f"repeats: {WHOLE}, got 2.0: write it as 2"),
        ("suite: s", "suite: s\nrepeats: [1]", f"repeats: {WHOLE}, got [1]: write one value"),
        ("suite: s", "suite: s\norder: ABBA", "order: expected as-written, shuffled or abba, "
         'got "ABBA": write it as abba'),
        ("suite: s", "suite: s\nbudget: 10 min", "budget: expected a number above 0 or a duration "
         'such as 500ms, 90s or 10m, got "10 min": write it as 10m'),
        ("suite: s", "suite: s\nrepeat: 2", "repeat: expected a key of suite, experiments, seed, "
         'repeats, order, budget or gate, got "repeat": write it as repeats'),
        ("suite: s\n", "", "suite is missing: add it, text matching [a-z0-9-]+"),
        ("name: a", "name: a\n    title: a", "experiments[0].title: expected a key of "
         f'{EXPERIMENT_KEYS}, got "title": remove it'),
        ("{kind: sim}", "sim", "experiments[0].engine: expected a mapping, got \"sim\": "
         "write {kind: sim}"),
        ("{kind: sim}", "{name: x}", "experiments[0].engine: kind is missing: the kinds are "
         f"{ENGINES}"),
        ("{kind: sim}", "{kind: endpoint, url: 'http://127.0.0.1:1'}",
         "experiments[0].engine: model is missing: add it, text"),
        ("{kind: sim}", "{kind: tgi}", 'experiments[0].engine.kind: expected a kind, got "tgi": '
         f"the kinds are {ENGINES}"),
        ("{kind: sim}", "{kind: vlm}", 'experiments[0].engine.kind: expected a kind, got "vlm": '
         "write it as vllm"),
        ("{kind: sim}", "vllm", "experiments[0].engine: expected a mapping, got \"vllm\": "
         "write {kind: vllm}"),
        ("{kind: sim}", "{kind: sim, noise: [0, x]}", "experiments[0].engine.noise[1]: expected a "
         'number from 0 to 1, got "x": write a number, 0 to 1'),
        ("{kind: sim}", "{kind: sim, cost: {host: -1}}", "experiments[0].engine.cost.host: "
         "expected a number from 0 to 100, got -1: write 0 to 100"),
        ("{kind: sim}", "[{kind: sim, cost: {host: 1}}, {kind: sim}]", "experiments[0].engine: "
         'expected a name for every engine, got "sim" twice: add name'),
        ("TP1", "TQ1", "experiments[0].topology: expected a topology such as TP4, DEP2, DEP32 or "
         'TP2xPP3, got "TQ1"'),
        ("TP1", "[TP1, 4]", "experiments[0].topology[1]: expected a topology such as TP4, DEP2, "
         'DEP32 or TP2xPP3, got "4": write it as TP4'),
        ("TP1", "DP2xDEP2", 'experiments[0].topology: "DP2xDEP2" names data parallelism twice: '
         "write DP or DEP, not both"),
        ("{kind: sim}", "[{kind: endpoint, url: 'http://h:1', model: m, gpus: 2, name: [a, b]}]",
         "experiments[0].topology: a states gpus: 2, and TP1 has 1: write the topology that it "
         "really has"),
        ("TP1", "TP9000000", "experiments[0].topology: expected at most 1,000,000 GPUs, got "
         '"TP9000000": write fewer'),
        ("TP1", "[]", "experiments[0].topology: expected at least one value, got an empty list: "
         "write one or remove the key"),
        ("TP1", "[TP1, TP2, TP1]", "experiments[0].topology[2]: expected every value once, got "
         '"TP1" again: remove it'),
        ("TP1", "TP1\n    replay: [off, true]", "experiments[0].replay[1]: expected off, on-eager "
         "or on, got true: write it as on"),
        ("TP1", "TP1\n    replay: on-eagr", "experiments[0].replay: expected off, on-eager or on, "
         'got "on-eagr": write it as on-eager'),
        ("TP1", "TP1\n    pinned: no", 'experiments[0].pinned: expected true or false, got "no": '
         "write it as false"),
        ("TP1", "TP1\n    flags: -x", "experiments[0].flags: expected a list whose every entry is "
         'text, got "-x": change it'),
        ("TP1", "TP1\n    flags: [-x, 1]", "experiments[0].flags[1]: expected text, got 1: "
         'write it as "1"'),
        ("TP1", "TP1\n    environment: {A: on, B: 1}", "experiments[0].environment.B: expected "
         'text, got 1: write it as "1"'),
        ("TP1", "TP1\n    objectives: {tttf: 1}", "experiments[0].objectives.tttf: expected a key "
         'of ttft, tpot or e2el, got "tttf": write it as ttft'),
        ("TP1", "TP1\n    objectives: {TTFT: 1}", "experiments[0].objectives.TTFT: expected a key "
         'of ttft, tpot or e2el, got "TTFT": write it as ttft'),
        ("TP1", "TP1\n    objectives: {ttft: 0}", "experiments[0].objectives.ttft: expected a "
         "number above 0 or a duration such as 500ms, 90s or 10m, got 0: write more than 0"),
        ("TP1", "TP1\n    objectives: {tpot: 90s}", "experiments[0].objectives.tpot: expected a "
         "number above 0 and of at most 10 or a duration such as 500ms, 90s or 10m, got \"90s\": "
         "write more than 0 and 10 or less"),
        ("prompt: 1", "prompt: \"8\"", f'experiments[0].workload.prompt: {TOKENS}, got "8": '
         "write it as 8"),
        ("prompt: 1", "prompt: 1_000", f'experiments[0].workload.prompt: {TOKENS}, got "1_000": '
         "write it as 1000"),
        ("prompt: 1, ", "", "experiments[0].workload: prompt is missing: add it, "
         + TOKENS.removeprefix("expected ")),
        ("kind: single", "kind: singel", "experiments[0].workload.kind: expected a kind, got "
         '"singel": write it as single'),
        ("kind: single", "kind: many", 'experiments[0].workload.kind: expected a kind, got "many": '
         "the kinds are agentx, batch, forward, growing, questions and single"),
        ("kind: single, prompt: 1, output: 1", "kind: growing, turns: 2, first: 8, fresh: 8, "
         "output: 8, context_limit: 9", "experiments[0].workload: context_limit 9 is less than "
         "first + output = 16, so not even the first turn fits: raise it"),
        ("kind: single, prompt: 1, output: 1", "kind: agentx, traces: gone.jsonl",
         "experiments[0].workload.traces: expected a trace file or a folder of them, got "
         '"gone.jsonl", but there is no gone.jsonl: write the path as seen from the suite file\'s '
         "folder"),
        ("sessions: 1", "concurency: 2, sessions: 1", "experiments[0].load.concurency: expected a "
         f'key of {CLOSED_KEYS}, got "concurency": write it as concurrency'),
        ("sessions: 1", 'sessions: 1, concurrency: [4, 8, "8,16"]',
         f'experiments[0].load.concurrency[2]: {LANES}, got "8,16": write it as 8, 16'),
        ("sessions: 1", 'sessions: 1, concurrency: "8,16"',
         f'experiments[0].load.concurrency: {LANES}, got "8,16": write it as [8, 16]'),
        ("sessions: 1", "sessions: 1, concurrency: [1, 2, 1]", "experiments[0].load.concurrency[2]"
         ": expected every value once, got 1 again: remove it"),
        ("sessions: 1", "duration: [60, 1m]", "experiments[0].load.duration[1]: expected every "
         'value once, got "1m" again: remove it'),
        ("sessions: 1", "sessions: []", "experiments[0].load.sessions: expected at least one "
         "value, got an empty list: write one or remove the key"),
        ("sessions: 1", "grace: 1", "experiments[0].load: says neither sessions nor duration, so "
         "it would never end: add one"),
        ("{kind: closed, sessions: 1}", "[{kind: closed, sessions: [1, 2]}, {kind: closed, "
         "concurrency: 1, sessions: 2}]", "experiments[0].load[1]: expected mappings that differ, "
         "got the same settings twice: remove one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place_and_the_way_out(errors, old, new, sentence):
    assert errors(changed(old, new)) == [f"s.yaml: {sentence}"]


def test_all_problems_are_told_at_once(errors):
    text = changed("TP1", "TP1\n    pinned: yes").replace("sessions: 1", "sessions: 0, x: 1")
    assert errors(text.replace("suite: s", "suite: s\nsuite: s\nseed: x")) == [
        "s.yaml: suite: expected a key once, got it again on line 3: remove one of them",
        's.yaml: seed: expected a whole number of at least 0, got "x": write a number, 0 or more',
        's.yaml: experiments[0].pinned: expected true or false, got "yes": write it as true',
        f's.yaml: experiments[0].load.x: expected a key of {CLOSED_KEYS}, got "x": remove it',
        "s.yaml: experiments[0].load.sessions: expected a whole number from 1 to 1,000,000, "
        "got 0: write 1 to 1,000,000",
    ]


def test_an_experiment_has_a_name_of_its_own(errors):
    again = GOOD[GOOD.index("  - name") :]
    assert errors(GOOD + again) == [
        's.yaml: experiments[1].name: expected a name of its own, got "a" as in experiments[0]: '
        "rename one"
    ]


@pytest.mark.parametrize(("written", "got"), [("[]", "[]"), ("", "nothing"), ("{a: 1}", '{"a":1}')])
def test_a_suite_has_experiments(errors, written, got):
    assert errors(f"suite: s\nexperiments: {written}") == [
        f"s.yaml: experiments: expected a list of experiments, got {got}: write one"
    ]


@pytest.mark.parametrize("text", ["", "- 1", "hello"])
def test_a_suite_is_a_mapping(errors, text):
    (line,) = errors(text)
    assert line.startswith(
        "s.yaml: expected a mapping with keys of suite, experiments, seed, repeats, order, "
        "budget or gate, got "
    )


def test_a_grid_has_at_most_10_000_points(errors):
    sides = {"prompt: 1": f"prompt: {list(range(1, 102))}"}
    wide = changed(*sides.popitem()).replace("output: 1", f"output: {list(range(1, 101))}")
    assert errors(wide) == [
        "s.yaml: experiments[0].workload: expected at most 10,000 points, got 10,100: "
        "shorten a list of its grid"
    ]
    deep = changed("prompt: 1", f"prompt: {list(range(1, 102))}")
    deep = deep.replace("sessions: 1", f"sessions: {list(range(1, 101))}")
    assert errors(deep) == [
        "s.yaml: experiments[0]: expected at most 10,000 points, got 10,100: "
        "shorten a list of its grid"
    ]
    assert errors(GOOD, "repeats=10001") == [
        "s.yaml: experiments: expected at most 10,000 points, got 10,001 or more with repeats: "
        "shorten a list of its grid"
    ]


def test_many_problems_are_cut(errors):
    lines = errors(changed("sessions: 1", f"sessions: {['x'] * 80}"))
    assert len(lines) == 51
    assert lines[-1] == "s.yaml: and 30 more"


def test_a_key_with_a_line_break_is_still_one_line(errors):
    (line,) = errors(changed("suite: s", 'suite: s\n"a\\nb": 1'))
    assert line.startswith('s.yaml: ["a\\nb"]: expected a key of suite')


def test_a_file_that_cannot_be_read_is_said(errors, tmp_path):
    for name, reason in [("none.yaml", "no such file or directory"), ("", "is a directory")]:
        with pytest.raises(InputError) as caught:
            load(str(tmp_path / name))
        assert str(caught.value) == f"{tmp_path / name}: cannot be read, {reason}: check the path"
    assert errors(b"suite: \xff") == ["s.yaml: is not UTF-8 at byte 7: save it as UTF-8"]
    assert errors("#" * (1 << 20) + "\n") == [
        "s.yaml: expected at most 1 MiB, got more: check that it is a suite"
    ]
    assert errors("a: [") == ["s.yaml:1:4: the [ here is never closed: add the ]"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tp4", "TP4"), ("TPP4", "TP4"), ("EP4", "DEP4"), ("ep2xtp4", "DEP2xTP4"),
        ("DPE2", "DP2 or DEP2"), ("pt4", "TP4"), ("dpe2xtpp4", "DP2xTP4 or DEP2xTP4"),
        ("TP 4", "TP4"), ("TP=4", "TP4"), ("DEPP2", "DEP2"), ("TPxPP", None), ("TP0", None),
    ],
)  # fmt: skip
def test_the_topology_that_was_meant_is_said(errors, written, meant):
    (line,) = errors(changed("TP1", written))
    assert line.startswith("s.yaml: experiments[0].topology: expected a topology such as TP4, ")
    assert line.endswith(f'got "{written}"' + f": write it as {meant}" * bool(meant))


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed", '--set: expected a path and a value, got "seed": write seed=3'),
        ("sed=1", "--set sed=1: sed: expected a key of suite, experiments, seed, repeats, order, "
         'budget or gate, got "sed": write it as seed'),
        ("seed=x", "--set seed=x: seed: expected a whole number of at least 0, got \"x\": "
         "write a number, 0 or more"),
        ("seed=[", "--set seed=[:1:1: the [ here is never closed: add the ]"),
        ("seed.x=1", "--set seed.x=1: expected suite or experiments, got \"seed\": "
         "write one of them"),
        ("experiments.b.name=x", '--set experiments.b.name=x: experiments: expected a or 0, got '
         '"b": write one of them'),
        ("experiments.a.laod.sessions=1", "--set experiments.a.laod.sessions=1: experiments[0]: "
         'expected name, engine, topology, workload or load, got "laod": write it as load'),
        ("experiments.a.load.session=1", "--set experiments.a.load.session=1: "
         f"experiments[0].load.session: expected a key of {CLOSED_KEYS}, got \"session\": "
         "write it as sessions"),
        ("experiments.a.topology.x=1", "--set experiments.a.topology.x=1: experiments[0].topology: "
         "holds no keys, so x leads nowhere: end the path before it"),
    ],
)  # fmt: skip
def test_an_override_that_leads_nowhere_names_what_is_near(errors, override, sentence):
    assert errors(GOOD, override) == [sentence]
