"""A comparison as Markdown, JUnit XML and JSON: what machines and pull requests get."""

import re
from collections import Counter
from xml.etree import ElementTree

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.facts import comparison_facts
from reports.junit import junit
from reports.markdown import LONGEST, comparison_markdown
from tests.hand_built import (
    EQUAL,
    OPEN,
    SLOW,
    bad,
    cell,
    everything,
    free,
    gated,
    measured,
    refused,
    told,
)

ALLOWED = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}
"""The attributes that the schema of Jenkins, which GitHub, GitLab and Azure read too, knows."""


def cases(account):
    """The test cases by name, each with the tag of its outcome, or `passed`."""
    root = ElementTree.fromstring(junit(account))
    tags = ("failure", "error", "skipped")
    return {
        case.get("name"): next((tag for tag in tags if case.find(tag) is not None), "passed")
        for case in root.iter("testcase")
    }


def test_each_rule_in_each_cell_is_a_test_case():
    one = cell("closed 8", gated("ttft", SLOW), gated("tpot", OPEN), gated("output_rate", EQUAL))
    two = cell("closed 16", bad("ttft"), free("e2el", SLOW), problems=("it broke",))
    assert cases(measured(told(one, two))) == {
        "TTFT no more than 5 % worse: closed 8": "failure",
        "TPOT no more than 5 % worse: closed 8": "skipped",
        "output no more than 5 % worse: closed 8": "passed",
        "TTFT no worse than its margin: closed 16": "error",
    }


def test_what_is_worse_by_less_than_its_margin_is_skipped_and_says_so():
    one = cell("closed 8", gated("ttft", (1.04, 1.02, 1.06)))
    (case,) = ElementTree.fromstring(junit(told(one))).iter("skipped")
    assert case.get("message").startswith("worse: it is worse, though by less than the margin")
    assert "would decide" in case.get("message")
    assert "| inconclusive | TTFT |" in comparison_markdown(told(one))


def test_a_refusal_is_an_error_with_the_way_out_and_no_number_of_a_result():
    document = junit(refused())
    assert cases(refused()) == {"environment.gpus.name": "error"}
    assert "--allow environment.gpus.name" in document
    assert not re.search(r"\d %|times", document)


def test_a_cell_of_one_side_is_skipped_and_not_forgotten():
    account = told(cell("closed 8", gated("ttft", EQUAL)), unmatched=("agents-32 (sim)",))
    assert cases(account)["agents-32 (sim)"] == "skipped"


def test_a_gate_without_rules_is_an_error():
    assert list(cases(told(cell("closed 8", free("ttft", SLOW)))).values()) == ["error"]


@pytest.mark.parametrize("account", [everything(), refused(), told()])
def test_the_xml_keeps_to_the_common_schema_and_its_counts_are_right(account):
    root = ElementTree.fromstring(junit(account))
    for element in root.iter():
        assert set(element.keys()) <= ALLOWED[element.tag]
    suite = root.find("testsuite")
    order = [child.tag for child in suite]
    assert order == sorted(order, key=["testcase", "system-out"].index)
    found = Counter(cases(account).values())
    assert int(suite.get("tests")) == len(suite.findall("testcase"))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(count)) == found[tag]


@given(st.text(max_size=30))
@settings(max_examples=50)
def test_any_name_makes_well_formed_xml_and_one_row_of_a_table(place):
    account = told(cell(place, gated("ttft", SLOW)), base=place, other=place)
    ElementTree.fromstring(junit(account).encode())
    rows = [line for line in comparison_markdown(account).split("\n") if line.startswith("| FAIL")]
    assert len(rows) == 1
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", rows[0])) == 8


def test_markdown_begins_with_the_answer_and_folds_what_is_long():
    text = comparison_markdown(everything())
    assert text.startswith("**Gate FAILED (SIMULATED): of 6 rules 1 failed, 1 not valid")
    above = text[: text.index("<details>")]
    assert "- SIMULATED. graphs is slower than eager in TTFT in 1 of 2 cells" in above
    assert "| FAIL | TTFT | closed 8 | +12.0 % (+9.0 to +15.0) | 5 % | 3.8 % | worse |" in above
    assert "```\npaceline run suites/ab.yaml --new\n```" in above
    assert "exploratory" not in above
    assert text.count("<details>") == text.count("</details>") == 5


def test_no_name_in_markdown_is_taken_for_markup_or_for_a_person():
    account = told(cell("<img src=x> @octocat **x** [y](z)", gated("ttft", SLOW)))
    text = comparison_markdown(account)
    assert "<img" not in text
    assert "@octocat" not in text.replace("<summary>", "").split("<details>")[0]
    assert "**x**" not in text.split("<details>")[0]


def test_a_comment_is_never_longer_than_github_takes():
    many = [
        cell(f"closed {place}", gated("ttft", SLOW), free("tpot", SLOW)) for place in range(400)
    ]
    text = comparison_markdown(told(*many))
    assert len(text) <= LONGEST + 200
    assert "300 more rows are in the page" in text
    assert "More is left out here" in text
    assert text.count("<details>") == text.count("</details>")


def test_a_refused_comparison_has_no_ratio_in_markdown():
    text = comparison_markdown(refused())
    assert "NVIDIA H200 against NVIDIA H100" in text
    assert not re.search(r"\d %|times|worse|better", text)


@pytest.mark.parametrize("account", [everything(), refused(), told()])
def test_the_facts_are_strict_json_on_one_line(account):
    line = orjson.dumps(comparison_facts(account))
    assert b"\n" not in line
    assert not re.search(rb"NaN|Infinity", line)
    assert orjson.loads(line)["base"] == "eager"


def test_the_facts_hold_every_judgement_whole():
    facts = comparison_facts(everything())
    first = facts["cells"][0]["judgements"][0]
    assert (first["metric"], first["ratio"], first["low"], first["high"]) == ("ttft", *SLOW)
    assert (first["verdict"], first["gate"], first["margin"]) == ("worse", "fail", 0.05)
    assert first["adjusted"] == pytest.approx(0.0003)
    assert first["matched"]["pairs"] == 1234
    assert facts["gate"] == "fail"
    assert facts["provenances"] == ["simulated"]
    assert facts["cells"][0]["moved"][0]["ratio"] == pytest.approx(1.5)


def test_what_is_not_finite_is_null_in_the_facts():
    broken = free("ttft", SLOW, error=float("inf"), p=float("nan"))
    judged = comparison_facts(told(cell("closed 8", broken)))["cells"][0]["judgements"][0]
    assert judged["error"] is None
    assert judged["p"] is None


def test_nothing_absent_is_written_as_python_writes_it():
    for account in (everything(), refused(), told()):
        for text in (comparison_markdown(account), junit(account)):
            assert not re.search(r"\b(nan|inf|None)\b", text, re.IGNORECASE)


def test_simulated_is_said_in_every_form():
    account = everything()
    root = ElementTree.fromstring(junit(account))
    assert root.find("testsuite").get("name") == "paceline gate (SIMULATED)"
    rules = [case.get("name") for case in root.iter("testcase") if "worse" in case.get("name")]
    assert len(rules) == 6
    assert all(name.endswith("(SIMULATED)") for name in rules)
    text = comparison_markdown(account)
    assert all("SIMULATED" in line for line in re.findall(r"\*\*.*runs: .*\*\*", text))
    for form in (junit, comparison_markdown):
        assert "SIMULATED" not in form(measured(account))
