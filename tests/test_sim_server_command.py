"""`paceline sim` as a process, and a whole point against it."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from harness.endpoint import Endpoint
from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.run import run
from harness.sim.server.serve import serving
from harness.topology import parse
from results.folder import create
from results.metrics import summarise
from results.run import read
from tests.gate_runs import paceline
from tests.sim_server import Quiet, call, client, hosted, request, send, site
from workloads.growing import Growing

PACELINE = Path(sys.executable).with_name("paceline")


@contextmanager
def paceline_sim(*arguments):
    """The process and its URL."""
    command = [PACELINE, "sim", "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            line = process.stdout.readline().decode()
            found = re.fullmatch(r"paceline sim \(SIMULATED\) on (http://127\.0\.0\.1:\d+)\n", line)
            assert found, line + process.stderr.read().decode()
            yield process, found[1]
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_with_its_log_complete(number, tmp_path):
    log = tmp_path / "truth.jsonl"

    async def work(url, process):
        async with client(url) as sender:
            done = await send(sender, request("done", output=3))
            first = asyncio.Event()
            cut = asyncio.create_task(
                send(sender, request("cut", output=9999), on_first=lambda _: first.set())
            )
            await first.wait()
            process.send_signal(number)
            return done, await cut

    arguments = ("--log", log, "--slowdown", "0.1")
    with paceline_sim(*arguments) as (process, url):
        done, cut = asyncio.run(work(url, process))
        assert process.wait(timeout=5) == 0
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    assert done.error is None
    assert "connection" in cut.error
    head, *lines = map(orjson.loads, log.read_bytes().splitlines())
    assert head["SIMULATED"]["engine"]["slowdown"] == 0.1
    assert [(line["id"], line["finish"]) for line in lines] == [
        ("done", "length"),
        ("cut", "stopped"),
    ]
    assert len(cut.stamps) <= sum(lines[1]["tokens"])


def test_what_it_cannot_do_is_one_sentence_and_exit_code_2(tmp_path):
    script = tmp_path / "faults.jsonl"
    script.write_text('{"fault": "explode"}\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        tries = {
            f"127.0.0.1:{port} is in use: choose another --port": ["--port", str(port)],
            f"{script}: line 1: fault: expected one of": ["--faults", str(script)],
            "--api-key-env NO_SUCH_KEY: the variable is not set": ["--api-key-env", "NO_SUCH_KEY"],
            "draft_tokens and acceptance_length belong together": ["--draft-tokens", "2"],
            "expected a topology such as TP4": ["--topology", "XP4"],
            "--topology: expected one engine such as": ["--topology", "TP1+TP1"],
        }
        for words, arguments in tries.items():
            ended = paceline("sim", *arguments)
            assert (ended.exit_code, ended.stdout) == (2, "")
            (line,) = ended.stderr.splitlines()
            assert line.startswith(f"Error: {words}")


def test_a_server_without_a_place_leaves_the_log_of_another_alone(tmp_path):
    log = tmp_path / "truth.jsonl"
    with paceline_sim("--log", log) as (_, url):
        before = log.read_bytes()
        port = url.rsplit(":", 1)[1]
        other = paceline("sim", "--port", port, "--log", log, "--seed", "9")
        assert other.exit_code == 2
        assert log.read_bytes() == before
        assert b'"seed":0' in before


def test_a_pace_is_tokens_a_second_and_the_key_is_read_from_its_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("SIM_KEY", "sk-secret")
    log = tmp_path / "truth.jsonl"

    async def work(url):
        headers = {"Authorization": "Bearer sk-secret"}
        body = b'{"prompt": "x", "max_tokens": 11, "stream": true}'
        without, _, _ = await call(url, "/v1/completions", body)
        return without, await call(url, "/v1/completions", body, headers)

    with paceline_sim("--pace", "100", "--log", log, "--api-key-env", "SIM_KEY") as (_, url):
        without, (status, _, _) = asyncio.run(work(url))
    assert (without, status) == (401, 200)
    line = orjson.loads(log.read_bytes().splitlines()[-1])
    assert line["writes"][10] - line["writes"][0] == pytest.approx(0.1, abs=0.02)
    assert "sk-secret" not in log.read_text()


def test_a_whole_point_runs_against_it_as_an_endpoint(tmp_path):
    made = site(tmp_path, topology="DEP2")
    with hosted(serving(made)) as url:
        endpoint = Endpoint(url=url, model="simulated", provenance="plumbing", gpus=2)
        point = Point(
            experiment="wall",
            deployment=Deployment(engine=endpoint, topology=parse("DEP2")),
            workload=Growing(turns=4, first=400, fresh=100, output=10, delay=0.0),
            load=Closed(concurrency=4, sessions=8),
        )
        plan = {"hash": "0" * 8, "points": [point.facts()]}
        with create(tmp_path, "test", "suite: test\n", plan, {"host": "here"}, 7) as folder:
            assert run([point], folder, Quiet()) == {"finished": 1}
    (finished,) = read(folder.path).points
    rows = {row["request_id"]: row for row in finished.rows().to_pylist()}
    lines = [orjson.loads(line) for line in made.log.read_bytes().splitlines()[1:]]
    log = {line["id"]: line for line in lines if line["id"] in rows}
    assert log.keys() == rows.keys()
    assert {row["state"] for row in rows.values()} == {"ok"}
    for name, row in rows.items():
        line = log[name]
        assert row["input_tokens"] == row["asked_input"] == line["prompt"]
        assert row["output_tokens"] == row["asked_output"] == line["output"]
        assert (row["cached_tokens"], row["rank"]) == (line["cached"], line["rank"])
        assert row["cached_tokens"] <= row["ceiling_tokens"]
    assert sum(row["cached_tokens"] for row in rows.values()) > 0
    assert summarise(finished).figures["ok"].value == 32
