"""Reads `vllm serve` lines on stdin as vLLM itself does; run by an environment that has it."""

# ruff: noqa: T201 - it is a command
import shlex
import sys

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ModuleNotFoundError:  # as in 0.32
    from vllm.entrypoints.launchers.cli_args import make_arg_parser

parser = make_arg_parser(FlexibleArgumentParser())
for line in filter(None, map(str.strip, sys.stdin)):
    words = shlex.split(line)
    made = AsyncEngineArgs.from_cli_args(parser.parse_args(words[words.index("serve") + 1 :]))
    print(made.tensor_parallel_size * made.pipeline_parallel_size * made.data_parallel_size)
