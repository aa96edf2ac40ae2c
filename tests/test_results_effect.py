"""Effects: which way is worse, and that every figure with a direction has one."""

from pathlib import Path

import pytest

from results.columns import columns
from results.contrast import Estimate
from results.direction import DIRECTIONS, REQUESTS
from results.effect import Effect, of_estimate
from results.metrics import figures
from tests.test_results_record import cell, made, table

# What has no better direction: counts, what was asked for, how much was under way, what was cached.
NEITHER = {
    *("requests", "sessions", "ok", "failed", "cut", "unsent", "input_tokens", "output_tokens"),
    *("target_rate", "planned_rate", "arrival_rate", "batch_size"),
    *("in_flight.mean", "in_flight.max", "live.mean", "live.max"),
    *("decode_batch.mean", "decode_batch.max"),
    *("cache_ceiling", "computed_prefill_rate", "cached_rate"),
}


def effect(metric: str, change: float, error: float = 0.01) -> Effect:
    estimate = Estimate(change=change, how="pairs of runs", error=error, freedom=5)
    return of_estimate(metric, DIRECTIONS[metric], estimate, (0.0, change))


def test_more_seconds_and_fewer_tokens_are_worse() -> None:
    slower, fewer = effect("ttft", 0.1).worsening, effect("output_rate", -0.1).worsening
    assert slower is not None
    assert fewer is not None
    assert slower[0] == pytest.approx(0.10517, rel=1e-4)
    assert fewer[0] == pytest.approx(0.09516, rel=1e-4)
    for point, low, high in (slower, fewer):
        assert low < point < high


def test_without_an_interval_there_is_no_worsening() -> None:
    estimate = Estimate(change=0.1, how="none", reason="one run")
    unknown = of_estimate("ttft", DIRECTIONS["ttft"], estimate, (0.0, 0.1))
    assert (unknown.worsening, unknown.reason) == (None, "one run")
    assert (unknown.ratio, unknown.p, unknown.detectable) == (
        pytest.approx(1.10517, rel=1e-5),
        None,
        None,
    )


def test_what_lies_beyond_all_bounds_stays_a_number() -> None:
    far = effect("ttft", 5000.0, error=900.0)
    assert far.ratio is not None
    assert far.high is not None
    assert far.high < float("inf")


def test_every_figure_of_a_point_has_a_direction_or_is_known_to_have_none() -> None:
    rows = columns(table(*(made([0.5, 0.6], sent=float(i), tree=i) for i in range(3))))
    shown: set[str] = set()
    for kind in ("growing", "batch"):
        for load in ({"kind": "closed", "concurrency": 8}, {"kind": "open", "rate": 2.0}):
            point = cell(workload={"kind": kind}, load=load)
            shown |= {name for name in figures(rows, point, (0.0, 60.0)) if "lag" not in name}
    assert shown - set(DIRECTIONS) == NEITHER
    assert set(DIRECTIONS) - shown == {*REQUESTS, "accuracy", "step_time"}


def test_every_metric_that_can_be_compared_is_in_the_docs() -> None:
    docs = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
    for metric in DIRECTIONS:
        assert f"`{metric.partition('.')[0]}`" in docs
