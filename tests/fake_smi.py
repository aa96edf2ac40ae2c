"""Acts as nvidia-smi: two GPUs, one of them in use while a file is there.

The file named by FAKE_GPU_LOCK stands for a server's memory. FAKE_SMI_OLD does not know the newest
field.
"""

# ruff: noqa: T201 - it is a command
import fcntl
import os
import sys
import time
from pathlib import Path

ROW = {
    "clocks.sm": "1980",
    "clocks.mem": "2619",
    "power.draw": "350.50",
    "temperature.gpu": "41",
    "clocks_event_reasons.active": "0x0000000000000004",
    "clocks_throttle_reasons.active": "0x0000000000000004",
}


def taken() -> bool:
    lock = Path(os.environ.get("FAKE_GPU_LOCK", "/nowhere"))
    if not lock.exists():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def value(name: str, index: int) -> str:
    if name == "index":
        return str(index)
    if name == "memory.used":
        return "90000" if taken() and index == 1 else "4"
    return ROW[name] if index == 1 else "[N/A]"


def main() -> None:
    query = next(word for word in sys.argv if word.startswith("--query-gpu="))
    names = query.partition("=")[2].split(",")
    old = "FAKE_SMI_OLD" in os.environ
    if any(name not in {"index", "memory.used", *ROW} for name in names) or (
        old and "clocks_event_reasons.active" in names
    ):
        print("is not a valid field to query")
        sys.exit(2)
    chosen = sys.argv[sys.argv.index("-i") + 1].split(",") if "-i" in sys.argv else ["0", "1"]
    while True:
        for index in map(int, chosen):
            print(", ".join(value(name, index) for name in names), flush=True)
        if "-lms" not in sys.argv:
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
