"""A comparison as plain JSON, for programs that decide something by it."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from reports.account import Account, CellAccount
from reports.gate import answer
from reports.verdicts import headline
from results.verdict import Judgement


def comparison_facts(account: Account) -> dict[str, Any]:
    """Everything that the text says and more, in strict JSON: what is absent is null."""
    comparison = account.comparison
    told = {
        "said": list(headline(account)),
        "gate": answer(account) if account.gated else None,
        "base": comparison.base,
        "other": comparison.other,
        "provenances": list(account.provenances),
        "refusals": list(comparison.refusals),
        "differences": [asdict(one) for one in comparison.differences],
        "allowed": list(comparison.allowed),
        "one_side_only": list(comparison.unmatched),
        "missing": list(comparison.missing),
        "not_judged": list(comparison.unjudged),
        "calibration": comparison.calibration,
        "calibration_unused": list(comparison.uncalibrated),
        "level": comparison.level,
        "seed": comparison.seed,
        "confirm": list(account.confirm),
        "enlarge": list(account.enlarge),
        "cells": [_cell(cell) for cell in account.cells],
    }
    strict: dict[str, Any] = _strict(told)
    return strict


def _cell(cell: CellAccount) -> dict[str, Any]:
    one = cell.cell
    return {
        "cell": one.name,
        "place": cell.place,
        "experiment": one.experiment,
        "arms": list(one.arms),
        "workload": dict(one.workload),
        "load": dict(one.load),
        "provenances": list(cell.provenances),
        "runs": list(one.runs),
        "failed": list(one.failed),
        "ended": list(one.asked),
        "problems": list(one.problems),
        "notes": list(one.notes),
        "judgements": [_judgement(each) for each in one.judgements],
        "ttft_by_new_tokens": [asdict(each) for each in one.strata],
        "moved": [{**asdict(each), "ratio": each.ratio} for each in cell.moved],
    }


def _judgement(one: Judgement) -> dict[str, Any]:
    told = asdict(one)
    return {**told.pop("effect"), **told, "effect_reason": one.effect.reason}


def _strict(value: Any) -> Any:
    """The value with null for what is not finite, and lists and plain keys throughout."""
    match value:
        case float():
            return value if isfinite(value) else None
        case dict():
            return {str(key): _strict(held) for key, held in value.items()}
        case list() | tuple():
            return [_strict(held) for held in value]
    return value
