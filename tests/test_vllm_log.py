"""What is told of a server's end, out of its log."""

import pytest

from harness.vllm.log import LONGEST, telling


def told(tmp_path, *lines: str) -> str:
    log = tmp_path / "server.log"
    log.write_text("\n".join(lines) + "\n")
    return telling(log).replace(str(log), "LOG")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "out of memory"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "a CUDA error"),
        ("AssertionError: pynccl_comm is not None", "an assertion failed"),
        ("RuntimeError: a worker ended with -9 (SIGKILL)", "it was killed"),
        ("OSError: [Errno 98] Address already in use", "its port is taken"),
        ("vllm serve: error: unrecognized arguments: --x", "it does not know a flag"),
        ("EngineDeadError: EngineCore encountered an issue.", "its engine core died"),
    ],
)
def test_a_known_cause_is_named(line, cause, tmp_path):
    assert told(tmp_path, "all is well", line) == f"{cause}; its log LOG says: {line}"


def test_the_last_lines_of_an_error_are_told_without_their_prefix(tmp_path):
    words = told(
        tmp_path,
        "(APIServer pid=1) WARNING 11-30 06:00:00 [a.py:1] may cause OSError: too many files",
        "(EngineCore pid=7) ERROR 11-30 06:00:01 [core.py:2] ValueError: no such layer",
        "ValueError: no such layer",
        "goodbye",
    )
    assert words == "its log LOG says: ValueError: no such layer"


def test_without_an_error_the_end_is_told(tmp_path):
    assert (
        told(tmp_path, "one", "two", "", "three", "four") == "its log LOG says: two | three | four"
    )


def test_an_empty_log_and_a_long_line_are_bounded(tmp_path):
    assert told(tmp_path, "") == "its log LOG is empty"
    assert len(told(tmp_path, "x" * 10_000)) < LONGEST + 50
