"""The suites that ship for the published claims: all planned in full, all with a small variant."""

import pytest

from suites.description import describe
from suites.plan import plan
from suites.suite import load, shipped

CLAIMED = [
    *("admission", "agentx-sweep", "ampere", "batch-curve", "decode-vs-context", "eplb"),
    *("pd-transfer", "prefill-on-cached", "replay-ttft"),
]
ONE_GPU_IS_TOO_FEW = {"eplb", "pd-transfer"}


@pytest.mark.parametrize("name", [*CLAIMED, *(f"{name}-shrunk" for name in CLAIMED)])
def test_a_suite_is_planned_in_full(name):
    described = describe(plan(load(name)))
    refused = [row.unsupported for row in described.rows if row.unsupported]
    assert described.servers + len(refused) == len(described.rows) > 0
    assert all("nothing says how to start a command on one" in why for why in refused)
    for lines in described.starts.values():
        assert any(" serve " in line or " bench forward " in line for line in lines)
        assert not any(line.startswith("unsupported") for line in lines)


@pytest.mark.parametrize("name", CLAIMED)
def test_a_suite_names_its_claims(name):
    assert "claims " in shipped()[name].read_text().splitlines()[1]


@pytest.mark.parametrize("name", CLAIMED)
def test_a_small_variant_runs_on_one_gpu_and_on_two(name):
    small = plan(load(f"{name}-shrunk")).points
    assert {point.deployment.engine.model for point in small} == {".models/v41-shrunk"}
    gpus = {point.deployment.topology.gpus for point in small}
    assert gpus == ({2} if name in ONE_GPU_IS_TOO_FEW else {1, 2})
