"""What a vLLM is seen to be, out of its log, its configuration and what was asked for."""

from typing import Any

import pytest

from harness.engine import Deployment
from harness.topology import parse
from harness.vllm import evidence
from harness.vllm.effective import effective
from harness.vllm.engine import Vllm

CORE = "(EngineCore pid=7) INFO 11-29 06:00:00 [model.py:831] "
V41 = CORE + "Using DeepSeek's fp8_ds_mla KV cache format."
SIZE = CORE + "GPU KV cache size: 19,565,594 tokens, Maximum concurrency for 131,072 tokens"
DECODER = (
    CORE + "Decoder SWA bounded replay: in eager prefill steps, layer 20 writes its KV for every "
    "token, and the rest of it and layers 21-39 run on each request's last 128 tokens only."
)
GRAPHS = CORE + "Capturing decoder replay CUDA graphs (PIECEWISE): 100%|####| 4/4"
OFF = (
    "(EngineCore pid=7) WARNING 11-29 06:00:00 [model.py:1320] "
    "Decoder SWA bounded replay is off: an Engram layer sits at or after the last KV source layer."
)
RUNNER = CORE + "SWA bounded replay needs model runner V2 (only it skips the paged-KV writes"
ALLOWED = {"cache_config": {"swa_bounded_replay": True}}
FORBIDDEN = {"cache_config": {"swa_bounded_replay": False}}


def found(*lines: str) -> evidence.Told:
    return evidence.told(lines)


def asked(*flags: str, **settings: Any) -> dict[str, Any]:
    deployment = Deployment(engine=Vllm(model="m"), topology=parse("TP1"), **settings)
    return evidence.requested(deployment, ("python", "vllm", "serve", "m", *flags))


@pytest.mark.parametrize(
    ("lines", "config", "arm"),
    [
        ([V41, DECODER, GRAPHS, SIZE], ALLOWED, "on"),
        ([V41, DECODER, SIZE], ALLOWED, "on-eager"),
        ([V41, SIZE], FORBIDDEN, "off"),
        ([V41, SIZE], ALLOWED, "encoder only"),
        ([V41, OFF, SIZE], ALLOWED, "encoder only"),
        ([V41, RUNNER, DECODER, GRAPHS, SIZE], ALLOWED, "decoder only"),
        ([V41, DECODER, GRAPHS, SIZE], FORBIDDEN, "decoder only"),
        # Another model ignores the flag, which is set by default.
        ([SIZE], ALLOWED, "off"),
        # One rank that does not replay is one too many.
        ([V41, DECODER, OFF, GRAPHS, SIZE], ALLOWED, "encoder only"),
        # A log without its start shows nothing.
        ([V41], ALLOWED, None),
    ],
)
def test_the_log_says_which_replay_arm_runs(lines, config, arm):
    assert evidence.replay_of(found(*lines), config) == arm


@pytest.mark.parametrize(
    ("lines", "arm", "proof"),
    [
        ([V41, OFF, SIZE], "on", 'says "Decoder SWA bounded replay is off: an Engram layer sits'),
        ([V41, SIZE], "on", 'has no line "Decoder SWA bounded replay: in eager prefill steps, lay'),
        ([V41, DECODER, SIZE], "on", 'has no line "Capturing decoder replay CUDA graphs"'),
        ([V41, DECODER, GRAPHS, SIZE], "on-eager", 'says "Capturing decoder replay CUDA graphs (P'),
        ([V41, DECODER, SIZE], "off", 'says "Decoder SWA bounded replay: in eager prefill steps,'),
    ],
)
def test_a_mismatch_comes_with_the_line_that_proves_it(lines, arm, proof):
    wanted = asked(replay=arm)
    seen = evidence.observed(found(*lines), ALLOWED, wanted)
    proofs = evidence.proofs(found(*lines), wanted, seen, "server.log")
    assert proofs["replay"].startswith(f"server.log {proof}")


def test_what_is_as_it_was_asked_needs_no_proof():
    wanted = asked(replay="on")
    told = found(V41, DECODER, GRAPHS, SIZE)
    seen = evidence.observed(told, ALLOWED, wanted)
    assert evidence.proofs(told, wanted, seen, "server.log") == {}


def test_flags_ask_for_what_can_be_looked_for():
    wanted = asked(
        *("--max-num-seqs", "64", "--max_num_batched_tokens=8192", "--enable-expert-parallel"),
        *("--attention-backend", "FLASHMLA_SPARSE_DSV41", "--kv-cache-dtype", "fp8"),
        *("--attention-config", '{"indexer_sparse_logits": true}', "--enable-eplb"),
        *("--speculative-config", '{"method": "dspark"}', "--max-model-len", "128K"),
        *("--additional-config", '{"decode_backend": "latency_specialized"}'),
        replay="off",
    )
    assert wanted == {
        "replay": "off",
        "max_sequences": 64,
        "max_batched_tokens": 8192,
        "attention": "flashmla_sparse_dsv41",
        "expert_parallel": True,
        "eplb": True,
        "sparse_logits": True,
        "speculative": "dspark",
        "specialized_decode": True,
    }


def test_the_last_of_two_flags_counts_and_a_negation_takes_it_back():
    flags = ("--max-num-seqs", "8", "--max-num-seqs", "16", "--enable-eplb", "--no-enable-eplb")
    assert asked(*flags) == {"max_sequences": 16}


def test_a_kernel_that_chose_itself_is_told_and_one_that_was_asked_for_must_be_it():
    lines = (
        CORE + "Setting kv cache block size to 64 for FLASHMLA_SPARSE_DSV41/DEEPSEEK_SPARSE_SWA "
        "backend(s).",
        V41,
        SIZE,
    )
    seen = evidence.observed(found(*lines), {}, {})
    assert (seen["attention"], seen["kv_format"]) == ("flashmla_sparse_dsv41", "fp8_ds_mla")
    wanted = asked("--attention-backend", "FLASHINFER_MLA_SPARSE_DSV41")
    seen = evidence.observed(found(*lines), {}, wanted)
    proofs = evidence.proofs(found(*lines), wanted, seen, "server.log")
    assert proofs["attention"].startswith('server.log says "Setting kv cache block size to 64 for')


def test_a_request_in_the_log_is_no_evidence():
    line = "(APIServer pid=1) INFO non-default args: {'attention_backend': 'FLASHMLA_SPARSE_DSV41'}"
    assert evidence.observed(found(line, SIZE), {}, {}) == {}


def test_absence_counts_where_the_log_shows_a_whole_start():
    wanted = asked("--enable-expert-parallel")
    seen = evidence.observed(found(SIZE), {}, wanted)
    assert seen["expert_parallel"] is False
    assert evidence.proofs(found(SIZE), wanted, seen, "server.log") == {
        "expert_parallel": 'server.log has no line "Expert parallelism is enabled"'
    }
    assert "expert_parallel" not in evidence.observed(found(V41), {}, wanted)


def test_a_setting_that_the_server_changed_is_seen():
    config = {"scheduler_config": {"max_num_seqs": 32}}
    wanted = asked("--max-num-seqs", "64")
    seen = evidence.observed(found(SIZE), config, wanted)
    assert seen["max_sequences"] == 32
    proofs = evidence.proofs(found(SIZE), wanted, seen, "server.log")
    assert proofs == {"max_sequences": "/server_info says so"}


def test_gpus_without_a_way_to_add_up_are_no_topology():
    idle = CORE + "Using [] all-reduce backends (in dispatch order) for group 'tp:0' out of"
    busy = CORE + "Using ['PYNCCL'] all-reduce backends (in dispatch order) for group 'tp:0'"
    (fault,) = evidence.faults(found(busy, idle), 2, None, "server.log")
    assert "its 2 GPUs do not work together" in fault
    assert 'server.log says "Using [] all-reduce backends' in fault
    assert evidence.faults(found(busy), 2, None, "server.log") == []
    assert evidence.faults(found(idle), 1, None, "server.log") == []


def test_gpus_are_counted_by_the_memory_that_was_taken():
    assert evidence.faults(found(SIZE), 2, ("0",), "server.log") == [
        "GPUs: it took memory of 1 (0), asked for 2"
    ]
    assert evidence.faults(found(SIZE), 1, ("3",), "server.log") == []


def test_every_ranks_cache_is_told():
    again = SIZE.replace("19,565,594", "1,000")
    assert evidence.remarks(found(SIZE, again))["kv_tokens"] == [19_565_594, 1000]


def test_settings_are_told_by_their_paths_and_those_of_one_start_are_not():
    told = {
        "vllm_config": {
            "instance_id": "7",
            "cache_config": {"block_size": 64, "num_cpu_blocks": None},
            "parallel_config": {"data_parallel_master_port": 9, "data_parallel_size": 2},
        },
        "vllm_env": {"VLLM_USE_X": True, "VLLM_LONG": "x" * 301},
    }
    assert effective(told) == {
        "cache_config.block_size": 64,
        "parallel_config.data_parallel_size": 2,
        "env.VLLM_USE_X": True,
    }


def test_answers_that_are_forced_are_asked_for_and_looked_for():
    wanted = asked("--enable-trace-replay", "--enable-scale-out")
    assert wanted == {"forced_outputs": True}
    config = {"model_config": {"enable_trace_replay": False}}
    assert evidence.observed(found(SIZE), config, wanted)["forced_outputs"] is False


@pytest.mark.parametrize(
    ("flags", "told", "seen"),
    [
        (["--enforce-eager"], 0, "NONE"),
        (["-cc", '{"cudagraph_mode": "FULL"}'], 2, "FULL"),
        (["-cc", '{"cudagraph_mode": "FULL_DECODE_ONLY"}'], [2, 0], "FULL_DECODE_ONLY"),
        (["-cc", '{"cudagraph_mode": "FULL_AND_PIECEWISE"}'], [2, 1], "FULL_AND_PIECEWISE"),
        (["-cc", '{"cudagraph_mode": "FULL"}'], 0, "NONE"),
        (["-cc", '{"cudagraph_mode": "FULL"}'], {}, None),
    ],
)
def test_graphs_that_are_asked_for_are_looked_for(flags, told, seen):
    config = {"compilation_config": {"cudagraph_mode": told}}
    assert evidence.observed(found(), config, asked(*flags)).get("graphs") == seen


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        (
            "CUDAGraphMode.FULL is not supported with X backend (support: 1); setting "
            "cudagraph_mode=NONE because attention is not compiled piecewise",
            "NONE",
        ),
        (
            "Cudagraph mode CUDAGraphMode.FULL_AND_PIECEWISE requires piecewise capture, but the "
            "loaded model provides neither. Overriding to CUDAGraphMode.FULL_DECODE_ONLY.",
            "FULL_DECODE_ONLY",
        ),
    ],
)
def test_graphs_that_the_engine_core_took_back_are_told_by_its_log(line, mode):
    wanted = asked("-cc", '{"cudagraph_mode": "FULL_AND_PIECEWISE"}')
    told = found(CORE + line)
    config = {"compilation_config": {"cudagraph_mode": [2, 1]}}
    seen = evidence.observed(told, config, wanted)
    assert seen["graphs"] == mode
    assert evidence.proofs(told, wanted, seen, "server.log")["graphs"].endswith(f'{line}"')


@pytest.mark.parametrize(
    ("flags", "size"),
    [
        (["--enforce-eager"], 0),
        (["-cc", '{"cudagraph_mode": "NONE"}'], 0),
        (["--max-num-batched-tokens", "64"], 64),
        (["--max-num-batched-tokens", "8192"], 512),
        ([], 512),
    ],
)
def test_no_graph_is_asked_for_that_there_cannot_be(flags, size):
    assert asked("--max-cudagraph-capture-size", "512", *flags)["capture_size"] == size


def test_a_prefix_cache_that_turned_itself_off_is_seen():
    off, on = ({"cache_config": {"enable_prefix_caching": told}} for told in (False, True))
    wanted = asked("--enable-prefix-caching")
    assert evidence.observed(found(), off, wanted)["prefix_caching"] != wanted["prefix_caching"]
    wanted = asked("--enable-prefix-caching", "--no-enable-prefix-caching")
    assert evidence.observed(found(), on, wanted)["prefix_caching"] != wanted["prefix_caching"]
