"""Stats lines of DeepInfer's log, in the wording of the published logger."""

import pytest

from harness.deepinfer.stats import exposition, latest, pairs

LINE = (
    "INFO 11-30 10:00:00 RANK {rank}, GPU 0, step 100, [stats] (is_prompt False | cur_SPS 9.500 | "
    "avg_nextn_accept_rate 61.50% | nextn_accept_rate [80.00%, 43.00%] | moe_lb {load} | "
    "num_batched_tokens 12[0.15%] | prefill/decode 10.00%/90.00% | "
    "prefill_caching_rate (GPU 0.00%) | TTFT (max 20.0 ms, mean 10.0 ms) | "
    "avg_length (input 512.0, output 8.0) | avg_confidence_error -0.0100 | MFU 0.250)"
)


def test_plain_numbers_are_read_and_shares_are_below_1():
    assert pairs(LINE.format(rank=0, load="1.2500").partition("(")[2]) == pytest.approx(
        {
            "cur_SPS": 9.5,
            "avg_nextn_accept_rate": 0.615,
            "moe_lb": 1.25,
            "num_batched_tokens": 12,
            "prefill/decode": 0.1,
            "avg_confidence_error": -0.01,
            "MFU": 0.25,
            "balancedness": 0.8,
        }
    )


def test_names_that_are_new_or_missing_are_no_fault():
    assert pairs("novel 3 | moe_lb 0.0000 | empty") == {"novel": 3.0, "moe_lb": 0.0}


def test_the_last_line_of_each_rank_counts(tmp_path):
    log = tmp_path / "server.log"
    texts = [LINE.format(rank=rank, load=load) for rank, load in ((0, "4.0"), (1, "1.0"), (0, "2"))]
    log.write_text("\n".join(["loading", *texts, "RANK 0, GPU 0, step 100, [cpu] (a 1)"]))
    assert {rank: values["moe_lb"] for rank, values in latest(log).items()} == {0: 2.0, 1: 1.0}
    assert 'deepinfer:balancedness{rank="0"} 0.5' in exposition(log)
    assert 'deepinfer:prefill_decode{rank="1"} 0.1' in exposition(log)


def test_a_log_without_stats_tells_nothing(tmp_path):
    assert exposition(tmp_path / "none.log") == []
