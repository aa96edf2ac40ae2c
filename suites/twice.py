"""A plan in which an engine runs against itself, so that all that differs is noise."""

from dataclasses import replace

from harness.point import Point
from results.errors import InputError
from suites.plan import Plan, plan
from suites.suite import Suite
from suites.words import listed

FEWEST = 6
"""Runs of each of the two, at least.

With fewer their spread is a guess, and there are too few ways to name them for one false alarm in
twenty to be seen.
"""

AGAIN = "again"
"""What is added to the engine's name where it runs for the second time."""


def twice(suite: Suite, words: str | None = None) -> Plan:
    """The suite's first arm, or the one with these words, as two arms that differ in name alone.

    They run side by side and turn round every other repeat (A B, B A). Everything that is sent is
    what the suite sends. Raises InputError where not just one arm has the words.
    """
    enough = [
        replace(one, repeats=max(FEWEST, len(suite.repeated(one)))) for one in suite.experiments
    ]
    whole = plan(replace(suite, order="abba", experiments=tuple(enough)))
    arm = _arm(whole, words)
    chosen = [point for point in whole.points if point.deployment.arm == arm]
    ordered = [each for point in chosen for each in _both(point)]
    return replace(
        whole,
        suite=f"{suite.name}-calibration",
        maker="calibrate",
        points=tuple(replace(point, position=n) for n, point in enumerate(ordered)),
    )


def _both(point: Point) -> list[Point]:
    """The point, and the same under another name; turned round in every other repeat."""
    engine = point.deployment.engine
    renamed = replace(engine, name=f"{engine.name} {AGAIN}")  # type: ignore[type-var]  # every kind is a dataclass
    again = replace(point, deployment=replace(point.deployment, engine=renamed))
    return [again, point] if point.repeat % 2 else [point, again]


def _arm(whole: Plan, words: str | None) -> str:
    arms = list(dict.fromkeys(point.deployment.arm for point in whole.points))
    if words is None:
        return arms[0]
    found = [arm for arm in arms if arm == words] or [
        arm for arm in arms if set(words.split()) <= set(arm.split())
    ]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f'--arm: expected words that one arm alone has, got "{words}": the arms are {listed(arms)}'
    )
