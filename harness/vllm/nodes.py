"""The servers of a deployment, and where each of them runs: pools, and several nodes."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from harness.engine import Deployment
from harness.topology import POOLS, Topology
from harness.vllm import knobs
from harness.vllm.command import HOST, Site, command_of
from harness.vllm.flags import Offer
from harness.vllm.knobs import Options
from results.errors import UnsupportedError

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm

PORT, RPC_PORT, NIXL_PORT = 8000, 29550, 5600
"""The first port of a kind on a node, where several servers need one that is known beforehand."""

Role = Literal["server", "prefill", "decode", "router"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What one server takes of one node: the GPUs from `first` on."""

    node: int
    first: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One engine of a pool, or the only one: its shape, and a seat for each node that it is on."""

    role: Role
    number: int
    count: int
    shape: Topology
    seats: tuple[Seat, ...]

    @property
    def local(self) -> int:
        """Ranks a node."""
        return self.seats[0].gpus // (self.shape.tensor * self.shape.pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process to start: where, what it is, its words and its variables."""

    node: int
    title: str
    words: tuple[str, ...]
    variables: dict[str, str]

    @property
    def line(self) -> str:
        """What a shell would be told."""
        told = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*told, shlex.join(self.words)])


def units(topology: Topology, per_node: int | None) -> list[Unit]:
    """The engines of a topology, seated one after the other; with no number, on one node.

    Raises UnsupportedError where an engine cannot be cut into nodes of so many GPUs.
    """
    made: list[Unit] = []
    node = used = 0
    for role, number, count, shape in _wanted(topology):
        if per_node and used + shape.gpus > per_node and used:
            node, used = node + 1, 0
        seats = _seats(shape, per_node, node, used)
        made.append(Unit(role=role, number=number, count=count, shape=shape, seats=seats))
        node, used = seats[-1].node, seats[-1].first + seats[-1].gpus
    return made


def launches(engine: "Vllm", deployment: Deployment) -> list[Launch]:
    """Every process that the deployment is, in the order in which they are started.

    Raises UnsupportedError where it cannot be had, or where too few nodes are stated.
    """
    seated = units(deployment.topology, engine.gpus_per_node)
    nodes = 1 + max(seat.node for unit in seated for seat in unit.seats)
    if engine.nodes and len(engine.nodes) < nodes:
        raise UnsupportedError(
            f"{deployment.topology.name} takes {nodes} nodes of {engine.gpus_per_node} GPUs, and "
            f"nodes states {len(engine.nodes)}: state as many"
        )
    addresses = _addresses(engine, nodes)
    routed = _routed(engine, deployment.topology)
    made = [
        _launch(engine, deployment, unit, place, addresses, alone=len(seated) == 1)
        for unit in seated
        for place in range(len(unit.seats))
    ]
    return made + ([_router(engine, seated, addresses)] if routed else [])


def command(
    engine: "Vllm", deployment: Deployment, port: int, known: Offer | None = None
) -> list[str]:
    """The words that start the only server of a deployment at a port, with what is `known` only."""
    (unit,) = units(deployment.topology, engine.gpus_per_node)
    site = Site(shape=unit.shape, port=port, options=_options(engine, unit, 0, (HOST,)))
    return command_of(engine, deployment, site, known)


def refusal(engine: "Vllm", deployment: Deployment) -> str | None:
    """Why paceline does not start it by itself; None where it does."""
    topology = deployment.topology
    seated = units(topology, engine.gpus_per_node)
    if len(seated) == 1 and len(seated[0].seats) == 1 and not _ways(engine, topology):
        return None
    several = f"affinity: {engine.affinity}" if _ways(engine, topology) else topology.name
    return (
        f"{several} takes several servers, machines or ports, and paceline starts one server on "
        "one machine: start yourself what paceline plan shows, and measure it as kind: endpoint"
    )


def described(engine: "Vllm", deployment: Deployment) -> list[str]:
    """The command lines; where there are several, each after a comment that says where it runs."""
    made, refused = launches(engine, deployment), refusal(engine, deployment)
    if not refused:
        return [launch.line for launch in made]
    told = [line for launch in made for line in (f"# {launch.title}", launch.line)]
    return [*told, f"# {refused}"]


def _wanted(topology: Topology) -> Iterator[tuple[Role, int, int, Topology]]:
    """The role, number, count and shape of every engine."""
    if not topology.pools:
        yield "server", 1, 1, topology
    roles: Sequence[Role] = ("prefill", "decode")
    assert roles == POOLS
    for role, pool in zip(roles, topology.pools, strict=False):
        for number in range(pool.count):
            yield role, number + 1, pool.count, pool.shape


def _seats(shape: Topology, per_node: int | None, node: int, used: int) -> tuple[Seat, ...]:
    if per_node is None or shape.gpus <= per_node:
        return (Seat(node=node, first=used, gpus=shape.gpus),)
    rank = shape.tensor * shape.pipeline
    if per_node % rank or shape.gpus % per_node:
        raise UnsupportedError(
            f"{shape.name} has {shape.data} ranks of {rank} GPUs, which do not fill nodes of "
            f"{per_node} GPUs: write another topology or gpus_per_node"
        )
    count = shape.gpus // per_node
    return tuple(Seat(node=node + n, first=0, gpus=per_node) for n in range(count))


def _addresses(engine: "Vllm", nodes: int) -> tuple[str, ...]:
    """The addresses of the nodes; where they are not stated, names to put them in for."""
    return engine.nodes or ((HOST,) if nodes == 1 else tuple(f"NODE{n}" for n in range(nodes)))


def _ways(engine: "Vllm", topology: Topology) -> bool:
    """Whether sessions reach their ranks by more than one address of one server."""
    return topology.data > 1 and engine.affinity != "rank-header"


def _routed(engine: "Vllm", topology: Topology) -> bool:
    return bool(topology.pools) or (topology.data > 1 and engine.affinity == "router")


def _launch(
    engine: "Vllm",
    deployment: Deployment,
    unit: Unit,
    place: int,
    addresses: Sequence[str],
    *,
    alone: bool,
) -> Launch:
    """The process of an engine on one of its nodes; `alone` where there is no other engine."""
    seat = unit.seats[place]
    options = _options(engine, unit, place, addresses) | _transfer(unit.role)
    far = len(addresses) > 1
    site = Site(
        shape=unit.shape,
        port=None if "--headless" in options else _port(engine, unit, place, deployment.topology),
        host="0.0.0.0" if far else HOST,  # noqa: S104 - other nodes ask it
        options=options,
        flags={"prefill": engine.prefill_flags, "decode": engine.decode_flags}.get(unit.role, ()),
    )
    around = {
        **(_network(engine, addresses[seat.node]) if far else {}),
        **({} if alone else _devices(seat)),
        **(_side_channel(addresses[seat.node], seat) if unit.role in POOLS else {}),
    }
    return Launch(
        node=seat.node,
        title=_title(unit, seat, addresses),
        words=tuple(command_of(engine, deployment, site)),
        variables=knobs.variables(engine, deployment, around),
    )


def _options(engine: "Vllm", unit: Unit, place: int, addresses: Sequence[str]) -> Options:
    """What tells the servers of one engine on several nodes of each other, and how ranks are met.

    A start rank on a node that serves requests makes its ranks that node's own, so the first node
    of an engine that is asked as a whole carries none.
    """
    asked: Options = {"--api-server-count": engine.api_servers} if engine.api_servers else {}
    several, alone = len(unit.seats) > 1, unit.role == "server" and unit.shape.data > 1
    local: Options = {"--data-parallel-size-local": unit.local}
    shared = local | _head(unit, addresses) if several else {}
    own = {"--data-parallel-start-rank": place * unit.local} if several else {}
    match engine.affinity:
        case "port" if alone:
            return local | shared | {"--data-parallel-multi-port-external-lb": True} | own
        case "router" if alone and several:
            return shared | {"--data-parallel-hybrid-lb": True} | own | asked
    if not several:
        return asked
    # Without a number, every rank of every node would get an API server on the first one.
    first = {"--api-server-count": engine.api_servers or unit.local}
    return shared | (first if place == 0 else {"--headless": True} | own)


def _head(unit: Unit, addresses: Sequence[str]) -> Options:
    return {
        "--data-parallel-address": addresses[unit.seats[0].node],
        "--data-parallel-rpc-port": RPC_PORT,
    }


def _transfer(role: Role) -> Options:
    """How the caches of prefill reach decode."""
    sides = {"prefill": "kv_producer", "decode": "kv_consumer"}
    if role not in sides:
        return {}
    return {
        "--kv-transfer-config": {
            "kv_connector": "NixlConnector",
            "kv_role": sides[role],
            # To recompute would move the work of prefill to decode without a word.
            "kv_load_failure_policy": "fail",
            "kv_buffer_device": "cuda",
            "kv_connector_extra_config": {"enforce_handshake_compat": False},
        }
    }


def _port(engine: "Vllm", unit: Unit, place: int, topology: Topology) -> int:
    """The port of an engine; behind a router, after the router's and those on its node."""
    if _routed(engine, topology):
        return (engine.port or PORT) + 1 + unit.seats[place].first
    return engine.port or (PORT if len(unit.seats) > 1 or _ways(engine, topology) else 0)


def _network(engine: "Vllm", address: str) -> dict[str, str]:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if engine.interface else ()
    return {"VLLM_HOST_IP": address, **{name: str(engine.interface) for name in names}}


def _devices(seat: Seat) -> dict[str, str]:
    numbers = range(seat.first, seat.first + seat.gpus)
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers))}


def _side_channel(address: str, seat: Seat) -> dict[str, str]:
    """Where caches are asked for: each rank takes a port from here on, so servers stay apart."""
    return {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": address,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(NIXL_PORT + seat.first),
    }


def _title(unit: Unit, seat: Seat, addresses: Sequence[str]) -> str:
    which = unit.role if unit.count == 1 else f"{unit.role} {unit.number} of {unit.count}"
    last = seat.first + seat.gpus - 1
    devices = f"GPU {last}" if seat.gpus == 1 else f"GPUs {seat.first} to {last}"
    return f"node {seat.node}, {addresses[seat.node]}: {which}, {unit.shape.name}, {devices}"


def _router(engine: "Vllm", seated: Sequence[Unit], addresses: Sequence[str]) -> Launch:
    """What stands before several servers and sends a session to where it was before."""
    pooled = seated[0].role != "server"
    reached = [
        (unit.role, f"http://{addresses[seat.node]}:{(engine.port or PORT) + 1 + seat.first}")
        for unit in seated
        # The first node of an engine in a pool answers for all of it.
        for seat in (unit.seats[:1] if pooled else unit.seats)
    ]
    urls = {role: [url for _, url in group] for role, group in groupby(reached, lambda one: one[0])}
    if pooled:
        workers = [word for role in urls for url in urls[role] for word in (f"--{role}", url)]
        workers.insert(0, "--vllm-pd-disaggregation")
    else:
        workers = ["--worker-urls", *urls["server"]]
    local = {unit.local for unit in seated}
    ranks = ["--intra-node-data-parallel-size", str(max(local))] if len(local) == 1 else []
    return Launch(
        node=0,
        title=f"node 0, {addresses[0]}: router",
        words=(
            *("vllm-router", *workers, "--policy", "consistent_hash", *ranks),
            *("--host", "0.0.0.0" if len(addresses) > 1 else HOST),  # noqa: S104
            *("--port", str(engine.port or PORT)),
            # What it sends again would hide failures.
            *("--retry-max-retries", "0"),
        ),
        variables={},
    )
