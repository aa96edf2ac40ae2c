"""How a comparison words what is compared in points, what fell to nothing, and what is in doubt."""

from math import exp, log10

from reports.comparison import comparison_text
from reports.forest import forest
from reports.verdicts import amount, change, headline, more
from results.verdict import Margin, judge
from tests.hand_built import cell, effect, told

NOTHING = (exp(-700),) * 3
ENDLESS = (exp(700),) * 3
MORE_FAIL = (1.09, 1.08, 1.10)


def test_a_share_of_failed_requests_changes_by_points() -> None:
    one = effect("failed_share", MORE_FAIL)
    assert change(one) == "+9.0 points (+8.0 to +10.0)"
    assert amount(one) == "9.0 points (95 % interval 8.0 to 10.0 points)"
    (line,) = headline(told(cell("closed 8", judge(one, Margin(absolute=0.01), gated=True))))
    assert "9.0 points higher than eager in failed requests, which is worse" in line


def test_what_fell_to_nothing_and_what_came_from_nothing_are_told_and_drawn() -> None:
    lost, won = effect("goodput", NOTHING), effect("goodput", ENDLESS)
    assert change(lost) == "-100.0 % (no interval)"
    assert change(won) == "∞ times (no interval)"
    account = told(
        cell("closed 8", judge(lost, Margin(relative=0.05), gated=True)),
        cell("closed 4", judge(won, Margin(relative=0.05), gated=True)),
    )
    assert "1 of 2 cells, which is worse" in " ".join(comparison_text(account).split())
    chart = forest(account, list(account.judgements()), "goodput")
    low, high = chart.figure["layout"]["xaxis"]["range"]
    assert -4 < low < high < 4
    assert all(low < log10(x) < high for dots in chart.figure["data"] for x in dots["x"])


def test_no_more_runs_are_asked_for_where_the_work_differs() -> None:
    one = judge(
        effect("ttft.p90", (0.9, 0.85, 0.95), doubt="it is other work"), Margin(relative=0.05)
    )
    assert (one.verdict, one.reason, more(one)) == ("inconclusive", "it is other work", "")
