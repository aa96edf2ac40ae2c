"""What is told of a replay: lengths beside those of whole traces, and how near the cache came."""

from typing import Any

import pyarrow as pa
import pytest

from results.columns import columns, number
from results.delivery import Reach, block_size, covered, reach, realised, touched
from results.record import RequestRecord
from results.samples import Sample
from results.samples import batch as sampled
from tests.test_results_record import cell, evidence, failed, made, table

BLOCK = 128


def reached(*rows: RequestRecord) -> Reach | None:
    told = table(*rows)
    return reach(columns(told), number(told, "asked_input"), BLOCK)


def test_the_window_is_told_in_quantiles_of_what_the_server_counts() -> None:
    rows = table(
        *(made([0.5], input_tokens=size, tree=size // 300) for size in (100, 200, 300)),
        made([0.5], input_tokens=9, phase="primer"),
        failed(asked_input=9, sent=None, state="cut", trace="never sent"),
    )
    found = realised(rows)
    assert found["input"]["p50"] == 200
    assert found["turns"]["p50"] == 1.5
    assert touched(rows) == 1


def test_lengths_that_no_server_counted_are_those_asked_for() -> None:
    found = realised(table(failed(asked_input=70, asked_output=30)))
    assert (found["input"]["p50"], found["output"]["p50"]) == (70, 30)


def test_nothing_sent_has_no_quantiles() -> None:
    found = realised(table(made([0.5], phase="primer")))
    assert set(found["input"].values()) == {None}


def test_the_window_is_covered_as_far_as_tokens_came() -> None:
    told = evidence(opened=10.0, closed=110.0)
    rows = columns(table(made([20.0, 60.0]), made([90.0])))
    assert covered(rows, told) == {"first token": 0.8, "ITL": 0.5}
    assert covered(columns(table(failed())), told) == {"first token": None, "ITL": None}


@pytest.mark.parametrize(
    ("cached", "apart"), [(384, 0.0), (256, 1.0), (0, 3.0), (512, 1.0), (320, 0.5)]
)
def test_a_cache_is_as_far_from_its_ceiling_as_whole_blocks_say(cached: int, apart: float) -> None:
    found = reached(made([0.5], cached_tokens=cached, ceiling_tokens=500))
    assert found == Reach(block=BLOCK, n=1, mean=apart, most=apart, below=int(cached <= 256))


def test_the_last_token_is_never_found_in_a_cache() -> None:
    whole = made([0.5], input_tokens=512, asked_input=512, cached_tokens=384, ceiling_tokens=512)
    found = reached(whole)
    assert found.most == 0


def test_tokens_of_a_chat_template_may_be_before_or_after_the_prefix() -> None:
    row: dict[str, Any] = {"asked_input": 1000, "input_tokens": 1040, "ceiling_tokens": 500}
    for cached in (384, 512):
        found = reached(made([0.5], cached_tokens=cached, **row))
        assert found.most == 0
    beyond = reached(made([0.5], cached_tokens=640, **row))
    first = reached(made([0.5], cached_tokens=128, **{**row, "ceiling_tokens": 0}))
    assert (beyond.most, first.most) == (1.0, 1.0)


def test_requests_that_tell_no_cached_tokens_have_no_reach() -> None:
    assert reached(made([0.5], cached_tokens=None), failed()) is None
    told = reached(made([0.5], cached_tokens=None), made([0.5], cached_tokens=0))
    assert told.n == 1


def test_the_block_is_the_one_that_was_set_or_that_the_server_tells() -> None:
    labels = '{"engine":"0","block_size":"128","num_gpu_blocks":"7"}'
    of_server = Sample(
        moment=0.0, source="s", name="vllm:cache_config_info", labels=labels, value=1.0
    )
    samples = pa.Table.from_batches([sampled([of_server])])
    assert block_size(cell(), samples) == 128
    assert block_size(cell(deployment={"engine": {"block_size": 64}}), samples) == 64
    assert block_size(cell(), None) is None
    assert block_size(cell(), samples.slice(0, 0)) is None
