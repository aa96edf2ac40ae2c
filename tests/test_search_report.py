"""What a search says: a table of levels, a sentence a ladder, and plain JSON."""

import re
from dataclasses import replace

import orjson

from reports.search import search_facts, search_table, sentence
from results.figure import Figure
from results.level import Level
from tests.test_report_tables import CELL, GOOD
from tests.test_search_bracket import bracket

LADDER = (1, 2, 4, 8, 16)
SHARE = Figure(value=0.95, unit="share", n=240, runs=2, low=0.91, high=0.98)
FIGURES = {
    "goodput": Figure(value=8.1, unit="req/s", n=240, low=7.9, high=8.3),
    "output_rate_per_gpu": Figure(value=489.0, unit="tok/s/GPU", n=240, low=480.0, high=498.0),
}


def level(load, answer, **changes):
    cell = replace(CELL, load={"kind": "closed", "concurrency": load}, objectives={"ttft": 0.5})
    summary = replace(GOOD, cell=cell, figures=FIGURES)
    return Level(load=load, answer=answer, share=SHARE, summary=summary, **changes)


def found(*levels):
    return replace(bracket({}, ladder=LADDER), levels=levels)


BRACKETED = found(level(2, "holds"), level(4, "holds"), level(8, "fails"))


def test_the_table_shows_each_level_with_its_intervals_and_ends_with_the_answer():
    table = search_table([BRACKETED], width=120)
    assert "Search: agents (SIMULATED)" in table
    assert "95.0 (91.0–98.0)" in table
    assert "8.10 ±0.20" in table
    assert "surely at least 90.0 % of requests keep TTFT <= 500 ms" in table
    assert table.endswith("sim TP1: closed 4 holds and closed 8 fails")


def test_it_is_told_in_paragraphs_where_the_terminal_is_narrow():
    assert "within objectives 95.0 (91.0–98.0) %" in search_table([BRACKETED], width=60)


def test_what_was_not_searched_is_named():
    assert search_table([BRACKETED], ["batches: has one load level only"]).endswith(
        "Not searched: batches: has one load level only"
    )


def test_a_level_that_fails_for_another_reason_than_its_share_says_so():
    gone = level(8, "fails", reason="the engine gave up: it ended with code 137")
    told = sentence(found(level(4, "holds"), gone))
    assert told == (
        "closed 4 holds and closed 8 fails (the engine gave up: it ended with code 137)"
    )


def test_an_undecided_search_says_what_is_sure_and_what_would_decide():
    told = sentence(found(level(2, "holds"), level(4, "undecided", more=4), level(8, "fails")))
    assert told == (
        "undecided: closed 2 surely holds, closed 8 surely fails; "
        "closed 4: about 4 more repeats would decide"
    )
    told = sentence(found(level(1, "undecided"), level(2, "fails")))
    assert told == (
        "undecided: nothing surely holds, closed 2 surely fails; "
        "closed 1: too close to the demanded share for repeats to decide"
    )


def test_a_search_without_monotony_says_what_is_sure_all_the_same():
    told = sentence(found(level(1, "holds"), level(2, "fails"), level(8, "holds")))
    assert told == ("not monotone: closed 2 fails, and yet closed 8 holds; closed 1 surely holds")


def test_an_open_level_below_one_that_holds_is_not_needed_and_says_why_it_is_open():
    doubt = "too few sessions for an interval (7, needs 10)"
    bare = Figure(value=1.0, unit="share", n=60, runs=3, doubt=doubt)
    few = replace(level(1, "undecided", reason=doubt), share=bare)
    late = level(2, "invalid", reason="the client was the bottleneck: late")
    searched = found(few, late, level(16, "holds"))
    table = search_table([searched], width=200)
    told = re.findall(r"=on +closed (\d+) +(\w+)", table)
    assert told == [("1", "not"), ("2", "not"), ("16", "holds")]
    assert "a higher load holds or a lower one fails" in table
    assert f"within objectives (closed 1) without interval: {doubt}" in table
    assert "closed 2: invalid by itself: the client was the bottleneck: late" in table
    assert table.endswith("holds up to closed 16, the top of its ladder: not bracketed")
    needed = [one["needed"] for one in search_facts(searched)["levels"]]
    assert needed == [False, False, True]


def test_figures_without_an_interval_say_why():
    alike = replace(FIGURES["goodput"], low=None, high=None, doubt="the runs are identical")
    one = level(4, "holds")
    summary = replace(one.summary, figures=FIGURES | {"goodput": alike})
    table = search_table([found(replace(one, summary=summary), level(8, "fails"))], width=120)
    assert "goodput req/s (closed 4) without interval: the runs are identical" in table


def test_a_search_that_ran_nothing_says_so():
    assert sentence(found()) == (
        "not measured: nothing surely holds, nothing surely fails; what lies between was not run"
    )
    assert "n/a: no points" in search_table([found()], width=60)


def test_facts_are_plain_json_with_every_level():
    facts = orjson.loads(orjson.dumps(search_facts(BRACKETED)))
    assert (facts["outcome"], facts["holds_at"], facts["fails_at"]) == ("bracketed", 4, 8)
    assert facts["levels"][0]["share"] == {"value": 0.95, "low": 0.91, "high": 0.98, "n": 240}
    assert facts["levels"][0]["provenance"] == "simulated"
