"""The servers of a deployment, and where each of them runs: ranks, pools, and several nodes."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from harness.engine import Deployment
from harness.gpus import MASK
from harness.topology import POOLS, Topology
from harness.vllm import knobs, router
from harness.vllm.command import HOST, Site, command_of
from harness.vllm.flags import Offer, stated
from harness.vllm.knobs import Options
from harness.vllm.shape import shape_of
from results.errors import UnsupportedError

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm

PORT, RPC_PORT, NIXL_PORT = 8000, 29550, 5600
"""The first port of a kind on a node, where several servers need one that is known beforehand."""

CONNECTOR = "--kv-transfer-config"
"""The flag that says how the caches of one pool reach the other."""

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
    """One process to start: where, what it is, its words and its variables.

    Requests are answered at its `ports`, one a rank where there are several; `others` are taken by
    it too. It is a part of an engine, by its number, that has so many `gpus`. `counted` is by how
    much the ranks that it counts from 0 are to be moved on, as it knows of none of other engines.
    """

    node: int
    host: str
    title: str
    role: Role
    words: tuple[str, ...]
    variables: dict[str, str]
    ports: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    engine: int = 0
    gpus: int = 0
    counted: int = 0

    @property
    def line(self) -> str:
        """What a shell would be told."""
        told = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*told, shlex.join(self.words)])

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it is asked."""
        return tuple(f"http://{self.host}:{port}" for port in self.ports)


def units(topology: Topology, per_node: int | None, *, apart: bool = False) -> list[Unit]:
    """The engines of a topology, seated one after the other; with no number, on one node.

    With its ranks `apart` each of them is an engine of its own. Raises UnsupportedError where an
    engine cannot be cut into nodes of so many GPUs.
    """
    made: list[Unit] = []
    node = used = 0
    for role, number, count, shape in _wanted(topology, apart=apart):
        if per_node and used + shape.gpus > per_node and used:
            node, used = node + 1, 0
        seats = _seats(shape, per_node, node, used)
        made.append(Unit(role=role, number=number, count=count, shape=shape, seats=seats))
        node, used = seats[-1].node, seats[-1].first + seats[-1].gpus
    return made


def launches(
    engine: "Vllm",
    deployment: Deployment,
    known: Offer | None = None,
    surroundings: Mapping[str, str] | None = None,
) -> list[Launch]:
    """Every process that the deployment is, in the order in which they are started.

    Of flags to measure by they have only the `known` ones, or all. GPUs are counted among those
    that the suite, or else the `surroundings`, leave visible. Raises UnsupportedError where it
    cannot be had, or where too few nodes are stated.
    """
    seated = _seated(engine, deployment)
    nodes = 1 + max(seat.node for unit in seated for seat in unit.seats)
    if engine.nodes and len(engine.nodes) < nodes:
        raise UnsupportedError(
            f"{deployment.topology.name} takes {nodes} nodes of {engine.gpus_per_node} GPUs, and "
            f"nodes states {len(engine.nodes)}: state as many"
        )
    place = _Place(
        engine=engine,
        deployment=deployment,
        addresses=_addresses(engine, nodes),
        alone=len(seated) == 1,
        mask=_visible(engine, deployment, surroundings or {}),
        known=known,
    )
    made: list[Launch] = []
    ranks = 0
    for number, unit in enumerate(seated):
        for seat in range(len(unit.seats)):
            launch = _launch(place, unit, seat)
            gpus = unit.shape.gpus
            made.append(replace(launch, engine=number, gpus=gpus, counted=ranks))
        ranks += unit.shape.data
    return made + _router(place, made)


def refusal(engine: "Vllm", deployment: Deployment) -> str | None:
    """Why paceline does not start it by itself; None where it does."""
    nodes = 1 + max(seat.node for unit in _seated(engine, deployment) for seat in unit.seats)
    if nodes == 1 or engine.launcher:
        return None
    return (
        f"{deployment.topology.name} takes {nodes} nodes, and nothing says how to start a command "
        "on one: state nodes and a launcher, such as ssh {host}, or start yourself what paceline "
        "plan shows, and measure it as kind: endpoint"
    )


def routed(engine: "Vllm", topology: Topology) -> bool:
    """Whether something stands before the servers."""
    return bool(topology.pools) or (topology.data > 1 and engine.affinity == "router")


def described(engine: "Vllm", deployment: Deployment) -> list[str]:
    """The command lines; where there are several, each after a comment that says where it runs."""
    made, refused = launches(engine, deployment), refusal(engine, deployment)
    if len(made) == 1:
        return [launch.line for launch in made]
    told = [line for launch in made for line in (f"# {launch.title}", launch.line)]
    return [*told, f"# {refused}"] if refused else told


def _seated(engine: "Vllm", deployment: Deployment) -> list[Unit]:
    return units(deployment.topology, engine.gpus_per_node, apart=_apart(engine, deployment))


def _apart(engine: "Vllm", deployment: Deployment) -> bool:
    """Whether its ranks are servers that know nothing of each other.

    Those of models without experts have nothing to share, and vLLM gives them no port each.
    """
    topology, shape = deployment.topology, shape_of(engine.model or deployment.model)
    dense = shape.layers is not None and shape.experts is None
    several = topology.data > 1 and engine.affinity != "rank-header"
    return several and dense and not topology.experts


def _wanted(topology: Topology, *, apart: bool) -> Iterator[tuple[Role, int, int, Topology]]:
    """The role, number, count and shape of every engine."""
    if apart:
        name = topology.name.replace(f"DP{topology.data}", "").strip("x") or "TP1"
        for number in range(topology.data):
            yield "server", number + 1, topology.data, replace(topology, name=name, data=1)
    elif not topology.pools:
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
    if nodes == 1 and engine.launcher is None:
        return (HOST,)
    return engine.nodes[:nodes] or tuple(f"NODE{n}" for n in range(nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What all processes of a deployment share."""

    engine: "Vllm"
    deployment: Deployment
    addresses: Sequence[str]
    alone: bool
    mask: Sequence[str]
    known: Offer | None

    @property
    def far(self) -> bool:
        """Whether others than processes of this machine have to reach them."""
        return len(self.addresses) > 1 or self.engine.launcher is not None

    @property
    def routed(self) -> bool:
        """Whether something stands before the servers."""
        return routed(self.engine, self.deployment.topology)

    @property
    def by_port(self) -> bool:
        """Whether each rank has a port."""
        topology = self.deployment.topology
        return not topology.pools and topology.data > 1 and self.engine.affinity == "port"


def _visible(
    engine: "Vllm", deployment: Deployment, surroundings: Mapping[str, str]
) -> tuple[str, ...]:
    """The GPUs among which those of a seat are counted; none where they are all."""
    mask = {**surroundings, **engine.environment, **deployment.environment}.get(MASK, "")
    return tuple(word for word in mask.split(",") if word)


def _launch(place: _Place, unit: Unit, number: int) -> Launch:
    """The process of an engine on one of its nodes."""
    engine, seat = place.engine, unit.seats[number]
    address = place.addresses[seat.node]
    options = _options(engine, unit, number, place.addresses)
    own = {"prefill": engine.prefill_flags, "decode": engine.decode_flags}.get(unit.role, ())
    if CONNECTOR not in stated(own):
        options |= _transfer(unit.role)
    port = None if "--headless" in options else _port(place, unit, number)
    ranks = unit.local if "--data-parallel-multi-port-external-lb" in options else 1
    others: tuple[int, ...] = ()
    if port is not None and ranks > 1:
        others = (port + ranks,)
        options["--data-parallel-supervisor-port"] = others[0]
    site = Site(
        shape=unit.shape,
        port=port,
        host="0.0.0.0" if place.far else HOST,  # noqa: S104 - other machines ask it
        options=options,
        flags=own,
    )
    around = {
        **(_network(engine, address) if len(place.addresses) > 1 else {}),
        **(_side_channel(address, seat) if unit.role in POOLS else {}),
    }
    variables = knobs.variables(engine, place.deployment, around)
    return Launch(
        node=seat.node,
        host=address,
        title=_title(unit, seat, place.addresses),
        role=unit.role,
        words=tuple(command_of(engine, place.deployment, site, place.known)),
        variables=variables | ({} if place.alone else _devices(seat, place.mask)),
        ports=() if port is None else tuple(port + rank for rank in range(ranks)),
        others=others,
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
        case "port" if alone and unit.local == 1:
            return shared | {"--data-parallel-rank": place}
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
        CONNECTOR: {
            "kv_connector": "NixlConnector",
            "kv_role": sides[role],
            # To recompute would move the work of prefill to decode without a word.
            "kv_load_failure_policy": "fail",
            "kv_buffer_device": "cuda",
            "kv_connector_extra_config": {"enforce_handshake_compat": False},
        }
    }


def _port(place: _Place, unit: Unit, number: int) -> int:
    """The first port of an engine; behind a router, after the router's and those on its node."""
    port, first = place.engine.port, unit.seats[number].first
    if place.routed:
        return (port or PORT) + 1 + first
    if place.by_port or place.far:
        return (port or PORT) + (0 if place.alone else first)
    return port


def _network(engine: "Vllm", address: str) -> dict[str, str]:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if engine.interface else ()
    return {"VLLM_HOST_IP": address, **{name: str(engine.interface) for name in names}}


def _devices(seat: Seat, mask: Sequence[str]) -> dict[str, str]:
    numbers = range(seat.first, seat.first + seat.gpus)
    return {MASK: ",".join(mask[n] if n < len(mask) else str(n) for n in numbers)}


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


def _router(place: _Place, servers: Sequence[Launch]) -> list[Launch]:
    """What stands before several servers and sends a session to where it was before.

    None where somebody else runs it.
    """
    engine, address = place.engine, place.addresses[0]
    if not place.routed or router.runs(engine.router):
        return []
    pooled = bool(place.deployment.topology.pools)
    local = {unit.local for unit in _seated(engine, place.deployment)}
    line = engine.router or router.usual(
        pooled=pooled, ranks=local.pop() if len(local) == 1 else None
    )
    port = engine.port or PORT
    host = "0.0.0.0" if place.far else HOST  # noqa: S104 - other machines ask it
    return [
        Launch(
            node=0,
            host=address,
            title=f"node 0, {address}: router",
            role="router",
            words=router.command(line, _asked(servers, pooled=pooled), host, port),
            variables={},
            ports=(port,),
        )
    ]


def _asked(servers: Sequence[Launch], *, pooled: bool) -> dict[str, list[str]]:
    """Where a router asks each role: the first node of an engine in a pool answers for all."""
    told: dict[str, list[str]] = {}
    seen: set[int] = set()
    for one in servers:
        if not (pooled and one.engine in seen):
            told.setdefault(one.role, []).extend(one.urls)
        seen.add(one.engine)
    return told
