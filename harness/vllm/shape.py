"""What of a model decides on which topologies it fits, and where it does not."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from harness.topology import Topology
from results.errors import InputError

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Layers, attention heads and experts a layer; None where it is not known."""

    layers: int | None = None
    heads: int | None = None
    experts: int | None = None


V41 = Shape(layers=40, heads=64, experts=384)
"""DeepSeek-V4.1-Flash."""


def shape_of(model: str) -> Shape:
    """The shape of a model by its name, or by the config.json of its folder.

    Raises InputError where there is a config.json that is none.
    """
    file = Path(model) / "config.json"
    if not file.is_file():
        return V41 if "deepseek-v4.1-flash" in model.lower() else Shape()
    try:
        told = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}: put the model's own there") from error
    if not isinstance(told, dict):
        raise InputError(f"{file} holds no mapping: put the model's own there")
    text = told.get("text_config")
    config = text if isinstance(text, dict) else told
    return Shape(
        layers=_number(config, "num_hidden_layers"),
        heads=_number(config, "num_attention_heads"),
        experts=_number(config, "n_routed_experts", "num_experts", "num_local_experts"),
    )


def misfits(engine: "Vllm", topology: Topology, shape: Shape) -> Iterator[str]:
    """Why the model cannot lie so on GPUs, a sentence each."""
    name = topology.name
    if shape.heads and shape.heads % topology.tensor:
        yield f"{name} splits {shape.heads} attention heads by {topology.tensor}: write a divisor"
    if shape.layers and topology.pipeline > shape.layers:
        yield f"{name} has more stages than the model's {shape.layers} layers: write fewer"
    if topology.experts and shape.experts is not None:
        yield from _spread(engine, topology, shape.experts)
    if engine.layer_partition:
        yield from _partitioned(engine.layer_partition, topology, shape)


def _spread(engine: "Vllm", topology: Topology, experts: int) -> Iterator[str]:
    ranks, stored = topology.expert_ranks, experts + engine.redundant_experts
    if experts < ranks:
        yield f"{topology.name} spreads {experts} experts over {ranks} ranks: write fewer ranks"
    elif engine.eplb and stored % ranks:
        yield (
            f"eplb needs {experts} experts and the redundant_experts, {stored} together, to be a "
            f"multiple of the {ranks} ranks of {topology.name}: write redundant_experts: "
            f"{engine.redundant_experts + -stored % ranks}"
        )


def _partitioned(parts: tuple[int, ...], topology: Topology, shape: Shape) -> Iterator[str]:
    if len(parts) != topology.pipeline:
        yield (
            f"layer_partition has {len(parts)} parts and {topology.name} has {topology.pipeline} "
            "stages: write a part for each stage"
        )
    elif shape.layers and sum(parts) != shape.layers:
        yield (
            f"layer_partition has {sum(parts)} layers and the model has {shape.layers}: write "
            "parts that add up to that"
        )


def _number(config: dict[str, Any], *names: str) -> int | None:
    found = (config[name] for name in names if isinstance(config.get(name), int))
    return next(found, None)
