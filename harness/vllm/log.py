"""What a server's log says of its end."""

import re
from pathlib import Path

LINES, LONGEST, TAIL = 3, 300, 1 << 18

_CAUSES = (
    ("out of memory", r"out of memory|OutOfMemory|Cannot allocate memory|No available memory"),
    ("its port is taken", r"Address already in use|EADDRINUSE"),
    ("it does not know a flag", r"unrecognized arguments|invalid choice|expected one argument"),
    ("it cannot load the model", r"not supported for now|Invalid repository|No such file|HFValid"),
    ("its engine core died", r"EngineDeadError|EngineCore encountered|Engine core .*(failed|died)"),
)
_TELLING = re.compile(r"[A-Z]\w*(Error|Exception)\b|\berror:|\bFATAL\b|\bKilled\b|out of memory")
_HARMLESS = re.compile(r"^(\([^)]*\) )?(DEBUG|INFO|WARNING)\b")
_PREFIX = re.compile(r"^(\([^)]*\) )?([A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d )?(\[[^\]]*\] )?")


def telling(log: Path) -> str:
    """The cause, where the log shows a known one, and the last lines that speak of an error.

    The last lines of all where none does.
    """
    lines = _lines(log)
    errors = [line for line in lines if _TELLING.search(line) and not _HARMLESS.match(line)]
    bare = [_PREFIX.sub("", line)[:LONGEST] for line in errors or lines]
    chosen = list(dict.fromkeys(bare))[-LINES:]
    if not chosen:
        return f"its log {log} is empty"
    text = "\n".join(errors)
    cause = next((f"{name}; " for name, pattern in _CAUSES if re.search(pattern, text)), "")
    return f"{cause}its log {log} says: {' | '.join(chosen)}"


def _lines(log: Path) -> list[str]:
    """The last lines of the log that are not blank."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
