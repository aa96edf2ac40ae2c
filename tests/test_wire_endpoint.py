import asyncio
from dataclasses import asdict, replace
from typing import get_type_hints

import orjson
import pytest

from harness.client import Request
from harness.endpoint import Endpoint
from harness.engine import Deployment
from harness.sim.server.serve import serving as simulating
from harness.topology import parse
from harness.wire.deadline import Timeouts
from results.errors import EngineError, UnsupportedError
from tests import sim_server
from tests.scripted_server import DONE, c, script, serving, u, usage, whole
from workloads.prompt import marked

STREAM = script((0, c("a", system_fingerprint="v1") + u(16, 4) + DONE))
KEY = "sk-secret"


def deployment(endpoint: Endpoint) -> Deployment:
    return Deployment(engine=endpoint, topology=parse("TP1"))


def observed(answer, tmp_path, *, keys=None, **settings):
    """What was observed of an endpoint that answered one request, and what it was asked."""

    async def main():
        async with serving(answer) as server:
            endpoint = Endpoint(url=server.url, model="m", **settings)
            starting = endpoint.start(
                deployment(endpoint), seed=1, log=tmp_path / "log", keys=keys or {}
            )
            async with starting as running:
                request = Request(id="r", prompt=marked((1, 16)), output=4, session="s")
                reply = await running.client.send(
                    request, cut=asyncio.Event(), on_first=lambda _: None
                )
                assert reply.error is None
                assert running.steps() is None
            return running.observe(), server

    return asyncio.run(main())


async def serve(asked, reader, writer):
    paths = {
        "/version": whole("200 OK", b'{"version": "0.33.0"}'),
        "/v1/models": whole("200 OK", b'{"data": [{"id": "m"}]}'),
    }
    await paths.get(asked.path, STREAM)(asked, reader, writer)


def test_an_endpoint_is_checked_with_a_request_and_observed(tmp_path):
    found, server = observed(serve, tmp_path, gpus=1, body={"seed": 1})
    assert (found.provenance, found.gpus) == ("measured", 1)
    assert found.configuration == {"version": {"version": "0.33.0"}, "models": ["m"]}
    assert found.features == {
        "replies": 2,
        "replies with usage": 2,
        "replies with cached tokens": 0,
        "replies with tokens a piece": 0,
        "fingerprints": ["v1"],
    }
    assert server.asked[0].fields["seed"] == 1
    assert "answered in" in (tmp_path / "log").read_text()
    orjson.dumps(asdict(found))


@pytest.mark.parametrize(
    ("named", "kept"),
    [("m", None), ("m-2024", ["m-2024"]), (7, ["7"]), (None, None), ("x" * 900, ["x" * 400 + "…"])],
)
def test_answers_that_name_another_model_are_no_failure_and_are_noted(named, kept, tmp_path):
    stream = script((0, c("a", model=named) + u(16, 4) + DONE))
    found, _ = observed(stream, tmp_path)
    assert found.features.get("model served") == kept


def test_counters_are_asked_for_with_the_key_of_requests(tmp_path):
    async def main():
        async with serving(serve) as server:
            endpoint = Endpoint(url=server.url, model="m", api_key_env="K", headers={"X-A": "b"})
            async with endpoint.start(
                deployment(endpoint), seed=1, log=tmp_path / "log", keys={"K": KEY}
            ) as running:
                await running.metrics.read()
                return running.metrics.url.removeprefix(server.url), server.asked[-1]

    path, asked = asyncio.run(main())
    assert path == asked.path == "/metrics"
    assert (asked.headers["authorization"], asked.headers["x-a"]) == (f"Bearer {KEY}", "b")


def listing(*names):
    """A server that has these models and no other."""
    listed = whole("200 OK", orjson.dumps({"data": [{"id": name} for name in names]}))
    unknown = whole("404 Not Found", b'{"message": "The model `m` does not exist."}')

    async def answer(asked, reader, writer):
        await (listed if asked.path == "/v1/models" else unknown)(asked, reader, writer)

    return answer


def test_a_model_that_is_not_served_is_named_with_those_that_are(tmp_path):
    with pytest.raises(EngineError) as caught:
        observed(listing("one", "two"), tmp_path)
    assert str(caught.value) == (
        "endpoint does not answer as it should: HTTP 404: The model `m` does not exist.; it does "
        'not serve "m" but "one", "two": state one of these as the engine\'s model'
    )


def test_a_long_list_of_models_is_cut_short(tmp_path):
    with pytest.raises(EngineError, match=r'"x{80}…", "1", "2", "3", "4" and 6 more: ') as caught:
        observed(listing("x" * 300, *map(str, range(1, 11))), tmp_path)
    assert len(str(caught.value)) < 400
    with pytest.raises(EngineError, match=r"does not exist\.$"):
        observed(listing("m", "other"), tmp_path)


def test_an_endpoint_that_only_streams_will_do(tmp_path):
    async def serve(asked, reader, writer):
        answer = STREAM if asked.path.startswith("/v1/comp") else whole("404 Not Found", b"no")
        await answer(asked, reader, writer)

    found, _ = observed(serve, tmp_path, provenance="plumbing")
    assert found.configuration == {"version": None, "models": []}
    assert found.provenance == "plumbing"


def test_counts_in_every_frame_are_noted(tmp_path):
    counted = script((0, c("ab", usage=usage(16, 4)) + u(16, 4) + DONE))
    found, _ = observed(counted, tmp_path, chunk_usage=True)
    assert found.features["replies with tokens a piece"] == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (whole("404 Not Found", b'{"message": "no such model"}'), "HTTP 404: no such model"),
        (whole("200 OK", b"<html>hello", "text/html"), "instead of a stream"),
        (script((20, b"")), r"timeouts\.first_token"),
    ],
)
def test_an_endpoint_that_does_not_stream_is_refused_in_a_sentence(answer, words, tmp_path):
    with pytest.raises(EngineError, match=words):
        observed(answer, tmp_path, timeouts=Timeouts(connect=1.0, first_token=0.1))


def test_the_key_comes_by_name_and_goes_nowhere_else(tmp_path):
    found, server = observed(serve, tmp_path, api_key_env="MY_KEY", keys={"MY_KEY": KEY + "\n"})
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    shown = orjson.dumps(asdict(found)).decode() + (tmp_path / "log").read_text() + repr(found)
    assert KEY not in shown


def test_a_key_that_an_endpoint_sends_back_is_kept_nowhere(tmp_path):
    async def echo(asked, reader, writer):
        body = orjson.dumps({"you": asked.headers["authorization"], "data": [{"id": KEY}]})
        answer = STREAM if asked.path.startswith("/v1/comp") else whole("200 OK", body)
        await answer(asked, reader, writer)

    found, _ = observed(echo, tmp_path, api_key_env="MY_KEY", keys={"MY_KEY": KEY})
    assert found.configuration["version"]["you"] == "Bearer ***"
    assert KEY not in repr(found) + (tmp_path / "log").read_text()


def test_what_an_endpoint_says_of_itself_at_length_is_not_kept(tmp_path):
    async def tell(asked, reader, writer):
        body = orjson.dumps({"version": "x" * 70_000})
        answer = STREAM if asked.path.startswith("/v1/comp") else whole("200 OK", body)
        await answer(asked, reader, writer)

    found, _ = observed(tell, tmp_path)
    assert found.configuration == {"version": None, "models": []}


@pytest.mark.parametrize("name", ["connect", "first_token", "stall", "total"])
def test_a_limit_is_more_than_nothing(name):
    hints = get_type_hints(Timeouts, include_extras=True)
    assert "Gt(gt=0)" in str(hints[name])


@pytest.mark.parametrize("keys", [{}, {"MY_KEY": "  "}, {"MY_KEY": "two words"}, {"MY_KEY": "é"}])
def test_a_key_that_is_not_there_or_cannot_be_sent_is_named_and_not_shown(keys, tmp_path):
    with pytest.raises(EngineError, match=r"\$MY_KEY holds") as caught:
        observed(serve, tmp_path, api_key_env="MY_KEY", keys=keys)
    assert "words" not in str(caught.value)


def test_what_an_endpoint_cannot_do_is_said_before_it_starts():
    endpoint = Endpoint(url="http://h:1/v1", model="m", api_key_env="MY_KEY")
    assert endpoint.describe(deployment(endpoint)) == [
        "POST http://h:1/v1/completions",
        "model m, mode ids, content from ids below 32000",
        "key from $MY_KEY",
    ]
    with pytest.raises(ValueError, match="state a tokenizer"):
        replace(endpoint, mode="chat")
    with pytest.raises(UnsupportedError, match="runs already"):
        endpoint.describe(replace(deployment(endpoint), flags=("--x",)))


def test_its_settings_are_plain_values():
    endpoint = Endpoint(url="http://h", model="m", body={"seed": 1}, timeouts=Timeouts(total=9))
    assert orjson.loads(orjson.dumps(asdict(endpoint)))["timeouts"]["total"] == 9
    assert (endpoint.clock, endpoint.kind) == ("wall", "endpoint")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"url": "localhost:8000"}, "write it as http://HOST:PORT"),
        ({"url": "http://me:secret@host:1"}, "name its environment variable as api_key_env"),
        ({"url": "http://host:1/v1?api_key=secret"}, "the url holds a secret"),
        ({"url": "http://host:1/v1#token=me:secret"}, "the url holds a secret"),
        ({"url": "http://host:1/v1;token=me:secret"}, "the url holds a secret"),
        ({"url": "http://host:1/v1?api-version=2024-05-01"}, "url has a query, and paths are"),
        ({"model": "https://me:secret@host/m"}, "the model holds a secret"),
        ({"proxy": "http://me:secret@proxy:1"}, "the proxy holds a secret"),
        ({"proxy": "me:secret@proxy:1"}, "the proxy holds a secret"),
        ({"headers": {"Authorization": "Bearer x"}}, "the header Authorization holds a secret"),
        ({"headers": {"Cookie": "x"}}, "the header Cookie holds a secret"),
        ({"headers": {"X-Functions-Key": "x"}}, "the header X-Functions-Key holds a secret"),
        ({"headers": {"Ocp-Apim-Subscription-Key": "x"}}, "Subscription-Key holds a secret"),
        ({"headers": {"X-Auth": "x"}}, "the header X-Auth holds a secret"),
        ({"headers": {"X-Jwt": "x"}}, "the header X-Jwt holds a secret"),
        ({"headers": {"X-Proxy": "Basic bWU6c2VjcmV0"}}, "the header X-Proxy holds a secret"),
        ({"headers": {"X-Proxy": "Bearer x"}}, "the header X-Proxy holds a secret"),
        ({"body": {"api_key": "me:secret"}}, "api_key of body holds a secret"),
        ({"body": {"via": {"accessKey": "me:secret"}}}, "accessKey of body holds a secret"),
        ({"body": {"via": [{"auth": "Bearer me:secret"}]}}, "auth of body holds a secret"),
        ({"body": {"via": '{"api_key": "me:secret"}'}}, "via of body holds a secret"),
        ({"body": {"via": '{"a": "{\\"api_key\\": [\\"me:secret\\"]}"}'}}, "via of body holds"),
        ({"body": {"image": "http://me:secret@host/i"}}, "image of body holds a secret"),
    ],
)
def test_what_would_put_a_secret_into_a_run_folder_is_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        Endpoint(**{"url": "http://host:1", "model": "m", **settings})
    assert "me:secret" not in str(caught.value)


def test_fields_of_a_body_that_are_only_near_a_secret_are_taken():
    schema = {"properties": {"password": {"type": "string"}}}
    body = {"api_key": None, "max_tokens": 8, "prompt_cache_key": "a", "guided_json": schema}
    words = {"messages": [{"role": "system", "content": "Write Basic programs at a token: x"}]}
    special = {"pad_token": 0, "eos_token": "</s>", "bos_token": None, "stop_token": "</s>"}
    body |= special | {"style": "Basic english", "link": "http://svc-auth:30080/?api-version=2"}
    assert Endpoint(url="http://host:1", model="m", body=body | words).body == body | words


def test_a_server_that_says_it_is_simulated_is_never_called_measured(tmp_path):
    # Whatever the owner states: a simulated number shown as measured would be a wrong claim.
    made = sim_server.site(tmp_path)

    async def main():
        async with simulating(made) as url:
            engine = Endpoint(url=url, model="simulated", provenance="measured")
            deployment = Deployment(engine=engine, topology=parse("TP1"))
            async with engine.start(deployment, seed=1, log=tmp_path / "log", keys={}) as server:
                return server.observe()

    assert asyncio.run(main()).provenance == "simulated"


def test_gpus_that_are_not_the_topologys_are_refused_before_anything_is_sent():
    engine = Endpoint(url="http://127.0.0.1:1", model="m", gpus=1)
    with pytest.raises(UnsupportedError, match="states gpus: 1, and TP4 has 4"):
        engine.describe(Deployment(engine=engine, topology=parse("TP4")))
