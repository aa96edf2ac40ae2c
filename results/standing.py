"""What a difference means: of what is compared, harmless, or in the way of a comparison."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from results.facts import ACCURACY, CHOSEN, EFFECTIVE, OBSERVED, Facts

Standing = Literal["refusing", "factor", "allowed", "harmless"]
"""What a difference means: the last three do not stand in the way of a comparison."""

PROFILE = tuple(
    f"deployment.engine.{name}"
    for name in (
        *("mode", "tokenizer", "vocabulary", "thinking", "reasoning_effort", "exact_output"),
        *("chunk_usage", "forced_outputs", "body", "headers", "timeouts", "proxy"),
    )
)
"""Settings of an engine that say how the client asks, and not what the server is."""

REQUESTED = ("workload", "load", "suite_seed")
"""What cells must have in common to be compared at all."""

MANY = ("workload", "load")
"""What a side may have several of."""

HARMLESS = (
    *("environment.host", "environment.git", "environment.gpus.uuid"),
    *(f"environment.packages.{name}" for name in ("plotly", "pyarrow", "pydantic")),
    *(f"deployment.engine.{name}" for name in ("port", "api_key_env", "ca_file")),
    *(f"deployment.engine.{name}" for name in ("nodes", "launcher", "rank_urls")),
    *(f"deployment.engine.{name}" for name in ("ready_timeout", "stop_timeout")),
    *("deployment.engine.served_model_name", "evidence.configuration.models"),
    *("evidence.features.replies", "evidence.features.fingerprints"),
)
"""What says who, where and when, or follows from something else that is looked at."""

MIXED = "a side is not one thing"

IDENTITY = tuple(f"deployment.engine.{name}" for name in ("kind", "name", "url", "python"))
"""What another engine differs in."""

# Absent from one of these means not set; elsewhere it means that nobody told.
_OPEN = (
    *("deployment.flags", "deployment.environment", "evidence.configuration.command"),
    *("deployment.engine.headers", "deployment.engine.body"),
)
_SERVED = "evidence.features.model_served"
_ASKED = ACCURACY.removesuffix(".")
_SHORT = (
    *("", "deployment.", "deployment.engine.", "evidence.", "evidence.features."),
    *("evidence.configuration.", ACCURACY, CHOSEN, "environment."),
)
_FLAGS = {
    "attention": ("attention-backend",),
    "kv_format": ("kv-cache-dtype",),
    "moe": ("moe-backend",),
    "max_sequences": ("max-num-seqs",),
    "max_batched_tokens": ("max-num-batched-tokens",),
    "capture_size": ("max-cudagraph-capture-size", "enforce-eager", "compilation-config"),
    "graphs": ("enforce-eager", "compilation-config"),
    "prefix_caching": ("enable-prefix-caching", "no-enable-prefix-caching"),
    "speculative": ("speculative-config",),
}
"""By a feature that is observed, the flags that ask for it and are not called so."""

_COMMAND, _CONFIGURATION = "evidence.configuration.command.", "evidence.configuration."
_VERSION, _TOPOLOGY = "evidence.configuration.version", "deployment.topology"
_OF_TOPOLOGY = ("evidence.gpus", f"{_CONFIGURATION}topology", f"{_CONFIGURATION}ranks")
_OF_PLACE = re.compile(r"(?i)(path|dir|root|home|host|address|url)$")
_SIMULATOR = ("environment.packages.paceline", "environment.packages.numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key in which two sides differ, both values as they may be shown, and what that means."""

    key: str
    base: str
    other: str
    standing: Standing
    reason: str | None = None


def covers(name: str, key: str) -> bool:
    """Whether a name stands for the key: `replay` does for `deployment.replay`."""
    return any(within(key, (f"{start}{name}",)) for start in _SHORT)


def judged(
    base: Facts, other: Facts, factors: Sequence[str], *, simulated: bool
) -> Iterator[Difference]:
    """The differences between two sets of facts; what one setting tells twice is told once."""
    apart = frozenset(key for key in {**base, **other} if not _agree(base, other, key))
    compared = frozenset(key for key in apart if _compared(key, factors))
    by_version = bool(compared & set(IDENTITY)) or not (factors or compared)
    for key in sorted(apart):
        if _another_kind(key, base, other, apart) or _told_twice(key, base, other, apart):
            continue
        if key.startswith(EFFECTIVE):
            version = any(within(one, (_VERSION,)) for one in apart)
            explained = bool(factors or compared) or version
            yield from _effective(key, base, other, explained=explained)
            continue
        standing, reason = _standing(key, base, other, factors)
        follows = reason != MIXED and (
            _follows(key, compared, by_version=by_version)
            or _chose_itself(key, compared, apart if by_version else frozenset())
        )
        if standing == "refusing" and follows:
            standing, reason = "factor", None
        if standing == "refusing" and simulated and not within(key, _SIMULATOR):
            standing, reason = "harmless", "simulated time does not depend on it"
        yield _difference(key, base, other, standing, reason)


def _standing(
    key: str, base: Facts, other: Facts, factors: Sequence[str]
) -> tuple[Standing, str | None]:
    """What a difference in a key means, as far as the key alone decides it."""
    several = max(len(base.get(key, ())), len(other.get(key, ()))) > 1
    if several and not within(key, (*HARMLESS, *MANY)):
        return "refusing", MIXED
    if _compared(key, factors):
        return "factor", None
    if within(key, HARMLESS) or (factors and key == "deployment.engine.name"):
        return "harmless", None
    if not _set_or_not(key, base, other) and (key not in base or key not in other):
        return "harmless", "only one side tells it"
    if key == "deployment.model" and _last_words(base[key]) == _last_words(other[key]):
        return "harmless", "one name in two places"
    return "refusing", _because(key)


def _because(key: str) -> str | None:
    """Why a difference in the key speaks against a comparison, where that needs saying."""
    reasons = {
        "provenance": "what is measured is not compared with what is not",
        _VERSION: "beside what is compared, the engine is another version",
        "objectives": "goodput counts by them",
        "suite_seed": "other content is sent",
        "workload": "other work is asked for",
        "load": "other work is asked for",
        "deployment.model": "models differ, and not only engines",
        _SERVED: "another model answered than was asked for",
        _ASKED: "other questions are asked, in another way, or graded by another key",
        **dict.fromkeys(PROFILE, "the client asks in another way"),
    }
    return next((reason for start, reason in reasons.items() if within(key, (start,))), None)


def _compared(key: str, factors: Sequence[str]) -> bool:
    """Whether the key is of what is compared: a named factor, or all that deployments state."""
    if factors:
        return any(covers(name, key) for name in factors)
    stated = within(key, ("deployment",)) and key != "deployment.model"
    return stated and not within(key, (*PROFILE, *HARMLESS))


def _follows(key: str, compared: frozenset[str], *, by_version: bool) -> bool:
    """Whether what was observed comes of what is compared."""
    if within(key, (_VERSION,)):
        return by_version
    if within(key, _OF_TOPOLOGY) and _TOPOLOGY in compared:
        return True
    if key.startswith(_COMMAND):
        flag = f"deployment.flags.{key.removeprefix(_COMMAND)}"
        return by_version or bool(compared & {flag, _TOPOLOGY, "deployment.replay"})
    return not compared.isdisjoint(_origins(key))


def _effective(key: str, base: Facts, other: Facts, *, explained: bool) -> Iterator[Difference]:
    """A difference in what engines say that they run with, in what nobody stated.

    What changes from start to start is none. Of two that were stated alike it stands in the way.
    """
    told = all(any(one.startswith(EFFECTIVE) for one in side) for side in (base, other))
    if not told or max(len(side.get(key, ())) for side in (base, other)) > 1:
        return
    if _OF_PLACE.search(key):
        standing: Standing = "harmless"
        reason = "it says where the engine runs"
    elif explained:
        standing, reason = "harmless", "see whether it comes of what is compared"
    else:
        standing, reason = "refusing", "the engine says so, and nothing that is stated differs"
    yield _difference(key, base, other, standing, reason)


def _chose_itself(key: str, compared: frozenset[str], by_version: frozenset[str]) -> bool:
    """Whether nobody asked for it, and what is compared is a reason to choose otherwise.

    Of one engine on one topology it would be chance, or a part that fell out without a word.
    """
    reasons = (_TOPOLOGY, *(key for key in IDENTITY if key != "deployment.engine.name"))
    version = any(within(one, (_VERSION,)) for one in by_version)
    return key.startswith(CHOSEN) and (version or not compared.isdisjoint(reasons))


def _origins(key: str) -> list[str]:
    """The stated settings that an observed one of that key can come of."""
    for start in (_COMMAND, _CONFIGURATION, "evidence.features.", CHOSEN):
        if key.startswith(start):
            name = key.removeprefix(start)
            flags = (name.rpartition(".")[2].replace("_", "-"), *_FLAGS.get(name, ()))
            return [
                f"deployment.{name}",
                f"deployment.engine.{name}",
                f"deployment.flags.{name}",
                *(f"deployment.flags.--{flag}" for flag in flags),
            ]
    return []


def _told_twice(key: str, base: Facts, other: Facts, apart: frozenset[str]) -> bool:
    """Whether a stated setting differs in the very same way, or both have the same several ones."""
    if within(key, (*HARMLESS, *MANY)) and base.get(key, {}).keys() == other.get(key, {}).keys():
        return True
    return any(
        origin in apart and all(one.get(key) == one.get(origin) for one in (base, other))
        for origin in _origins(key)
    )


def _another_kind(key: str, base: Facts, other: Facts, apart: frozenset[str]) -> bool:
    """Whether only one side has it, since engines of two kinds have settings of their own."""
    own = within(key, ("deployment.engine", "evidence.configuration"))
    alone = (key not in base or key not in other) and not within(key, _OPEN[3:])
    return own and alone and "deployment.engine.kind" in apart


def _set_or_not(key: str, base: Facts, other: Facts) -> bool:
    """Whether its absence on one side means that it was not set, and not that nobody told."""
    if key == _SERVED:
        # Told only where it is another model than the one that was asked for.
        return True
    if key.startswith(ACCURACY):
        # A server that cannot tell is not one that says so; all else is stated, or not set.
        return key != f"{ACCURACY}synthetic_acceptance"
    if not key.startswith(OBSERVED):
        return within(key, (*_OPEN, *REQUESTED, "objectives"))
    open_start = next((start for start in _OPEN if within(key, (start,))), None)
    return open_start is not None and all(
        any(within(told, (open_start,)) for told in side) for side in (base, other)
    )


def _difference(
    key: str, base: Facts, other: Facts, standing: Standing, reason: str | None
) -> Difference:
    absent = "as asked" if key == _SERVED else "not told" if key.startswith(OBSERVED) else "not set"
    told = (dict.fromkeys(one.get(key, {}).values()) for one in (base, other))
    values = [", ".join(values) or absent for values in told]
    if values[0] == values[1] and base.get(key, {}).keys() != other.get(key, {}).keys():
        values[1] = f"{values[1]}, another one"
    return Difference(key=key, base=values[0], other=values[1], standing=standing, reason=reason)


def _agree(base: Facts, other: Facts, key: str) -> bool:
    values = base.get(key, {}).keys(), other.get(key, {}).keys()
    return values[0] == values[1] and len(values[0]) == 1


def _last_words(values: Mapping[str, str]) -> set[str]:
    return {value.rstrip("/").rpartition("/")[2] for value in values.values()}


def within(key: str, starts: Iterable[str]) -> bool:
    """Whether the key is one of these or lies below one."""
    return any(key == start or key.startswith(f"{start}.") for start in starts)
