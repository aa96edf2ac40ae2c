"""What is said of a vLLM when a point ends: what was asked, what was seen, and what shows it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

from harness.engine import Deployment
from harness.vllm import evidence, variant
from harness.vllm.birth import Birth, Part
from harness.vllm.log import read
from harness.vllm.resident import Up
from results.evidence import Observed

_DEGREES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def witnessed(
    up: Up, deployment: Deployment, beside: Sequence[str], named: str | None = None
) -> Observed:
    """What the client saw of the servers, with what their logs and configurations show.

    `beside` are the arms that are up on the same GPUs, and `named` is the variant that it is to be.
    Which GPUs plumbing takes says nothing.
    """
    seen, born = up.server.observe(), up.born
    parts = [_Seen.of(part, deployment) for part in born.parts]
    held = born.held if seen.provenance == "measured" else None
    found = evidence.told(line for part in born.parts for log in part.logs for line in read(log))
    asked, kept = _merged(parts, "asked"), born.affinity
    more: dict[str, tuple[str, str | None, str]] = {}
    if kept:
        more["affinity"] = (kept.asked, kept.observed, kept.shown)
    if named:
        more["variant"] = (named, *variant.observed(named, born.installed))
    return Observed(
        provenance=seen.provenance,
        gpus=_total(part.gpus for part in parts),
        requested=asked | {name: one[0] for name, one in more.items()},
        features={
            **seen.features,
            **_merged(parts, "shown"),
            **{name: one[1] for name, one in more.items() if one[1]},
        },
        configuration={
            **seen.configuration,
            "version": _version(seen.configuration.get("version"), born),
            "command": shlex.join(born.parts[0].launch.words),
        },
        proofs=_merged(parts, "proofs") | {name: one[2] for name, one in more.items()},
        faults=[
            *(fault for part in parts for fault in part.faults),
            *evidence.faults(evidence.told(()), deployment.topology.gpus, held, ""),
        ],
        effective=_effective(born.parts),
        start={
            **born.facts(),
            **evidence.remarks(found),
            **_started(born, deployment),
            **({"resident_beside": list(beside)} if beside else {}),
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one engine of a deployment was to be, and what it was seen to be."""

    title: str
    gpus: int | None
    asked: dict[str, Any]
    shown: dict[str, Any]
    proofs: dict[str, str]
    faults: list[str]

    @classmethod
    def of(cls, part: Part, deployment: Deployment) -> Self:
        """What its logs and its configuration show of it."""
        found = evidence.told(line for log in part.logs for line in read(log))
        asked = evidence.requested(deployment, part.launch.words)
        if not part.config:
            asked = {name: one for name, one in asked.items() if name not in evidence.TOLD_ONLY}
        shown, gpus = evidence.observed(found, part.config, asked), _gpus(part.config)
        log = part.logs[0].name + (f" (of {len(part.logs)} logs)" if part.logs[1:] else "")
        return cls(
            title=part.launch.title,
            gpus=gpus,
            asked=asked,
            shown=shown,
            proofs=evidence.proofs(found, asked, shown, log),
            faults=evidence.faults(found, part.launch.gpus, None, log),
        )


def _effective(parts: Sequence[Part]) -> dict[str, Any]:
    """What engines say that they run with; of several, each after its role and number."""
    if len(parts) == 1:
        return parts[0].effective
    return {
        f"{part.launch.role} {part.launch.engine + 1}.{name}": value
        for part in parts
        for name, value in part.effective.items()
    }


def _merged(parts: Sequence[_Seen], of: str) -> dict[str, Any]:
    """What the engines have in common, and what they have not, each by its title."""
    told: list[dict[str, Any]] = [getattr(part, of) for part in parts]
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in told for name in one):
        values = {part.title: one.get(name) for part, one in zip(parts, told, strict=True)}
        alike = all(value == told[0].get(name) for value in values.values())
        merged |= (
            {name: told[0][name]}
            if alike
            else {
                f"{name} of {title}": value for title, value in values.items() if value is not None
            }
        )
    return merged


def _started(born: Birth, deployment: Deployment) -> dict[str, Any]:
    """What several engines were told beside the first one, and how sessions are kept at ranks."""
    others = [shlex.join(part.launch.words) for part in born.parts[1:]]
    told: dict[str, Any] = {"commands_of_others": others} if others else {}
    if born.affinity:
        told["affinity"] = born.affinity.shown
    elif deployment.topology.ranks > 1:
        told["affinity"] = "sessions may go to any rank, since pinned is false"
    return told


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(filter(None, known))


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
