"""What too many agents do to a small cache."""

import pytest

from harness.load import Closed
from tests.real_vllm.serving import (
    HITS,
    asked,
    engine,
    hit_share,
    measured,
    problems,
    rise,
    serving,
)
from workloads.growing import Growing

pytestmark = pytest.mark.real_vllm

PREEMPTIONS = "vllm:num_preemptions_total"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """160 blocks of 128 tokens."""
    flags = ("--num-gpu-blocks-override", "160", "--max-num-batched-tokens", "1024")
    with serving(tmp_path_factory.mktemp("small"), engine(*flags)) as url:
        yield asked(url)


def agents(running, folder, number, output, turns=5):
    load = Closed(concurrency=number, sessions=number, warmup=0)
    chat = Growing(turns=turns, first=1500, fresh=500, output=output)
    point = measured(running, chat, load, folder)
    assert problems(point) == []
    return point


def test_the_cache_collapses_and_every_count_still_agrees(running, tmp_path):
    few = agents(running, tmp_path / "few", 4, 32)
    many = agents(running, tmp_path / "many", 12, 32)
    assert hit_share(few) > 0.5
    assert hit_share(many) < 0.25
    for point in (few, many):
        cached = sum(row["cached_tokens"] for row in point.rows().to_pylist())
        assert rise(point, HITS) == cached


def test_preemptions_are_seen(running, tmp_path):
    long = agents(running, tmp_path, 10, 512, turns=2)
    assert rise(long, PREEMPTIONS) > 0
