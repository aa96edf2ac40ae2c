"""Changes to a suite from the command line: `experiments.agents.load.duration=30`."""

from typing import Any

from results.errors import InputError
from suites.reading import Path, place, read
from suites.words import listed, nearest

_OPTIONAL = frozenset({"environment", "objectives"})
"""The mappings that an override may begin, because their keys are all optional."""


def apply(tree: Any, override: str) -> Path:
    """Changes one value of a tree in place and gives the path that it has.

    Raises InputError where the override is not `path=value` or its path leads nowhere.
    """
    keys, equals, text = override.partition("=")
    if not equals or not all(keys.split(".")):
        raise InputError(f'--set: expected a path and a value, got "{override}": write seed=3')
    name = f"--set {override}"
    value, problems = read(text, name)
    if problems:
        raise InputError(f"{name}: {problems[0].sentence}")
    path: list[str | int] = []
    *parents, last = keys.split(".")
    for key in parents:
        if isinstance(tree, dict) and key in _OPTIONAL:
            tree.setdefault(key, {})
        path.append(_step(tree, key, path, name))
        tree = tree[path[-1]]
    # A mapping may get a key that it has not yet; whether one is meant, the suite's check knows.
    path.append(last if isinstance(tree, dict) else _step(tree, last, path, name))
    tree[path[-1]] = value
    return tuple(path)


def _step(tree: Any, key: str, path: list[str | int], name: str) -> str | int:
    """The key or the index that a part of a path stands for."""
    steps = _steps(tree)
    if key in steps:
        return steps[key]
    where = f"{name}: {place(tuple(path))}".removesuffix(": ")
    if not steps:
        raise InputError(f"{where}: holds no keys, so {key} leads nowhere: end the path before it")
    near = nearest(key, steps)
    way = f"write it as {near}" if near else "write one of them"
    raise InputError(f'{where}: expected {listed(steps)}, got "{key}": {way}')


def _steps(tree: Any) -> dict[str, str | int]:
    """Where a path may go on: keys, indices, and the names of entries that have one."""
    if isinstance(tree, dict):
        return {key: key for key in tree}
    if not isinstance(tree, list):
        return {}
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in tree]
    named: dict[str, str | int] = {n: i for i, n in enumerate(names) if isinstance(n, str)}
    return named | {str(index): index for index in range(len(tree))}
