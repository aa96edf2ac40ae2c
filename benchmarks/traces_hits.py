"""Recorded traces replayed to their end on the virtual clock: what each found in the cache.

Every trace of a folder (an argument) is replayed whole, once, by the AgentX-style rules, against
the simulated engine with room for everything. A line a trace: its requests, those that its plan
has, its input, the share that came from the cache, the most that could in whole blocks of the
engine, and the published ceiling, which knows no engine and no marker. A request that comes while
another one of its trace is still being read may find less of what they share: those are counted
apart. Prints the figure last; exits 0 only when every trace was replayed whole, and every other
request found all that it could.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from results.columns import Floats
from results.delivery import block_size
from results.run import read
from workloads import weka
from workloads.hits import hits, theoretical
from workloads.plan import plan
from workloads.profile import AGENTX_V1

KV_TOKENS = 200_000_000


def replayed(traces: Path, count: int, out: Path) -> Path:
    """The run folder of the traces, each replayed once."""
    experiment = {
        "name": "whole",
        "engine": {"kind": "sim", "kv_tokens": KV_TOKENS},
        "topology": "TP4",
        "workload": {"kind": "agentx", "traces": str(traces.resolve())},
        "load": {"kind": "closed", "concurrency": count, "sessions": count, "warmup": 0},
    }
    suite = out / "traces-hits.yaml"
    suite.write_text(yaml.safe_dump({"suite": "traces-hits", "experiments": [experiment]}))
    command = [Path(sys.executable).with_name("paceline"), "run", suite, "--out", out, "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("traces-hits-*/plan.json")).parent


def found(sent: Sequence[Mapping[str, Any]], size: int) -> tuple[Floats, int, int]:
    """Input, cached and at most cached tokens of a trace's requests, and how many found less.

    First of those that came while another one was being read, then of the others.
    """
    names = ("input_tokens", "cached_tokens", "ceiling_tokens", "sent", "first")
    told, cached, ceiling, begun, first = np.array([[row[name] for row in sent] for name in names])
    most = np.minimum(ceiling, told - 1) // size * size
    crowded = ((begun[:, None] >= begun) & (begun[:, None] < first)).sum(axis=1) > 1
    less, more = cached < most, cached > most
    sums = np.array([told.sum(), cached.sum(), most.sum()])
    return sums, int((crowded & less).sum()), int((more | (less & ~crowded)).sum())


def main() -> int:
    traces = Path(sys.argv[1])
    recorded = weka.read(str(traces))
    with tempfile.TemporaryDirectory() as out:
        (point,) = read(replayed(traces, len(recorded), Path(out))).points
        rows = [row for row in point.rows().to_pylist() if row["state"] == "ok"]
        size = block_size(point.cell, None)
    assert size is not None
    whole, beside, short, sums = 0, 0, 0, np.zeros(3)
    print("trace        requests     of        input   cached  ceiling published")
    for trace in recorded:
        made, sent = plan(trace, AGENTX_V1), [row for row in rows if row["trace"] == trace.id]
        steps = sum(1 for _ in made.steps())
        whole += len({(row["stream"], row["turn"]) for row in sent}) == len(sent) == steps
        of_trace, crowded, others = found(sent, size)
        beside, short, sums = beside + crowded, short + others, sums + of_trace
        told, cached, most = of_trace
        print(
            f"{trace.id:12} {len(sent):8,} {steps:6,} {told:12,.0f} {cached / told:8.4f} "
            f"{most / told:8.4f} {theoretical(hits(made)) or 0.0:9.4f}"
        )
    print(
        f"{whole} of {len(recorded)} traces replayed whole, {len(rows):,} requests: "
        f"{sums[1] / sums[0]:.4f} of the input cached, at most {sums[2] / sums[0]:.4f} could be; "
        f"{beside} requests came beside what they share and found less, {short} others did not "
        "find all that they could"
    )
    return 0 if whole == len(recorded) and not short else 1


if __name__ == "__main__":
    sys.exit(main())
