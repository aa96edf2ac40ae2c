"""Intervals: that they cover what they should, and no more."""

from typing import Any

import numpy as np
import pytest

from results import interval
from results.columns import columns
from results.metrics import figures
from results.quantile import quantile
from results.rates import Flow, rate
from tests.test_results_record import cell, made, table


def sessions(
    random: np.random.Generator, correlation: float, count: int = 40, each: int = 8
) -> tuple[Any, Any]:
    """Values of mean 10 and variance 1 that share `correlation` within a session."""
    shared = random.normal(size=count) * np.sqrt(correlation)
    own = random.normal(size=(count, each)) * np.sqrt(1 - correlation)
    return 10 + (shared[:, None] + own).ravel(), np.repeat(np.arange(count), each)


def scattered(count: int) -> Any:
    """Moments that have nothing to do with the order of requests."""
    return (np.arange(count) * 7919) % count / 10


def intervals(
    values: Any, trees: Any, seed: int = 0, moments: Any = None
) -> list[interval.Interval]:
    """Those of the mean and the median."""
    order = np.argsort(values)
    moments = scattered(len(values)) if moments is None else moments
    resample = interval.resample(trees, moments, seed)
    totals = np.arange(1.0, len(values) + 1)
    return [
        interval.of_ratio(resample, np.arange(len(values)), values, np.ones(len(values))),
        *interval.of_quantiles(resample, order, values[order], totals, [0.5]),
    ]


def test_intervals_cover_near_nominal_when_requests_of_a_session_resemble_one_another() -> None:
    random = np.random.default_rng(1)
    drawn = [intervals(*sessions(random, 0.5), seed=seed) for seed in range(60)]
    for which in (0, 1):
        covered = np.mean([low <= 10 <= high for low, high in (one[which] for one in drawn)])
        assert 0.90 <= covered <= 0.99


def test_intervals_cover_where_requests_of_one_time_resemble_one_another() -> None:
    # Sessions that decode in one batch share its steps, so sessions alone would look too certain.
    random = np.random.default_rng(7)
    covered = []
    for seed in range(60):
        moments = np.sort(random.uniform(0, 60, size=320))
        shared = random.normal(size=10)[np.minimum(moments // 6, 9).astype(int)]
        values = 10 + shared + random.normal(size=320) * 0.5
        trees = random.permutation(np.repeat(np.arange(40), 8))
        low, high = intervals(values, trees, seed, moments)[0]
        covered.append(low <= 10 <= high)
    assert np.mean(covered) >= 0.88


def test_a_long_series_in_bins_has_the_interval_of_the_whole() -> None:
    values, trees = sessions(np.random.default_rng(4), 0.5, count=60, each=200)
    order = np.argsort(values)
    resample = interval.resample(trees, scattered(len(values)), 0)
    totals = np.arange(1.0, len(values) + 1)
    shares = [0.5, 0.9, 0.99]
    binned = interval.of_quantiles(resample, order, values[order], totals, shares)
    for share, (low, high) in zip(shares, binned, strict=True):
        exact = []
        for times in resample.sessions.times[:200]:
            weights = times[trees[order]].astype(float)
            kept = weights > 0
            exact.append(quantile(values[order][kept], np.cumsum(weights[kept]), share))
        assert (low, high) == pytest.approx(tuple(np.quantile(exact, [0.025, 0.975])), abs=0.06)


def test_the_same_seed_gives_the_same_interval() -> None:
    rows = columns(table(*(made([1.0 + (i * 7) % 5], tree=i) for i in range(40))))
    one, same, other = (figures(rows, cell(seed=seed), (0.0, 60.0)) for seed in (1, 1, 2))
    assert one == same
    assert one["ttft.mean"] != other["ttft.mean"]


def test_quantiles_of_weighted_values_are_those_of_repeated_ones() -> None:
    random = np.random.default_rng(5)
    values, times = np.sort(random.normal(size=50)), random.integers(1, 6, size=50)
    for share in (0.0, 0.5, 0.9, 0.99, 1.0):
        expected = np.quantile(np.repeat(values, times), share)
        assert quantile(values, np.cumsum(times.astype(float)), share) == pytest.approx(expected)


def test_students_interval_of_two_values_is_wide_and_of_one_is_none() -> None:
    assert interval.of_mean([1.0]) is None
    # t(0.975, 1) = 12.7062, sd / sqrt(2) = 1.
    assert interval.of_mean([9.0, 11.0]) == pytest.approx((0.0, 10 + 12.7062), rel=1e-5)


def test_a_rate_has_an_interval_over_parts_of_its_window() -> None:
    random = np.random.default_rng(6)
    covered = []
    for _ in range(300):
        moments = random.uniform(0, 60, size=random.poisson(120))
        flow = Flow(moments=moments, amounts=np.ones(len(moments)), rows=np.arange(len(moments)))
        shown = rate(flow, (0.0, 60.0), "req/s")
        covered.append(shown.low <= 2.0 <= shown.high)
    assert 0.92 <= np.mean(covered) <= 0.98
