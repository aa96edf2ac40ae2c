"""What DeepInfer cannot do, each with the reason and what to ask instead."""

from harness.engine import Deployment
from harness.load import Closed, Load
from results.errors import UnsupportedError
from workloads.batch import Batch
from workloads.questions import Questions
from workloads.session import Workload
from workloads.single import Single


def check_deployment(deployment: Deployment, devices: int | None) -> None:
    """Raises UnsupportedError where it cannot run this deployment.

    `devices` is how many GPUs are stated, None where that is left to it.
    """
    topology = deployment.topology
    if topology.gpus != topology.data:
        raise UnsupportedError(
            f"DeepInfer has neither tensor nor pipeline parallelism nor pools of its own, so there "
            f"is no {topology.name}: write TP1, DP2 or DEP2"
        )
    if devices is not None and devices != topology.gpus:
        raise UnsupportedError(
            f"{topology.name} takes {topology.gpus} GPUs, and devices names {devices}: name as many"
        )
    if deployment.replay == "on-eager":
        raise UnsupportedError(
            "DeepInfer's bounded replay has no way without graphs: write replay off or on"
        )
    if deployment.flags:
        raise UnsupportedError(
            "DeepInfer is no command, so it takes no flags: write them as the engine's arguments"
        )


def check_work(workload: Workload, load: Load, deployment: Deployment) -> None:
    """Raises UnsupportedError where it cannot do this work as other engines do it."""
    if not isinstance(load, Closed):
        raise UnsupportedError(
            f"DeepInfer takes requests between its steps only, and no {load.kind} load: write a "
            "closed load"
        )
    match workload:
        case Single(cached=0) if load.concurrency > deployment.topology.ranks:
            raise UnsupportedError(
                "DeepInfer tries to prefill only every so many decode steps, so a TTFT under load "
                "says how many: write a concurrency of at most one for each rank"
            )
        case Single(cached=0) | Batch():
            return
        case Questions():
            raise UnsupportedError(
                "DeepInfer takes token ids and gives ids back, so it can neither be asked in words "
                "nor be graded: ask a vLLM of the same model"
            )
        case _:
            raise UnsupportedError(
                f"DeepInfer has no prefix cache, and {workload.label} measures what comes of one: "
                "ask it for kind single without cached tokens, or for kind batch"
            )
