"""Where two sides change places over the load."""

from dataclasses import replace

import numpy as np
import pytest

from results.comparison import CellComparison, Comparison
from results.crossing import crossings
from results.effect import Effect
from results.verdict import Judgement

LOADS = (4, 16, 64)


def verdict(ratio, doubt, better):
    """Better or worse where the interval leaves no change out, as of a margin of nothing."""
    if abs(ratio) <= doubt:
        return "inconclusive"
    return "better" if (ratio > 0) == (better == "higher") else "worse"


def compared(ratios, doubt=0.02, metric="output_rate_per_gpu", better="higher", **workload):
    """A comparison of so many loads, with these logarithms of other / base and their doubt."""
    cells = [
        CellComparison(
            name=f"closed {level}",
            experiment="agents",
            arms=("a", "b"),
            workload={"kind": "agentx", **workload},
            load={"kind": "closed", "concurrency": level, "duration": 90.0},
            runs=(2, 2),
            problems=(),
            notes=(),
            failed=(0, 0),
            asked=(9, 9),
            judgements=(
                Judgement(
                    effect=Effect(
                        metric=metric,
                        unit="tok/s/GPU",
                        better=better,
                        how="runs",
                        ratio=float(np.exp(ratio)),
                        low=float(np.exp(ratio - doubt)),
                        high=float(np.exp(ratio + doubt)),
                    ),
                    margin=0.05,
                    verdict=verdict(ratio, doubt, better),
                    gate=None,
                    reason="",
                    gated=False,
                ),
            ),
        )
        for level, ratio in zip(LOADS, ratios, strict=True)
    ]
    return Comparison(base="A", other="B", cells=tuple(cells))


def test_sides_that_change_places_are_equal_between_loads():
    # Over log2 of the load 2, 4 and 6, a third of the way from 4 to 6; the upper end of the
    # interval meets nothing at 4.4, the lower one at 4 + 2 x 7/15.
    (found,) = crossings(compared((-0.10, -0.05, 0.10)))
    assert found.loads == LOADS
    assert found.ahead == (-1, -1, 1)
    assert (found.low, found.at, found.high) == pytest.approx(
        (2**4.4, 2 ** (4 + 2 / 3), 2 ** (4 + 14 / 15))
    )


def test_of_times_less_is_better():
    (found,) = crossings(compared((0.10, 0.05, -0.10), metric="ttft", better="lower"))
    assert found.ahead == (-1, -1, 1)
    assert found.at == pytest.approx(2 ** (4 + 2 / 3))


def test_of_a_fixed_batch_its_own_figures_are_looked_at():
    batch = {"kind": "batch", "requests": 8}
    whole = compared((-0.10, -0.05, 0.10), metric="batch_rate_per_gpu")
    sizes = [
        replace(cell, workload={**batch, "requests": level}, load={"kind": "closed"})
        for cell, level in zip(whole.cells, LOADS, strict=True)
    ]
    (found,) = crossings(replace(whole, cells=tuple(sizes)))
    assert (found.load, found.loads, found.ahead) == ("requests", LOADS, (-1, -1, 1))
    other = replace(sizes[0].judgements[0].effect, metric="ttft")
    requests = [
        replace(cell, judgements=(replace(cell.judgements[0], effect=other),)) for cell in sizes
    ]
    assert not list(crossings(replace(whole, cells=tuple(requests))))


def test_base_that_overtakes_is_found_at_the_same_load():
    (found,) = crossings(compared((0.10, 0.05, -0.10)))
    assert found.ahead == (1, 1, -1)
    assert (found.low, found.at, found.high) == pytest.approx(
        (2**4.4, 2 ** (4 + 2 / 3), 2 ** (4 + 14 / 15))
    )


def test_a_load_in_between_that_decides_nothing_is_no_end():
    (found,) = crossings(compared((-0.10, 0.01, 0.10)))
    assert found.ahead == (-1, 0, 1)
    assert found.low < found.at < found.high


def test_without_a_load_where_the_other_is_ahead_nothing_is_crossed():
    (found,) = crossings(compared((-0.10, -0.05, 0.01)))
    assert (found.ahead, found.at) == ((-1, -1, 0), None)


def test_who_is_overtaken_twice_crosses_twice():
    found = list(crossings(compared((-0.10, 0.10, -0.10))))
    assert [(round(one.at), one.overtakes) for one in found] == [(8, 1), (32, -1)]


def test_what_is_invalid_or_has_no_interval_is_left_out():
    whole = compared((-0.10, -0.05, 0.10))
    (judgement,) = whole.cells[0].judgements
    for bad in (
        replace(judgement, verdict="invalid"),
        replace(judgement, effect=replace(judgement.effect, low=None, high=None)),
    ):
        first = replace(whole.cells[0], judgements=(bad,))
        (found,) = crossings(replace(whole, cells=(first, *whole.cells[1:])))
        assert found.loads == LOADS[1:]


def test_other_workloads_are_other_series():
    both = replace(
        compared((-0.1, -0.1, 0.1)),
        cells=compared((-0.1, -0.1, 0.1)).cells + compared((0.1, 0.1, 0.1), seed=2).cells,
    )
    assert [one.ahead for one in crossings(both)] == [(-1, -1, 1), (1, 1, 1)]
    assert not list(crossings(replace(both, cells=both.cells[::3])))
    other = tuple(replace(cell, arms=("c", "d")) for cell in both.cells[:3])
    apart = list(crossings(replace(both, cells=both.cells[:3] + other)))
    assert [(one.arms, one.ahead) for one in apart] == [
        (("a", "b"), (-1, -1, 1)),
        (("c", "d"), (-1, -1, 1)),
    ]


def test_who_is_better_by_no_verdict_is_not_ahead():
    whole = compared((-0.10, -0.05, 0.10))
    (judgement,) = whole.cells[2].judgements
    doubted = replace(whole.cells[2], judgements=(replace(judgement, verdict="inconclusive"),))
    (found,) = crossings(replace(whole, cells=(*whole.cells[:2], doubted)))
    assert (found.ahead, found.at) == ((-1, -1, 0), None)


def test_of_straight_curves_nobody_is_ahead_around_the_true_crossing():
    """Curves that cross at 24, measured 1,000 times with normal errors of known size."""
    rng = np.random.default_rng(1)
    truth = 0.15 * (np.log2(LOADS) - np.log2(24))
    error, held, found = 0.05, 0, 0
    for noise in rng.normal(0, error, (1000, 3)):
        for one in crossings(compared(truth + noise, doubt=1.96 * error)):
            found += one.at is not None
            held += one.at is not None and one.low <= 24 <= one.high
    assert found > 900
    assert held / found > 0.95
