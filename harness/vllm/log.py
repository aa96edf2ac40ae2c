"""What a server's log says, and what it says of its end."""

import re
from collections.abc import Iterator
from pathlib import Path

LINES, LONGEST, TAIL = 3, 300, 1 << 18

_CAUSES = (
    ("out of memory", r"out of memory|OutOfMemory|Cannot allocate memory|No available memory"),
    ("a CUDA error", r"CUDA error|CUDA_ERROR_\w+|cudaError|AcceleratorError|CUBLAS_|NCCL error"),
    ("an assertion failed", r"AssertionError|Assertion .* failed"),
    ("its port is taken", r"Address already in use|EADDRINUSE"),
    ("it does not know a flag", r"unrecognized arguments|invalid choice|expected one argument"),
    ("it cannot load the model", r"not supported for now|Invalid repository|No such file|HFValid"),
    ("it was killed", r"\bKilled\b|SIGKILL|signal 9\b|ended with -9\b|code -9\b"),
    ("its engine core died", r"EngineDeadError|EngineCore encountered|Engine core .*(failed|died)"),
)
_TELLING = re.compile(
    r"[A-Z]\w*(Error|Exception)\b|\berror:|\bFATAL\b|\bKilled\b|out of memory|CUDA error|SIGKILL"
)
_HARMLESS = re.compile(r"^(\([^)]*\) )?(DEBUG|INFO|WARNING)\b")
_PREFIX = re.compile(r"^(\([^)]*\) )?([A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d )?(\[[^\]]*\] )?")


def telling(log: Path) -> str:
    """The cause, where the log shows a known one, and the last lines that speak of an error.

    The last lines of all where none does.
    """
    lines = _lines(log)
    errors = [line for line in lines if _TELLING.search(line) and not _HARMLESS.match(line)]
    chosen = list(dict.fromkeys(map(bare, errors or lines)))[-LINES:]
    if not chosen:
        return f"its log {log} is empty"
    text = "\n".join(errors)
    cause = next((f"{name}; " for name, pattern in _CAUSES if re.search(pattern, text)), "")
    return f"{cause}its log {log} says: {' | '.join(chosen)}"


def bare(line: str) -> str:
    """A line without the process, the moment and the place that wrote it, up to a length."""
    return _PREFIX.sub("", line.strip())[:LONGEST]


def read(log: Path) -> Iterator[str]:
    """All lines of the log; none where there is no log."""
    try:
        with log.open(errors="replace") as file:
            yield from file
    except OSError:
        return


def _lines(log: Path) -> list[str]:
    """The last lines of the log that are not blank."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
