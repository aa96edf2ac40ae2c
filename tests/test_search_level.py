"""What a level's runs say of it: the share with its interval, and when it holds."""

from dataclasses import replace

import numpy as np
import pytest

from results.attainment import Kept, attained
from results.figure import Figure
from results.level import Taken, judge
from tests.test_report_tables import CELL, GOOD

FIGURES = {"live.mean": Figure(value=8.0, unit="count", n=50)}
SUMMARY = replace(GOOD, repeats=1, figures=FIGURES)


def kept(good, per_session=1, cut=0):
    """Requests in the order of their sessions, dealt out to the parts of the window."""
    good = np.asarray(good, dtype=float)
    place = np.arange(len(good))
    return Kept(good=good, session=place // per_session, part=place % 10, cut=cut)


def ones(good, bad=0):
    """Good and bad requests, so mixed that neither parts nor neighbours are alike."""
    return np.random.default_rng(5).permutation([1.0] * good + [0.0] * bad)


def taken(good, cut=0, **changes):
    told = kept(good, cut=cut)
    return Taken(summary=replace(SUMMARY, **changes), kept=told, amiss=())


def level(*runs, demanded=0.9, looks=1):
    return judge(8.0, runs, demanded=demanded, looks=looks)


def test_sessions_that_are_all_good_leave_the_exact_doubt_of_their_number():
    # 0.025 ** (1 / 36): 36 sessions are the fewest that show 90 %, however many requests they have.
    assert attained([kept([1] * 36)]).low == pytest.approx(0.9026, abs=1e-4)
    assert attained([kept([1] * 360, per_session=10)]).low == pytest.approx(0.9026, abs=1e-4)
    assert attained([kept([1] * 36)]).high == 1.0


def test_single_requests_have_the_interval_of_clopper_and_pearson():
    # 18 of 20: 0.6830 to 0.9877 in every table; few clusters only make it wider.
    figure = attained([kept(ones(18, 2))])
    assert figure.value == 0.9
    assert 0.60 < figure.low <= 0.6831
    assert 0.9876 <= figure.high < 0.995


def test_requests_of_one_session_are_worth_one_where_they_are_all_alike():
    alike = attained([kept(np.repeat(ones(36, 4), 25), per_session=25)])
    single = attained([kept(ones(36, 4))])
    assert alike.n == 1000
    assert alike.low == pytest.approx(single.low, abs=0.02)


def test_few_sessions_have_no_interval():
    figure = attained([kept([1] * 90, per_session=10)])
    assert figure.low is None
    assert figure.doubt == "too few sessions for an interval (9, needs 10)"
    assert attained([]).value is None


def test_sessions_of_other_runs_are_other_sessions():
    assert attained([kept([1] * 20), kept([1] * 20)]).low == attained([kept([1] * 40)]).low


def test_runs_that_differ_widen_the_interval_from_three_on():
    runs = [kept(ones(100)), kept(ones(90, 10)), kept(ones(80, 20))]
    # Mean 0.9, deviation 0.1, t(2) = 4.303: half a width of 0.248.
    assert attained(runs).low == pytest.approx(0.652, abs=1e-3)
    assert attained(runs[:2]).low > 0.8


def test_each_look_has_its_part_of_the_doubt():
    one, three = (attained([kept([1] * 40)], looks).low for looks in (1, 3))
    assert one == pytest.approx(0.025 ** (1 / 40))
    assert three == pytest.approx((0.025 / 3) ** (1 / 40))


def test_what_was_cut_counts_against_both_ends():
    whole, with_cut = attained([kept([1] * 90)]), attained([kept([1] * 90, cut=10)])
    assert with_cut.low == pytest.approx(whole.low * 0.9)
    bad = attained([kept([0] * 90, cut=10)])
    assert bad.high == pytest.approx(attained([kept([0] * 90)]).high * 0.9 + 0.1)


def test_at_the_demanded_share_itself_a_search_rarely_says_that_it_holds():
    # Sessions of 8 requests that resemble one another; the true share is 0.9, and three looks.
    random = np.random.default_rng(11)
    said = {"holds": 0, "fails": 0}
    for _ in range(300):
        runs = []
        for _look in range(3):
            chance = random.beta(9, 1, size=50)
            good = random.random((50, 8)) < chance[:, None]
            runs.append(kept(good.ravel(), per_session=8))
            share = attained(runs, 3)
            if share.low >= 0.9 or share.high < 0.9:
                said["holds" if share.low >= 0.9 else "fails"] += 1
                break
    assert said["holds"] <= 12
    assert said["fails"] <= 12


def test_a_level_holds_or_fails_by_its_interval_and_is_undecided_across_it():
    assert level(taken(ones(200))).answer == "holds"
    assert level(taken(ones(120, 80))).answer == "fails"
    open_one = level(taken(ones(93, 7)))
    assert open_one.answer == "undecided"
    assert 1 <= open_one.more <= 100
    assert level(taken(ones(93, 7)), demanded=0.5).answer == "holds"


def test_the_repeats_named_decide_where_they_are_like_those_that_there_are():
    runs = [taken(ones(94, 6))]
    more = level(*runs).more
    assert 1 < more < 100
    assert level(*runs * (1 + more), looks=1 + more).answer == "holds"
    assert level(*runs * more, looks=more).answer == "undecided"


def test_too_few_sessions_name_the_repeats_that_bring_enough():
    told = level(Taken(summary=SUMMARY, kept=kept([0] * 60, per_session=12), amiss=()))
    assert told.answer == "undecided"
    assert told.reason == "too few sessions for an interval (5, needs 10)"
    assert told.more == 1


def test_a_share_too_close_to_the_demanded_one_names_no_repeats():
    assert level(taken(ones(90, 10))).more is None


def test_where_only_cut_requests_leave_it_open_that_is_said():
    told = level(taken(ones(100), cut=15))
    assert told.answer == "undecided"
    assert told.reason.startswith("15 of 115 requests were cut")
    assert told.more is None


def test_a_run_in_which_something_else_was_amiss_says_nothing():
    late = replace(taken(ones(10, 190)), amiss=("the client was the bottleneck: late",))
    assert level(late).answer == "invalid"
    assert level(late).reason == "the client was the bottleneck: late"
    assert level(late, taken(ones(200))).answer == "holds"


def test_an_engine_that_gave_up_while_requests_failed_does_not_hold_whatever_came_before():
    gone = taken(
        ones(990, 10), status="failed", reason="the server ended", failures=(("reset", 10),)
    )
    told = level(taken(ones(200)), gone)
    assert told.answer == "fails"
    assert told.reason == "the engine gave up: the server ended"


def test_an_engine_that_never_came_up_is_not_measured():
    gone = Taken(summary=replace(SUMMARY, status="failed", reason="no memory"), kept=None, amiss=())
    assert level(gone).answer == "unmeasured"
    assert level(gone).reason == "no memory"
    unsupported = replace(gone, summary=replace(SUMMARY, status="unsupported", reason="no MTP"))
    assert level(unsupported).answer == "unmeasured"


def test_too_many_failed_requests_never_hold_however_low_the_demand():
    problem = "30 of 200 requests failed, more than 10%"
    assert level(taken(ones(170, 30), problems=(problem,)), demanded=0.6).answer == "invalid"
    assert level(taken(ones(20, 180), problems=(problem,))).answer == "fails"


def test_a_load_that_ran_out_of_sessions_is_not_the_load_that_it_is_called():
    load = {"kind": "closed", "concurrency": 16, "sessions": 20}
    short = taken(ones(200), cell=replace(CELL, load=load))
    told = level(short)
    assert told.answer == "invalid"
    assert told.reason.startswith("on average only 8 sessions were live, as they ran out")
    assert level(taken(ones(100, 100), cell=replace(CELL, load=load))).answer == "fails"
