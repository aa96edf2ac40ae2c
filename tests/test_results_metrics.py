"""Every fault of the sheet that lies between rows and figures, by hand-computed cases."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results import batches, metrics, scores, window
from results import steps as alone
from results.columns import columns
from results.figure import Figure, RankShare, Summary
from results.metrics import pool
from results.ranks import added, by_rank
from results.record import RequestRecord
from tests.answer_folders import graded, row
from tests.test_results_record import cell, failed, made, table


def figures(
    *records: RequestRecord, span: window.Window | None = (0.0, 60.0), **changes: Any
) -> Mapping[str, Figure]:
    return metrics.figures(columns(table(*records)), cell(**changes), span)


def approx(expected: float) -> Any:
    return pytest.approx(expected, rel=1e-6)


def test_frames_of_three_tokens_give_tpot_by_token_and_the_gap_by_frame() -> None:
    shown = figures(made([0.2 + 0.03 * i for i in range(30)], [3] * 30))
    assert shown["tpot.mean"].value == approx(0.01)
    assert shown["itl.p50"].value == approx(0.01)
    assert shown["itl.mean"].n == 87
    assert shown["piece_gap.p50"].value == approx(0.03)
    assert shown["piece_gap.mean"].n == 29
    assert shown["interactivity.p50"].value == approx(100)
    assert shown["output_rate_per_user"].value == approx(100)


def test_one_token_outputs_keep_ttft_and_e2e_and_have_no_tpot() -> None:
    shown = figures(*(made([0.4], sent=float(i), tree=i) for i in range(3)))
    assert shown["ttft.p50"].value == approx(0.4)
    assert shown["e2el.p50"].value == approx(0.4)
    for name in ("tpot.mean", "itl.mean", "piece_gap.p50", "interactivity.p50"):
        assert shown[name].value is None
        assert shown[name].reason


def test_when_all_requests_fail_every_figure_is_absent_with_its_reason() -> None:
    shown = figures(*(failed(sent=float(i), tree=i) for i in range(3)))
    counts = {"requests", "sessions", "ok", "failed", "cut", "unsent"}
    assert {name: shown[name].value for name in counts} == {
        "requests": 3,
        "sessions": 3,
        "ok": 0,
        "failed": 3,
        "cut": 0,
        "unsent": 0,
    }
    assert shown["failed_share"].value == 1
    for name in set(shown) - counts - {"client_lag.mean", "client_lag.p50", "failed_share"}:
        assert shown[name].value is None, name
        assert shown[name].reason, name


@pytest.mark.parametrize("kind", ["growing", "batch"])
def test_no_rows_and_no_window_give_absent_figures(kind: str) -> None:
    shown = figures(span=None, workload={"kind": kind}, load={"kind": "open", "rate": 2.0})
    present = {name for name, figure in shown.items() if figure.value is not None}
    assert present == {"target_rate"}
    assert all(shown[name].reason for name in set(shown) - present)


def test_waiting_for_the_clients_own_slot_shows_in_schedule_latency() -> None:
    rows = [made([0.5], sent=0.5 * i, planned=0.1 * i, tree=i) for i in range(8)]
    shown = figures(*rows)
    assert shown["e2el.mean"].value == approx(0.5)
    assert shown["schedule_e2el.mean"].value == approx(1.9)
    assert shown["schedule_ttft.mean"].value == approx(1.9)
    assert shown["schedule_e2el.p99"].value is None
    assert "maximum 3.3 s" in (shown["schedule_e2el.p99"].reason or "")


def test_tokens_of_requests_cut_at_the_deadline_count() -> None:
    """60 s window, 50 s requests of 500 tokens, 8 at once: each lane's second is cut after 10 s."""
    stamps = [0.1 * (i + 1) for i in range(500)]
    whole = [made(stamps, tree=i) for i in range(8)]
    cut = [
        made(stamps[:99], sent=50.0, tree=8 + i, state="cut", reason="cut", closed=60.0)
        for i in range(8)
    ]
    shown = figures(*whole, *cut)
    assert shown["output_rate"].value == approx(8 * 599 / 60)
    assert shown["request_rate"].value == approx(8 / 60)
    assert (shown["ok"].value, shown["cut"].value) == (8, 8)
    assert shown["in_flight.mean"].value == approx(8)
    assert shown["in_flight.max"].value == 8


def test_requests_that_were_never_sent_are_no_cut_ones() -> None:
    none = {"first": None, "first_answer": None, "last": None, "output_tokens": None}
    unsent = none | {"sent": None, "tree": 7}
    never = made(state="cut", reason="never sent", planned=3.0, closed=9.0, **unsent)
    stopped = made(state="cut", reason="cut", **none)
    shown = figures(made([0.5]), never, stopped)
    counts = {name: shown[name].value for name in ("requests", "ok", "failed", "cut", "unsent")}
    assert counts == {"requests": 3, "ok": 1, "failed": 0, "cut": 1, "unsent": 1}
    assert shown["sessions"].value == 1


def test_tokens_of_failed_requests_do_not_count() -> None:
    shown = figures(
        made([1.0, 2.0]), made([1.0, 2.0], tree=1, state="failed", reason="reset", closed=2.0)
    )
    assert shown["output_rate"].value == approx(2 / 60)
    assert shown["input_rate"].value == approx(1000 / 60)


def test_tokens_outside_the_window_do_not_count() -> None:
    shown = figures(made([1.0, 2.0, 3.0]), span=(0.0, 2.5))
    assert shown["output_rate"].value == approx(2 / 2.5)
    assert shown["request_rate"].value is None


def test_a_percentile_of_too_few_samples_is_not_shown() -> None:
    shown = figures(*(made([t], tree=i) for i, t in enumerate([10.0, 20.0, 30.0])))
    assert shown["ttft.p50"].value == approx(20)
    for name in ("ttft.p90", "ttft.p95", "ttft.p99"):
        assert shown[name].value is None
        assert shown[name].n == 3
        assert "n too small (n=3, needs " in (shown[name].reason or "")
        assert "maximum 30 s" in (shown[name].reason or "")


def test_the_median_of_two_is_their_middle() -> None:
    shown = figures(made([0.115]), made([0.315], tree=1))
    assert shown["ttft.p50"].value == approx(0.215)


@pytest.mark.parametrize(("name", "needed"), [("p90", 64), ("p95", 130), ("p99", 662)])
def test_each_percentile_appears_at_the_number_of_samples_it_needs(name: str, needed: int) -> None:
    rows = [made([1.0 + i], tree=i) for i in range(needed)]
    assert figures(*rows[1:])[f"ttft.{name}"].value is None
    share = int(name[1:]) / 100
    assert figures(*rows)[f"ttft.{name}"].value == approx(1 + (needed - 1) * share)


@pytest.mark.parametrize("gpus", [2, 16, 32])
def test_rates_per_gpu_are_divided_by_all_gpus(gpus: int) -> None:
    shown = figures(made([1.0, 2.0]), gpus=gpus)
    assert shown["output_rate_per_gpu"].value == approx(2 / 60 / gpus)
    assert shown["total_rate_per_gpu"].value == approx(1002 / 60 / gpus)


def test_per_token_speed_takes_the_percentile_in_seconds_and_then_inverts() -> None:
    rows = [made([1.0, 1.0 + 0.01 * (1 + i)], tree=i) for i in range(101)]
    shown = figures(*rows)
    assert shown["tpot.p90"].value == approx(0.91)
    assert shown["interactivity.p90"].value == approx(1 / 0.91)
    assert shown["norm_interactivity.p50"].value == approx(2 / 1.51)
    low, high = shown["interactivity.p90"].low, shown["interactivity.p90"].high
    assert low < 1 / 0.91 < high


def test_tpot_takes_an_unknown_first_piece_as_one_token_and_says_so() -> None:
    told = figures(made([1.0, 2.0, 3.0], [4, 4, 4]))["tpot.mean"]
    untold = figures(made([1.0, 2.0, 3.0], [4, 4, 4], piece_tokens=None))["tpot.mean"]
    assert (told.value, told.reason) == (approx(2 / 8), None)
    assert untold.value == approx(2 / 11)
    assert (untold.reason or "").startswith("approximate:")


def test_unknown_pieces_still_bring_all_the_tokens_of_the_request() -> None:
    shown = figures(made([1.0, 2.0, 3.0], [4, 4, 4], piece_tokens=None))
    assert shown["output_rate"].value == approx(12 / 60)
    assert (shown["output_rate"].reason or "").startswith("approximate:")
    assert shown["itl.mean"].value is None


def test_the_first_answer_is_apart_from_the_first_token() -> None:
    shown = figures(made([0.2, 0.9], first_answer=0.9), made([0.2, 0.3], first_answer=None))
    assert shown["ttft.mean"].value == approx(0.2)
    assert shown["first_answer.mean"].value == approx(0.9)
    assert shown["first_answer.mean"].n == 1


def test_rows_of_other_phases_never_count() -> None:
    others = [made([9.0], phase=phase, tree=1) for phase in ("primer", "warm-up", "drain")]
    assert figures(made([1.0]), *others) == figures(made([1.0]))


def test_input_is_what_the_server_reports_and_cached_tokens_are_a_part_of_it() -> None:
    rows = [
        made([1.0], input_tokens=500, cached_tokens=100, ceiling_tokens=200),
        made([1.0], input_tokens=1500, cached_tokens=900, ceiling_tokens=1000, tree=1),
    ]
    shown = figures(*rows)
    assert shown["input_tokens"].value == 2000
    assert shown["cache_hit"].value == approx(0.5)
    assert shown["cache_ceiling"].value == approx(0.6)
    assert shown["cached_rate"].value == approx(1000 / 60)
    assert shown["computed_prefill_rate"].value == approx(1000 / 60)
    assert shown["total_rate"].value == approx(2002 / 60)


def test_cached_tokens_that_nobody_tells_are_absent_and_not_zero() -> None:
    shown = figures(made([1.0], cached_tokens=None))
    for name in ("cache_hit", "cached_rate", "computed_prefill_rate"):
        assert shown[name].value is None
        assert shown[name].reason


def test_goodput_counts_requests_that_keep_every_stated_limit() -> None:
    rows = [
        made([0.5, 1.0]),
        made([1.5, 2.0], tree=1),
        made([0.5, 9.0], tree=2),
        failed(tree=3),
    ]
    shown = figures(*rows, objectives={"ttft": 1.0, "tpot": 1.0, "e2el": None})
    assert shown["goodput"].value == approx(1 / 60)
    assert shown["goodput_share"].value == approx(0.25)
    assert figures(*rows)["goodput"].reason == "no objectives are stated"


def test_an_open_load_shows_its_achieved_rate_beside_the_target() -> None:
    rows = [made([0.1], sent=0.0055 * i, planned=0.005 * i, tree=i) for i in range(200)]
    shown = figures(*rows, load={"kind": "open", "rate": 200.0})
    assert shown["target_rate"].value == 200
    assert shown["planned_rate"].value == approx(200)
    assert shown["arrival_rate"].value == approx(1 / 0.0055)


def test_requests_decoding_at_once_are_counted_over_time() -> None:
    rows = made([1.0, 3.0]), made([2.0, 4.0], tree=1), made([3.0, 4.0], tree=2)
    shown = figures(*rows, span=(0.0, 5.0))
    assert shown["decode_batch.mean"].value == approx(1.0)
    assert shown["decode_batch.max"].value == 2


def test_a_batch_is_measured_while_all_of_it_decodes() -> None:
    """Four requests, a step each 20 ms; they start one step apart and so overlap for 6 steps."""
    stamps = [0.02 * i for i in range(11)]
    rows = [made([1.0 + 0.02 * r + s for s in stamps], stream=f"s{r}") for r in range(4)]
    found = batches.batch_windows(table(*rows))
    assert len(found) == 1
    assert (found[0].size, found[0].tokens) == (4, 24)
    assert found[0].seconds == approx(0.12)
    shown = figures(*rows, gpus=2, workload={"kind": "batch"})
    assert shown["batch_size"].value == approx(4)
    assert shown["batch_tpot"].value == approx(0.02)
    assert shown["batch_rate"].value == approx(200)
    assert shown["batch_rate_per_gpu"].value == approx(100)


def test_batches_of_unequal_spans_are_weighted_by_span() -> None:
    short = [made([0.9, 1.0, 1.1], stream=s) for s in "ab"]
    long = [made([0.8 + 0.2 * i for i in range(11)], stream=s, tree=1) for s in "ab"]
    shown = figures(*short, *long, workload={"kind": "batch"})
    assert shown["batch_tpot"].value == approx((0.1 + 1.8) / 10)
    assert shown["batch_tpot"].n == 2


def test_what_a_server_held_back_is_no_speed_of_a_batch() -> None:
    """The first token comes late, and at once after it twelve that were decoded meanwhile."""
    stamps = [1.0, *(1.01 + 0.02 * i for i in range(50))]
    late = made(stamps, stream="a", piece_tokens=[1, 12, *[1] * 49], output_tokens=62)
    shown = figures(late, replace(late, stream="b"), workload={"kind": "batch"})
    assert shown["batch_tpot"].value == approx(0.02)


def test_what_was_held_back_in_several_pieces_is_none_either() -> None:
    stamps = [1.0, *(1.01 + 0.0005 * i for i in range(12)), *(1.0355 + 0.02 * i for i in range(50))]
    late = made(stamps, stream="a", piece_tokens=[1] * 63, output_tokens=63)
    shown = figures(late, replace(late, stream="b"), workload={"kind": "batch"})
    assert shown["batch_tpot"].value == approx(0.02)


@pytest.mark.parametrize("ends", [False, True])
def test_a_request_that_stands_still_to_the_end_is_behind(ends: bool) -> None:
    """Of four requests one stops after a third, and goes on only when the others have ended."""
    whole = [1.0 + 0.02 * i for i in range(60)]
    still = [*whole[:20], *(2.3 + 0.02 * i for i in range(40))] if ends else whole
    rows = [made(whole, stream=f"s{i}") for i in range(3)] + [made(still, stream="s3")]
    (found,) = batches.batch_windows(table(*rows))
    assert found.behind == ends


def test_a_batch_that_never_decodes_together_has_no_speed() -> None:
    rows = [made([1.0, 2.0], stream="a"), made([2.5, 3.0], stream="b")]
    shown = figures(*rows, workload={"kind": "batch"})
    assert shown["batch_tpot"].value is None
    assert shown["batch_tpot"].reason
    broken = figures(rows[0], failed(stream="b"), workload={"kind": "batch"})
    assert broken["batch_rate"].value is None


def test_a_share_of_few_sessions_has_no_interval_and_says_why() -> None:
    few = figures(*(made([1.0], tree=i) for i in range(9)))["ttft.mean"]
    assert (few.low, few.high) == (None, None)
    assert "too few sessions" in (few.doubt or "")
    enough = figures(*(made([1.0 + i], tree=i) for i in range(10)))["ttft.mean"]
    assert enough.low is not None
    assert enough.doubt is None


def summary(value: float | None, repeat: int, **changes: Any) -> Summary:
    figure = Figure(value=value, unit="s", n=10, low=0.0, high=9.0, reason=None if value else "no")
    plain = Summary(
        cell=cell(repeat=repeat),
        status="finished",
        reason=None,
        repeats=1,
        provenance="measured",
        problems=(),
        figures={"ttft.p50": figure},
    )
    return replace(plain, **changes)


@pytest.mark.parametrize(("far", "bounded"), [(1e-13, False), (1e-6, True)])
def test_runs_that_differ_by_the_order_of_their_sums_alone_are_identical(
    far: float, bounded: bool
) -> None:
    (pooled,) = pool([summary(27.5, 0), summary(27.5 * (1 + far), 1), summary(27.5, 2)])
    figure = pooled.figures["ttft.p50"]
    assert (figure.low is not None) == bounded
    assert ("identical" in (figure.doubt or "")) != bounded


def test_repeats_are_pooled_with_students_interval_over_runs() -> None:
    (pooled,) = pool([summary(1.0, 0), summary(2.0, 1), summary(3.0, 2)])
    figure = pooled.figures["ttft.p50"]
    assert (pooled.repeats, figure.value, figure.n) == (3, approx(2), 30)
    # t(0.975, 2) = 4.302653, sd = 1.
    assert figure.high == approx(2 + 4.302653 / math.sqrt(3))
    assert figure.low == 0.0


def test_one_repeat_keeps_its_own_interval_and_cells_stay_apart() -> None:
    alone = summary(1.0, 0)
    other = summary(2.0, 0, cell=cell(cell="cccc0000"))
    assert pool([alone, other]) == [alone, other]


def test_a_repeat_that_did_not_finish_or_is_invalid_is_not_hidden() -> None:
    (pooled,) = pool(
        [
            summary(1.0, 0, problems=("the client was late",)),
            summary(None, 1, status="failed", reason="out of memory"),
            summary(3.0, 2),
        ]
    )
    assert pooled.status == "failed"
    assert pooled.reason == "repeat 1: failed: out of memory"
    assert pooled.problems == ("repeat 0: the client was late",)
    assert pooled.figures["ttft.p50"].value == approx(2)
    assert not pooled.valid


requests = st.lists(
    st.tuples(
        st.floats(0, 50),
        st.lists(st.integers(1, 5_000_000), min_size=0, max_size=8),
        st.sampled_from(["ok", "failed", "cut"]),
        st.integers(0, 12),
        st.booleans(),
    ),
    max_size=12,
)


def drawn(drawing: list[tuple[float, list[int], str, int, bool]]) -> pa.Table:
    return table(
        *(
            made(
                (np.cumsum(steps) / 1e6).tolist(),
                [1 + (i % 3) for i in range(len(steps))],
                sent=sent,
                state=state,
                tree=tree,
                **({} if told else {"piece_tokens": None}),
            )
            for sent, steps, state, tree, told in drawing
        )
    )


@given(requests)
@settings(max_examples=30, deadline=None)
def test_figures_are_finite_and_absent_ones_say_why(drawing: Any) -> None:
    rows = columns(drawn(drawing))
    shown = metrics.figures(rows, cell(objectives={"ttft": 1.0}), (0.0, 60.0))
    for name, figure in shown.items():
        assert figure.value is not None or figure.reason, name
        for number in (figure.value, figure.low, figure.high):
            assert number is None or math.isfinite(number), name
    if len(rows.ok):
        names = ("requests", "ok", "failed", "cut", "unsent")
        asked, *states = (shown[name].value or 0 for name in names)
        assert asked == sum(states)


@given(requests)
@settings(max_examples=20, deadline=None)
def test_a_success_has_gaps_that_add_up_to_its_length(drawing: Any) -> None:
    for sent, steps, _, tree, _ in drawing:
        if len(steps) < 2:
            continue
        row = made((np.cumsum(steps) / 1e6).tolist(), sent=sent, tree=tree)
        shown = figures(row)
        ttft, gaps = shown["ttft.mean"].value, shown["piece_gap.mean"]
        assert shown["e2el.mean"].value == pytest.approx(ttft + gaps.value * gaps.n, abs=1e-5)
        assert 0 < ttft <= (shown["e2el.mean"].value or 0)


@given(requests, st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_figures_do_not_depend_on_the_order_of_rows(drawing: Any, random: Any) -> None:
    shuffled = list(drawing)
    random.shuffle(shuffled)
    one, other = (
        metrics.figures(columns(drawn(rows)), cell(), (0.0, 60.0)) for rows in (drawing, shuffled)
    )
    for name, figure in one.items():
        assert other[name].n == figure.n
        for ours, theirs in zip(
            (figure.value, figure.low, figure.high),
            (other[name].value, other[name].low, other[name].high),
            strict=True,
        ):
            assert theirs == (None if ours is None else pytest.approx(ours, rel=1e-5, abs=1e-9))


def test_every_figure_is_documented_and_every_documented_figure_exists() -> None:
    page = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    shown = [*figures(load={"kind": "open", "rate": 1.0}, workload={"kind": "batch"})]
    shown += scores.figures(graded(row(0, 1.0)), None)
    run = dict.fromkeys(alone.SCHEMA.names, 1)
    shown += alone.figures(pa.Table.from_pylist([run], schema=alone.SCHEMA), cell())
    assert {name.split(".")[0] for name in shown} == documented


def test_hits_are_told_for_each_rank_where_there_are_several() -> None:
    # F-19: a session whose turns land on another rank each time misses.
    rows = table(
        made([0.5], rank=0, cached_tokens=600, ceiling_tokens=600),
        made([0.5], rank=0, cached_tokens=400, ceiling_tokens=600),
        made([0.5], rank=1, cached_tokens=0),
        made([0.5], rank=1, cached_tokens=None),
        made([0.5], rank=2, phase="warm-up"),
    )
    assert by_rank(rows) == (
        RankShare(rank=0, requests=2, input_tokens=2000, cached_tokens=1000),
        RankShare(rank=1, requests=2, input_tokens=1000, cached_tokens=0),
    )
    assert by_rank(table(made([0.5], rank=0))) == ()
    assert added(by_rank(rows) * 2)[0].input_tokens == 4000


def test_frames_are_never_counted_as_tokens() -> None:
    # F-03 without usage: 30 frames of 3 tokens each, and nobody says so.
    stamps = [0.03 * (number + 1) for number in range(30)]
    untold = [made(stamps, tree=n, output_tokens=None, piece_tokens=None) for n in range(3)]
    shown = figures(*untold)
    for name in ("tpot.p50", "itl.p50", "output_rate", "output_tokens", "interactivity.p50"):
        assert shown[name].value is None, name
    assert "frames are not tokens" in str(shown["output_rate"].reason)
    assert shown["ttft.p50"].value == pytest.approx(0.03)


def test_a_cut_request_without_usage_counts_by_what_the_others_tell() -> None:
    stamps = [0.03 * (number + 1) for number in range(30)]
    told = made(stamps, tree=0, output_tokens=90, piece_tokens=None)
    cut = made(
        stamps[:10], tree=1, state="cut", reason="cut", output_tokens=None, piece_tokens=None
    )
    shown = figures(told, cut)
    assert shown["output_rate"].value == pytest.approx((90 + 30) / 60)
    assert "approximate" in str(shown["output_rate"].reason)
