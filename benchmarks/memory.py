"""One million pieces recorded in at most 400 MB, and `paceline --help` in at most 0.3 s.

Records 1,000 requests of 1,000 pieces through the run folder's own writer and finishes the point,
in a process of its own whose peak memory the operating system tells. Prints the figures last, and
exits 0 only when both are reached.
"""

import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from results.evidence import Evidence, Observed
from results.folder import create
from results.record import RequestRecord

REQUESTS, PIECES = 1_000, 1_000
LIMIT_MB, LIMIT_SECONDS, TRIES = 400, 0.3, 7


def record(folder: str) -> None:
    facts = {"id": "00000000", "name": "memory"}
    with create(Path(folder), "memory", "", {"hash": "0" * 8, "points": [facts]}, {}, 1) as run:
        writer = run.open_point(facts)
        for number in range(REQUESTS):
            offsets = np.arange(1, PIECES + 1, dtype=np.int64) * 20_000 + number
            writer.add(
                RequestRecord(
                    run=run.run_id,
                    point="00000000",
                    arm="memory",
                    repeat=0,
                    position=0,
                    trace=f"t{number}",
                    tree=number,
                    lane=0,
                    stream="main",
                    turn=0,
                    depth=0,
                    phase="window",
                    planned=0.0,
                    ready=0.0,
                    sent=0.0,
                    first=float(offsets[0]) / 1e6,
                    first_answer=float(offsets[0]) / 1e6,
                    last=float(offsets[-1]) / 1e6,
                    closed=float(offsets[-1]) / 1e6,
                    state="ok",
                    reason=None,
                    status=200,
                    finish_reason="length",
                    asked_input=1,
                    asked_output=PIECES,
                    input_tokens=1,
                    output_tokens=PIECES,
                    cached_tokens=0,
                    ceiling_tokens=0,
                    prompt_hash="0" * 16,
                    rank=0,
                    request_id=f"r{number}",
                    client_lag=0.0,
                    server_queue=None,
                    server_ttft=None,
                    draft_tokens=None,
                    accepted_tokens=None,
                    piece_offsets=offsets,
                    piece_tokens=np.ones(PIECES, dtype=np.int32),
                )
            )
        observed = Observed(provenance="simulated", gpus=1)
        evidence = Evidence(observed=observed, clock="virtual", opened=0.0, closed=30.0)
        writer.finish("finished", None, evidence, None)
    print(peak() // 2**20)


def peak() -> int:
    """The most memory that this process has held, in bytes.

    Not that of getrusage on Linux, which a child begins with its parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())
        return int(line) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        child = [sys.executable, __file__, folder]
        most = int(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
    command = [Path(sys.executable).with_name("paceline"), "--help"]
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    median = sorted(times)[TRIES // 2]
    print(
        f"{REQUESTS * PIECES:,} pieces: peak {most} MB (limit {LIMIT_MB}); "
        f"paceline --help: median {median:.3f} s of {TRIES} (limit {LIMIT_SECONDS})"
    )
    return 0 if most <= LIMIT_MB and median <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    if len(sys.argv) == 2:
        record(sys.argv[1])
    else:
        sys.exit(main())
