"""Points without requests: steps that an engine times by itself."""

from pathlib import Path

import pyarrow as pa

from harness import gpus
from harness.client import Page
from harness.clock import now
from harness.engine import prober
from harness.point import Point
from harness.sampling import Keep, sampled
from results.evidence import Evidence
from workloads.forward import Forward


async def probed(point: Point, log: Path, keep: Keep) -> tuple[None, Evidence, pa.Table]:
    """The evidence of what ran, and a row for each run of a step; they never fail in part.

    What the machine's GPUs show meanwhile is kept. Raises EngineError where the engine's tool
    fails, and UnsupportedError where there is none.
    """
    assert isinstance(point.workload, Forward)
    engine, began = prober(point.deployment.engine), now()
    async with gpus.watched(Page(url=gpus.TOOL, read=_silent), {}) as page, sampled(page, keep):
        observed, steps = await engine.probe(point.deployment, point.workload, log=log)
    evidence = Evidence(observed=observed, clock="wall", opened=0.0, closed=now() - began)
    return None, evidence, steps


async def _silent() -> str:
    """Counters there are none, only what stands beneath them."""
    return ""
