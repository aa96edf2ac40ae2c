"""What the end of the window cuts short is not reported as if it had not been."""

import numpy as np
import pytest

from results.columns import columns
from results.metrics import figures
from results.series import weights
from tests.test_results_record import cell, made, table


def test_weights_are_those_worked_by_hand() -> None:
    # Seen 1, 3, 4; cut at 2 and 5. S drops by 1/5 at 1, by (4/5)/3 at 3, by (4/5)(2/3)/2 at 4.
    seen, beyond = weights(np.array([3.0, 1.0, 4.0]), np.array([2.0, 5.0]))
    assert seen == pytest.approx([4 / 15, 1 / 5, 4 / 15])
    assert beyond == pytest.approx(4 / 15)


def test_without_anything_cut_every_time_counts_the_same() -> None:
    seen, beyond = weights(np.array([2.0, 1.0, 2.0]), np.zeros(0))
    assert seen == pytest.approx([1 / 3] * 3)
    assert beyond == 0.0


def test_a_cut_at_the_moment_of_a_seen_time_counts_as_longer() -> None:
    seen, beyond = weights(np.array([1.0]), np.array([1.0]))
    assert (seen[0], beyond) == pytest.approx((0.5, 0.5))


def test_the_median_of_an_exponential_is_found_though_half_of_it_is_cut() -> None:
    random = np.random.default_rng(1)
    times, ends = random.exponential(10.0, 4000), random.exponential(10.0, 4000)
    done = times <= ends
    seen, _ = weights(times[done], ends[~done])
    order = np.argsort(times[done])
    median = times[done][order][np.searchsorted(np.cumsum(seen[order]), 0.5)]
    assert median == pytest.approx(10 * np.log(2), rel=0.07)
    assert np.median(times[done]) < 4.0


def waiting(number: int) -> object:
    """A request without a token when the window closed, 30 s after it was sent."""
    return made((), state="cut", reason="cut", tree=100 + number, closed=30.0, output_tokens=0)


def test_an_overload_does_not_report_the_fast_requests_only() -> None:
    fast = [made([1.0 + number], tree=number) for number in range(20)]
    rows = columns(table(*fast, *(waiting(number) for number in range(60))))
    shown = figures(rows, cell(), (0.0, 30.0))
    assert shown["ttft.p50"].value is None
    assert "75% were still going on" in str(shown["ttft.p50"].reason)
    assert shown["ttft.mean"].value == pytest.approx((sum(range(1, 21)) + 60 * 30) / 80)
    assert "60 of 80 requests were cut" in str(shown["ttft.mean"].reason)


def test_first_tokens_of_cut_requests_count_as_they_are() -> None:
    cut = [made([2.0], state="cut", reason="cut", tree=number) for number in range(3)]
    shown = figures(columns(table(made([1.0, 2.0], tree=9), *cut)), cell(), (0.0, 3.0))
    assert shown["ttft.mean"].value == pytest.approx((1 + 3 * 2) / 4)
    assert shown["ttft.mean"].reason is None


def test_goodput_counts_what_was_cut_after_it_had_broken_a_limit() -> None:
    rows = columns(table(made([1.0, 2.0], tree=9), *(waiting(number) for number in range(3))))
    limits = {"ttft": 2.0, "tpot": None, "e2el": None}
    shown = figures(rows, cell(objectives=limits), (0.0, 30.0))
    assert shown["goodput_share"].value == pytest.approx(0.25)
