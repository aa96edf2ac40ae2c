"""Counts, caches and salts on a real vLLM of one rank."""

import pytest

from harness.load import Closed
from tests.real_vllm.serving import (
    HITS,
    asked,
    engine,
    hit_share,
    measured,
    problems,
    replies,
    rise,
    serving,
)
from workloads.growing import Growing

pytestmark = pytest.mark.real_vllm

BLOCK = 128


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("one"), engine()) as url:
        yield asked(url)


GROWING = Growing(turns=5, first=1000, fresh=300, output=64)


@pytest.fixture(scope="module")
def grown(running, tmp_path_factory):
    """Two chats of five turns."""
    load = Closed(concurrency=2, sessions=2)
    return measured(running, GROWING, load, tmp_path_factory.mktemp("grown"))


def test_counts_are_exact(grown):
    rows = grown.rows().to_pylist()
    assert grown.status == "finished"
    assert problems(grown) == []
    assert [row["input_tokens"] for row in rows] == [row["asked_input"] for row in rows]
    assert [row["output_tokens"] for row in rows] == [row["asked_output"] for row in rows]
    assert [sum(row["piece_tokens"]) for row in rows] == [row["asked_output"] for row in rows]
    assert rise(grown, "vllm:prompt_tokens_total") == sum(row["input_tokens"] for row in rows)
    assert rise(grown, "vllm:generation_tokens_total") == sum(r["output_tokens"] for r in rows)


def test_cached_tokens_are_those_the_server_counts(grown):
    rows = [row for row in grown.rows().to_pylist() if row["phase"] == "window"]
    assert rise(grown, HITS) == sum(row["cached_tokens"] for row in rows) > 0
    for row in rows:
        assert row["cached_tokens"] == row["ceiling_tokens"] // BLOCK * BLOCK


def test_a_runs_salt_keeps_it_from_what_an_earlier_run_left(running, tmp_path):
    load = Closed(concurrency=1, sessions=1)
    chat = Growing(turns=2, first=1500, fresh=100, output=8)
    again = [
        measured(running, chat, load, tmp_path / str(n), salt=salt)
        for n, salt in enumerate((21, 21, 22))
    ]
    first, repeated, salted = (point.rows().to_pylist()[2:] for point in again)
    assert first[0]["cached_tokens"] == salted[0]["cached_tokens"] == 0
    assert repeated[0]["cached_tokens"] > 1000
    assert [words for words in problems(again[1]) if "an earlier run" in words]
    assert hit_share(again[2]) == hit_share(again[0])


def test_a_cache_salt_isolates(running):
    prompt = (91, 1000)
    mine = replies(running.url, prompt, prompt, body={"cache_salt": "mine"})
    other = replies(running.url, prompt, body={"cache_salt": "other"})
    assert [reply.cached_tokens for reply in [*mine, *other]] == [0, 896, 0]
