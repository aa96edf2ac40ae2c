"""Steps timed alone on two sides: each is compared by its time, over runs and not over samples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import exp, log
from pathlib import Path

import pyarrow as pa
import pytest

from reports.account import account
from reports.comparison import comparison_text
from results import folder, ledger
from results.baseline import baseline
from results.comparison import Comparison, compare
from results.contrast import FEW
from results.run import Run, read
from results.side import within
from results.steps import SCHEMA
from results.verdict import Judgement, Margin, Rule
from tests.run_folders import facts
from tests.test_forward import engine, point, ran
from tests.test_results_record import evidence
from workloads.forward import Forward

STEADY = [exp(-0.01), 1.0, exp(0.01)]
UNSTEADY = [1.1 * exp(-0.02), 1.1, 1.1 * exp(0.02)]
RULE = Rule(metric="step_time", margin=Margin(relative=0.06))


def timed(
    out: Path, runs: Sequence[float], batches: Sequence[int] = (8,), arm: str = "a", **changes: int
) -> Run:
    """A run with a repeat for each number, the milliseconds that each of its steps takes."""
    sizes = {"batch": list(batches), "context": [2048], "new_tokens": [1], "drafts": 0}
    workload = {"kind": "forward", **sizes, "iterations": 2, "samples": 2, **changes}
    points = [
        # Sides with other lists of steps were not asked the same, and repeats are no pairs then.
        facts(arm, n, n, pairing=f"{arm}{batches}{n}", workload=workload, experiment="curve")
        for n in range(len(runs))
    ]
    plan = {"hash": "0" * 8, "points": points}
    with folder.create(out, "suite", "suite: suite\n", plan, {}, 0) as whole:
        for told, milliseconds in zip(points, runs, strict=True):
            with whole.open_point(told) as writer:
                writer.finish("finished", None, evidence(), rows(batches, milliseconds))
    return read(whole.path)


def rows(batches: Sequence[int], milliseconds: float) -> pa.Table:
    """Four runs of each step, of which the median is so long and the mean far longer."""
    made = [
        {
            "batch": batch,
            "context_tokens": 2048,
            "new_tokens": 1,
            "draft_tokens": 0,
            "sample": number // 2,
            "microseconds": 1000 * milliseconds * share,
        }
        for batch, (number, share) in product(batches, enumerate([0.9, 1.0, 1.0, 9.0]))
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def told(base: Run | Path, other: Run | Path, *rules: Rule) -> tuple[Comparison, str]:
    """The comparison, and what it prints."""
    sides = ledger.sides(
        *([str(one.path if isinstance(one, Run) else one)] for one in (base, other))
    )
    found = compare(*sides, rules)
    return found, comparison_text(account(found, *sides))


def judged(found: Comparison) -> Mapping[str, Judgement]:
    """The one judgement of each cell."""
    return {cell.name: one for cell in found.cells for one in cell.judgements}


def test_a_step_is_judged_over_runs_with_the_interval_of_welch(tmp_path: Path) -> None:
    # ln 1.1 = 0.09531; variances of logarithms 0.0001 and 0.0004; error sqrt(0.0005 / 3) = 0.01291;
    # 25 / 8.5 = 2.9412 degrees of freedom, so t = 3.2189: from 0.05376 to 0.13687.
    base, other = timed(tmp_path / "a", STEADY), timed(tmp_path / "b", UNSTEADY, arm="b")
    found, text = told(base, other)
    one = judged(found)["curve-8x2048+1"]
    assert (one.effect.metric, one.effect.how, one.effect.runs) == ("step_time", "Welch", (3, 3))
    assert (one.effect.base, one.effect.other) == (pytest.approx(0.001), pytest.approx(0.0011))
    ends = one.effect.ratio, one.effect.low, one.effect.high
    assert ends == (pytest.approx(1.1), pytest.approx(1.0552, 1e-4), pytest.approx(1.1467, 1e-4))
    assert (one.verdict, one.margin) == ("worse", 0.05)
    assert "slower than base in step time" in text
    assert "8 x 1 on 2048, 3 + 3 runs" in text


def test_the_other_way_round_it_is_better_by_the_inverse(tmp_path: Path) -> None:
    base, other = timed(tmp_path / "b", UNSTEADY, arm="b"), timed(tmp_path / "a", STEADY)
    found, text = told(base, other)
    one = judged(found)["curve-8x2048+1"]
    assert (one.verdict, one.effect.ratio) == ("better", pytest.approx(1 / 1.1))
    assert one.effect.low == pytest.approx(1 / 1.1467, 1e-4)
    assert "faster than base in step time" in text


def test_what_is_within_the_margin_is_the_same(tmp_path: Path) -> None:
    base = timed(tmp_path / "a", [1.0, 1.001, 0.999])
    (one,) = judged(told(base, timed(tmp_path / "b", [1.02, 1.021, 1.019], arm="b"))[0]).values()
    assert one.verdict == "same"


def test_samples_of_one_run_a_side_give_no_interval_and_no_verdict(tmp_path: Path) -> None:
    found, text = told(timed(tmp_path / "a", [1.0]), timed(tmp_path / "b", [1.2], arm="b"))
    (one,) = judged(found).values()
    assert (one.effect.runs, one.effect.low, one.effect.high) == ((1, 1), None, None)
    assert (one.verdict, one.reason) == ("inconclusive", FEW)
    assert "+20.0 % (no interval)" in text
    assert "8 x 1 on 2048, 1 + 1 runs" in text


def test_steps_that_one_side_lacks_are_named_and_the_others_compared(tmp_path: Path) -> None:
    base = timed(tmp_path / "a", STEADY, (8, 16))
    found, text = told(base, timed(tmp_path / "b", UNSTEADY, (32, 8), arm="b"))
    assert list(judged(found)) == ["curve-8x2048+1"]
    assert found.unmatched == ("curve-16x2048+1 (a)", "curve-32x2048+1 (b)")
    assert "not compared: curve-16x2048+1 (a) is on one side only" in text


def test_how_often_a_step_was_run_makes_no_other_step_of_it(tmp_path: Path) -> None:
    base = timed(tmp_path / "a", STEADY, iterations=20)
    assert len(told(base, timed(tmp_path / "b", UNSTEADY))[0].cells) == 1
    other = timed(tmp_path / "c", UNSTEADY, drafts=5)
    assert told(base, other)[0].refusals[0].startswith("workload.drafts: 0 against 5")


def test_runs_of_one_median_are_no_copies(tmp_path: Path) -> None:
    base = timed(tmp_path / "a", [1.0, 1.0, 1.01])
    (cell,) = told(base, timed(tmp_path / "b", [1.0, 1.001, 1.002], arm="b"))[0].cells
    assert cell.runs == (3, 3)


def test_a_rule_for_step_time_gates_every_step_and_others_none(tmp_path: Path) -> None:
    base = timed(tmp_path / "a", STEADY, (8, 16))
    other = timed(tmp_path / "b", UNSTEADY, (8,))
    found, _ = told(base, other, RULE, Rule(metric="ttft", margin=Margin(relative=0.05)))
    (one,) = judged(found).values()
    assert (one.gate, one.margin) == ("fail", 0.06)
    assert found.missing == (
        f"curve-16x2048+1 (a) is in the baseline and not in {other.path}: run it too",
    )
    assert found.unjudged[0].startswith("the rule for ttft was held against nothing")
    (back,) = judged(told(other, timed(tmp_path / "c", STEADY), RULE)[0]).values()
    assert back.gate == "pass"


def test_a_baseline_file_keeps_the_time_of_every_step(tmp_path: Path) -> None:
    runs = [timed(tmp_path / "a", STEADY, (8, 16)), timed(tmp_path / "b", UNSTEADY, (8, 16))]
    kept = tmp_path / "baseline.json"
    ledger.write(kept, baseline(runs[:1]))
    whole, filed = (judged(told(base, runs[1], RULE)[0]) for base in (runs[0], kept))
    assert list(filed) == ["curve-8x2048+1", "curve-16x2048+1"]
    for name, one in filed.items():
        assert one.gate == "fail"
        assert one.effect.unit == "s"
        assert one.effect.ratio == pytest.approx(whole[name].effect.ratio)
        assert one.effect.high == pytest.approx(whole[name].effect.high)


def test_arms_of_one_run_of_bench_forward_are_compared_step_by_step(tmp_path: Path) -> None:
    curve = Forward(batch=(8, 64), context=(0, 2048), iterations=4, samples=2)
    factors = {"fast": "[1, 1.01, 0.99]", "slow": "[1.1, 1.115, 1.085]"}
    engines = [
        engine(tmp_path, "--fake-factors", told, name=name) for name, told in factors.items()
    ]
    points = [
        replace(point(vllm, curve), repeat=repeat, position=2 * repeat + place)
        for repeat in range(3)
        for place, vllm in enumerate(engines if repeat % 2 == 0 else engines[::-1])
    ]
    ((base, other),) = within(ran(tmp_path, *points))
    for sides, verdict in (((base, other), "worse"), ((other, base), "better")):
        found = compare(*sides)
        assert found.refusals == ()
        assert {name: one.verdict for name, one in judged(found).items()} == dict.fromkeys(
            [f"curve-{batch}x{context}+1" for context in (0, 2048) for batch in (8, 64)], verdict
        )
        for one in judged(found).values():
            assert abs(log(one.effect.ratio or 1.0)) == pytest.approx(log(1.1), abs=0.005)
            assert one.effect.runs == (3, 3)
    text = comparison_text(account(compare(base, other), base, other))
    assert "slow TP1 is slower than fast TP1 in step time in 4 of 4 cells" in text


def test_another_list_of_steps_beside_what_is_compared_refuses_nothing(tmp_path: Path) -> None:
    base, other = (
        ran(
            tmp_path / factor,
            point(
                engine(tmp_path, "--fake-factors", f"[{factor}]"),
                Forward(batch=batch, context=(2048,), iterations=4, samples=2),
            ),
        )
        for factor, batch in {"1": (8, 16), "1.1": (8, 32)}.items()
    )
    found, _ = told(base, other)
    assert found.refusals == ()
    assert list(judged(found)) == ["curve-8x2048+1"]
