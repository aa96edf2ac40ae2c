"""Text like that of coding agents: source code, logs and diffs, generated from a seed."""

import random
from collections.abc import Callable

# fmt: off
_VERBS = [
    "load", "read", "parse", "merge", "split", "find", "check", "build", "store", "fetch", "rank",
    "score", "open", "apply",
]
_NOUNS = [
    "block", "cache", "token", "batch", "worker", "queue", "index", "shard", "route", "lease",
    "frame", "buffer", "record", "span", "node", "graph", "column", "page", "ticket", "window",
    "cursor", "tenant", "bucket", "signal", "policy", "budget", "stream", "replica",
]
_KINDS = ["int", "str", "float", "bool", "bytes", "list[int]", "dict[str, int]", "Path", "None"]
_LEVELS = ["DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR"]
_PARTS = ["core", "api", "net", "disk", "auth", "plan", "sync"]
# fmt: on


def prose(characters: int, seed: int) -> str:
    """At least so many characters of text, the same for the same seed."""
    draw = random.Random(seed)  # noqa: S311 - the same for the same seed
    writers: tuple[Callable[[random.Random], str], ...] = (_function, _function, _log, _diff, _note)
    parts: list[str] = []
    length = 0
    while length < characters:
        part = draw.choice(writers)(draw)
        parts.append(part)
        length += len(part)
    return "".join(parts)


def _name(draw: random.Random) -> str:
    return f"{draw.choice(_VERBS)}_{draw.choice(_NOUNS)}"


def _function(draw: random.Random) -> str:
    name, taken, made = _name(draw), draw.choice(_NOUNS), draw.choice(_NOUNS)
    lines = [
        f"def {name}_{draw.randrange(1000)}({taken}: {draw.choice(_KINDS)}, limit: int = "
        f"{draw.randrange(4096)}) -> {draw.choice(_KINDS)}:",
        f'    """The {made} of a {taken}, at most `limit` of them."""',
        f"    {made} = {_name(draw)}({taken}, {draw.randrange(100)})",
    ]
    for _ in range(draw.randint(1, 5)):
        other = draw.choice(_NOUNS)
        lines.append(f"    for {other} in {made}.{other}s:")
        lines.append(f"        if {other}.{draw.choice(_NOUNS)} > {draw.randrange(10_000)}:")
        lines.append(f"            {made}.append({_name(draw)}({other}, limit))")
    return "\n".join([*lines, f"    return {made}", "", "", ""])


def _log(draw: random.Random) -> str:
    lines = []
    second = draw.randrange(86_400)
    for _ in range(draw.randint(4, 16)):
        second += draw.randrange(20)
        clock = f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        lines.append(
            f"{clock}.{draw.randrange(1000):03} {draw.choice(_LEVELS)} {draw.choice(_PARTS)}."
            f"{draw.choice(_NOUNS)}: {_name(draw)} took {draw.randrange(5000)} ms, "
            f"{draw.choice(_NOUNS)}={draw.randrange(1 << 32):08x}"
        )
    return "\n".join([*lines, "", ""])


def _diff(draw: random.Random) -> str:
    path = f"{draw.choice(_PARTS)}/{draw.choice(_NOUNS)}_{draw.choice(_NOUNS)}.py"
    start = draw.randrange(1, 900)
    lines = [f"--- a/{path}", f"+++ b/{path}", f"@@ -{start},6 +{start},7 @@"]
    for _ in range(draw.randint(3, 9)):
        sign = draw.choice("+- ")
        lines.append(f"{sign}    {draw.choice(_NOUNS)} = {_name(draw)}({draw.randrange(1000)})")
    return "\n".join([*lines, "", ""])


def _note(draw: random.Random) -> str:
    return (
        f"The {draw.choice(_NOUNS)} should {draw.choice(_VERBS)} each {draw.choice(_NOUNS)} before "
        f"the {draw.choice(_NOUNS)} of {draw.choice(_PARTS)} is full; today it waits for "
        f"{draw.randrange(2, 90)} of them. Please look at `{_name(draw)}` and say why.\n\n"
    )
