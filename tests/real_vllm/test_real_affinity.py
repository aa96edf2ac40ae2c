"""Sessions at ranks of a real vLLM by every affinity: its own ranks, and a server for each."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.load import Closed
from tests.real_vllm.serving import engine, measured, problems
from workloads.growing import Growing

# Each is a start of two engines; test_real_ranks.py pins by the header too.
pytestmark = [pytest.mark.real_vllm, pytest.mark.slow]

CHAT = Growing(turns=4, first=1000, fresh=200, output=16)
ROUTER = (
    f"{sys.executable} {Path(__file__).parents[1] / 'fake_router.py'} --host {{host}} "
    "--port {port} {servers:--to}"
)


@pytest.mark.parametrize("affinity", ["rank-header", "port", "router"])
def test_sessions_stay_at_their_ranks(affinity, tmp_path):
    # Two of them take turns at importing.
    vllm = replace(engine(affinity=affinity, router=ROUTER), ready_timeout=900)
    load = Closed(concurrency=2, sessions=4, warmup=0)
    point = measured(vllm, CHAT, load, tmp_path, topology="DP2")
    assert (point.status, point.reason, problems(point)) == ("finished", None, [])
    observed = point.evidence.observed
    assert (observed.features["affinity"], observed.gpus) == (affinity, 2)
    assert "repeats had 256 to 256 of 300 tokens cached" in observed.start["affinity"]
    rows = point.rows().to_pylist()
    assert {row["rank"] for row in rows} == ({None} if affinity == "router" else {0, 1})
    for row in rows:
        assert row["cached_tokens"] == row["ceiling_tokens"] // 128 * 128
