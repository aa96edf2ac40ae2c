"""Connections on which a server says something at a moment when nobody expects it."""

import asyncio
import select
import socket
import struct
import threading
from contextlib import contextmanager

import pytest

from harness.wire.tap import Body, Exchange
from tests.scripted_server import DONE, END, HEAD, ask, c, chunk, client, request, serving, stop, u

LATE = HEAD + chunk(c("late") + stop() + u(9, 9) + DONE) + END
REFUSAL = b'{"error": {"message": "the prompt is too long for us"}}'
LENGTH = b"Content-Length: %d\r\n" % len(REFUSAL)
REFUSED = b"HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/json\r\n"
LONG = request(tokens=2_000_000)
TURNS = 2000
"""Turns of the loop in which what was written is read."""


def answer(name):
    """The whole answer to the request of that name."""
    return HEAD + chunk(c(name) + stop() + u(int(name[1:]), 1) + DONE) + END


def idle(sender):
    """The connections that wait for a request."""
    return [tap for queue in sender._session.connector._conns.values() for tap, _ in queue]


def readable(stream, mask=select.POLLIN):
    """Whether there is something to read, or the end, within some seconds."""
    poll = select.poll()
    poll.register(stream.get_extra_info("socket").fileno(), mask)
    return bool(poll.poll(5000))


def told(*parts):
    """The input tokens of three replies, and how many connections there were.

    The server's first answer comes in parts, with so many turns of the loop between them.
    """

    async def main():
        async def serve(asked, _, writer):
            name = asked.headers["x-request-id"]
            for part in parts if name == "r1" else [answer(name)]:
                if isinstance(part, bytes):
                    writer.write(part)
                else:
                    for _ in range(part):
                        await asyncio.sleep(0)

        async with serving(serve) as server, client(server.url) as sender:
            replies = []
            for n in range(1, 4):
                replies.append(await ask(sender, request(f"r{n}")))
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                    if len(parts) > 1 and not any(tap.transport for tap in idle(sender)):
                        break
        assert [reply.error for reply in replies] == [None] * 3
        return [reply.input_tokens for reply in replies], server.connections

    return asyncio.run(main())


FIRST = answer("r1")


@pytest.mark.parametrize(
    "parts",
    [
        (FIRST + LATE,),
        (FIRST[:-5], 20, END + LATE),
        (FIRST, 20, LATE),
        (FIRST, 20, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"),
        (FIRST + LATE[:30], 20, LATE[30:]),
        (FIRST, 20, LATE[:30], 20, LATE[30:]),
    ],
)
def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(parts):
    assert told(*parts) == ([1, 2, 3], 2)


def test_a_connection_on_which_nothing_odd_came_is_used_again():
    assert told(FIRST) == ([1, 2, 3], 1)


def test_a_connection_with_something_unread_in_it_is_not_used():
    async def main():
        written = []

        async def serve(asked, _, writer):
            writer.write(answer(asked.headers["x-request-id"]))
            written.append(writer)

        async with serving(serve) as server, client(server.url) as sender:
            await ask(sender, request("r1"))
            (tap,) = idle(sender)
            before = tap.is_connected()
            # The kernel has it, and the loop has had no turn to read it.
            written[0].write(LATE)
            assert readable(tap.transport)
            return before, tap.is_connected()

    assert asyncio.run(main()) == (True, False)


@contextmanager
def refusing(end=b"Connection: close\r\n", *, linger=False):
    """A server that reads the head of each request, refuses it, and hears no more of its body."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def serve():
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                taken.recv(4096)
                taken.sendall(REFUSED + LENGTH + end + b"\r\n" + REFUSAL)
                if linger:
                    kept.append(taken)
                else:
                    taken.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in kept:
                one.close()


@pytest.mark.parametrize("linger", [True, False])
@pytest.mark.parametrize("end", [b"Connection: close\r\n", b""])
def test_a_refusal_that_comes_before_the_body_was_sent_is_kept(end, linger):
    async def main(url):
        async with client(url) as sender:
            await sender.prepare(LONG)
            return [await ask(sender, LONG) for _ in range(3)]

    with refusing(end, linger=linger) as url:
        for reply in asyncio.run(main(url)):
            assert reply.error == "HTTP 413: the prompt is too long for us"
            assert (reply.status, reply.cut, len(reply.stamps)) == (413, False, 0)
            assert reply.sent is not None


class Held(Body):
    """A body whose second half is written when its connection is known to be gone."""

    async def write(self, writer):
        self._exchange.begin(writer.protocol)
        await writer.write(self._value[:100_000])
        assert readable(writer.transport, select.POLLHUP)
        for _ in range(3):
            await writer.write(self._value[100_000:])


def test_a_refusal_is_kept_though_the_next_write_failed_before_it_was_read():
    async def main():
        exchange = Exchange(lambda _: None)
        with refusing() as url:
            async with client(url) as sender:
                body = Held(b"x" * 500_000, exchange)
                async with sender._session.post(url, data=body) as response:
                    return response.status, b"".join(exchange.parts)

    assert asyncio.run(main()) == (413, REFUSAL)


def test_a_connection_that_broke_without_a_word_is_named_as_that():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            taken, _ = listener.accept()
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            taken.recv(4096)
            taken.close()

        async def main():
            async with client(f"http://127.0.0.1:{listener.getsockname()[1]}") as sender:
                return await ask(sender, LONG)

        thread = threading.Thread(target=serve)
        thread.start()
        reply = asyncio.run(main())
        thread.join()
    assert "failed: " in reply.error
    assert reply.status is None
