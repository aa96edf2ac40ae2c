"""TTFT by new tokens: the line below a cell, the table of the page, and the facts."""

import re

import pytest

from reports.comparison import comparison_text
from reports.comparison_page import render_comparison
from reports.facts import comparison_facts
from reports.markdown import comparison_markdown
from results.strata import Stratum
from tests.hand_built import EQUAL, cell, free, gated, measured, told
from tests.test_report_page import seen

FASTER = (0.776, 0.763, 0.79)


def stratum(first, last, requests, ratio, spread):
    """A stratum whose interval is 2 standard errors either way; none of fewer than five."""
    ends = (ratio * 0.9, ratio * 1.1) if requests > 4 else (None, None)
    return Stratum(
        first=first,
        last=last,
        requests=requests,
        sessions=3,
        base=0.2,
        other=0.2 * ratio,
        ratio=ratio,
        spread=spread if requests > 1 else None,
        low=ends[0],
        high=ends[1],
    )


STRATA = (
    stratum(0, 16, 20, 0.98, 0.1),
    stratum(385, 512, 9, 1.49, 0.1),
    stratum(513, 768, 30, 0.61, 0.1),
    stratum(1025, 1536, 3, 0.5, 0.1),
)


def hanging(*judgements, strata=STRATA, **changes):
    return cell("closed 4", *(judgements or (free("ttft", FASTER),)), strata=strata, **changes)


def line(*cells):
    text = " ".join(comparison_text(measured(told(*cells))).split())
    found = re.search(r"TTFT hangs.*?in the page\)", text)
    return found[0] if found else ""


def test_one_line_names_the_stratum_that_is_worst_and_the_one_that_is_best():
    assert line(hanging()) == (
        "TTFT hangs on the new tokens of a request: +49 % (+34 to +64) from 385 to 512 (n 9), "
        "-39.0 % (-45.1 to -32.9) from 513 to 768 (n 30), against -22.4 % over all (exploratory; "
        "the table is in the page)"
    )


def test_the_first_stratum_is_told_by_its_end_alone():
    first = (stratum(0, 16, 9, 1.49, 0.1), *STRATA[2:])
    assert "up to 16 (n 9), -39.0 %" in line(hanging(strata=first))
    assert "from up to" not in line(hanging(strata=first))


@pytest.mark.parametrize(
    "one",
    [
        hanging(strata=()),
        hanging(strata=STRATA[2:3]),
        hanging(strata=(stratum(385, 512, 9, 0.77, 0.1), stratum(513, 768, 30, 0.775, 0.1))),
        hanging(strata=(stratum(385, 512, 9, 1.49, 2.0), *STRATA[2:])),
        hanging(strata=(stratum(385, 512, 4, 1.49, 0.1), *STRATA[2:])),
        hanging(free("tpot", FASTER)),
        hanging(free("ttft", EQUAL), workload={"kind": "batch", "requests": 4}),
    ],
    ids=["none", "one", "alike", "noisy", "few", "no TTFT", "batch"],
)
def test_nothing_is_told_where_nothing_contradicts_the_mean(one):
    assert not line(one)


def test_the_more_cells_are_looked_at_the_surer_it_must_be():
    unsure = (stratum(385, 512, 6, 1.49, 0.42), stratum(513, 768, 30, 0.61, 0.2))
    assert line(hanging(strata=unsure))
    others = [hanging(strata=tuple(stratum(n, n, 9, 0.776, 0.1) for n in range(9)))] * 20
    assert not line(hanging(strata=unsure), *others)


def test_no_verdict_hangs_on_it():
    with_strata, without = hanging(gated("ttft", FASTER)), hanging(strata=())
    assert with_strata.cell.judgements[0].verdict == without.cell.judgements[0].verdict == "better"
    assert line(with_strata)


def test_the_page_has_the_table_with_every_stratum_and_says_what_it_is():
    page = seen(render_comparison(measured(told(hanging()))))
    assert "TTFT by new tokens, closed 4: exploratory" in page
    for span in ("up to 16", "385 to 512", "513 to 768", "1,025 to 1,536"):
        assert span in page
    assert "-50.0 % (no interval)" in page
    assert "as if requests were independent" in page
    alone = seen(render_comparison(measured(told(hanging(strata=STRATA[:1])))))
    assert "TTFT by new tokens" not in alone


def test_the_facts_have_all_strata_and_the_text_and_the_comment_no_table():
    account = measured(told(hanging()))
    (facts,) = comparison_facts(account)["cells"]
    assert [one["requests"] for one in facts["ttft_by_new_tokens"]] == [20, 9, 30, 3]
    assert facts["ttft_by_new_tokens"][3]["low"] is None
    for text in (comparison_text(account), comparison_markdown(account)):
        assert "by new tokens" not in text
        assert "TTFT hangs" in text
