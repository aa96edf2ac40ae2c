"""How long `compare` takes over five million pairs of requests, and how much memory.

Makes a run folder of two arms, five repeats and a million requests a run (not counted), then
compares the arms in a process of its own. The goal: 60 seconds and 2 GB at most, every pair found.
Prints its figure last, and exits 0 only when that is reached. Takes about three minutes.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from results import folder, rows
from results.comparison import compare
from results.evidence import Evidence, Observed
from results.run import read
from results.side import within
from results.verdict import Margin, Rule

PAIRS, REPEATS, TURNS = 5_000_000, 5, 50
SECONDS, BYTES = 60.0, 2e9
WINDOW = 3600.0
FASTER = 0.9


def facts(arm: str, repeat: int, position: int) -> dict[str, Any]:
    """What point.json says of a made-up point."""
    return {
        "id": f"{arm}{repeat:011d}",
        "pairing": f"{repeat:012d}",
        "cell": f"{arm}{0:011d}",
        "name": f"big-{arm}-r{repeat}",
        "experiment": "big",
        "arm": arm,
        "engine": "sim",
        "gpus": 1,
        "seed": repeat,
        "repeat": repeat,
        "position": position,
        "deployment": {"engine": {"kind": "sim", "name": arm}},
        "workload": {"kind": "growing"},
        "load": {"kind": "closed", "concurrency": 64},
        "objectives": {"ttft": None, "tpot": None, "e2el": None},
    }


def table(
    point: dict[str, Any], count: int, faster: float, run_noise: float, seed: int
) -> pa.Table:
    """Rows of a run: sessions of 50 turns; each run has noise of its own, as has each request."""
    content = np.random.default_rng([seed, point["repeat"]])
    noise = np.random.default_rng([seed, point["repeat"], ord(point["arm"])])
    session, turn = np.divmod(np.arange(count), TURNS)
    sent = np.sort(content.uniform(0, WINDOW - 10, size=count))
    usual = np.exp(
        content.normal(size=count) * 0.5
        + np.repeat(content.normal(size=count // TURNS), TURNS) * 0.3
    )
    speed = (faster if point["arm"] == "b" else 1.0) * np.exp(noise.normal() * run_noise)
    ttft = 0.2 * usual * speed * np.exp(noise.normal(size=count) * 0.1)
    offsets = np.rint(np.column_stack([ttft, ttft + 0.02, ttft + 0.04]) * 1e6).astype(np.int64)
    ends = sent[:, None] + offsets / 1e6
    order = np.arange(count)
    one, none = np.ones(count, np.int64), pa.nulls(count)
    label = {
        "run": "big",
        "point": point["id"],
        "arm": point["arm"],
        "phase": "window",
        "state": "ok",
        "stream": "main",
    }
    plain: dict[str, Any] = {
        "repeat": one * point["repeat"],
        "position": one * point["position"],
        "trace": [f"session-{number}" for number in session.tolist()],
        "tree": session,
        "lane": session % 64,
        "turn": turn,
        "depth": 0 * one,
        "planned": sent,
        "ready": sent,
        "sent": sent,
        "first": ends[:, 0],
        "first_answer": ends[:, 0],
        "last": ends[:, 2],
        "closed": ends[:, 2],
        "status": one * 200,
        "finish_reason": ["length"] * count,
        "asked_input": 1000 + turn,
        "asked_output": one * 3,
        "input_tokens": 1000 + turn,
        "output_tokens": one * 3,
        "cached_tokens": turn,
        "ceiling_tokens": turn,
        "prompt_hash": [f"{value:016x}" for value in content.integers(2**63, size=count).tolist()],
        "request_id": [f"{number:x}" for number in order.tolist()],
        "client_lag": 1e-5 * one,
    }
    lists = {
        "piece_offsets": pa.ListArray.from_arrays(
            np.arange(count + 1, dtype=np.int32) * 3, offsets.ravel()
        ),
        "piece_tokens": pa.ListArray.from_arrays(
            np.arange(count + 1, dtype=np.int32) * 3, np.ones(3 * count, np.int32)
        ),
    }
    made = []
    for field in rows.SCHEMA:
        if field.name in label:
            words = pa.repeat(label[field.name], count)
            made.append(
                words.cast(field.type)
                if pa.types.is_string(field.type)
                else words.dictionary_encode()
            )
        else:
            made.append(
                pa.array(plain[field.name], field.type)
                if field.name in plain
                else lists.get(field.name, none).cast(field.type)
            )
    return pa.Table.from_arrays(made, schema=rows.SCHEMA)


def make(
    out: Path,
    pairs: int,
    *,
    repeats: int = REPEATS,
    faster: float = FASTER,
    run_noise: float = 0.01,
    seed: int = 0,
) -> Path:
    """A run folder in the order A B B A, with so many pairs of requests in all."""
    points: list[dict[str, Any]] = []
    for repeat in range(repeats):
        for arm in "ab" if repeat % 2 == 0 else "ba":
            points.append(facts(arm, repeat, len(points)))
    plan = {"hash": "0" * 8, "points": points}
    seen = Observed(provenance="simulated", gpus=1)
    evidence = Evidence(observed=seen, clock="virtual", opened=0.0, closed=WINDOW)
    with folder.create(out, "big", "suite: big\n", plan, {}, 0) as made:
        for point in points:
            with made.open_point(point) as writer:
                writer.finish("finished", None, evidence, None)
            rows_of = table(point, pairs // repeats, faster, run_noise, seed)
            pq.write_table(rows_of, writer.path / "requests.parquet", row_group_size=8192)
        return made.path


def timed(path: Path) -> dict[str, Any]:
    """What comparing the arms takes, and what it says."""
    began = monotonic()
    base, other = within(read(path))[0]
    compared = compare(base, other, [Rule(metric="ttft", margin=Margin(relative=0.05))])
    judgement = compared.cells[0].judgements[0]
    effect = judgement.effect
    return {
        "seconds": monotonic() - began,
        "processor": process_time(),
        "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "problems": compared.cells[0].problems,
        "pairs": effect.matched.pairs if effect.matched else 0,
        "ratio": [effect.ratio, effect.low, effect.high],
        "verdict": judgement.verdict,
    }


def main(pairs: int) -> int:
    with tempfile.TemporaryDirectory() as out:
        path = make(Path(out), pairs)
        command = [sys.executable, __file__, "--compare", str(path)]
        told = orjson.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    ratio, low, high = told["ratio"]
    print(f"TTFT ratio {ratio:.4f} ({low:.4f} to {high:.4f}), made as {FASTER}: {told['verdict']}")
    print(f"problems: {'; '.join(told['problems']) or 'none'}")
    print(f"of which on a processor: {told['processor']:.1f} s")
    print(
        f"{told['pairs']:,} pairs in {told['seconds']:.1f} s (limit {SECONDS:.0f}) and "
        f"{told['bytes'] / 1e9:.2f} GB (limit {BYTES / 1e9:.0f})"
    )
    right = told["pairs"] == pairs and told["verdict"] == "better" and not told["problems"]
    return 0 if right and told["seconds"] <= SECONDS and told["bytes"] <= BYTES else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    asked = parser.parse_args()
    if asked.compare:
        sys.stdout.buffer.write(orjson.dumps(timed(asked.compare)))
        sys.exit(0)
    sys.exit(main(asked.pairs))
