"""Gate rules as people write them: what each means, and what is said of those that are wrong."""

import pytest

from results.direction import DIRECTIONS
from results.errors import InputError
from results.folder import newest
from results.verdict import Margin, Rule
from suites import rules
from suites.plan import plan
from suites.suite import load

SUITE = """
suite: s
experiments:
  - name: a
    engine: {kind: sim}
    topology: TP1
    workload: {kind: single, prompt: 1, output: 1}
    load: {kind: closed, sessions: 1}
"""

GATE = """
gate:
  ttft.p90: no worse than 5 % and 20 ms
  a:
    output_rate: no worse than 3%
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return path

    return write


def margin(metric, words):
    problems = []
    found = rules.read({metric: words}, (), problems)
    assert problems == []
    (rule,) = found
    return rule.margin


def wrong(metric, words):
    problems = []
    assert rules.read({metric: words}, ("gate",), problems) == ()
    (problem,) = problems
    return problem.sentence


@pytest.mark.parametrize(
    ("metric", "words", "meant"),
    [
        ("ttft", "no worse than 5 %", Margin(relative=0.05)),
        ("ttft.p90", "no worse than 5% and 20 ms", Margin(relative=0.05, absolute=0.02)),
        ("ttft.p90", "no worse than 20ms and 5 %", Margin(relative=0.05, absolute=0.02)),
        ("tpot", "no worse than 2x noise", Margin(noise=2)),
        ("tpot", "no worse than 3 % and 1.5 x noise", Margin(relative=0.03, noise=1.5)),
        ("tpot", "no worse than 500 us", Margin(absolute=0.0005)),
        ("tpot.p90", "no worse than 2 ms/token", Margin(absolute=0.002)),
        ("e2el.p50", "no worse than 1.5 s", Margin(absolute=1.5)),
        ("output_rate", "no worse than 50 tok/s", Margin(absolute=50)),
        ("output_rate_per_gpu", "no worse than 5 tok/s/GPU", Margin(absolute=5)),
        ("interactivity.p90", "no worse than 2 tok/s/user", Margin(absolute=2)),
        ("goodput", "no worse than 0.5 req/s", Margin(absolute=0.5)),
        ("cache_hit", "no worse than 2 points", Margin(absolute=0.02)),
        ("goodput_share", "no  worse than\n1 point", Margin(absolute=0.01)),
    ],
)
def test_the_words_of_a_rule_are_its_margin(metric, words, meant):
    found = margin(metric, words)
    assert found.relative == pytest.approx(meant.relative)
    assert found.absolute == pytest.approx(meant.absolute)
    assert found.noise == meant.noise


@pytest.mark.parametrize(
    ("metric", "words", "way"),
    [
        ("ttft", "5 %", "begin with `no worse than`"),
        ("ttft", 5, "begin with `no worse than`"),
        ("ttft", "no worse than", "begin with `no worse than`"),
        ("ttft", "no worse than 5", "ttft is in %, s, ms, us, µs or x noise, and no unit"),
        ("ttft", "no worse than 5 tok/s", "got tok/s"),
        ("ttft", "no worse than 5 points", "got points"),
        ("cache_hit", "no worse than 5 ms", "cache_hit is in %, points, point, pp or x noise"),
        ("ttft", "no worse than 5 % and 3 %", "once each"),
        ("ttft", "no worse than 0 %", "more than 0"),
        ("ttft", "no worse than -5 %", "no amount with a unit"),
        ("ttft", "no worse than 5 % or 20 ms", "no amount with a unit"),
        ("ttft", "no worse than five %", "no amount with a unit"),
        ("ttft", "no worse than ٥ %", "no amount with a unit"),
        ("ttft", "no worse than 100.1 %", "write 100 % at most"),
        ("ttft", "no worse than 500 % and 20 ms", "write 100 % at most"),
        ("output_rate", "no worse than 100 %", "write less than 100 %"),
        ("output_rate", "no worse than 300 %", "write 100 % at most"),
    ],
)
def test_a_rule_that_is_wrong_says_how_to_write_it(metric, words, way):
    sentence = wrong(metric, words)
    assert way in sentence
    assert "no worse than 5 %" in sentence


def test_an_unknown_metric_names_the_nearest_one():
    assert wrong("tttf.p90", "no worse than 5 %").endswith("write it as ttft.p90")
    assert "docs/metrics.md" in wrong("zzzz", "no worse than 5 %")
    assert "expected a metric" in wrong("requests", "no worse than 5 %")


@pytest.mark.parametrize("metric", DIRECTIONS)
def test_the_rule_that_is_proposed_for_a_metric_is_a_rule(metric):
    proposed = margin(metric, rules._fitting(metric))
    stated = proposed.absolute if metric == "accuracy" else proposed.relative
    assert stated == (0.01 if metric == "accuracy" else 0.05)


def test_a_suite_has_rules_for_everything_and_for_one_experiment(file):
    suite = load(str(file(SUITE + GATE)))
    found = rules.read(plan(suite).facts()["gate"], (), [])
    assert found == (
        Rule(metric="ttft.p90", margin=Margin(relative=0.05, absolute=0.02)),
        Rule(metric="output_rate", margin=Margin(relative=0.03), experiment="a"),
    )


def test_rules_change_neither_the_hash_nor_what_is_resumed(file, tmp_path):
    bare = plan(load(str(file(SUITE))))
    ruled = plan(load(str(file(SUITE + GATE))))
    assert bare.hash == ruled.hash
    assert [point.id for point in bare.points] == [point.id for point in ruled.points]
    assert newest(tmp_path, "s", ruled.hash) is None


def test_what_is_wrong_with_rules_is_said_with_file_and_key(file):
    gate = "gate: {tttf.p90: no worse than 5 %, b: {ttft: no worse than 5 %}, x: {}}"
    path = file(SUITE + gate)
    with pytest.raises(InputError) as caught:
        load(str(path))
    first, *rest = str(caught.value).splitlines()
    assert first == (
        f"{path}: gate.tttf.p90: expected a metric that can be compared, "
        'got "tttf.p90": write it as ttft.p90'
    )
    assert any(line.startswith(f"{path}: gate.b: expected a, got") for line in rest)
    assert any("expected rules, got none" in line for line in rest)


@pytest.mark.parametrize("gate", ["gate: {}", "gate: []", "gate: no worse than 5 %", "gate:"])
def test_a_gate_without_rules_is_an_error(file, gate):
    with pytest.raises(InputError, match="gate: expected rules, got"):
        load(str(file(SUITE + gate)))


def test_a_file_of_rules_is_a_mapping_of_them_or_a_suite_with_a_gate(file):
    whole = rules.load(file(SUITE + GATE))
    alone = rules.load(
        file("ttft.p90: no worse than 5 % and 20 ms\na: {output_rate: no worse than 3 %}")
    )
    assert whole == alone


def test_the_block_of_a_suite_alone_is_a_file_of_rules(file):
    whole = rules.load(file(SUITE + GATE), ["a"])
    assert rules.load(file(GATE), ["a"]) == whole
    with pytest.raises(InputError, match=r"gate\.ttft: expected a rule such as"):
        rules.load(file("gate: {ttft: much worse}"))


def test_an_experiment_that_is_called_gate_has_rules_of_its_own(file):
    (rule,) = rules.load(file("gate: {ttft: no worse than 5 %}"), ["gate", "b"])
    assert rule.experiment == "gate"


def test_a_suite_without_a_gate_is_no_file_of_rules(file):
    with pytest.raises(InputError, match="gate is missing: add gate: "):
        rules.load(file(SUITE))


def test_a_file_of_rules_names_experiments_that_there_are(file):
    with pytest.raises(InputError, match='expected agents or batches, got "agent": write it as'):
        rules.load(file("agent: {ttft: no worse than 5 %}"), ["agents", "batches"])
