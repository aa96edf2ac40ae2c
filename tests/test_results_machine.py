"""What the samples of a point say of the machine that served it."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from results import machine
from results.evidence import Evidence, Observed
from results.samples import SCHEMA, Sample, batch


def table(*told: tuple[float, str, str, float]) -> pa.Table:
    samples = [
        Sample(moment=moment, source="s", name=name, labels=labels, value=value)
        for moment, name, labels, value in told
    ]
    return pa.Table.from_batches([batch(samples)], schema=SCHEMA)


def evidence(gpus: Sequence[str] = ("0",), **start: object) -> Evidence:
    """A window from 10 s to 20 s."""
    observed = Observed(provenance="measured", gpus=1, start={"gpus": list(gpus), **start})
    return Evidence(observed=observed, clock="wall", opened=10.0, closed=20.0)


def power(moment: float, watts: float, gpu: int = 0) -> tuple[float, str, str, float]:
    return moment, "gpu:power_watts", f'{{"gpu":"{gpu}"}}', watts


def test_energy_is_power_over_the_window_and_nothing_beside_it():
    # 100 W until 12 s, 300 W until 18 s, 50 W to the end: 2 x 100 + 6 x 300 + 2 x 50.
    samples = table(power(0, 100), power(12, 300), power(18, 50), power(25, 900))
    assert machine.energy(samples, evidence()) == pytest.approx(2100)
    told = machine.remarks(samples, evidence(), tokens=1000)
    assert list(told) == ["its GPUs used 2.1 J an output token"]


def test_energy_adds_up_the_gpus_of_the_server_only():
    samples = table(power(0, 100), power(0, 200, gpu=1), power(0, 400, gpu=2))
    assert machine.energy(samples, evidence(("0", "1"))) == pytest.approx(3000)


def test_energy_is_unknown_where_one_gpu_does_not_tell_its_power():
    assert machine.energy(table(power(0, 100)), evidence(("0", "1"))) is None
    assert machine.energy(table(power(0, 100)), evidence(())) is None


def test_throttling_is_told_with_its_cause_and_its_share_of_the_window():
    name, labels = "gpu:throttle_reasons", '{"gpu":"3"}'
    other = '{"gpu":"2"}'
    samples = table(
        (0, name, labels, 1),
        (14, name, labels, 0x24),
        (15, name, other, 0x04),
        (16, name, labels, 0),
        (16, name, other, 0),
    )
    assert list(machine.remarks(samples, evidence(()), tokens=0)) == [
        "a GPU was held back by its power limit in 20% of the window",
        "a GPU was held back by its temperature in 20% of the window",
    ]


def test_an_idle_gpu_is_not_throttled():
    samples = table((0, "gpu:throttle_reasons", '{"gpu":"0"}', 1))
    assert list(machine.remarks(samples, evidence(()), tokens=0)) == []


def test_kernels_that_are_compiled_in_the_window_are_told():
    name = machine.COMPILED
    samples = table(
        (0, name, "{}", 2), (9, name, "{}", 5), (14, name, "{}", 7), (30, name, "{}", 9)
    )
    assert list(machine.compiled(samples, evidence())) == [
        "the server compiled 2 kernels while it was measured, first seen 4 s into the window: warm "
        "up every shape (load.warmup)"
    ]


def test_kernels_that_the_warm_up_compiled_are_not_held_against_it():
    name = machine.COMPILED
    samples = table((0, name, "{}", 0), (10.5, name, "{}", 5), (21, name, "{}", 6))
    assert list(machine.compiled(samples, evidence())) == []


def test_arms_that_were_up_beside_it_are_named():
    beside = evidence((), resident_beside=["vllm TP1 replay=off"])
    assert list(machine.remarks(None, beside, tokens=0)) == [
        "other arms were up on the same GPUs: vllm TP1 replay=off"
    ]
