"""Where the servers of a deployment are: every GPU once, every port of a node once."""

import asyncio
from collections import Counter

import pytest

from harness.engine import Deployment
from harness.topology import parse
from harness.vllm.engine import Vllm
from harness.vllm.nodes import launches, refusal, units
from harness.vllm.places import check_libraries
from results.errors import UnsupportedError

TOPOLOGIES = ["TP4", "DEP2", "DEP8", "DEP16", "DEP32", "TP2xPP2", "4xDEP2+1xDEP32", "3xTP2+2xDEP4"]


def laid(topology, replay=None, **settings):
    engine = Vllm(python="env/bin/python", **settings)
    deployment = Deployment(engine=engine, topology=parse(topology), replay=replay)
    return engine, deployment


def value(launch, flag):
    return launch.words[launch.words.index(flag) + 1] if flag in launch.words else None


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("per_node", [None, 4, 8])
def test_every_gpu_is_taken_once(name, per_node):
    taken = Counter(
        (seat.node, seat.first + number)
        for unit in units(parse(name), per_node)
        for seat in unit.seats
        for number in range(seat.gpus)
    )
    assert len(taken) == parse(name).gpus
    assert set(taken.values()) == {1}
    if per_node:
        assert max(gpu for _, gpu in taken) < per_node


@pytest.mark.parametrize("per_node", [None, 4])
def test_ports_and_masks_of_a_node_are_apart(per_node):
    made = launches(*laid("3xTP2+2xDEP4", gpus_per_node=per_node))
    ports = Counter((launch.node, value(launch, "--port")) for launch in made)
    assert set(ports.values()) == {1}
    masks = [
        (launch.node, gpu)
        for launch in made
        for gpu in launch.variables.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if gpu
    ]
    assert len(masks) == len(set(masks)) == 14
    channels = [
        (launch.node, launch.variables["VLLM_NIXL_SIDE_CHANNEL_PORT"]) for launch in made[:-1]
    ]
    assert len(set(channels)) == len(channels)


def test_ranks_of_several_nodes_are_all_there_and_asked_at_one():
    made = launches(*laid("DEP32", gpus_per_node=4, nodes=tuple(f"10.0.0.{n}" for n in range(8))))
    starts = [value(launch, "--data-parallel-start-rank") for launch in made]
    assert starts == [None, *(str(4 * n) for n in range(1, 8))]
    assert ["--headless" in launch.words for launch in made] == [False, *[True] * 7]
    assert {value(launch, "--data-parallel-address") for launch in made} == {"10.0.0.0"}
    assert value(made[0], "--api-server-count") == "4"
    assert [launch.variables["VLLM_HOST_IP"] for launch in made][7] == "10.0.0.7"


def test_a_router_stands_before_every_node():
    *servers, router = launches(*laid("DEP32", gpus_per_node=8, affinity="router", port=9000))
    assert all("--data-parallel-hybrid-lb" in launch.words for launch in servers)
    urls = [word for word in router.words if word.startswith("http")]
    assert urls == [f"http://NODE{n}:9001" for n in range(4)]
    assert (value(router, "--port"), value(router, "--policy")) == ("9000", "consistent_hash")
    assert value(router, "--intra-node-data-parallel-size") == "8"


def test_pools_have_their_own_flags_and_roles():
    made = launches(*laid("2xTP1+1xTP2", prefill_flags=("--a",), decode_flags=("--b",)))
    assert ["--a" in launch.words for launch in made] == [True, True, False, False]
    assert ["--b" in launch.words for launch in made] == [False, False, True, False]
    roles = ['"kv_producer"' in str(value(launch, "--kv-transfer-config")) for launch in made]
    assert roles == [True, True, False, False]


def test_what_fits_on_one_node_is_here_unless_a_launcher_says_otherwise():
    nodes = {"gpus_per_node": 4, "nodes": ("a", "b"), "port": 9}
    (here,) = launches(*laid("TP4", **nodes))
    assert (here.urls, value(here, "--host")) == (("http://127.0.0.1:9",), "127.0.0.1")
    (there,) = launches(*laid("TP4", launcher="ssh {host}", **nodes))
    assert (there.urls, value(there, "--host")) == (("http://a:9",), "0.0.0.0")
    assert "VLLM_HOST_IP" not in here.variables | there.variables


def test_a_stated_connector_takes_the_place_of_ours():
    own = ("--kv-transfer-config", '{"kv_connector": "Other"}')
    made = launches(*laid("TP1+TP1", prefill_flags=own, decode_flags=own))
    assert {value(launch, "--kv-transfer-config") for launch in made[:2]} == {own[1]}


def test_pools_without_the_library_of_their_connector_are_unsupported():
    engine, deployment = laid("TP1+TP1")
    made = launches(engine, deployment)
    with pytest.raises(UnsupportedError, match="env/bin/python has no nixl: install it there"):
        check_libraries(engine, made, {"libraries": {"torch": "2"}})
    check_libraries(engine, made, {"libraries": {"nixl-cu13": "1"}})
    check_libraries(engine, made, {})


@pytest.mark.parametrize(
    ("topology", "settings", "sentence"),
    [
        ("TP8", {"gpus_per_node": 4}, "1 ranks of 8 GPUs, which do not fill nodes of 4"),
        ("DEP6", {"gpus_per_node": 4}, "do not fill nodes of 4 GPUs"),
        ("DEP8", {"gpus_per_node": 4, "nodes": ("one",)}, "takes 2 nodes .* nodes states 1"),
    ],
)
def test_what_does_not_fit_nodes_is_refused(topology, settings, sentence):
    with pytest.raises(UnsupportedError, match=sentence):
        launches(*laid(topology, **settings))


def test_each_rank_of_a_model_without_experts_is_a_server_of_its_own(tmp_path):
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2, "num_attention_heads": 2}')
    settings = {
        "model": str(tmp_path),
        "affinity": "port",
        "environment": {"CUDA_VISIBLE_DEVICES": "4,5,6,7"},
    }
    made = launches(*laid("TP2xDP2", **settings))
    assert [launch.urls for launch in made] == [
        (f"http://127.0.0.1:{8000 + 2 * n}",) for n in (0, 1)
    ]
    masks = [launch.variables["CUDA_VISIBLE_DEVICES"] for launch in made]
    assert masks == ["4,5", "6,7"]
    assert not any("data-parallel" in launch.line for launch in made)


def test_a_port_for_each_rank_is_asked_for_on_every_node():
    made = launches(*laid("DEP8", gpus_per_node=4, affinity="port", nodes=("a", "b")))
    assert [launch.urls[0] for launch in made] == ["http://a:8000", "http://b:8000"]
    assert [len(launch.urls) for launch in made] == [4, 4]
    assert [value(launch, "--data-parallel-supervisor-port") for launch in made] == ["8004"] * 2
    alone = launches(*laid("TP4xDP2", gpus_per_node=4, affinity="port", nodes=("a", "b")))
    assert [value(launch, "--data-parallel-rank") for launch in alone] == ["0", "1"]


def test_a_stated_router_gets_the_servers_in_the_words_that_it_wants():
    *_, router = launches(
        *laid(
            "2xTP1+1xTP2",
            router="toy --port {port} --p {prefill_hosts} --q {prefill_ports} --d={decode}",
        )
    )
    assert router.words == (
        *("toy", "--port", "8000", "--p", "127.0.0.1", "127.0.0.1", "--q", "8001", "8002"),
        "--d=http://127.0.0.1:8003",
    )


@pytest.mark.parametrize(
    ("topology", "settings", "started"),
    [
        ("DEP8", {}, True),
        ("DEP8", {"gpus_per_node": 8}, True),
        ("DEP2", {"affinity": "router"}, True),
        ("DEP2", {"affinity": "port"}, True),
        ("TP1+TP1", {}, True),
        ("DEP8", {"gpus_per_node": 4}, False),
        ("DEP8", {"gpus_per_node": 4, "nodes": ("a", "b"), "launcher": "ssh {host}"}, True),
    ],
)
def test_nodes_that_nothing_reaches_are_only_planned(topology, settings, started):
    engine, deployment = laid(topology, **settings)
    assert (refusal(engine, deployment) is None) == started
    *_, last = engine.describe(deployment)
    assert last.startswith("# ") != started


def test_what_is_only_planned_is_not_started(tmp_path):
    engine, deployment = laid("DEP8", gpus_per_node=4)

    async def main():
        async with engine.start(deployment, seed=1, log=tmp_path / "server.log", keys={}):
            pass

    with pytest.raises(UnsupportedError, match=r"state nodes and a launcher, .* kind: endpoint"):
        asyncio.run(main())
