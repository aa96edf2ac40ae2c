"""Comparisons built by hand, judged by the very rules that judge real ones."""

from dataclasses import replace
from math import expm1, log
from typing import Any

from reports.account import Account, CellAccount
from results.comparison import CellComparison, Comparison
from results.direction import DIRECTIONS
from results.effect import Effect, Matched, RunValue
from results.moved import Moved
from results.standing import Difference
from results.verdict import Judgement, Margin, invalid, judge, together

MATCHED = Matched(pairs=1234, unmatched=0.032, lost=0.004, sessions=24)
SLOW = (1.12, 1.09, 1.15)
EQUAL = (1.003, 0.991, 1.015)
OPEN = (1.03, 0.97, 1.094)


def effect(metric: str, change: tuple[float, float, float] | None, **changes: Any) -> Effect:
    """An effect of four runs a side with that ratio and interval; without one, absent."""
    direction = DIRECTIONS[metric]
    told: dict[str, Any] = {
        "metric": metric,
        "unit": direction.unit,
        "better": direction.better,
        "how": "runs with drift",
        "runs": (4, 4),
    }
    if change is None:
        return Effect(**{**told, "how": "none", "reason": "no run tells it", **changes})
    ratio, low, high = change
    error = (log(high) - log(low)) / 5
    told |= {"base": 0.8, "other": 0.8 * ratio, "ratio": ratio, "low": low, "high": high}
    told |= {"error": error, "freedom": 5.0, "p": 0.0001 if low > 1 or high < 1 else 0.4}
    told |= {"detectable": expm1(min(3.5 * error, 700.0)), "values": values(0.8, 0.8 * ratio)}
    return Effect(**{**told, **changes})


def values(base: float, other: float) -> tuple[RunValue, ...]:
    """Four runs a side in ABBA order."""
    order = (("base", 0), ("other", 0), ("other", 1), ("base", 1)) * 2
    return tuple(
        RunValue(
            side=side,  # type: ignore[arg-type]
            folder="ab-20260101T000000Z",
            pairing=f"p{repeat}",
            repeat=repeat,
            position=place,
            value=(base if side == "base" else other) * (1 + place / 1000),
        )
        for place, (side, repeat) in enumerate(order)
    )


def gated(metric: str, change: tuple[float, float, float] | None, **changes: Any) -> Judgement:
    """What a rule with a margin of 5 % says of the effect."""
    return judge(effect(metric, change, **changes), Margin(relative=0.05), gated=True)


def free(metric: str, change: tuple[float, float, float] | None, **changes: Any) -> Judgement:
    """What is said of a metric that no rule names."""
    return judge(effect(metric, change, **changes), Margin(relative=0.05))


def bad(metric: str, reason: str = "the cell is invalid") -> Judgement:
    """A rule that must not be judged."""
    return invalid(effect(metric, None), reason, gated=True)


def cell(place: str, *judgements: Judgement, **changes: Any) -> CellAccount:
    """A cell of simulated runs at that place."""
    level = place.rpartition(" ")[2]
    told: dict[str, Any] = {
        "name": f"agents-{place.replace(' ', '-')}",
        "experiment": "agents",
        "arms": ("sim TP4", "sim TP4"),
        "workload": {"kind": "growing"},
        "load": {"kind": "closed", "concurrency": int(level) if level.isdecimal() else 1},
        "runs": (4, 4),
        "problems": (),
        "notes": (),
        "failed": (0, 0),
        "asked": (1300, 1290),
        "judgements": together(judgements),
    }
    moved = changes.pop("moved", ())
    return CellAccount(
        cell=CellComparison(**{**told, **changes}),
        place=place,
        provenances=("simulated",),
        moved=moved,
    )


def told(
    *cells: CellAccount, base: str = "eager", other: str = "graphs", **changes: Any
) -> Account:
    """A comparison of two simulated sides with these cells."""
    return Account(
        comparison=Comparison(
            base=base, other=other, cells=tuple(one.cell for one in cells), **changes
        ),
        cells=cells,
        provenances=("simulated",),
        confirm=("paceline run suites/ab.yaml --new",),
        enlarge=("paceline run suites/ab.yaml --set repeats=8 --new",),
    )


def measured(account: Account) -> Account:
    """The same of measured sides."""
    cells = tuple(replace(one, provenances=("measured",)) for one in account.cells)
    return replace(account, cells=cells, provenances=("measured",))


def request(**changes: Any) -> Moved:
    """A request that took half as long again."""
    told: dict[str, Any] = {
        "metric": "ttft",
        "pairing": "p0",
        "repeat": 0,
        "trace": "t-7",
        "stream": "main",
        "turn": 3,
        "base": 0.8,
        "other": 1.2,
    }
    return Moved(**{**told, **changes})


DIFFERENCES = (
    Difference(
        key="environment.gpus.name",
        base="NVIDIA H200",
        other="NVIDIA H100",
        standing="refusing",
    ),
    Difference(key="deployment.replay", base="off", other="on", standing="factor"),
    Difference(key="environment.host", base="one", other="two", standing="harmless"),
)


def refused() -> Account:
    """Two sides that must not be compared."""
    sentence = (
        "environment.gpus.name: NVIDIA H200 against NVIDIA H100: compare runs that agree in it, "
        "or add --allow environment.gpus.name"
    )
    return told(differences=DIFFERENCES, refusals=(sentence,))


def everything() -> Account:
    """A comparison with every verdict, a hostile name, and what is absent."""
    hostile = '<b>|`closed` 64 & "x"'
    alone = effect("tpot", SLOW, how="one pair", runs=(1, 1))
    one_pair = judge(alone, Margin(relative=0.05), gated=True)
    return told(
        cell(
            "closed 8",
            gated("ttft", SLOW, matched=MATCHED),
            gated("ttft.p90", OPEN),
            gated("output_rate", EQUAL),
            free("goodput", (1.2, 1.15, 1.25)),
            free("e2el.p99", None),
            free("cache_hit", (1.0, 1.0, 1.0), how="identical", error=0.0, detectable=0.0),
            moved=(request(), request(trace=hostile, other=0.9)),
            failed=(3, 0),
        ),
        cell(hostile, bad("ttft"), problems=("ab: the client was the bottleneck",)),
        cell("closed 1", one_pair, gated("ttft", None), free("tpot.p90", (40.0, 1e-300, 1e300))),
        unmatched=("agents-closed-32 (sim TP4)",),
        allowed=("environment.gpus",),
        calibration="calibration of 2026-01-01 from aa-20260101T000000Z",
    )
