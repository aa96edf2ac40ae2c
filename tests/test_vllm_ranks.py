"""Sessions kept at data-parallel ranks, by every way, and shown to be; servers that are several."""

import json
import re
import socket
import sys
from pathlib import Path

import pytest

from harness import processes
from harness.engine import Deployment
from harness.load import Closed
from harness.point import Point
from harness.topology import parse
from harness.vllm.engine import Vllm
from results.metrics import summarise
from results.run import RunPoint
from tests.test_vllm_engine import deployment, engine, faults, ran, short
from workloads.growing import Growing

ROUTER = (
    f"{sys.executable} {Path(__file__).with_name('fake_router.py')} --host {{host}} --port {{port}}"
)


def measured(vllm, topology: str, folder: Path, *, pinned=True, sessions=4) -> RunPoint:
    """A point of this engine and topology; nothing of its servers may be left."""
    point = Point(
        experiment="ranks",
        deployment=Deployment(engine=vllm, topology=parse(topology), pinned=pinned),
        workload=Growing(turns=3, first=150, fresh=20, output=4),
        load=Closed(concurrency=2, sessions=sessions, warmup=0),
    )
    (found,) = ran(folder, [point])
    assert processes.writers(folder) == [], (found.status, found.reason)
    return found


def dense(folder: Path) -> str:
    """A model without experts."""
    (folder / "model").mkdir()
    config = {"num_hidden_layers": 2, "num_attention_heads": 2}
    (folder / "model/config.json").write_text(json.dumps(config))
    return str(folder / "model")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("affinity", ["rank-header", "port"])
def test_sessions_at_their_ranks_are_proven(affinity, tmp_path):
    point = measured(engine(tmp_path, affinity=affinity), "DP2", tmp_path)
    assert (point.status, point.reason, faults(point)) == ("finished", None, [])
    observed = point.evidence.observed
    assert observed.requested["affinity"] == observed.features["affinity"] == affinity
    assert re.fullmatch(
        r"each of 2 sessions moved the counters of one rank with all its 3 requests, and they were "
        r"on 2 ranks; repeats had 256 to 256 of 300 tokens cached",
        observed.start["affinity"],
    )
    assert observed.gpus == 2
    assert {row["rank"] for row in point.rows().to_pylist()} == {0, 1}
    assert f"affinity {affinity}: each of 2 sessions" in "".join(summarise(point).remarks)


@pytest.mark.slow
def test_a_model_without_experts_has_a_server_for_each_rank(tmp_path):
    vllm = engine(tmp_path, affinity="port", model=dense(tmp_path))
    point = measured(vllm, "DP2", tmp_path)
    assert (point.status, point.reason, faults(point)) == ("finished", None, [])
    observed = point.evidence.observed
    assert (observed.features["affinity"], observed.gpus) == ("port", 2)
    (other,) = observed.start["commands_of_others"]
    assert "data-parallel" not in observed.configuration["command"] + other
    assert (point.path / "server-2.log").exists()
    counted = {row["labels"] for row in point.samples().to_pylist() if "vllm:" in row["name"]}
    assert counted == {'{"engine":"0"}', '{"engine":"1"}'}


def test_a_server_that_ignores_the_header_makes_the_point_invalid(tmp_path):
    point = measured(engine(tmp_path, "--fake-deaf"), "DP2", tmp_path)
    (problem,) = [words for words in faults(point) if words.startswith("affinity")]
    assert problem == (
        "affinity: asked for rank-header, observed none: the requests of session 1 of those that "
        "it was tried with moved the counters of ranks 0, 1, and not of one"
    )


@pytest.mark.slow
def test_sessions_that_are_not_pinned_say_so(tmp_path):
    point = measured(engine(tmp_path, affinity="port"), "DP2", tmp_path, pinned=False)
    assert (point.status, faults(point)) == ("finished", [])
    observed = point.evidence.observed
    assert "affinity" not in observed.features | observed.requested
    assert observed.start["affinity"].endswith("pinned is false")


@pytest.mark.slow
def test_a_router_that_forgets_sessions_makes_the_point_invalid(tmp_path):
    router = f"{ROUTER} {{servers:--to}} --forgetful"
    vllm = engine(tmp_path, affinity="router", router=router, model=dense(tmp_path))
    point = measured(vllm, "DP2", tmp_path)
    assert (point.status, point.reason) == ("finished", None)
    assert {row["rank"] for row in point.rows().to_pylist()} == {None}
    (problem,) = faults(point)
    assert problem.startswith("affinity: asked for router, observed none: the requests of session")


def test_a_router_that_runs_already_is_asked_at_its_address(tmp_path):
    port = free_port()
    vllm = engine(tmp_path, affinity="router", router="http://127.0.0.1:9", port=port)
    titles = [line for line in vllm.describe(deployment(vllm, "DP2")) if line.startswith("#")]
    assert not any("router" in title for title in titles)


def test_a_router_that_is_not_there_is_unsupported(tmp_path):
    vllm = engine(tmp_path, affinity="router", router="/nowhere/router --port {port}")
    point = measured(vllm, "DP2", tmp_path)
    assert point.status == "unsupported"
    assert "/nowhere/router, which is to stand before the servers, is not there" in point.reason


@pytest.mark.parametrize(
    ("router", "sentence"),
    [
        ("http://", "write http://HOST:PORT"),
        ("x --port {port} {everyone}", "says {everyone}: write one of decode, "),
        ("x {servers}", "write {port} where it is told that"),
        ("x --at {host}:{port}", "write them apart"),
        ("x 'y", "cannot be read as a command"),
    ],
)
def test_a_router_that_cannot_be_asked_is_refused(router, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Vllm(router=router)


def test_servers_of_two_pools_are_started_behind_a_router(tmp_path):
    router = f"{ROUTER} {{prefill:--prefill}} {{decode:--decode}}"
    settings = {"prefill_flags": ("--max-num-seqs", "8"), "decode_flags": ("--max-num-seqs", "4")}
    point = measured(engine(tmp_path, router=router, **settings), "2xTP1+1xTP1", tmp_path)
    assert (point.status, point.reason, faults(point)) == ("finished", None, [])
    observed = point.evidence.observed
    assert (observed.gpus, point.cell.gpus) == (3, 3)
    asked = {name.partition(",")[0]: value for name, value in observed.requested.items()}
    assert asked == {"max_sequences of node 0": 4}
    names = {row["name"].partition("_")[0] for row in point.samples().to_pylist()}
    assert names >= {"prefill:prompt", "decode:prompt", "vllm:generation"}


def test_one_server_of_several_that_ends_ends_the_point(tmp_path):
    vllm = engine(tmp_path, "--fake-crash-at", "9", affinity="port", model=dense(tmp_path))
    point = measured(vllm, "DP2", tmp_path, sessions=40)
    assert point.status == "failed"
    assert re.search(
        r"ended with status 17 \(node 0, 127.0.0.1: server [12] of 2, TP1, GPU [01]\) while it was "
        r"measured: its engine core died; its log \S*/server(-2)?.log says",
        point.reason,
    )


def far(folder: Path, *flags: str, **settings) -> Vllm:
    """Servers on two nodes that are both this machine, reached through a shell."""
    return engine(
        folder,
        *flags,
        nodes=("127.0.0.1", "127.0.0.2"),
        gpus_per_node=1,
        launcher="env FAKE_NODE={host} sh -c",
        port=free_port(),
        **settings,
    )


def test_nodes_behind_a_router_are_started_and_stopped_through_a_launcher(tmp_path):
    vllm = far(tmp_path, affinity="router", router=f"{ROUTER} {{servers:--to}}")
    point = measured(vllm, "DP2", tmp_path)
    assert (point.status, point.reason, faults(point)) == ("finished", None, [])
    observed = point.evidence.observed
    assert (observed.features["affinity"], observed.start["gpus"]) == ("router", None)


def test_the_caches_of_every_node_are_emptied_before_a_later_point(tmp_path):
    vllm = far(tmp_path, affinity="port", resident_share=0.4)
    points = [short(vllm, place, 2, deployment(vllm, "DP2")) for place in (0, 1)]
    first, later = ran(tmp_path, points)
    assert (later.status, later.reason, faults(later)) == ("finished", None, [])
    assert "its prefix cache was emptied" in (later.path / "server.log").read_text()
    told = "emptied the caches of ranks {}\n".format
    assert told(0) in (first.path / "server.log").read_text()
    assert told(1) in (first.path / "server-2.log").read_text()


def test_a_node_that_ends_ends_the_point_with_its_log(tmp_path):
    point = measured(far(tmp_path, "--fake-headless-seconds", "1.5"), "DP2", tmp_path, sessions=400)
    assert point.status == "failed"
    assert "ended with status 1 (node 1, 127.0.0.2: server, DP2, GPU 0)" in point.reason
    assert "server-2.log says: RuntimeError: the head does not answer" in point.reason
    assert "headless, from rank 1" in (point.path / "server-2.log").read_text()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"launcher": "ssh {host}"}, "there are none: state nodes"),
        ({"launcher": "ssh", "nodes": ("a", "b")}, "write {host} in it"),
        ({"launcher": "ssh {node}", "nodes": ("a",)}, "write one such as ssh {host}"),
    ],
)
def test_a_launcher_that_reaches_no_node_is_refused(settings, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Vllm(**settings)
