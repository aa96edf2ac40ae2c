"""What lanes of a replay find in a real vLLM's cache, beside what they could find."""

import pytest

from harness.load import Closed
from results.delivery import delivery
from tests.real_vllm.serving import asked, engine, measured, problems, serving
from workloads.agentx import AgentX

pytestmark = pytest.mark.real_vllm

LANES = AgentX(profile="ci-synth", generated=12, context_limit=8192)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("lanes"), engine()) as url:
        yield asked(url, vocabulary=100_000)


def test_every_turn_finds_its_ceiling_to_within_a_block(running, tmp_path):
    load = Closed(concurrency=4, duration=40.0, grace=30.0, warmup=0)
    point = measured(running, LANES, load, tmp_path)
    assert problems(point) == []
    rows = [row for row in point.rows().to_pylist() if row["phase"] == "window"]
    assert any(row["depth"] for row in rows), "no sub-agent was sent"
    assert sum(row["ceiling_tokens"] > 0 for row in rows) > len(rows) / 2
    reach = delivery(point).reach
    assert (reach.block, reach.n > 15) == (128, True)
    assert reach.most <= 1, f"{reach.n} turns are {reach.mean} blocks off on average: {reach}"
