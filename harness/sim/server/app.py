"""The simulated engine's HTTP face: an OpenAI-compatible server that says it is simulated."""

import asyncio
import hmac
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import Any, BinaryIO

import orjson
from aiohttp import HttpVersion11, web

from harness.sim.answers import Accuracy, Said, found, said
from harness.sim.client import least_loaded
from harness.sim.machine import Machine
from harness.sim.server import words
from harness.sim.server.answer import Answer, answer_ids
from harness.sim.server.asked import Asked, asked, error_body, fields_of, prompt_ids, refused
from harness.sim.server.delivery import FAULT, Delivery
from harness.sim.server.exposition import exposition
from harness.sim.server.faults import BREAKING, HARMLESS, Fault
from harness.sim.server.site import VERSION, Site
from harness.sim.server.wall import Pump, Ticket, microseconds
from workloads import documents

LARGEST = 1 << 28
"""Bytes of a body."""

IDENTITIES = {"session": "X-Session-ID", "correlation": "X-Correlation-ID"}
"""The headers that say to which session a request belongs, by their keys in the log."""

Entry = dict[str, Any]


class SimulatedServer:
    """The ranks of one site, and the log of what they did; must be closed.

    Every request for an answer becomes a line of the log when it ends, whatever came of it.
    """

    def __init__(self, site: Site) -> None:
        settings = site.settings
        self._site = site
        self._fingerprint = site.fingerprint
        path = str(site.answers) if site.answers else None
        self._key = documents.key(documents.task_of(path), path) if path else {}
        self._vocabulary = words.read(site.tokenizer) if site.tokenizer else words.own()
        self._pumps = [
            Pump(Machine(settings, rank=rank, seed=site.seed))
            for rank in range(site.topology.ranks)
        ]
        self._requests = 0
        self._live = 0
        self._turn = 0
        self._created = int(time())
        self._closing = False
        self._log: BinaryIO | None = site.log.open("wb") if site.log else None
        self._write({"SIMULATED": site.configuration, "clock": "time.monotonic, seconds"})

    def app(self) -> web.Application:
        """The application, to be run once."""
        app = web.Application(client_max_size=LARGEST, middlewares=[self._gate])
        app.on_response_prepare.append(_echo)
        app.on_shutdown.append(self._close_down)
        app.add_routes(
            [
                web.post("/v1/completions", partial(self._answered, chat=False)),
                web.post("/v1/chat/completions", partial(self._answered, chat=True)),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/load", self._load),
                web.get("/server_info", self._server_info),
                web.post("/reset_prefix_cache", self._reset),
                web.post("/tokenize", self._tokenize),
            ]
        )
        return app

    def close(self) -> None:
        """Stops the ranks and closes the log."""
        for pump in self._pumps:
            pump.stop()
        if self._log:
            self._log.close()

    async def _models(self, _: web.Request) -> web.Response:
        model = {
            "id": self._site.model,
            "object": "model",
            "created": self._created,
            "owned_by": "paceline sim (SIMULATED)",
            "max_model_len": self._site.engine.context_limit,
        }
        return _json({"object": "list", "data": [model]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return _json({"version": VERSION, "simulated": True})

    async def _metrics(self, _: web.Request) -> web.Response:
        text = exposition(self._pumps, self._site.model)
        kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=text.encode(), headers=kind)

    async def _load(self, _: web.Request) -> web.Response:
        return _json({"server_load": self._live})

    async def _server_info(self, _: web.Request) -> web.Response:
        return _json(self._site.facts())

    async def _reset(self, _: web.Request) -> web.Response:
        # Every rank is emptied that can be, whatever the others say.
        emptied = [pump.forget() for pump in self._pumps]
        return _json({"success": all(emptied)})

    async def _tokenize(self, request: web.Request) -> web.Response:
        fields = fields_of(await request.read())
        chat = "messages" in fields
        ids, _ = await prompt_ids(fields, chat=chat, vocabulary=self._vocabulary)
        limit = self._site.engine.context_limit
        return _json({"count": len(ids), "max_model_len": limit, "tokens": ids.tolist()})

    @web.middleware
    async def _gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Lets pass who has the key; as with vLLM, only `/v1` is locked."""
        key, given = self._site.key, _header(request, "Authorization")
        right = key is None or hmac.compare_digest(given.encode(), f"Bearer {key}".encode())
        if request.path.startswith("/v1") and not right:
            raise refused(web.HTTPUnauthorized, "The API key is missing or wrong.")
        response: web.StreamResponse = await handler(request)
        return response

    async def _answered(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        """Answers a request, and leaves its line in the log however it ends."""
        self._requests += 1
        self._live += 1
        name = _header(request, "X-Request-Id") or f"sim-{self._requests}"
        entry: Entry = {"request": self._requests, "id": name, "path": request.path}
        entry |= {key: _header(request, header) or None for key, header in IDENTITIES.items()}
        entry["arrived"] = monotonic()
        try:
            response = await self._answer(request, entry, chat=chat)
            entry["status"] = response.status
        except web.HTTPError as refusal:
            entry |= {"status": refusal.status, "finish": "refused"}
            raise
        else:
            return response
        finally:
            self._live -= 1
            entry["closed"] = monotonic()
            self._write(entry)

    async def _answer(
        self, request: web.Request, entry: Entry, *, chat: bool
    ) -> web.StreamResponse:
        body = await request.read()
        fault = self._fault(request, entry)
        entry["fault"] = None if fault is HARMLESS else fault.fault
        if refusal := _instead(fault):
            entry["finish"] = "refused"
            return refusal
        fields = fields_of(body)
        self._check_model(fields.get("model"))
        rank = self._asked_rank(request)
        wanted = await asked(
            fields, chat=chat, vocabulary=self._vocabulary, calls=self._site.tool_calls
        )
        entry["asked"] = wanted.output if wanted.bounded else None
        wanted, spoken = self._spoken(wanted)
        entry["messages"] = wanted.messages
        if wanted.stream and request.version < HttpVersion11:
            raise refused(web.HTTPVersionNotSupported, "A stream needs HTTP/1.1.")
        self._check_length(wanted)
        delivery = Delivery(
            self._words(wanted, spoken, entry), fault, self._site.engine.draft_tokens
        )
        entry["rank"] = rank = self._least_loaded() if rank is None else rank
        entry["queued"] = monotonic()
        pump = self._pumps[rank]
        ticket = pump.enqueue(entry["id"], wanted.prompt, wanted.output, delivery.take)
        try:
            if wanted.stream:
                return await self._stream(request, delivery, fault)
            return await self._whole(request, delivery, ticket, fault)
        finally:
            pump.withdraw(ticket)
            entry |= self._truth(ticket, delivery)

    async def _stream(
        self, request: web.Request, delivery: Delivery, fault: Fault
    ) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.headers["Cache-Control"] = "no-cache"
        response.enable_chunked_encoding()
        if fault.fault == "slow-headers":
            await asyncio.sleep(fault.seconds)
        await response.prepare(request)
        assert request.transport is not None
        delivery.open(request.transport, microseconds())
        await delivery.ended
        return response

    async def _whole(
        self, request: web.Request, delivery: Delivery, ticket: Ticket, fault: Fault
    ) -> web.Response:
        if fault.fault == "slow-headers":
            await asyncio.sleep(fault.seconds)
        await delivery.ended
        if fault.fault == "stall":
            await asyncio.Event().wait()
        if fault.fault == "drop" and request.transport is not None:
            request.transport.close()
        if fault.fault in BREAKING:
            return _json(error_body(500, FAULT))
        return _json(delivery.answer.whole(ticket.job, self._site.engine.draft_tokens))

    def _spoken(self, wanted: Asked) -> tuple[Asked, Said | None]:
        """What is wanted, as long as the answer to its question is, and that answer, if any."""
        site = self._site
        known = found(self._key, wanted.question)
        if known is None:
            return wanted, None
        spoken = said(
            site.engine.accuracy or Accuracy(),
            *known,
            replay=site.replay,
            run=(site.seed, wanted.seed),
            thinks=wanted.thinking,
        )
        length = len(_pieces(spoken)[0])
        cut = wanted.bounded and wanted.output < length
        return replace(wanted, output=wanted.output if cut else length, bounded=cut), spoken

    def _words(self, wanted: Asked, spoken: Said | None, entry: Entry) -> Answer:
        if spoken:
            ids, texts, reasoning = _pieces(spoken)
            ids, texts = ids[: wanted.output], texts[: wanted.output]
        else:
            ids = answer_ids(wanted, self._site.seed, self._vocabulary)
            texts = self._vocabulary.texts(ids)
            reasoning = round(self._site.reasoning_share * len(ids)) if wanted.thinking else 0
        return Answer(
            asked=wanted,
            id=f"{'chatcmpl' if wanted.chat else 'cmpl'}-{entry['id']}",
            model=self._site.model,
            created=int(time()),
            fingerprint=self._fingerprint,
            ids=ids,
            texts=texts,
            reasoning=reasoning,
            reasoning_key=self._site.reasoning_key,
        )

    def _fault(self, request: web.Request, entry: Entry) -> Fault:
        """The first line of the script that is meant for it."""
        faults = self._site.faults
        ordinal, name = entry["request"], entry["id"]
        chosen = (fault for fault in faults if fault.chosen(ordinal, name, request.headers))
        return next(chosen, HARMLESS)

    def _check_model(self, model: object) -> None:
        if model not in {None, self._site.model}:
            raise refused(web.HTTPNotFound, f"The model `{model}` does not exist.")

    def _asked_rank(self, request: web.Request) -> int | None:
        given = request.headers.get("X-data-parallel-rank")
        if given is None:
            return None
        if not given.isascii() or not given.isdigit() or int(given) >= len(self._pumps):
            raise refused(
                web.HTTPBadRequest,
                f"X-data-parallel-rank {given} is out of range [0, {len(self._pumps)}).",
            )
        return int(given)

    def _check_length(self, wanted: Asked) -> None:
        prompt, output = wanted.prompt.length, wanted.output
        limit = self._site.engine.context_limit
        if not prompt:
            raise refused(web.HTTPBadRequest, "The prompt is empty: it needs at least one token.")
        if limit is not None and prompt + output > limit:
            raise refused(
                web.HTTPBadRequest,
                f"This model's maximum context length is {limit} tokens, but the prompt has "
                f"{prompt} tokens and {output} more were asked for.",
            )
        if not self._pumps[0].machine.fits(prompt, output):
            raise refused(
                web.HTTPBadRequest,
                f"The KV cache of a rank can never hold {prompt + output} tokens, which is its "
                "maximum context length: raise --kv-tokens.",
            )

    def _least_loaded(self) -> int:
        rank = least_loaded([pump.load for pump in self._pumps], self._turn)
        self._turn = rank + 1
        return rank

    def _truth(self, ticket: Ticket, delivery: Delivery) -> Entry:
        job, outlet = ticket.job, delivery.outlet
        known = job.scheduled is not None
        return {
            "scheduled": job.scheduled / 1e6 if job.scheduled is not None else None,
            "prompt": job.prompt,
            "cached": job.cached if known else None,
            "output": ticket.given,
            "preemptions": job.preemptions,
            "finish": "stopped" if self._closing and job.finish == "cut" else job.finish,
            "writes": outlet.writes if outlet else [],
            "tokens": outlet.tokens if outlet else [],
            "lags": outlet.lags if outlet else [],
        }

    async def _close_down(self, _: web.Application) -> None:
        self._closing = True

    def _write(self, entry: Entry) -> None:
        if self._log:
            self._log.write(orjson.dumps(entry) + b"\n")
            self._log.flush()


def _pieces(spoken: Said) -> tuple[list[int], list[str], int]:
    """The tokens of an answer, the text of each, and how many of them are reasoning."""
    thought, thoughts = words.pieces(spoken.reasoning)
    told, texts = words.pieces(spoken.text)
    return thought + told, thoughts + texts, len(thought)


def _header(request: web.Request, name: str) -> str:
    """A header as text that can be written again, whatever bytes it had."""
    return request.headers.get(name, "").encode(errors="replace").decode()


async def _echo(request: web.Request, response: web.StreamResponse) -> None:
    if name := request.headers.get("X-Request-Id"):
        response.headers["X-Request-Id"] = name


def _instead(fault: Fault) -> web.Response | None:
    """What is said instead of any answer, where the script has it so."""
    if fault.fault == "html":
        page = f"<html><body>{FAULT}</body></html>"
        return web.Response(text=page, content_type="text/html")
    if fault.fault != "status":
        return None
    response = _json(error_body(fault.status, FAULT), status=fault.status)
    if fault.retry_after is not None:
        response.headers["Retry-After"] = f"{fault.retry_after:g}"
    return response


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")
