"""What a comparison says of one metric: better, worse, same, inconclusive or invalid."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, hypot
from typing import Literal

from results.contrast import FEW, LEVEL, quantile
from results.direction import in_points
from results.effect import Effect

Verdict = Literal["better", "worse", "same", "inconclusive", "invalid"]
Gate = Literal["pass", "fail", "inconclusive", "invalid"]

FEWEST = 4
"""Runs a side to ask for where a comparison has none to judge their spread by."""

MOST = 1000
"""More runs than this are not worth naming: the change is too close to the margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """By how much a metric may change without mattering.

    `relative` is a share (0.05 is 5 %), `absolute` in the metric's unit; where both are stated a
    change matters only where it exceeds both. `noise` is a multiple of the calibrated noise floor,
    and makes the margin wider, never narrower.
    """

    relative: float | None = None
    absolute: float | None = None
    noise: float | None = None

    def of(self, base: float, floor: float | None) -> float | None:
        """The margin as a share of the base; None where nothing is stated, or no floor is known."""
        stated = [] if self.relative is None else [self.relative]
        if self.absolute is not None and base > 0:
            stated.append(self.absolute / base)
        if self.noise is not None:
            if floor is None:
                return None
            stated.append(self.noise * floor)
        return max(stated, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A metric that gates: no worse than the margin.

    `metric` is a key of docs/metrics.md (`ttft.p90`, `output_rate`), or the bare name of what each
    request has (`ttft`, `tpot`, `e2el`), which is compared request by request. With `experiment` it
    holds in that one alone.
    """

    metric: str
    margin: Margin
    experiment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """An effect, the margin it was held against as a share, and what follows.

    `reason` says why in words. `runs_needed` is how many runs a side would have to have in all,
    and `more_runs` how many are missing; both None where none is asked for, or where no number of
    runs would do. `gated` says whether a rule named the metric; all others are exploratory.
    `adjusted` is the p-value that Holm's rule makes of the effect's over all gated metrics.
    `stated` is the margin as it was stated. Of an accuracy, runs may be epochs as well, and
    `questions_needed` says how many questions would do in their place. Where folders tell how much
    they differ, `folders_needed` are asked for a side, and no runs.
    """

    effect: Effect
    margin: float | None
    verdict: Verdict
    gate: Gate | None
    reason: str
    gated: bool
    runs_needed: int | None = None
    more_runs: int | None = None
    questions_needed: int | None = None
    folders_needed: int | None = None
    adjusted: float | None = None
    stated: Margin = Margin()


def judge(
    effect: Effect, margin: Margin, *, floor: float | None = None, gated: bool = False
) -> Judgement:
    """What the effect says when held against the margin, all by itself."""
    share = margin.of(effect.scale, floor)
    verdict, reason = _verdict(effect, share, effect.p, margin)
    return _whole(
        Judgement(
            effect=effect,
            margin=share,
            verdict=verdict,
            gate=None,
            reason=reason,
            gated=gated,
            stated=margin,
        )
    )


def invalid(effect: Effect, reason: str, *, gated: bool = False) -> Judgement:
    """The judgement of what must not be judged."""
    return Judgement(
        effect=effect,
        margin=None,
        verdict="invalid",
        gate="invalid" if gated else None,
        reason=reason,
        gated=gated,
    )


def together(judgements: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """The judgements with Holm's rule over those that gate: more metrics, more false alarms.

    A gated one is better or worse only where its adjusted p-value is below 0.05 too. `same` is not
    adjusted: a gate passes only where every metric does, and needs no correction for that.
    """
    gated = [one for one in judgements if one.gated and one.verdict != "invalid"]
    held = holm([one.effect.p if one.effect.p is not None else 1.0 for one in gated])
    adjusted = {id(one): p for one, p in zip(gated, held, strict=True)}
    return tuple(_adjusted(one, adjusted.get(id(one))) for one in judgements)


def holm(values: Sequence[float]) -> list[float]:
    """P-values such that, of all below a level, the chance of any false one is at most that level.

    Holm 1979: the smallest times their number, the next times one less, and never falling.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    result, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, values[place] * (len(values) - rank)))
        result[place] = highest
    return result


def _adjusted(one: Judgement, p: float | None) -> Judgement:
    if p is None or one.effect.p is None:
        return one
    verdict, reason = _verdict(one.effect, one.margin, p, one.stated)
    return _whole(replace(one, adjusted=p, verdict=verdict, reason=reason))


def _verdict(
    effect: Effect, margin: float | None, p: float | None, stated: Margin
) -> tuple[Verdict, str]:
    """By the precedence of docs/verdicts.md, and with nothing good of what is in doubt."""
    if anything := boundless(effect, margin, stated):
        return "inconclusive", anything
    verdict, reason = _seen(effect, margin, p)
    change = effect.worsening
    if effect.doubt is None or change is None or margin is None or _unjudged(effect, margin):
        return verdict, reason
    good = verdict in {"same", "better"} or (verdict == "inconclusive" and change[2] < margin)
    if good or (verdict == "worse" and effect.doubted_either_way):
        return "inconclusive", effect.doubt
    return verdict, reason


def _seen(effect: Effect, margin: float | None, p: float | None) -> tuple[Verdict, str]:
    """By the precedence of docs/verdicts.md; what is invalid was found before."""
    change = effect.worsening
    if (reason := _unjudged(effect, margin)) or change is None or margin is None:
        return "inconclusive", reason or "nothing says how sure it is"
    point, low, high = change
    if -margin < low and high < margin:
        certain = ", though it is not nothing" if low > 0 or high < 0 else ""
        return "same", f"the whole interval lies within the margin{certain}"
    if low <= 0 <= high:
        return "inconclusive", "it may not have changed at all, or by as much as the margin"
    if abs(point) <= margin / 2:
        return "inconclusive", (
            "it did change, most likely by less than half the margin, but perhaps by all of it"
        )
    if p is not None and p >= 1 - LEVEL:
        return "inconclusive", "with so many rules, chance alone makes one look as bad or as good"
    verdict: Verdict = "worse" if low > 0 else "better"
    return verdict, f"it is {verdict}, by more than chance and by more than half the margin"


def boundless(effect: Effect, margin: float | None, stated: Margin) -> str | None:
    """That nothing could be worse by more than the margin, and which part of it does that."""
    room = _room(effect)
    if margin is None or effect.worsening is None or not room or margin < room:
        return None
    shares = {
        "percentage": stated.relative or 0.0,
        "absolute part": (stated.absolute or 0.0) / (effect.scale or 1.0),
        "multiple of the noise": margin,
    }
    part = next(name for name, share in shares.items() if share >= margin * (1 - 1e-9))
    unit = "points" if in_points(effect.metric) else "% of base"
    return (
        f"the {part} of its margin is {margin * 100:,.1f} {unit}, and it can get worse by "
        f"{room * 100:,.1f} at most, so anything would pass: state a smaller one"
    )


def _room(effect: Effect) -> float | None:
    """The most by which the metric can get worse; None where nothing bounds it."""
    if not in_points(effect.metric):
        return 1.0 if effect.better == "higher" else None
    base = effect.base or 0.0
    return base if effect.better == "higher" else 1 - base


def _unjudged(effect: Effect, margin: float | None) -> str | None:
    """Why the effect cannot be held against a margin; None where it can."""
    if effect.worsening is None:
        return effect.reason
    if effect.how == "one pair":
        alone = "with one pair of runs, nothing tells how much runs vary"
        return alone if effect.runs == (1, 1) else FEW
    if margin is None:
        return "no margin is known: state one, or calibrate where it is a multiple of the noise"
    return None


def _whole(one: Judgement) -> Judgement:
    """With what a gate makes of it, and how many runs would decide it."""
    gate = _gate(one) if one.gated else None
    needed = questions = folders = None
    if "inconclusive" in {one.verdict, gate}:
        needed, questions, folders = _needed_runs(one), _needed_questions(one), _needed_folders(one)
    more = None if needed is None else max(0, needed - min(one.effect.runs))
    reason = one.reason
    if one.verdict == "worse" and gate == "inconclusive":
        reason = "it is worse, though by less than the margin as far as these runs tell"
    return replace(
        one,
        gate=gate,
        reason=reason,
        runs_needed=needed,
        more_runs=more,
        questions_needed=questions,
        folders_needed=folders,
    )


def _gate(one: Judgement) -> Gate:
    """Whether it is no worse than the margin: what is worse fails where its point lies beyond."""
    change = one.effect.worsening
    if one.verdict == "worse":
        beyond = change is None or one.margin is None or change[0] > one.margin
        return "fail" if beyond else "inconclusive"
    if one.verdict in {"same", "better"} or _not_inferior(one):
        return "pass"
    return "inconclusive"


def _not_inferior(one: Judgement) -> bool:
    if _unjudged(one.effect, one.margin) or one.margin is None or one.effect.doubt:
        return False
    if boundless(one.effect, one.margin, one.stated):
        return False
    change = one.effect.worsening
    return change is not None and change[2] < one.margin


def _needed_runs(one: Judgement) -> int | None:
    """How many runs a side would decide; None: not reachable."""
    runs, gap = min(one.effect.runs), one.effect.gap
    # Where hardly a question changed, only other questions could tell more; of folders, others.
    return None if (gap and gap.few) or one.effect.folders else _needed(one, runs, MOST)


def _needed_questions(one: Judgement) -> int | None:
    """How many questions would decide; where hardly one changed the interval goes by 1 / n."""
    gap = one.effect.gap
    if gap is None:
        return None
    return _needed(one, gap.questions, MOST * gap.questions, power=1 if gap.few else 2)


def _needed_folders(one: Judgement) -> int | None:
    """How many folders a side would decide, if they differ as these do; None: not reachable."""
    target, folders, change = _target(one), one.effect.folders, one.effect.worsening
    if boundless(one.effect, one.margin, one.stated) or not (target and folders and change):
        return None
    spread = (change[2] - change[1]) / 2 / _width(sum(folders) - 2, *folders)
    fewest = min(folders) + 1
    needed = fewest + bisect_left(
        range(fewest, MOST + 1),
        -target,
        key=lambda count: -spread * _width(2 * count - 2, count, count),
    )
    return needed if needed <= MOST else None


def _width(freedom: float, *counts: int) -> float:
    """Half an interval of the difference of two means of so many, in standard deviations."""
    return quantile(freedom, (1 + LEVEL) / 2) * hypot(*(count**-0.5 for count in counts))


def _target(one: Judgement) -> float | None:
    """What half the interval must come to: margin - max(point, 0); None: not reachable."""
    change = one.effect.worsening
    doubted = one.effect.doubt and one.reason == one.effect.doubt
    if change is None or one.margin is None or doubted:
        return None
    target = one.margin - max(change[0], 0.0)
    return target if target > 0 else None


def _needed(one: Judgement, runs: int, most: int, power: int = 2) -> int | None:
    """Runs x (half width / target)^2, target = margin - max(point, 0); None: not reachable."""
    change = one.effect.worsening
    if one.effect.doubt and one.reason == one.effect.doubt:
        return None
    # More runs of an engine without noise would be identical too.
    if one.effect.how == "no spread" or boundless(one.effect, one.margin, one.stated):
        return None
    if one.effect.how == "one pair" or (one.effect.ratio is not None and change is None):
        return max(FEWEST, runs + 1)
    target = _target(one)
    if change is None or target is None:
        return None
    # Rounding must not ask for one run more.
    needed = ceil(runs * ((change[2] - change[1]) / 2 / target) ** power - 1e-9)
    return max(needed, runs + 1) if needed <= most else None
