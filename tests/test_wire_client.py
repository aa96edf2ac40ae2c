import asyncio
import socket
from itertools import pairwise
from time import monotonic

import numpy as np
import orjson
import pytest

from harness.client import ANSWER, REASONING
from harness.wire.deadline import Timeouts
from tests.scripted_server import (
    DONE,
    HEAD,
    ROLE,
    ask,
    c,
    chat,
    chunk,
    client,
    frame,
    r,
    reply_to,
    request,
    script,
    serving,
    stop,
    u,
    usage,
    whole,
)

SLACK = 0.06
"""How late a loaded machine may be, in seconds."""

SHORT = Timeouts(connect=1.0, first_token=0.15, stall=0.1)


def test_the_first_token_is_timed_and_not_the_role():  # F-01
    reply, _ = reply_to(
        script((0.005, ROLE), (0.1, c("a")), (0.12, c("b")), (0.12, u(9, 2)), (0.12, DONE))
    )
    offsets = reply.stamps - reply.sent
    assert offsets == pytest.approx([0.1, 0.12], abs=SLACK)
    assert (reply.error, reply.status, reply.input_tokens, reply.output_tokens) == (None, 200, 9, 2)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_the_first_token_and_the_answer_has_its_own(key):  # F-02
    reply, _ = reply_to(
        script(
            (0.02, ROLE), (0.04, r("x", key)), (0.06, r("y", key)), (0.1, c("z") + u(1, 3) + DONE)
        )
    )
    assert reply.kinds.tolist() == [REASONING, REASONING, ANSWER]
    assert (reply.stamps - reply.sent)[[0, 2]] == pytest.approx([0.04, 0.1], abs=SLACK)


def test_the_first_token_may_come_in_the_same_read_as_the_head():
    # A client that stamps from its response object on calls this read late, or never sees it.
    firsts = []

    async def answer(_, __, writer):
        writer.write(HEAD + chunk(c("a")))
        await asyncio.sleep(0.05)
        writer.write(chunk(c("b") + u(1, 2) + DONE) + b"0\r\n\r\n")

    async def main():
        async with serving(answer) as server, client(server.url) as sender:
            return await ask(sender, firsts=firsts)

    reply = asyncio.run(main())
    assert (reply.stamps - reply.sent) == pytest.approx([0, 0.05], abs=SLACK)
    assert firsts == [reply.stamps[0]]


def test_streams_beside_one_another_keep_their_own_moments():
    async def main():
        steps = script((0.01, c("a")), (0.03, c("b")), (0.05, c("c") + u(1, 3) + DONE))
        async with serving(steps) as server, client(server.url) as sender:
            many = await asyncio.gather(*(ask(sender, request(f"r{i}")) for i in range(8)))
        return [reply.stamps - reply.sent for reply in many]

    for offsets in asyncio.run(main()):
        assert offsets == pytest.approx([0.01, 0.03, 0.05], abs=SLACK)


def test_several_tokens_a_frame_are_counted_by_usage():  # F-03
    steps = [(0.01 * n, c("abc")) for n in range(1, 11)]
    reply, _ = reply_to(script(*steps, (0.1, u(10, 30) + DONE)))
    assert (len(reply.stamps), reply.output_tokens, reply.tokens) == (10, 30, None)


def test_one_token_keeps_its_first_and_last():  # F-04
    reply, _ = reply_to(script((0.02, c("a")), (0.02, stop() + u(3, 1) + DONE)))
    assert len(reply.stamps) == 1
    assert (reply.error, reply.finish_reason, reply.output_tokens) == (None, "stop", 1)


def test_characters_cut_between_reads_are_no_failure():  # F-05
    text = c("中文🦀")

    async def answer(_, __, writer):
        writer.write(HEAD)
        for place in range(len(text)):
            writer.write(chunk(text[place : place + 1]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(chunk(u(1, 3) + DONE) + b"0\r\n\r\n")

    reply, _ = reply_to(answer)
    assert (reply.error, len(reply.stamps), reply.output_tokens) == (None, 1, 3)


def test_frames_without_a_blank_are_read():  # F-06
    reply, _ = reply_to(script((0, (c("a") + u(1, 1)).replace(b"data: ", b"data:"))))
    assert (reply.error, reply.output_tokens) == (None, 1)


def test_the_input_of_a_turn_is_the_servers_count():  # F-08
    reply, _ = reply_to(script((0, c("a") + u(500, 200) + DONE)))
    assert reply.input_tokens == 500


ERROR = b'{"error": {"message": "engine core died", "code": 500}}'


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (script((0, b"data: " + ERROR + b"\n\n" + DONE)), "engine core died"),
        (whole("200 OK", ERROR), "engine core died"),
        (whole("200 OK", b"<html><h1>Bad\n gateway</h1>", "text/html"), "<h1>Bad gateway</h1>"),
        (whole("200 OK", b'{"choices": [{"text": "all at once"}]}'), "instead of a stream"),
        (script((0, c("a")), (0.01, c("b"))), "the stream ended before its finish"),
        (script((0, c("a")), end=False), "failed"),
        (script((0, DONE)), "the stream ended without a token"),
        (whole("200 OK", b""), "the stream ended before its finish"),
    ],
)
def test_a_200_that_is_no_answer_is_a_failure(answer, words):  # F-09
    reply, _ = reply_to(answer)
    assert reply.status == 200
    assert words in reply.error


def test_an_error_after_tokens_keeps_them():  # F-09
    reply, _ = reply_to(script((0, c("a")), (0.01, b"data: " + ERROR + b"\n\n" + DONE)))
    assert "engine core died" in reply.error
    assert len(reply.stamps) == 1


PLAIN = b'{"message": "out of memory", "code": 500}'
GONE = chat({}, "error", error={"message": "the GPU fell off"}, usage=usage(1, 1))
AGAIN = c("a") + stop() + u(1, 1) + c("a") + stop() + u(1, 1)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (GONE, "the server sent an error: the GPU fell off"),
        (stop(error="died"), "the server sent an error: died"),
        *(
            (chat({}, name), f"the server ended the answer with finish reason {name}")
            for name in ("error", "abort", "cancelled")
        ),
        (b"event: error\ndata: " + PLAIN + b"\n\n", "the server sent an error: out of memory"),
        (b"data: " + PLAIN + b"\n\n", "the server sent an error: out of memory"),
        (frame({"detail": "no"}), "the server sent an error: no"),
        (b"", "the stream ended before its finish"),
        (AGAIN, "the server sent more tokens after the answer's finish and usage"),
    ],
)
def test_a_stream_that_ends_in_order_may_still_have_failed(stream, words):
    reply, _ = reply_to(script((0, c("a")), (0.01, stream + DONE)))
    assert reply.error == words


def test_usage_in_the_first_frame_does_not_complete_what_is_then_cut_off():
    reply, _ = reply_to(script((0, u(9, 0) + c("a")), (0.01, c("b")), end=False))
    assert "failed" in reply.error
    assert len(reply.stamps) == 2


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Unavailable", "302 Found"])
def test_a_refusal_is_one_failed_reply_and_is_not_sent_again(status):
    reply, server = reply_to(whole(status, b'{"message": "slow down"}'))
    assert reply.error == f"HTTP {status[:3]}: slow down"
    assert (reply.status, len(server.asked)) == (int(status[:3]), 1)


def test_a_servers_words_are_kept_within_bounds():
    reply, _ = reply_to(whole("500 Oops", b"x" * 100_000, "text/plain"))
    assert len(reply.error) < 500


def test_a_hundred_and_fifty_requests_are_in_flight_at_once():  # F-11, invariant 8
    async def main():
        answer = script((0.3, c("a") + u(6, 1) + DONE))
        async with serving(answer) as server, client(server.url) as sender:
            replies = await asyncio.gather(*(ask(sender, request(f"r{i}")) for i in range(150)))
        return replies, server

    replies, server = asyncio.run(main())
    assert server.peak == 150
    assert {asked.headers["x-request-id"] for asked in server.asked} == {
        f"r{i}" for i in range(150)
    }
    waits = [reply.stamps[0] - reply.sent for reply in replies]
    assert 0.25 < min(waits) <= max(waits) < 0.7
    sent = sorted(reply.sent for reply in replies)
    arrived = sorted(asked.at for asked in server.asked)
    assert np.all(np.array(arrived) - np.array(sent) > -SLACK)


def test_a_stream_that_stands_still_fails_and_the_others_do_not():  # F-21
    async def answer(asked, _, writer):
        writer.write(HEAD + chunk(c("a")))
        if asked.headers["x-request-id"] == "r1":
            await asyncio.sleep(30)
        await asyncio.sleep(0.02)
        writer.write(chunk(c("b") + u(1, 2) + DONE) + b"0\r\n\r\n")

    async def main():
        async with serving(answer) as server, client(server.url, timeouts=SHORT) as sender:
            return await asyncio.gather(*(ask(sender, request(f"r{i}")) for i in range(3)))

    began = monotonic()
    replies = asyncio.run(main())
    assert monotonic() - began < 5
    assert [reply.error for reply in replies] == [
        None,
        "the stream stood still for 0.1 s (timeouts.stall)",
        None,
    ]
    assert len(replies[1].stamps) == 1


@pytest.mark.parametrize(
    ("steps", "timeouts", "words"),
    [
        ([(20, b"")], SHORT, "no first token within 0.15 s (timeouts.first_token)"),
        ([(0, ROLE), (20, b"")], SHORT, "no first token within 0.15 s (timeouts.first_token)"),
        (
            [(0, c("a")), (20, b"")],
            Timeouts(total=0.1),
            "not finished within 0.1 s (timeouts.total)",
        ),
    ],
)
def test_each_limit_is_named_by_the_failure_it_causes(steps, timeouts, words):
    reply, _ = reply_to(script(*steps), timeouts=timeouts)
    assert reply.error == words


def test_pings_do_not_put_off_the_first_token():
    reply, _ = reply_to(script(*((0.03 * n, b": ping\n\n") for n in range(20))), timeouts=SHORT)
    assert "timeouts.first_token" in reply.error


def test_a_finished_stream_whose_connection_stays_open_is_whole():
    reply, _ = reply_to(script((0, c("a") + u(1, 1) + DONE), (20, b"")), timeouts=SHORT)
    assert reply.error is None


WHOLE = c("a") + stop() + u(1, 1) + DONE


@pytest.mark.parametrize("cuts", [[], [5], [len(WHOLE) - 3], range(1, len(WHOLE))])
def test_the_terminator_completes_an_answer_at_once_and_ends_its_connection(cuts):
    async def answer(_, __, writer):
        writer.write(HEAD)
        for start, end in pairwise([0, *cuts, len(WHOLE)]):
            writer.write(chunk(WHOLE[start:end]))
            await asyncio.sleep(0)
        await asyncio.sleep(20)

    async def main():
        async with serving(answer) as server, client(server.url) as sender:
            return [await ask(sender, request(f"r{i}")) for i in range(2)], server.connections

    began = monotonic()
    replies, connections = asyncio.run(main())
    assert monotonic() - began < 2
    assert connections == 2
    for reply in replies:
        assert (reply.error, reply.cut, len(reply.stamps)) == (None, False, 1)


def test_what_comes_after_the_terminator_is_ignored():
    late = [(0.005 * n, c("late")) for n in range(1, 4)]
    reply, _ = reply_to(script((0, WHOLE + c("late")), *late))
    assert (reply.error, len(reply.stamps)) == (None, 1)
    assert reply.closed == reply.stamps[-1]


def test_a_terminator_among_the_words_of_an_answer_is_none():
    reply, _ = reply_to(script((0, c("\ndata: [DONE]\n")), (0.05, c("b")), (0.05, WHOLE)))
    assert (reply.error, len(reply.stamps)) == (None, 3)


@pytest.mark.parametrize("stream", [c("a") + stop() + u(1, 1), WHOLE])
def test_a_cut_does_not_make_a_whole_answer_a_cut_one(stream):
    async def main():
        cut = asyncio.Event()
        async with serving(script((0, stream), (20, b""))) as server, client(server.url) as sender:
            sending = asyncio.create_task(
                sender.send(request(), cut=cut, on_first=lambda _: cut.set())
            )
            return await sending

    reply = asyncio.run(main())
    assert (reply.cut, reply.error, reply.output_tokens) == (False, None, 1)


@pytest.mark.parametrize(
    ("begun", "part"),
    [(c("a"), b": ping\n\n"), (c("a"), b"data:\n\n"), (c("a") + b'data: {"choices', b"x")],
)
def test_neither_pings_nor_the_bytes_of_one_frame_keep_a_stream_alive(begun, part):
    trickle = ((0.02 * n, part) for n in range(1, 40))
    reply, _ = reply_to(script((0, begun), *trickle), timeouts=SHORT)
    assert reply.error == "the stream stood still for 0.1 s (timeouts.stall)"
    assert reply.closed - reply.sent < 0.5


def test_frames_that_come_byte_by_byte_keep_a_stream_alive():
    text = (c("a") * 9 + WHOLE).replace(b"data: ", b"data:")
    steps = ((0.001 * n, text[n : n + 1]) for n in range(len(text)))
    reply, _ = reply_to(script(*steps), timeouts=Timeouts(stall=0.4))
    assert reply.closed - reply.sent > 0.7
    assert (reply.error, len(reply.stamps)) == (None, 10)


def test_a_body_that_breaks_the_rules_fails_at_once_and_says_so():
    async def answer(_, __, writer):
        writer.write(HEAD + chunk(c("a")))
        await asyncio.sleep(0.02)
        writer.write(chunk(c("b")))
        await asyncio.sleep(0.02)
        writer.write(b"ZZ\r\nhello\r\n")
        await asyncio.sleep(20)

    reply, _ = reply_to(answer, timeouts=Timeouts(stall=2))
    assert "chunk size" in reply.error
    assert reply.error.isprintable()
    assert len(reply.stamps) == 2
    assert reply.closed - reply.sent < 1


def test_what_a_server_says_cannot_move_the_cursor():
    odd = {"error": {"message": "kv \x1b[2J\x1b[31mcache\nexploded \x00\u202e\x9b!"}}
    for answer in (script((0, frame(odd) + DONE)), whole("500 Oops", orjson.dumps(odd))):
        reply, _ = reply_to(answer)
        assert reply.error.isprintable()
        assert reply.error.endswith("kv [2J [31mcache exploded !")


def test_a_connection_that_is_never_made_fails_in_time():
    async def main():
        # A full backlog: the kernel leaves further handshakes unanswered.
        with socket.socket() as listener, socket.socket() as one, socket.socket() as two:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            for filler in (one, two):
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            limits = Timeouts(connect=0.1, first_token=0.1)
            async with client(url, timeouts=limits) as sender:
                return await ask(sender)

    reply = asyncio.run(main())
    assert "within 0.1 s (timeouts." in reply.error


def test_a_refused_connection_is_a_failed_reply_that_was_never_sent():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def main():
        async with client(f"http://127.0.0.1:{port}") as sender:
            return await ask(sender)

    reply = asyncio.run(main())
    assert "failed" in reply.error
    assert (reply.sent, reply.status, len(reply.stamps)) == (None, None, 0)


def test_a_connection_reset_in_mid_stream_keeps_what_had_come():
    async def answer(_, __, writer):
        writer.write(HEAD + chunk(c("a")))
        await asyncio.sleep(0.02)
        writer.write(chunk(c("b")))
        await asyncio.sleep(0.02)
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    reply, _ = reply_to(answer)
    assert "failed" in reply.error
    assert len(reply.stamps) == 2


def test_what_is_no_http_is_a_failed_reply():
    async def answer(_, __, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")

    reply, _ = reply_to(answer)
    assert "failed" in reply.error


def test_a_cut_gives_back_what_has_come():
    async def main():
        cut = asyncio.Event()
        answer = script((0, c("a")), (0.02, c("b", usage=None)), (20, b""))
        async with serving(answer) as server, client(server.url) as sender:
            asyncio.get_running_loop().call_later(0.08, cut.set)
            reply = await ask(sender, cut=cut)
            # The connection is not used again.
            late = await ask(sender, request("r2"), cut=cut)
        return reply, late

    reply, late = asyncio.run(main())
    assert (reply.cut, reply.error, len(reply.stamps)) == (True, None, 2)
    assert reply.closed - reply.sent == pytest.approx(0.08, abs=SLACK)
    assert (late.cut, len(late.stamps)) == (True, 0)


def test_cancelling_the_sender_ends_the_request_at_once():
    async def main():
        async with serving(script((0, c("a")), (20, b""))) as server, client(server.url) as sender:
            task = asyncio.create_task(ask(sender))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.01)
            return [other for other in asyncio.all_tasks() if "_post" in repr(other)]

    assert asyncio.run(main()) == []


def test_a_connection_is_used_again_and_its_moments_are_its_own():
    async def main():
        answer = script((0.02, c("a") + u(1, 1) + DONE))
        async with serving(answer) as server, client(server.url) as sender:
            replies = [await ask(sender, request(f"r{i}")) for i in range(3)]
        return replies, server.connections

    replies, connections = asyncio.run(main())
    assert connections == 1
    for reply in replies:
        assert (reply.stamps - reply.sent) == pytest.approx([0.02], abs=SLACK)
