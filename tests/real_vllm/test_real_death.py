"""A real engine core killed while it answers."""

import os
import signal
import threading
from pathlib import Path

import pytest

from harness import processes
from harness.load import Closed
from tests.real_vllm.serving import Silent, engine, measured
from workloads.growing import Growing

pytestmark = pytest.mark.real_vllm


def test_an_engine_core_that_dies_in_mid_stream_fails_its_requests_and_the_point(tmp_path):
    shared = set(Path("/dev/shm").glob("psm_*"))
    rows = []

    def kill():
        (core,) = [p for p in processes.leftovers(tmp_path) if p.name.startswith("VLLM::Eng")]
        os.kill(core.pid, signal.SIGKILL)

    def count(record):
        rows.append(record)
        if len(rows) == 4:
            # The next answers take a second or more.
            threading.Timer(0.5, kill).start()

    chat = Growing(turns=20, first=256, fresh=64, output=256)
    load = Closed(concurrency=4, duration=60, warmup=0)
    point = measured(engine(chunk_usage=True), chat, load, tmp_path, watch=Silent(count))
    assert point.status == "failed"
    assert "its engine core died" in point.reason
    broken = [row for row in point.rows().to_pylist() if row["state"] == "failed"]
    in_stream = [row for row in broken if row["status"] == 200 and row["first"] is not None]
    assert in_stream, [(row["status"], row["reason"]) for row in broken]
    assert any("server sent an error" in row["reason"] for row in in_stream)
    assert all(row["reason"] for row in broken)
    assert processes.leftovers(tmp_path) == []
    assert set(Path("/dev/shm").glob("psm_*")) <= shared
