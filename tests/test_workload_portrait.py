from collections.abc import Iterator
from pathlib import Path

import pytest

from results.figure import Figure
from tests.recordings import call, example
from workloads.portrait import describe, figures
from workloads.synthesis import generate
from workloads.targets import TARGETS, Target
from workloads.weka import Agent, Trace, stream


def test_a_session_worked_by_hand() -> None:
    portrait = describe([example()])
    samples = {name: values.tolist() for name, values in portrait.samples.items()}
    assert samples["main_input"] == [256, 448, 640]
    assert samples["agent_input"] == [128, 256]
    assert samples["new"] == [256, 192, 192, 128, 128]
    assert samples["later_new"] == [192, 192, 128]
    assert samples["gap"] == pytest.approx([5.9, 10.0])
    assert samples["context"] == pytest.approx([(256 * 9 + 448 * 12) / 21])
    assert (samples["agents"], samples["agent_turns"], samples["parallel_agents"]) == (
        [1],
        [2],
        [1],
    )
    assert (portrait.seen, portrait.blocks) == (13, 27)
    assert portrait.sent == 1728 + 5 * 8
    # Of 0, 256, 0, 128 and 448 shared tokens behind a marker of 8.
    assert portrait.cached == {16: 832, 64: 832, 256: 512}
    assert portrait.busy == pytest.approx(3.1 + 2 + 2.5 + 4.5 + 7)
    assert portrait.recorded == pytest.approx(28)


def test_figures_are_ratios_of_what_was_counted() -> None:
    found = figures(describe([example()]))
    assert found["hit"].value == pytest.approx(13 / 27)
    assert found["missed"].value == pytest.approx(14 / 27)
    assert found["prefill_per_output"].value == pytest.approx(14 * 64 / 622)
    assert found["requests"].value == 5
    assert found["idle"].value == pytest.approx(1 - 19.1 / 28)
    assert found["gap.beyond_300"] == Figure(value=0.0, unit="share", n=2)
    assert found["main_input.p50"] == Figure(value=448.0, unit="tokens", n=3)


def test_a_percentile_of_few_samples_has_a_reason_in_place_of_a_value() -> None:
    found = figures(describe([example()]))["main_input.p90"]
    assert found.value is None
    assert found.reason == "n too small (n=3, needs 64; maximum 640 tokens)"


def test_absent_things_are_absent_and_not_nought() -> None:
    alone = Trace(id="x", preamble=0, calls=(call(0.0, [1]),), agents=())
    found = figures(describe([alone]))
    assert found["agents.p50"].value is None
    assert found["gap.mean"].value is None
    assert found["context.mean"].value is None
    assert found["with_agents"].value == 0
    assert figures(describe([]))["requests"].value is None


def test_sub_agents_that_touch_are_not_at_once() -> None:
    def agent(name: str, start: float, took: float) -> Agent:
        inner = (call(start, [9], took),)
        return Agent(id=name, place=1, end=start + took, preamble=0, calls=inner)

    agents = (agent("a", 1.0, 2.0), agent("b", 3.0, 2.0), agent("c", 4.0, 4.0))
    busy = Trace(id="x", preamble=0, calls=(call(0.0, [1]),), agents=agents)
    assert describe([busy]).samples["parallel_agents"].tolist() == [2]


def test_a_target_is_met_within_its_share() -> None:
    target = Target(value=200, within=0.1)
    assert target.met(Figure(value=219, unit="count", n=1))
    assert not target.met(Figure(value=221, unit="count", n=1))
    assert not target.met(Figure(value=None, unit="count", n=0))
    assert target.deviation(Figure(value=180, unit="count", n=1)) == pytest.approx(-0.1)


def test_every_target_has_a_figure() -> None:
    assert set(TARGETS) <= set(figures(describe([example()])))


def test_the_published_totals_agree_with_one_another() -> None:
    value = {key: target.value for key, target in TARGETS.items()}
    assert value["main_requests"] + value["agent_requests"] == pytest.approx(value["requests"])
    assert value["main_requests"] == pytest.approx(value["main_turns.mean"], rel=0.001)
    # What the cache misses, a request: the mean of new tokens when first requests are counted.
    missed = value["missed"] * value["input_tokens"] / value["requests"]
    assert missed == pytest.approx(value["new.mean"], rel=0.03)


def test_a_quarter_of_the_corpus_is_near_every_target() -> None:
    found = figures(describe(generate(96, 11)))
    far = {
        key: target.deviation(found[key])
        for key, target in TARGETS.items()
        if abs(target.deviation(found[key]) or 0.0) > 2 * target.within
    }
    assert far == {}
    assert sum(target.met(found[key]) for key, target in TARGETS.items()) >= len(TARGETS) - 4


def test_twelve_sessions_have_the_medians_of_the_corpus() -> None:
    found = figures(describe(generate(12, 4)))
    for key in ("main_turns.p50", "main_output.p50", "output.p50", "new.p50", "gap.p50"):
        assert found[key].value == pytest.approx(TARGETS[key].value, rel=0.1)


def test_traces_are_looked_at_one_by_one() -> None:
    alive: list[int] = []

    def one_by_one() -> Iterator[Trace]:
        for trace in generate(3, 1, 8192):
            alive.append(len(trace.calls))
            yield trace

    assert describe(one_by_one()).sessions == len(alive) == 3


def test_recorded_traces_have_a_portrait(recorded: Path) -> None:
    found = figures(describe(stream(str(recorded))))
    assert found["requests"].n == 24
    assert found["hit"].value == pytest.approx(0.956, abs=0.001)
    assert found["main_output.p50"].value == pytest.approx(216, rel=0.05)
