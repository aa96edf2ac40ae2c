"""How accuracies and their gaps are shown: in tables, on pages, and by a gate."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from reports.account import Account, account
from reports.charts import charts, styles
from reports.comparison import comparison_text, gap_text
from reports.comparison_page import render_comparison
from reports.facts import comparison_facts
from reports.gaps import arms_apart
from reports.gate import answer, gate_text
from reports.junit import junit
from reports.page import render
from reports.plan import plan_table
from reports.tables import summary_table
from results.comparison import compare
from results.gap import detectable, planned_error, provable
from results.metrics import pool, summarise
from results.run import Run
from results.side import within
from results.verdict import Margin, Rule
from tests.answer_folders import asked_folder
from tests.gate_runs import paceline, said
from tests.test_results_answers import right

ACCURACY = Rule(metric="accuracy", margin=Margin(absolute=0.01))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two arms, of which the second gets 28 of 600 more questions wrong, in two repeats."""
    return asked_folder(
        tmp_path_factory.mktemp("runs"),
        {
            "off": lambda repeat: right(600, 1, 2, 3 + repeat),
            "on": lambda repeat: right(600, 3, *range(10 + repeat, 40 + repeat)),
        },
        repeats=2,
    )


def told(run: Run, *rules: Rule) -> Account:
    ((base, other),) = within(run)
    return account(compare(base, other, rules), base, other)


def line(text: str, name: str) -> str:
    """The row of a table that begins so, its spaces one each."""
    found = next(one for one in text.splitlines() if one.strip().startswith(name))
    return re.sub(r"\s+", " ", found.strip())


def test_the_table_of_a_run_has_accuracy_with_its_interval_and_what_went_wrong(run: Run) -> None:
    text = summary_table(pool([summarise(point) for point in run.points]), 120)
    assert "Accuracy: sums, 2 runs a cell" in text
    assert "TTFT" not in text
    row = line(text, "off")
    # 1,200 answers; 597 of 600 right, by Wilson 98.5 to 99.8 %.
    assert row == "off closed 8 1,200 0 0 0 0 0 99.5 (98.5–99.8) 99.5"


def test_a_gap_is_told_in_points_with_both_errors(run: Run) -> None:
    text = comparison_text(told(run))
    assert "on is 4.7 points lower than off in accuracy, which is worse (95 % interval" in text
    assert line(text, "difference") == "difference -4.7 points -4.7 points"
    said = re.search(r"95 % interval ([\d.]+) to ([\d.]+) points\)\.", " ".join(text.split()))
    assert f" -{said[2]} to -{said[1]} points" in line(text, "95 % interval")
    paired, unpaired = (
        float(line(text, f"SE, {name}").split()[2]) for name in ("paired", "unpaired")
    )
    assert 0 < paired < unpaired
    assert line(text, "better / worse") == "better / worse 3 / 32 3 / 32"
    assert line(text, "questions ") == "questions 600 600"
    assert line(text, "p by") == "p by paired t paired t"
    # Of 600 answers two are scored otherwise in the second run of off.
    assert line(text, "flips in base") == "flips in base 0.33 % 0.33 %"
    assert line(text, "failed") == "failed 0 / 0 0 / 0"
    assert line(text, "verdict") == "verdict worse worse"


def test_the_same_is_said_with_what_could_have_been_seen(tmp_path: Path) -> None:
    same = asked_folder(
        tmp_path, {"off": lambda _: right(1319, 1, 2, 3), "on": lambda _: right(1319, 2, 3, 4)}
    )
    text = comparison_text(told(same, ACCURACY))
    assert "on and off are the same in accuracy, within 1 point: +0.00 points" in text
    assert re.search(r"smallest detectable difference 0\.\d+ points", text)
    assert "no rule is given" not in text


def test_an_open_verdict_says_how_many_questions_or_epochs_would_decide(tmp_path: Path) -> None:
    few = asked_folder(
        tmp_path / "few", {"off": lambda _: right(50, 1), "on": lambda _: right(50, 2)}
    )
    text = comparison_text(told(few, ACCURACY))
    assert "not decided in accuracy" in text
    assert re.search(r"about \d+ questions would decide", text)
    many = asked_folder(
        tmp_path / "many",
        {"off": lambda _: right(300, *range(20)), "on": lambda _: right(300, *range(19, 38))},
    )
    assert re.search(
        r"\d+ more\s+runs a\s+side \(\d+ in\s+all\)\s+or\s+[\d.]+\s+times\s+the\s+epochs\s+or\s+"
        r"about\s+[\d,]+\s+questions\s+would\s+decide",
        comparison_text(told(many, ACCURACY)),
    )


def test_what_no_number_of_questions_decides_is_not_said_of_runs(tmp_path: Path) -> None:
    lossy = asked_folder(
        tmp_path,
        {"off": lambda _: right(300, *range(20)), "on": lambda _: right(300, *range(15, 40))},
    )
    said = " ".join(comparison_text(told(lossy, ACCURACY)).split())
    assert (
        "; as many questions or epochs as make the interval narrower than ±1.7 points would show "
        "it worse, if the change is as seen"
    ) in said
    assert "more runs" not in said


def test_a_gate_fails_where_the_loss_is_sure_and_beyond_the_margin(run: Run) -> None:
    found = told(run, ACCURACY)
    assert answer(found) == "fail"
    text = gate_text(found)
    assert "accuracy" in text
    assert "1 point" in text
    assert "accuracy no more than 1 point worse" in junit(found)
    lenient = told(run, Rule(metric="accuracy", margin=Margin(absolute=0.1)))
    assert answer(lenient) == "pass"
    assert answer(told(run, Rule(metric="accuracy", margin=Margin(absolute=0.05)))) != "fail"


def test_json_has_every_number_of_a_gap(run: Run) -> None:
    facts = orjson.loads(orjson.dumps(comparison_facts(told(run, ACCURACY))))
    (one, _) = facts["cells"][0]["judgements"]
    assert (one["metric"], one["how"]) == ("accuracy", "paired questions")
    assert one["gap"]["questions"] == 600
    assert one["gap"]["test"] == "paired t"
    assert one["gap"]["amiss"][0] == ["unanswered", 0, 0]
    assert one["questions_needed"] is None


def test_the_page_of_a_run_shows_arms_apart_and_no_chart_of_load(run: Run) -> None:
    page = render([run])
    assert "Accuracy, arm against arm" in page
    assert "Gap in accuracy: off against on" in page
    assert "-4.7 points" in page
    pooled = pool([summarise(point) for point in run.points])
    assert charts(pooled, styles(["off", "on"])) == []


def test_the_terminal_shows_the_gap_after_a_run_and_nothing_where_none_was_asked(
    run: Run, tmp_path: Path
) -> None:
    text = gap_text(run)
    assert "Gap in accuracy: sums, closed 8" in text
    assert "sums: on is 4.7 points lower" in text
    alone = asked_folder(tmp_path, {"off": lambda _: right(20)})
    assert gap_text(alone) == ""
    assert list(arms_apart(alone)) == []


def test_an_invalid_side_is_named_and_its_gap_is_not_shown(tmp_path: Path) -> None:
    bad = asked_folder(
        tmp_path, {"off": lambda _: right(100), "on": lambda _: [None] * 5 + right(100)[5:]}
    )
    text = " ".join(gap_text(bad).split())
    assert "5 of 100 answers are unanswered, 5.0%, and 0.5% are allowed" in text
    assert "Gap in accuracy" not in text


def test_differences_are_drawn_in_points_on_a_plain_axis(run: Run) -> None:
    page = render_comparison(told(run, ACCURACY))
    drawn = [
        orjson.loads(one)
        for one in re.findall(r'<script type="application/json">(.*?)</script>', page)
    ]
    assert len(drawn) == 2
    for figure in drawn:
        axis = figure["layout"]["xaxis"]
        assert axis["type"] == "linear"
        assert "0" in axis["ticktext"]
        assert all(text == "0" or text.endswith(" points") for text in axis["ticktext"])
        (dots,) = figure["data"]
        assert dots["name"] == "worse"
        assert dots["x"][0] == pytest.approx(1 - 28 / 600)
        # The margin of a point, either way.
        assert figure["layout"]["shapes"][0]["x1"] == pytest.approx(1.01)


def test_a_gate_reads_points_from_a_file_of_rules(run: Run, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("accuracy: no worse than 1 pp\n")
    arms = [f"{run.path}:{arm}" for arm in ("on", "off")]
    found = paceline("gate", arms[0], "--baseline", arms[1], "--rules", rules, "--json")
    # Two arms of one run stand against each other only by `compare`.
    assert found.exit_code == 1, found.output
    assert said(found)["gate"] == "fail"
    for words in ("no worse than 1 %", "no worse than 2x noise"):
        rules.write_text(f"accuracy: {words}\n")
        wrong = paceline("gate", arms[0], "--baseline", arms[1], "--rules", rules)
        assert wrong.exit_code == 2
        assert "accuracy is compared in points" in wrong.output


def test_a_plan_says_how_small_a_gap_it_could_show() -> None:
    def row(arm: str, repeat: int) -> dict[str, Any]:
        stated: dict[str, Any] = {
            "position": repeat,
            "experiment": "sums",
            "arm": arm,
            "repeat": repeat,
            "workload": {"kind": "questions", "max_tokens": 512},
            "prompt_tokens": None,
            "load": {"kind": "closed", "concurrency": 8},
            "seconds": None,
            "answers": 2 * 1319,
            "different": 1319,
        }
        return stated

    text = plan_table(
        [row(arm, repeat) for arm in ("off", "on") for repeat in range(2)], {}, seconds=0.0
    )
    plain = re.sub(r"\s+", " ", text)
    assert "sums: 1,319 answers an arm" in plain
    error = planned_error(1319, 1, 0.05)
    assert f", {detectable(error) * 100:.2g}, " in plain
    assert f", {provable(error) * 100:.2g}, " in plain
