"""What is said of a vLLM when a point ends: what was asked, what was seen, and what shows it."""

import shlex
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from harness.engine import Deployment
from harness.vllm import evidence
from harness.vllm.birth import Birth
from harness.vllm.log import read
from harness.vllm.resident import Up
from results.evidence import Observed

_DEGREES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def witnessed(up: Up, deployment: Deployment, beside: Sequence[str]) -> Observed:
    """What the client saw of the server, with what its log and its configuration show.

    `beside` are the arms that are up on the same GPUs. Which GPUs plumbing takes says nothing.
    """
    seen, born, log = up.server.observe(), up.born, up.log.name
    found = evidence.told(read(up.log))
    asked = evidence.requested(deployment, born.command)
    if not born.config:
        asked = {name: value for name, value in asked.items() if name not in evidence.TOLD_ONLY}
    shown = evidence.observed(found, born.config, asked)
    held = born.held if seen.provenance == "measured" else None
    return Observed(
        provenance=seen.provenance,
        gpus=_gpus(born.config),
        requested=asked,
        features={**seen.features, **shown},
        configuration={
            **seen.configuration,
            "version": _version(seen.configuration.get("version"), born),
            "command": shlex.join(born.command),
        },
        proofs=evidence.proofs(found, asked, shown, log),
        faults=evidence.faults(found, deployment.topology.gpus, held, log),
        start={
            **born.facts(),
            **evidence.remarks(found),
            **({"resident_beside": list(beside)} if beside else {}),
        },
    )


def _gpus(config: Mapping[str, Any]) -> int | None:
    """How many GPUs the server's own configuration spreads over; None where it tells none."""
    parallel = config.get("parallel_config")
    degrees = [parallel.get(name) for name in _DEGREES] if isinstance(parallel, dict) else []
    counts = [degree for degree in degrees if isinstance(degree, int)]
    return prod(counts) if len(counts) == len(_DEGREES) else None


def _version(told: object, born: Birth) -> object:
    """What the server calls its version, with the files and libraries that it is made of."""
    if not born.installed:
        return told
    return {**(told if isinstance(told, dict) else {"version": told}), **born.installed}
