"""Sessions and ranks on a real vLLM of two data-parallel ranks."""

import pytest

from harness.load import Closed
from tests.real_vllm.serving import (
    HITS,
    asked,
    engine,
    measured,
    problems,
    replies,
    rise,
    rises_of_ranks,
    serving,
)
from workloads.growing import Growing

pytestmark = pytest.mark.real_vllm

TOPOLOGY = "DP2"
CHAT = Growing(turns=4, first=1000, fresh=200, output=16)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    vllm = engine(environment={"VLLM_CPU_OMP_THREADS_BIND": "0|1"})
    with serving(tmp_path_factory.mktemp("two"), vllm, TOPOLOGY) as url:
        yield asked(url)


def test_pinned_sessions_hit_on_their_rank(running, tmp_path):
    load = Closed(concurrency=2, sessions=2)
    point = measured(running, CHAT, load, tmp_path, topology=TOPOLOGY)
    rows = [row for row in point.rows().to_pylist() if row["phase"] == "window"]
    assert problems(point) == []
    assert {row["rank"] for row in rows} == {0, 1}
    for row in rows:
        assert row["cached_tokens"] == row["ceiling_tokens"] // 128 * 128
    hits = dict.fromkeys((0, 1), 0)
    for row in rows:
        hits[row["rank"]] += row["cached_tokens"]
    assert rises_of_ranks(point, HITS) == {str(rank): found for rank, found in hits.items()}
    assert rise(point, HITS) > 0


def test_an_unpinned_session_misses_once_a_rank(running):
    prompt = (77, 1500)
    unpinned = [reply.cached_tokens for reply in replies(running.url, prompt, prompt, prompt)]
    assert unpinned == [0, 0, 1408]
    prompt = (78, 1500)
    pinned = replies(running.url, prompt, prompt, prompt, rank=1)
    assert [reply.cached_tokens for reply in pinned] == [0, 1408, 1408]


def test_a_rank_that_is_not_there_is_a_failure(running):
    (reply,) = replies(running.url, (79, 200), rank=2)
    assert "out of range" in reply.error
