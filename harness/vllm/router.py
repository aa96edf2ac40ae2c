"""What stands before several servers: one that runs already, or a command that starts one."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from string import Formatter
from urllib.parse import urlsplit

Servers = Mapping[str, Sequence[str]]
"""The addresses of servers by their role: `server`, or `prefill` and `decode`."""

ROLES = {"servers": "server", "prefill": "prefill", "decode": "decode"}
PARTS = frozenset(("", "_hosts", "_ports"))
NAMES = frozenset(("host", "port", *(f"{name}{part}" for name in ROLES for part in PARTS)))
"""What may stand in braces in a command: where the router listens, and whom it sends to."""

AFTER = "--policy consistent_hash{ranks} --host {{host}} --port {{port}} --retry-max-retries 0"
BEFORE = {
    False: "vllm-router --worker-urls {servers} ",
    True: "vllm-router --vllm-pd-disaggregation {prefill:--prefill} {decode:--decode} ",
}
"""The router that is meant where none is stated, before several servers and before two pools.

What it sends again would hide failures.
"""


def usual(*, pooled: bool, ranks: int | None) -> str:
    """The command of vLLM's own router; `ranks` are those of each node, where all have as many."""
    told = f" --intra-node-data-parallel-size {ranks}" if ranks else ""
    return BEFORE[pooled] + AFTER.format(ranks=told)


def runs(router: str | None) -> bool:
    """Whether it is the address of one that runs already."""
    return router is not None and router.startswith(("http://", "https://"))


def check(router: str) -> None:
    """Raises ValueError where it is neither an address nor a command that can be filled in."""
    if runs(router):
        if not urlsplit(router).hostname or "@" in router:
            raise ValueError("router is no address: write http://HOST:PORT, or a command")
        return
    try:
        words = shlex.split(router)
        named = [[one for _, one, _, _ in Formatter().parse(word) if one] for word in words]
    except ValueError as error:
        raise ValueError(f"router cannot be read as a command: {error}") from error
    names = {name for of_word in named for name in of_word}
    if any(len(of_word) > 1 for of_word in named):
        raise ValueError("router has a word with two names in braces: write them apart")
    if unknown := sorted(names - NAMES):
        raise ValueError(f"router says {{{unknown[0]}}}: write one of {', '.join(sorted(NAMES))}")
    if "port" not in names:
        raise ValueError("router must listen where it is asked: write {port} where it is told that")


def command(router: str, servers: Servers, host: str, port: int) -> tuple[str, ...]:
    """The words that start it.

    A word with a list in braces is there for each of the list: `--to={decode}`, and
    `{decode:--to}`, which puts `--to` before each.
    """
    known = {"host": [host], "port": [str(port)]}
    for name, role in ROLES.items():
        places = [urlsplit(url) for url in servers.get(role, ())]
        known[name] = list(servers.get(role, ()))
        known[f"{name}_hosts"] = [place.hostname or "" for place in places]
        known[f"{name}_ports"] = [str(place.port) for place in places]
    return tuple(word for one in shlex.split(router) for word in _filled(one, known))


def _filled(word: str, known: Mapping[str, Sequence[str]]) -> Iterator[str]:
    named = [(name, before) for _, name, before, _ in Formatter().parse(word) if name]
    if not named:
        yield word
        return
    ((name, before),) = named
    for value in known[name]:
        yield from (before, value) if before else (word.format(**{name: value}),)
