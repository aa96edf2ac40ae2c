"""Suites: checked files of experiments."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from results.errors import InputError
from suites import experiment, grid, override, reading, rules
from suites.experiment import Experiment, Name, Repeats
from suites.field import annotations, check, check_keys
from suites.reading import Problem, place
from suites.words import expected, listed, nearest, quoted

LINES = 50
"""How many problems are worth printing at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A checked suite file; `text` is the file as it is, before the overrides.

    `asked` is the path or the name by which the user asked for it, `path` where it was found.
    `gate` holds its rules as they are written. An experiment's own repeats come before the
    suite's, but not before those of an override.
    """

    name: Name
    asked: str
    path: str
    text: str
    experiments: tuple[Experiment, ...]
    overrides: tuple[str, ...] = ()
    seed: Annotated[int, Ge(0)] = 0
    repeats: Repeats = 1
    order: Literal["as-written", "shuffled", "abba"] = "as-written"
    budget: Annotated[float, Gt(0)] | None = None
    gate: Mapping[str, Any] = field(default_factory=dict)

    def repeated(self, experiment: Experiment) -> range:
        """The numbers of an experiment's repeats."""
        return range(experiment.repeats or self.repeats)


SETTINGS = {key: annotations(Suite)[key] for key in ("seed", "repeats", "order", "budget")}
"""What a suite takes beside its name and its experiments."""

_NEEDED = {"suite": expected(Name), "experiments": "a list of experiments"}
KEYS = (*_NEEDED, *SETTINGS, rules.KEY)


def load(path_or_name: str, overrides: Sequence[str] = ()) -> Suite:
    """The suite in a file, or the one of that name that ships inside, with overrides applied.

    Raises InputError with a line for each thing that is wrong.
    """
    path = _find(path_or_name)
    text = reading.contents(path)
    tree, problems = reading.read(text, str(path))
    changed = {override.apply(tree, change): change for change in overrides}
    settings = _settings(tree, problems)
    experiments = _experiments(tree, path.parent, settings, problems)
    if ("repeats",) in changed:
        experiments = tuple(replace(one, repeats=None) for one in experiments)
    gate = _gate(tree, problems)
    if problems:
        raise InputError(_lines(problems, str(path), changed))
    return Suite(
        name=tree["suite"],
        asked=path_or_name,
        path=str(path),
        text=text,
        experiments=experiments,
        overrides=tuple(overrides),
        gate=gate,
        **settings,
    )


def shipped() -> dict[str, Path]:
    """The suites that ship inside, by name."""
    folder = Path(str(resources.files("suites") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _find(path_or_name: str) -> Path:
    if re.search(r"[./\\]", path_or_name):
        return Path(path_or_name)
    known = shipped()
    if path_or_name in known:
        return known[path_or_name]
    near = nearest(path_or_name, known)
    way = f"did you mean {near}?" if near else "a file needs its suffix, as in my.yaml"
    raise InputError(f'expected a suite file or {listed(known)}, got "{path_or_name}": {way}')


def _settings(tree: Any, problems: list[Problem]) -> dict[str, Any]:
    """The suite's own settings, those that are wrong left out."""
    if not check_keys(tree, KEYS, _NEEDED, (), problems):
        return {}
    if "suite" in tree:
        check(Name, tree["suite"], ("suite",), problems)
    made = {
        key: check(annotation, tree[key], (key,), problems)
        for key, annotation in SETTINGS.items()
        if key in tree
    }
    return {key: value for key, value in made.items() if value is not None}


def _experiments(
    tree: Any, folder: Path, settings: dict[str, Any], problems: list[Problem]
) -> tuple[Experiment, ...]:
    if not isinstance(tree, dict) or "experiments" not in tree:
        return ()
    written = tree["experiments"]
    if not isinstance(written, list) or not written:
        sentence = f"expected a list of experiments, got {quoted(written)}: write one"
        problems.append(Problem(("experiments",), sentence))
        return ()
    _name_once(written, problems)
    made: list[Experiment] = []
    points = 0
    for index, mapping in enumerate(written):
        one = experiment.read(
            mapping, ("experiments", index), problems, folder=folder, seed=settings.get("seed", 0)
        )
        if one:
            made.append(one)
            points += len(one.grid) * (one.repeats or settings.get("repeats", 1))
        if points > grid.POINTS:
            problems.append(grid.too_large(("experiments",), f"{points:,} or more with repeats"))
            break
    return tuple(made)


def _gate(tree: Any, problems: list[Problem]) -> dict[str, Any]:
    """The rules as they are written, once they are checked; none where none are."""
    if not isinstance(tree, dict) or rules.KEY not in tree:
        return {}
    written = tree.get("experiments")
    mappings = written if isinstance(written, list) else []
    named = [one.get("name") for one in mappings if isinstance(one, dict)]
    known = [name for name in named if isinstance(name, str)]
    rules.read(tree[rules.KEY], (rules.KEY,), problems, known)
    gate = tree[rules.KEY]
    return gate if isinstance(gate, dict) else {}


def _name_once(written: list[Any], problems: list[Problem]) -> None:
    first: dict[str, int] = {}
    for index, mapping in enumerate(written):
        name = mapping.get("name") if isinstance(mapping, dict) else None
        if isinstance(name, str) and first.setdefault(name, index) != index:
            sentence = (
                f"expected a name of its own, got {quoted(name)} as in "
                f"experiments[{first[name]}]: rename one"
            )
            problems.append(Problem(("experiments", index, "name"), sentence))


def _lines(problems: list[Problem], file: str, changed: dict[reading.Path, str]) -> str:
    """A line a problem, under the file or under the override that brought it."""
    lines = []
    for path, sentence in problems:
        brought = [change for spot, change in changed.items() if path[: len(spot)] == spot]
        where = f"--set {brought[-1]}" if brought else file
        lines.append(": ".join(filter(None, [where, place(path), sentence])))
    lines = list(dict.fromkeys(lines))
    more = [f"{file}: and {len(lines) - LINES} more"] if len(lines) > LINES else []
    return "\n".join(lines[:LINES] + more)
