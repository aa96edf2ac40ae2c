"""An engine that somebody else runs: any OpenAI-compatible endpoint."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

from harness.client import Reply, Request
from harness.clock import Clock
from harness.engine import Affinity, Deployment, Server
from harness.load import Load
from harness.wire.client import HttpClient
from harness.wire.deadline import Timeouts
from harness.wire.dialect import Dialect, Mode, refusal
from harness.wire.pool import Pool, plain, tokenized
from harness.wire.render import Renderer
from results.errors import EngineError, UnsupportedError
from results.evidence import Observed
from results.secret import stated
from workloads.prompt import Prompt, Role
from workloads.session import Workload

CHECK_INPUT, CHECK_OUTPUT = 16, 4

MOST = 1 << 16
"""How many bytes of what an endpoint says of itself are kept."""

LISTED, LONGEST = 5, 80
"""How many of its models are named in an error, and up to how many characters of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where it is, how to word requests for it, and what its owner says of it.

    `tokenizer` is a `tokenizer.json` or its folder; without one, prompts are ids below
    `vocabulary`, in mode `ids` only. `api_key_env` names a variable; the key itself is only ever
    handed to `start`. `gpus` is what the owner states, for figures per GPU. `headers` and `body`
    are added to every request and are no place for secrets. With `affinity: port` each
    data-parallel rank has an address of its own in `rank_urls`.
    """

    kind: Literal["endpoint"] = "endpoint"
    name: str = "endpoint"
    url: str
    rank_urls: tuple[str, ...] = ()
    affinity: Affinity = "rank-header"
    model: str
    mode: Mode = "ids"
    tokenizer: str | None = None
    vocabulary: int = 32_000
    thinking: bool = False
    reasoning_effort: str | None = None
    exact_output: bool = True
    chunk_usage: bool = False
    forced_outputs: bool = False
    api_key_env: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    timeouts: Timeouts = field(default_factory=Timeouts)
    ca_file: str | None = None
    proxy: str | None = None
    gpus: int | None = None
    provenance: Literal["measured", "plumbing"] = "measured"

    def __post_init__(self) -> None:
        if where := self._secret():
            raise ValueError(
                f"{where} holds a secret, and a suite is copied into every run folder: name its "
                "environment variable as api_key_env, and state url and proxy without user, "
                "password and query"
            )
        for url in (self.url, *self.rank_urls):
            _check_url(url)
        if bool(self.rank_urls) != (self.affinity == "port"):
            raise ValueError(
                "rank_urls are the addresses of the ranks of affinity port: state both or neither"
            )
        if self.forced_outputs and self.mode != "ids":
            raise ValueError(
                f"forced_outputs are tokens, and mode {self.mode} sends text: write mode: ids"
            )
        if self.mode != "ids" and self.tokenizer is None:
            raise ValueError(f"mode {self.mode} needs text: state a tokenizer, or use mode ids")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variable with its key, where it needs one."""
        return (self.api_key_env,) if self.api_key_env else ()

    @property
    def clock(self) -> Clock:
        """The wall's."""
        return "wall"

    @property
    def dialect(self) -> Dialect:
        """How its requests are worded."""
        return Dialect(
            model=self.model,
            mode=self.mode,
            thinking=self.thinking,
            reasoning_effort=self.reasoning_effort,
            exact_output=self.exact_output,
            chunk_usage=self.chunk_usage,
            forced_outputs=self.forced_outputs,
            body=self.body,
        )

    def describe(self, deployment: Deployment) -> list[str]:
        """Where requests would go and with what content; nothing is started."""
        self._check(deployment)
        content = self.tokenizer or f"ids below {self.vocabulary}"
        lines = [f"POST {self.url.rstrip('/').removesuffix('/v1')}{self.dialect.path}"]
        lines.append(f"model {self.model}, mode {self.mode}, content from {content}")
        if self.api_key_env:
            lines.append(f"key from ${self.api_key_env}")
        return lines

    @asynccontextmanager
    async def start(
        self, deployment: Deployment, *, seed: int, log: Path, keys: Mapping[str, str]
    ) -> AsyncIterator[Server]:
        """A client of the endpoint, once it has answered one small request with a stream.

        `keys` maps names of environment variables to keys. Raises EngineError where it does not
        answer, and InputError where a file named here cannot be read.
        """
        self._check(deployment)
        client = HttpClient(
            self.url,
            self.dialect,
            Renderer(self._pool()),
            timeouts=self.timeouts,
            headers=self.headers,
            key=self._key(keys),
            ca_file=self.ca_file,
            proxy=self.proxy,
            ranks=self.rank_urls,
            routed=self.affinity == "router",
        )
        try:
            reply = await self._answered(client, seed)
            version = await client.get("/version", most=MOST)
            models = await client.get("/v1/models", most=MOST)
            configuration = {"version": version, "models": _names(models)}
            seconds = reply.closed - (reply.sent or reply.closed)
            log.write_text(f"{client.url} answered in {seconds:.3f} s: {configuration}\n")  # noqa: ASYNC240
            yield Server(
                client=client,
                observe=lambda: self._observed(deployment, client, configuration),
                steps=lambda: None,
                metrics=client.page("/metrics"),
                room=client.room,
            )
        finally:
            await client.close()

    def check(self, workload: Workload, load: Load, deployment: Deployment) -> None:  # noqa: ARG002
        """Raises UnsupportedError where it cannot do this work."""
        if workload.kind == "questions" and (reason := refusal(self.dialect)):
            raise UnsupportedError(f"{self.name}: {reason}")

    def _secret(self) -> str | None:
        """Which setting is or holds a secret; None where none does."""
        if header := stated(self.headers):
            return f"the header {header}"
        if inside := stated(self.body):
            return f"{inside} of body"
        urls = [self.url, *self.rank_urls]
        if any("@" in urlsplit(url).netloc for url in urls):
            return "the url"
        if self.proxy and ("@" in self.proxy or "?" in self.proxy):
            return "the proxy"
        return stated({"the url": urls, "the proxy": self.proxy, "the model": self.model})

    def _check(self, deployment: Deployment) -> None:
        topology = deployment.topology
        if self.gpus is not None and self.gpus != topology.gpus:
            raise UnsupportedError(
                f"{self.name} states gpus: {self.gpus}, and {topology.name} has {topology.gpus}: "
                "write the topology that it really has"
            )
        if self.rank_urls and len(self.rank_urls) != topology.ranks:
            raise UnsupportedError(
                f"{self.name} states {len(self.rank_urls)} rank_urls, and {topology.name} has "
                f"{topology.ranks} ranks: write one for each"
            )
        if deployment.flags or deployment.environment:
            raise UnsupportedError(
                f"endpoint {self.name}: it runs already, so flags and environment cannot be set"
            )

    def _pool(self) -> Pool:
        return tokenized(self.tokenizer) if self.tokenizer else plain(self.vocabulary)

    def _key(self, keys: Mapping[str, str]) -> str | None:
        if self.api_key_env is None:
            return None
        key = keys.get(self.api_key_env, "").strip()
        if not key:
            raise EngineError(f"endpoint {self.name}: ${self.api_key_env} holds no key; set it")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise EngineError(
                f"endpoint {self.name}: ${self.api_key_env} holds what no header can carry"
            )
        return key

    async def _answered(self, client: HttpClient, seed: int) -> Reply:
        """The reply to one small request."""
        messages: tuple[tuple[Role, int], ...] = (("user", 1),)
        prompt = Prompt(
            seeds=np.array([seed % 2**64], dtype=np.uint64),
            tokens=np.array([CHECK_INPUT], dtype=np.int64),
            messages=messages,
        )
        name = f"paceline-check-{seed}"
        request = Request(id=name, prompt=prompt, output=CHECK_OUTPUT, session=name)
        reply = await client.send(request, cut=asyncio.Event(), on_first=lambda _: None)
        if reply.error:
            hint = self._unserved(_names(await client.get("/v1/models")))
            raise EngineError(f"{self.name} does not answer as it should: {reply.error}{hint}")
        return reply

    def _unserved(self, served: list[str]) -> str:
        """What to say where the server lists models and the one asked for is not among them."""
        if not served or self.model in served:
            return ""
        names = [name if len(name) <= LONGEST else f"{name[:LONGEST]}…" for name in served[:LISTED]]
        more = f" and {len(served) - LISTED} more" if len(served) > LISTED else ""
        listed = ", ".join(f'"{name}"' for name in names)
        return (
            f'; it does not serve "{self.model}" but {listed}{more}: state one of these as the '
            "engine's model"
        )

    def _observed(
        self, deployment: Deployment, client: HttpClient, configuration: dict[str, Any]
    ) -> Observed:
        seen, version = client.seen, configuration["version"]
        # A server that says so of itself is believed, whatever its owner states.
        simulated = isinstance(version, dict) and version.get("simulated") is True
        return Observed(
            provenance="simulated" if simulated else self.provenance,
            gpus=self.gpus,
            requested={"replay": deployment.replay} if deployment.replay else {},
            features={
                "replies": seen.replies,
                "replies with usage": seen.usage,
                "replies with cached tokens": seen.cached,
                "replies with tokens a piece": seen.exact,
                "fingerprints": sorted(seen.fingerprints),
                # An alias is no fault, but whoever reads the results should know of it.
                **({"model served": sorted(seen.models)} if seen.models - {self.model} else {}),
            },
            configuration=configuration,
        )


def _check_url(url: str) -> None:
    place = urlsplit(url)
    if place.scheme not in {"http", "https"} or not place.hostname:
        raise ValueError("url is none: write it as http://HOST:PORT")
    if place.query or place.fragment:
        raise ValueError("url has a query, and paths are added to its end: leave the query out")


def _names(models: object) -> list[str]:
    """The ids in an answer of `/v1/models`."""
    entries = models.get("data") if isinstance(models, dict) else None
    entries = entries if isinstance(entries, list) else []
    return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
