"""The gate as CI meets it: what passes, what fails, and what must never pass."""

import re
import shutil
from xml.etree import ElementTree

import pytest

from cli import Exit
from tests.gate_runs import ALIKE, SLOWER, SUITE, gates, made, paceline, said


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A baseline, a run that is as good, and one that is 15 % slower."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "base": made(folder / "base"),
        "alike": made(folder / "alike", ALIKE),
        "slower": made(folder / "slower", SLOWER),
    }


@pytest.fixture(scope="module")
def baseline(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("baseline") / "baseline.json"
    assert paceline("baseline", runs["base"], "-o", path).exit_code == Exit.GOOD
    return path


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_as_good_passes_and_what_is_15_percent_slower_fails(runs, baseline, kind):
    against = runs["base"] if kind == "folder" else baseline
    good = paceline("gate", runs["alike"], "--baseline", against, "--json")
    assert good.exit_code == Exit.GOOD, good.stdout
    assert good.stdout.startswith("Gate PASSED (SIMULATED)")
    assert gates(good) == {"pass": 2}
    bad = paceline("gate", runs["slower"], "--baseline", against, "--json")
    assert bad.exit_code == Exit.GATE_FAILED
    assert bad.stdout.startswith("Gate FAILED (SIMULATED)")
    assert gates(bad) == {"fail": 2}
    assert said(bad)["exit_code"] == 1


def test_what_is_no_baseline_or_no_second_side_says_what_to_name(runs, tmp_path):
    run, absent = runs["base"], tmp_path / "none.json"
    for written in (absent, f"{absent}:TP2"):
        missing = paceline("gate", run, "--baseline", written)
        assert missing.exit_code == Exit.BAD_INPUT
        assert (
            f"{written} does not exist: make a baseline with `paceline baseline" in missing.stderr
        )
    alone = paceline("compare", f"{run}:TP2")
    assert alone.exit_code == Exit.BAD_INPUT
    assert f"{run}:TP2: RUN:ARM needs a second side" in alone.stderr


def test_what_has_nothing_in_common_ends_as_bad_input(runs, tmp_path):
    other = made(tmp_path, "experiments.0.load.concurrency=3")
    for more in ((), ("--allow", "load"), ("--factor", "load")):
        found = paceline("compare", runs["base"], other, *more)
        assert found.exit_code == Exit.BAD_INPUT, found.stdout
        assert "--allow load" not in found.stdout
    assert found.stdout.startswith("SIMULATED. Nothing to compare: ")


def test_a_failed_gate_names_requests_and_what_to_run(runs, baseline):
    result = paceline("gate", runs["slower"], "--baseline", baseline)
    assert "Requests that got slower by most" in result.stdout
    assert "growing-" in result.stdout
    folder = runs["slower"].parent
    again = f"paceline gate '{folder}/tiny-<utc>' --baseline {baseline}"
    *_, measure, judge = result.stdout.splitlines()
    assert measure.endswith(f"tiny.yaml --set {SLOWER} --new --out {folder}")
    assert judge.strip() == again


def test_a_baseline_file_says_what_the_folder_says(runs, baseline):
    told = [
        said(paceline("gate", runs["slower"], "--baseline", against, "--json"))
        for against in (runs["base"], baseline)
    ]
    for folder, file in zip(*(one["cells"][0]["judgements"] for one in told), strict=True):
        assert (folder["metric"], folder["verdict"]) == (file["metric"], file["verdict"])
        assert folder["how"] == file["how"]
        assert file["ratio"] == pytest.approx(folder["ratio"], rel=1e-6)
        assert file["high"] == pytest.approx(folder["high"], rel=1e-6)


def test_an_inconclusive_gate_is_4_unless_it_is_said_what_it_counts_as(runs, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("batch_rate: no worse than 5 %\n")
    asked = ("gate", runs["alike"], "--baseline", runs["base"], "--rules", rules)
    result = paceline(*asked)
    assert result.exit_code == Exit.INCONCLUSIVE, result.stdout
    assert result.stdout.startswith("Gate INCONCLUSIVE")
    assert paceline(*asked, "--inconclusive", "fail").exit_code == Exit.GATE_FAILED
    counted = paceline(*asked, "--inconclusive", "pass")
    assert counted.exit_code == Exit.GOOD
    assert "Inconclusive counts as a pass here." in counted.stdout
    assert paceline(*asked, "--inconclusive", "perhaps").exit_code == Exit.BAD_INPUT


def test_one_run_against_several_is_inconclusive(runs, tmp_path):
    one = made(tmp_path, "repeats=1", ALIKE)
    result = paceline("gate", one, "--baseline", runs["base"], "--json")
    assert result.exit_code == Exit.INCONCLUSIVE, result.stdout
    assert gates(result) == {"inconclusive": 2}


def test_a_metric_without_a_value_is_inconclusive_and_never_passes(runs, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("batch_rate: no worse than 5 %\nttft: no worse than 5 %\n")
    result = paceline("gate", runs["alike"], "--baseline", runs["base"], "--rules", rules, "--json")
    assert result.exit_code == Exit.INCONCLUSIVE
    assert gates(result) == {"pass": 1, "inconclusive": 1}


def test_a_rule_in_multiples_of_the_noise_needs_a_calibration(runs, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("ttft: no worse than 3 % and 2x noise\n")
    asked = ("gate", runs["alike"], "--baseline", runs["base"], "--rules", rules)
    assert paceline(*asked).exit_code == Exit.INCONCLUSIVE
    calibration = tmp_path / "calibration.json"
    suite = runs["base"].parent / "tiny.yaml"
    made_it = paceline("calibrate", suite, "--runs", tmp_path, "-o", calibration, "--quiet")
    assert made_it.exit_code == Exit.GOOD, made_it.stderr
    assert "SIMULATED" in made_it.stdout
    assert paceline(*asked, "--calibration", calibration).exit_code == Exit.GOOD


def test_a_gate_without_rules_is_bad_input(tmp_path, runs):
    bare = made(tmp_path / "bare", ALIKE, text=SUITE[: SUITE.index("gate:")])
    result = paceline("gate", bare, "--baseline", runs["base"])
    assert result.exit_code == Exit.BAD_INPUT
    assert "has no rules to be judged by: add gate:" in result.stderr


def test_a_run_is_not_held_against_itself(runs, baseline):
    for against in (runs["base"], baseline):
        result = paceline("gate", runs["base"], "--baseline", against)
        assert result.exit_code == Exit.BAD_INPUT
        assert "always as good as itself" in result.stderr


def test_another_seed_is_refused_and_is_bad_input(runs, tmp_path):
    other = made(tmp_path / "other", "seed=6")
    result = paceline("gate", other, "--baseline", runs["base"], "--json")
    assert result.exit_code == Exit.BAD_INPUT
    assert "refused" in result.stdout
    assert said(result)["cells"] == []


def test_a_cell_that_the_candidate_lacks_is_never_passed_over(runs, tmp_path):
    wide = made(tmp_path / "wide", "experiments.0.load.concurrency=[2, 4]")
    junit = tmp_path / "gate.xml"
    result = paceline("gate", runs["alike"], "--baseline", wide, "--junit", junit)
    assert result.exit_code == Exit.INCOMPLETE, result.stdout
    assert ElementTree.parse(junit).getroot()[0].get("errors") == "1"
    assert "closed-4" in result.stdout
    assert "run it too" in " ".join(result.stdout.split())
    assert not result.stdout.startswith("Gate PASSED")


def test_a_cell_that_the_baseline_lacks_is_inconclusive(runs, tmp_path):
    wide = made(tmp_path / "wide", "experiments.0.load.concurrency=[2, 4]", ALIKE)
    result = paceline("gate", wide, "--baseline", runs["base"])
    assert result.exit_code == Exit.INCONCLUSIVE, result.stdout
    assert "is not in the baseline" in " ".join(result.stdout.split())


def test_a_candidate_that_is_not_finished_is_never_passed(runs, tmp_path):
    for left in (("outcome.json",), ("outcome.json", "evidence.json", "point.json")):
        part = tmp_path / f"part-{len(left)}"
        shutil.copytree(runs["alike"], part)
        point = next(part.glob("*-r2-*"))
        for name in left:
            (point / name).unlink()
        result = paceline("gate", part, "--baseline", runs["base"])
        assert result.exit_code == Exit.INCOMPLETE, result.stdout
        assert "INVALID" in result.stdout


def test_a_failed_point_is_never_passed(runs, tmp_path):
    broken = made(tmp_path / "broken", "experiments.0.engine.context_limit=100")
    result = paceline("gate", broken, "--baseline", runs["base"])
    assert result.exit_code == Exit.INCOMPLETE


def test_rules_of_an_experiment_hold_there_alone(tmp_path):
    text = SUITE.replace("gate:\n", "gate:\n  talk: {output_rate: no worse than 9 %}\n")
    base = made(tmp_path / "base", text=text)
    result = paceline(
        "gate", made(tmp_path / "new", ALIKE, text=text), "--baseline", base, "--json"
    )
    assert result.exit_code == Exit.GOOD
    assert gates(result) == {"pass": 3}
    rules = tmp_path / "rules.yaml"
    rules.write_text("walk: {ttft: no worse than 5 %}\n")
    result = paceline("gate", base, "--baseline", base, "--rules", rules)
    assert result.exit_code == Exit.BAD_INPUT
    assert 'expected talk, got "walk"' in result.stderr


def test_markdown_is_added_and_junit_and_page_are_written(runs, tmp_path):
    markdown, junit, page = (tmp_path / name for name in ("s.md", "j.xml", "page.html"))
    markdown.write_text("before\n")
    result = paceline(
        *("gate", runs["slower"], "--baseline", runs["base"]),
        *("--markdown", markdown, "--junit", junit, "-o", page),
    )
    assert result.exit_code == Exit.GATE_FAILED
    assert markdown.read_text().startswith("before\n**Gate FAILED (SIMULATED)")
    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.get("failures") == "2"
    assert "SIMULATED" in page.read_text()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not a run folder"),
        ("", "is not strict JSON"),
        ('{"format": 1}', "is no baseline"),
        ('{"format": 9}', "has format 9"),
        ('{"format": 1, "kind": "paceline baseline"}', "was not written by this version"),
        (
            '{"format": 1, "kind": "paceline baseline", "suite": "s", "keeps": 1, "runs": {}, '
            '"columns": ["geometric mean", "mean", "p50", "p90", "p95", "p99"], "shared": {}}',
            "holds no run",
        ),
    ],
)
def test_a_baseline_that_is_none_is_bad_input(runs, tmp_path, content, sentence):
    path = tmp_path / "baseline.json"
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    result = paceline("gate", runs["alike"], "--baseline", path)
    assert result.exit_code == Exit.BAD_INPUT
    assert sentence in result.stderr


def test_a_baseline_that_is_not_there_is_bad_input(runs):
    result = paceline("gate", runs["alike"], "--baseline", "nowhere.json")
    assert result.exit_code == Exit.BAD_INPUT
    assert "does not exist" in result.stderr


def test_compare_is_good_whatever_it_found_and_refusals_are_not(runs, tmp_path):
    result = paceline("compare", runs["base"], runs["slower"], "--json", "-o", tmp_path / "p.html")
    assert result.exit_code == Exit.GOOD
    (one,) = said(result)["comparisons"]
    assert one["gate"] == "fail"
    assert (tmp_path / "p.html").exists()
    other = made(tmp_path / "other", "seed=6")
    assert paceline("compare", runs["base"], other).exit_code == Exit.BAD_INPUT
    alone = paceline("compare", runs["base"])
    assert alone.exit_code == Exit.BAD_INPUT
    assert "nothing to compare" in alone.stderr


def test_compare_of_one_run_holds_its_first_arm_against_each_other(tmp_path):
    three = made(tmp_path, "experiments.0.topology=[TP1, TP2, TP4]", "repeats=2")
    result = paceline("compare", three, "--json", "-o", tmp_path / "page.html")
    assert result.exit_code == Exit.GOOD
    named = [(one["base"], one["other"]) for one in said(result)["comparisons"]]
    assert named == [("sim TP1", "sim TP2"), ("sim TP1", "sim TP4")]
    assert (tmp_path / "page-2.html").exists()


def test_a_folder_of_runs_is_all_of_them(runs, tmp_path):
    for number, run in enumerate((runs["base"], made(tmp_path / "more"))):
        shutil.copytree(run, tmp_path / "all" / f"tiny-2026010{number}T000000Z")
    path = tmp_path / "b.json"
    kept = paceline("baseline", tmp_path / "all", "-o", path).stdout
    assert "2 runs of tiny" in kept
    assert "1 of 2 runs is a copy of another one, the same to the last digit, and counts" in kept
    against = [
        said(paceline("gate", runs["alike"], "--baseline", one, "--json"))["cells"][0]
        for one in (tmp_path / "all", path)
    ]
    # A simulated run repeats to the byte, and so counts once.
    assert [one["runs"] for one in against] == [[3, 3]] * 2
    again = "3 of 6 runs of base are copies of others, the same to the last digit, and count once"
    assert all(again in one["notes"] for one in against)


OTHER_WORK = """\
  - name: long
    engine: {kind: sim, noise: 0.02}
    topology: [TP1, TP4]
    workload: {kind: single, prompt: 2000, output: 4}
    load: {kind: closed, concurrency: 1, sessions: 6}
  - name: alone
    engine: {kind: sim}
    topology: TP8
    workload: {kind: single, prompt: 64, output: 4}
    load: {kind: closed, concurrency: 1, sessions: 6}
"""


def test_arms_of_one_run_that_did_other_work_are_compared_with_each_other_or_left_out(tmp_path):
    text = SUITE.replace("topology: TP2", "topology: [TP2, DP2]")
    run = made(tmp_path, "repeats=2", text=text.replace("gate:", f"{OTHER_WORK}gate:"))
    result = paceline("compare", run, "--json")
    assert result.exit_code == Exit.GOOD, result.stdout
    named = [(one["base"], one["other"]) for one in said(result)["comparisons"]]
    assert named == [("sim TP2", "sim DP2"), ("sim TP1", "sim TP4")]
    assert said(result)["left_out"] == ["sim TP8"]
    assert "\nLeft out: sim TP8: no other arm did the same work under" in result.stdout


def test_arms_that_all_did_other_work_are_refused(tmp_path):
    other = OTHER_WORK.replace("[TP1, TP4]", "TP4")
    run = made(tmp_path, "repeats=1", text=SUITE.replace("gate:", f"{other}gate:"))
    result = paceline("compare", run)
    assert result.exit_code == Exit.BAD_INPUT
    assert "refused: workload.kind" in result.stdout


def test_an_arm_is_named_where_a_baseline_is_used_and_not_where_it_is_made(tmp_path):
    two = SUITE.replace("topology: TP2", "topology: [TP2, TP4]")
    base, new = made(tmp_path / "base", text=two), made(tmp_path / "new", ALIKE, text=two)
    file = tmp_path / "b.json"
    refused = paceline("baseline", f"{base}:TP4", "-o", file)
    assert refused.exit_code == Exit.BAD_INPUT
    assert f"a baseline keeps all arms of a run: write {base}, and name the arm" in refused.stderr
    assert f"paceline gate RUN:ARM --baseline {file}:TP4" in refused.stderr
    kept = paceline("baseline", base, "-o", file)
    assert kept.stdout == f"{file} holds 1 run of tiny, each with all its requests\n"
    result = paceline("gate", f"{new}:TP4", "--baseline", f"{file}:TP4", "--json")
    assert result.exit_code == Exit.GOOD, result.stdout
    assert gates(result) == {"pass": 2}
    wrong = paceline("gate", new, "--baseline", f"{file}:TP8")
    assert wrong.exit_code == Exit.BAD_INPUT
    assert "no arm that matches" in wrong.stderr


def test_a_margin_that_is_far_wider_than_its_percentage_is_warned_of(runs, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "ttft: no worse than 5 % and 90 ms\ntpot: no worse than 5 % and 0.5 ms/token\n"
    )
    result = paceline("gate", runs["slower"], "--baseline", runs["base"], "--rules", rules)
    told = " ".join(result.stdout.split())
    assert told.count("warning:") == 1
    assert re.search(
        r"warning: TTFT in closed 2 passes up to \d+ % worse, not 5 %: 90 ms of its margin are "
        r"[\d.]+ times 5 % of the [\d.]+ ms of base; state a smaller part",
        told,
    )
