import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.wire.tap import SMALL, Exchange, Tap, unchunked
from tests.scripted_server import DONE, END, HEAD, c, chunk, u

FRAMES = [c("a"), c("b" * 50) + c("中"), b"5\r\nhello\r\n", c("d"), u(9, 4) + DONE]
BODY = b"".join(FRAMES)
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
WAITING = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = HEAD + b"".join(chunk(data) for data in FRAMES) + END


async def tapped(*reads: bytes) -> tuple[Exchange, Tap]:
    """A connection through which these reads have come."""
    tap = Tap(asyncio.get_running_loop())
    tap.set_response_params(read_bufsize=1 << 30)
    exchange = Exchange(lambda _: None)
    exchange.begin(tap)
    for data in reads:
        tap.data_received(data)
    return exchange, tap


@given(
    st.sampled_from([CHUNKED, WAITING + CHUNKED, PLAIN + BODY]),
    st.lists(st.integers(0, len(CHUNKED)), max_size=12),
)
def test_a_body_is_whole_however_its_bytes_are_cut(stream, cuts):
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reads = [stream[a:b] for a, b in pairwise(edges) if a < b]
    exchange, _ = asyncio.run(tapped(*reads))
    # Of what follows the line with [DONE], nothing is kept.
    assert b"".join(exchange.parts).rstrip() == BODY.rstrip()
    assert len(exchange.parts) == len(exchange.stamps)
    assert exchange.content.is_eof()
    exchange.check()


def test_chunks_that_come_whole_are_not_shown_to_aiohttp():
    exchange, _ = asyncio.run(tapped(HEAD, *(chunk(data) for data in FRAMES), END))
    assert exchange.parts == FRAMES
    assert exchange.content.total_bytes == 0
    assert exchange.content.is_eof()


def test_a_part_of_a_chunk_that_looks_like_chunks_is_taken_for_what_it_is():
    inner = chunk(b"hello")
    outer = chunk(b"x" * 40 + inner + b"y")
    cut = outer.index(inner)
    reads = (HEAD, outer[:cut], inner, outer[cut + len(inner) :], END)
    exchange, _ = asyncio.run(tapped(*reads))
    assert b"".join(exchange.parts) == b"x" * 40 + inner + b"y"


def test_a_second_response_in_the_same_read_is_not_taken_for_the_first():
    stale = HEAD + chunk(c("stale")) + END
    for reads in ((CHUNKED + stale,), (HEAD, CHUNKED.removeprefix(HEAD) + stale)):
        exchange, tap = asyncio.run(tapped(*reads))
        assert b"".join(exchange.parts) == BODY
        assert exchange.content.is_eof()
        assert tap.should_close


def test_an_exchange_that_has_let_go_is_told_nothing_more():
    async def main():
        exchange, tap = await tapped(HEAD, chunk(c("a")))
        exchange.leave()
        tap.data_received(chunk(c("b")) + END)
        return exchange

    assert len(asyncio.run(main()).parts) == 1


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (chunk(b"ab"), b"ab"),
        (chunk(b"ab") + chunk(b"c"), b"abc"),
        (b"A\r\n0123456789\r\n", b"0123456789"),
        (chunk(b"ab")[:-1], b""),
        (chunk(b"ab") + b"1", b""),
        (chunk(b"ab") + END, b""),
        (END, b""),
        (b"2;x=1\r\nab\r\n", b""),
        (b"+2\r\nab\r\n", b""),
        (b"zz\r\nab\r\n", b""),
        (b"\r\n", b""),
        (b"", b""),
        (chunk(b"x" * SMALL), b""),
    ],
)
def test_only_whole_chunks_with_content_are_unchunked(data, content):
    assert unchunked(data) == content
