import asyncio
import gc
import logging
import shutil
import ssl
import subprocess
from functools import partial

import aiohttp
import pytest

from harness.wire import tap
from harness.wire.dialect import Dialect
from results.errors import EngineError, InputError
from tests.scripted_server import (
    DONE,
    ROLE,
    ask,
    c,
    client,
    frame,
    reply_to,
    request,
    script,
    serving,
    stop,
    t,
    u,
    whole,
)


def test_the_body_says_everything_explicitly():
    _, server = reply_to(
        script((0, c("a") + u(1, 1) + DONE)),
        dialect=Dialect(model="m", chunk_usage=True, body={"seed": 7, "temperature": None}),
        headers={"X-Team": "blue"},
    )
    fields = server.asked[0].fields
    assert len(fields.pop("prompt")) == 6
    assert fields == {
        "model": "m",
        "max_tokens": 4,
        "min_tokens": 4,
        "ignore_eos": True,
        "seed": 7,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    headers = server.asked[0].headers
    assert server.asked[0].path == "/v1/completions"
    assert headers["x-team"] == "blue"
    assert headers["x-session-id"] == headers["x-correlation-id"] == "s1"
    assert "x-data-parallel-rank" not in headers
    assert headers["content-type"] == "application/json"


def test_a_prepared_body_is_what_is_sent_and_a_rank_is_named():
    async def main():
        answer = script((0, c("a") + u(1, 1) + DONE))
        async with serving(answer) as server, client(server.url + "/v1/") as sender:
            body = await sender.prepare(request(rank=3))
            await ask(sender, request(rank=3))
            again = await sender.prepare(request(rank=3))
        return body, again, server.asked[0]

    body, again, asked = asyncio.run(main())
    assert asked.body == body == again
    assert asked.fields["temperature"] == 0
    assert asked.headers["x-data-parallel-rank"] == "3"
    assert asked.path == "/v1/completions"


def test_a_long_body_arrives_whole_and_is_stamped_before_its_first_byte():
    async def main():
        answer = script((0, c("a") + u(1, 1) + DONE))
        async with serving(answer) as server, client(server.url) as sender:
            reply = await ask(sender, request(tokens=300_000))
        return reply, server.asked[0]

    reply, asked = asyncio.run(main())
    assert len(asked.fields["prompt"]) == 300_000
    assert reply.sent < asked.at < reply.stamps[0]


KEY = 'sk-very"secret-0123456789'


@pytest.mark.parametrize("status", ["401 Unauthorized", "200 OK"])
def test_the_key_is_sent_and_shown_nowhere(status, caplog):
    echo = b"x" * 390 + b'{"error": ' + KEY.encode() + b"}"
    answers = [
        whole(status, echo, "text/plain"),
        whole(status, b'{"error": {"why": "sk-very\\"secret-0123456789"}}'),
        script((0, c("a") + stop(system_fingerprint=KEY) + frame({"error": KEY}))),
        script((0, c("a", finish=None) + u(1, 1, system_fingerprint=KEY) + DONE)),
    ]
    caplog.set_level(logging.DEBUG)

    async def main():
        shown = []
        for answer in answers:
            async with serving(answer) as server, client(server.url, key=KEY) as sender:
                shown += [await ask(sender), sender, sender.seen]
                assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        return shown

    texts = [repr(thing) for thing in asyncio.run(main())] + [caplog.text]
    assert any("***" in text for text in texts)
    assert not any("secret" in text for text in texts)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (whole("200 OK", b'{"version": "1"}'), {"version": "1"}),
        (whole("200 OK", b'{"you": ["Bearer %b"]}' % b"SK-KEY"), {"you": ["Bearer ***"]}),
        (whole("200 OK", b'{"sk-key": "a\\u001b[2J\\n"}'), {"***": "a [2J "}),
        (whole("200 OK", b'{"version": "\\ud83e"}'), None),
        (whole("200 OK", b"[" * 100_000 + b"]" * 100_000), None),
        (whole("200 OK", b"[" * 200 + b"]" * 200), None),
        (whole("200 OK", b'"' + b"x" * 2_000_000 + b'"'), None),
        (whole("200 OK", b"\xff"), None),
        (whole("404 Not Found", b"{}"), None),
    ],
)
def test_what_a_server_says_of_itself_is_legible_short_and_without_the_key(answer, told):
    async def main():
        async with serving(answer) as server, client(server.url, key="sk-key") as sender:
            return await sender.get("/version")

    assert asyncio.run(main()) == told


def test_a_question_about_the_server_follows_no_redirect():
    async def main():
        async with serving(whole("200 OK", b"{}")) as other:
            place = f"{other.url}/leak\r\nContent-Length: 0\r\n\r\n"
            head = f"HTTP/1.1 302 Found\r\nLocation: {place}"

            async def answer(_, __, writer):
                writer.write(head.encode())

            async with serving(answer) as server, client(server.url) as sender:
                told = [await sender.get("/version"), await sender.page("/metrics").read()]
                return told, other.asked

    assert asyncio.run(main()) == ([None, None], [])


def test_a_page_of_counters_is_asked_for_as_answers_are(caplog):
    caplog.set_level(logging.DEBUG)
    page = b"requests 7\n# of Bearer " + KEY.encode()

    async def main():
        async with serving(whole("200 OK", page, "text/plain")) as proxy:
            trusted = {"key": KEY, "headers": {"X-Team": "blue"}, "proxy": proxy.url}
            async with client("http://far.test", **trusted) as sender:
                counters = sender.page("/metrics")
                return counters, await counters.read(), proxy.asked[0]

    counters, told, asked = asyncio.run(main())
    assert (told, counters.url) == ("requests 7\n# of Bearer ***", "http://far.test/metrics")
    assert asked.path == "http://far.test/metrics"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-team"] == "blue"
    assert "secret" not in caplog.text + repr(counters)


@pytest.mark.parametrize("status", ["503 Not Now", "200 OK"])
def test_a_page_that_cannot_be_read_is_none(status):
    async def main():
        async with serving(whole(status, b"a 1 \xff")) as server, client(server.url) as sender:
            return await sender.page("/metrics").read()

    assert asyncio.run(main()) is None


def test_proxies_of_the_environment_are_ignored_and_one_asked_for_is_used(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    answer = script((0, c("a") + u(1, 1) + DONE))
    reply, _ = reply_to(answer)
    assert reply.error is None

    async def main():
        async with serving(answer) as proxy, client("http://far.test", proxy=proxy.url) as sender:
            return await ask(sender), proxy

    reply, proxy = asyncio.run(main())
    assert reply.error is None
    assert proxy.asked[0].path == "http://far.test/v1/completions"


@pytest.fixture
def certificate(tmp_path):
    """A certificate for the loopback address that nobody vouches for, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    paths = [tmp_path / "cert.pem", tmp_path / "key.pem"]
    subprocess.run(
        [
            *[
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ],
            *["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out"],
            *(paths[0], "-keyout", paths[1]),
        ],
        check=True,
        capture_output=True,
    )
    return paths


def test_tls_is_verified_and_a_ca_file_vouches(certificate):
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(*certificate)
    answer = script((0, c("a")), (0.02, c("b") + u(1, 2) + DONE))

    async def main():
        async with serving(answer, trust) as server:
            async with client(server.url) as sender:
                refused = await ask(sender)
                assert await sender.page("/metrics").read() is None
            async with client(server.url, ca_file=str(certificate[0])) as sender:
                trusted = await ask(sender)
                assert "data:" in await sender.page("/metrics").read()
                return refused, trusted

    refused, trusted = asyncio.run(main())
    assert "certificate verify failed" in refused.error
    assert refused.sent is None
    assert (trusted.error, len(trusted.stamps)) == (None, 2)


def test_over_tls_connections_are_used_again_and_early_refusals_kept(certificate):
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(*certificate)

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        writer.close()

    async def main():
        answer, trusted = script((0, c("a") + u(1, 1) + DONE)), {"ca_file": str(certificate[0])}
        async with serving(answer, trust) as server, client(server.url, **trusted) as sender:
            good = [await ask(sender, request(f"r{n}")) for n in range(3)]
        refusing = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=trust)
        url = f"https://127.0.0.1:{refusing.sockets[0].getsockname()[1]}"
        async with refusing, client(url, **trusted) as sender:
            return good, server.connections, await ask(sender, request(tokens=1_000_000))

    good, connections, refused = asyncio.run(main())
    assert ([reply.error for reply in good], connections) == ([None] * 3, 1)
    assert (refused.status, refused.error) == (413, "HTTP 413: no")


def test_a_ca_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"ca_file .*none\.pem"):
        asyncio.run(_made(ca_file=str(tmp_path / "none.pem")))


async def _made(**options):
    async with client("http://127.0.0.1:9", **options):
        pass


def test_the_tap_still_fits_aiohttp():
    # Fails when aiohttp's private shape changes; docs/client.md says what to do then.
    async def main():
        made = tap.connector(None)
        factory = made._factory
        await made.close()
        return factory

    factory = asyncio.run(main())
    assert isinstance(factory, partial)
    assert factory.func is tap.Tap
    assert isinstance(factory(), aiohttp.client_proto.ResponseHandler)


def test_a_connection_without_a_tap_is_an_error_and_not_a_measurement():
    async def main():
        answer = script((0, c("a") + u(1, 1) + DONE))
        async with serving(answer) as server, client(server.url) as sender:
            sender._session.connector._factory = partial(
                aiohttp.client_proto.ResponseHandler, loop=asyncio.get_running_loop()
            )
            with pytest.raises(EngineError, match="cannot be tapped"):
                await ask(sender)

    asyncio.run(main())


def test_tool_calls_are_output():
    reply, _ = reply_to(script((0, ROLE), (0.01, t("{")), (0.02, t("}") + u(1, 2) + DONE)))
    assert len(reply.stamps) == 2


def test_nothing_is_left_behind():
    # filterwarnings = error turns an unclosed connection or an unread exception into a failure.
    reply_to(script((0, c("a")), end=False))
    gc.collect()
