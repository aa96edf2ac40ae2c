"""Run folders of made-up requests, for tests of what compares them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from results import folder
from results.record import RequestRecord
from results.run import Run, read
from results.samples import Sample
from tests.test_results_record import evidence, made

Requests = Callable[[int], Sequence[RequestRecord]]
"""The rows of a repeat."""


def served(
    ttfts: Sequence[float], repeat: int = 0, *, turns: int = 2, content: str = "", **changes: Any
) -> list[RequestRecord]:
    """A request for each TTFT: sessions of so many turns, with prompts of their own each repeat."""
    return [
        made(
            [ttft, ttft + 0.02],
            **{
                "trace": f"session-{number // turns}",
                "tree": number // turns,
                "turn": number % turns,
                "sent": float(number % 50),
                "prompt_hash": f"{content}{repeat:08x}{number:08x}",
                **changes,
            },
        )
        for number, ttft in enumerate(ttfts)
    ]


def facts(arm: str, repeat: int, position: int, **changes: Any) -> dict[str, Any]:
    """What point.json says of a point."""
    stated = {
        "id": f"{abs(hash((arm, repeat))):012x}"[:12],
        "pairing": f"{repeat:012x}",
        "cell": f"{abs(hash(arm)):012x}"[:12],
        "name": f"agents-{arm}-closed-8-r{repeat}".replace(" ", "-"),
        "experiment": "agents",
        "arm": arm,
        "engine": "sim",
        "gpus": 1,
        "seed": repeat,
        "repeat": repeat,
        "position": position,
        "suite_seed": 0,
        "deployment": {"engine": {"kind": "sim", "name": arm}},
        "workload": {"kind": "growing"},
        "load": {"kind": "closed", "concurrency": 8},
        "objectives": {"ttft": None, "tpot": None, "e2el": None},
    }
    return {**stated, **changes}


def run_folder(
    out: Path,
    arms: Mapping[str, Requests],
    repeats: int = 4,
    *,
    status: str = "finished",
    suite: str = "suite",
    apart: bool = False,
    environment: Mapping[str, Any] | None = None,
    clocks: Mapping[str, float] | None = None,
    **changes: Any,
) -> Run:
    """A run of the arms in the order A B, B A, and so on, or one arm after the other where `apart`.

    `status` is that of the last point, `clocks` that of GPU 0 under each arm.
    """
    order = [
        (name, repeat)
        for repeat in range(repeats)
        for name in (list(arms) if repeat % 2 == 0 else list(arms)[::-1])
    ]
    if apart:
        order.sort(key=lambda one: list(arms).index(one[0]))
    points = [facts(name, repeat, place, **changes) for place, (name, repeat) in enumerate(order)]
    plan = {"hash": "0" * 8, "points": points}
    with folder.create(out, suite, "suite: suite\n", plan, environment or {}, 0) as whole:
        for point in points:
            rows = arms[point["arm"]](point["repeat"])
            with whole.open_point(point) as writer:
                for number, row in enumerate(rows):
                    writer.add(_of(row, point, number))
                if clocks:
                    writer.add_samples([_clock(clocks[point["arm"]])])
                ended = status if point is points[-1] else "finished"
                reason = None if ended == "finished" else "the engine died"
                writer.finish(ended, reason, evidence(start={"gpus": ["0"]}), None)
    return read(whole.path)


def _clock(hertz: float) -> Sample:
    """What is told once of a clock that does not change."""
    name, labels = "gpu:sm_clock_hertz", '{"gpu":"0"}'
    return Sample(moment=0.0, source="gpus", name=name, labels=labels, value=hertz)


def _of(row: RequestRecord, point: Mapping[str, Any], number: int) -> RequestRecord:
    return replace(
        row,
        point=point["id"],
        arm=point["arm"],
        repeat=point["repeat"],
        position=point["position"],
        request_id=f"request-{number}",
    )
