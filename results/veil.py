"""What deployments and servers say of themselves, as it may be kept in a file that is published."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from results.run import RunPoint
from results.secret import HIDDEN, TELLING, open_setting, open_variable, secret, without_login

_VARIABLES = frozenset(("environment", "headers"))


def veiled(point: RunPoint) -> RunPoint:
    """The point without what may be a secret; two that differ in nothing else stay different.

    A variable's value that is no plain switch is told by its digest, unless its name says that it
    is a secret: then nothing of it is kept.
    """
    cell = replace(point.cell, deployment=_open("", point.cell.deployment))
    evidence = point.evidence
    if evidence is not None:
        observed = evidence.observed
        seen = replace(
            observed,
            requested=_open("", observed.requested),
            features=_open("", observed.features),
            configuration=_open("", observed.configuration),
        )
        evidence = replace(evidence, observed=seen)
    return replace(point, cell=cell, evidence=evidence)


def _open(name: str, value: Any) -> Any:
    """A setting with all that it holds."""
    match value:
        case Mapping() if name in _VARIABLES:
            return {key: _variable(key, str(held)) for key, held in value.items()}
        case Mapping():
            return {key: _open(key, held) for key, held in value.items()}
        case str():
            return _words(name, value)
        case list() | tuple():
            return list(_listed(name, value))
        case bool() | int() | float() | None:
            return value
    return _words(name, str(value))


def _words(name: str, value: str) -> str:
    if name == "command":
        return " ".join(_flags(value.split()))
    return open_setting(name, value)


def _listed(name: str, values: Sequence[Any]) -> Iterator[Any]:
    """A list's entries; those of words as a command has them."""
    if all(isinstance(value, str) for value in values):
        yield from _flags(values)
    else:
        yield from (_open(name, value) for value in values)


def _flags(words: Sequence[str]) -> Iterator[str]:
    """Words of a command, the values of secret flags hidden."""
    hides = False
    for word in words:
        flag, given, _ = word.partition("=")
        if hides:
            yield HIDDEN
        elif given and secret(flag):
            yield f"{flag}={HIDDEN}"
        else:
            yield str(without_login(open_setting("", word)))
        hides = not hides and not given and word.startswith("-") and secret(word)


def _variable(name: str, value: str) -> str:
    shown = open_variable(name, value)
    if shown != HIDDEN or TELLING.search(name):
        return shown
    return f"{HIDDEN} {hashlib.sha256(f'{name}={value}'.encode()).hexdigest()[:8]}"
