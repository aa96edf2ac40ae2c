"""Scripted faults of the simulated server, and what our client makes of each."""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from harness.client import Reply
from harness.sim.server.faults import Fault, read
from results.errors import InputError
from tests.sim_server import ask, call, client, drive, request, send, site
from tests.test_sim_server_answers import tokenizer  # noqa: F401 - a fixture


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a fault came to: for our client, and in the server's log."""

    reply: Reply
    line: dict[str, Any]


def under(tmp_path, *, stall=5.0, output=8, **fault) -> Seen:
    made = site(tmp_path, faults=(Fault(**fault),))

    async def work(url):
        async with client(url, stall=stall, body={"return_token_ids": True}) as sender:
            return await send(sender, request("a", output=output))

    reply, log = drive(made, work)
    assert log["a"]["fault"] == fault["fault"]
    return Seen(reply=reply, line=log["a"])


@pytest.mark.parametrize("after", [0, 3])
def test_an_error_frame_is_a_failure_though_the_status_is_200(after, tmp_path):
    seen = under(tmp_path, output=400, fault="error-frame", after=after)
    assert seen.reply.status == 200
    assert "breaks this answer off" in seen.reply.error
    assert len(seen.reply.stamps) == after
    assert seen.line["finish"] == "cut"


@pytest.mark.parametrize("status", [429, 503])
def test_a_status_is_sent_with_the_time_to_wait(status, tmp_path):
    faults = (Fault(fault="status", status=status, retry_after=1.5),)

    async def work(url):
        async with client(url) as sender:
            reply = await send(sender, request("a"))
        return reply, await call(url, "/v1/completions", b'{"prompt": "x"}')

    (reply, (plain, headers, _)), log = drive(site(tmp_path, faults=faults), work)
    assert reply.status == plain == log["a"]["status"] == status
    assert headers["Retry-After"] == "1.5"
    assert reply.error.startswith(f"HTTP {status}: The simulated server")


def test_a_page_is_not_an_answer(tmp_path):
    seen = under(tmp_path, fault="html")
    assert "HTTP 200 with text/html instead of a stream" in seen.reply.error


@pytest.mark.parametrize("after", [1, 4])
def test_a_stream_that_stands_still_meets_the_limit(after, tmp_path):
    seen = under(tmp_path, fault="stall", after=after, stall=0.05)
    assert "stood still" in seen.reply.error
    assert len(seen.reply.stamps) == after
    assert sum(seen.line["tokens"]) == after


@pytest.mark.parametrize("after", [0, 2])
def test_a_dropped_connection_keeps_what_came_before(after, tmp_path):
    seen = under(tmp_path, fault="drop", after=after)
    assert "the connection to" in seen.reply.error
    assert seen.reply.tokens is None or seen.reply.tokens.sum() == after
    assert seen.line["finish"] == "cut"


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "no-done"},
        {"fault": "split-bytes"},
        {"fault": "coalesce", "frames": 3},
        {"fault": "duplicate-usage"},
        {"fault": "slow-headers", "seconds": 0.1},
    ],
    ids=lambda fault: fault["fault"],
)
def test_what_is_only_odd_is_read_all_the_same(fault, tmp_path):
    seen = under(tmp_path, **fault)
    assert seen.reply.error is None
    assert seen.reply.tokens.tolist() == [1] * 8
    assert (seen.reply.input_tokens, seen.reply.output_tokens) == (40, 8)
    writes = [
        at for at, tokens in zip(seen.line["writes"], seen.line["tokens"], strict=True) if tokens
    ]
    assert (seen.reply.stamps > writes).all()


def test_frames_are_written_together_or_after_a_slow_head(tmp_path):
    together = under(tmp_path, fault="coalesce", frames=3).line["writes"]
    assert len(set(together)) == 4
    slow = under(tmp_path, fault="slow-headers", seconds=0.1)
    assert slow.reply.stamps[0] - slow.reply.sent > 0.1
    assert slow.line["lags"][0] > 0.05


def test_a_late_role_is_no_token(tokenizer, tmp_path):  # noqa: F811
    made = site(tmp_path, tokenizer=tokenizer, faults=(Fault(fault="role-late", after=2),))

    async def work(url):
        async with client(url, mode="chat", tokenizer=tokenizer) as sender:
            return await send(sender, request("a", output=4))

    reply, log = drive(made, work)
    assert reply.error is None
    assert log["a"]["tokens"] == [1, 1, 0, 1, 1, 0, 0]
    assert len(reply.stamps) == 4


@pytest.mark.parametrize(
    ("kind", "words"), [("error-frame", "breaks"), ("drop", None), ("slow-headers", None)]
)
def test_a_body_that_is_no_stream_can_go_wrong_too(kind, words, tmp_path):
    made = site(tmp_path, faults=(Fault(fault=kind, seconds=0.05),))

    async def work(url):
        try:
            return await ask(url, {"prompt": "x"})
        except aiohttp.ClientError:
            return None

    found, _ = drive(made, work)
    if kind == "drop":
        assert found is None
    else:
        assert found[0] == 200
        assert ("error" in found[1]) == (words is not None)


def test_a_fault_befalls_the_request_it_names_and_no_other(tmp_path):
    script = tmp_path / "faults.jsonl"
    script.write_text(
        "# three kinds of choice\n\n"
        '{"request": 2, "fault": "html"}\n'
        '{"id": "-bad-", "fault": "status", "status": 429}\n'
        '{"header": "X-Session-ID: of d", "fault": "drop", "after": 0}\n'
    )
    made = site(tmp_path, faults=read(script))

    async def work(url):
        async with client(url) as sender:
            return [await send(sender, request(name)) for name in ("a", "b", "c-bad-1", "d", "e")]

    replies, _ = drive(made, work)
    assert [reply.error is None for reply in replies] == [True, False, False, False, True]
    assert replies[2].status == 429


def test_one_stream_that_stalls_holds_up_no_other(tmp_path):
    made = site(tmp_path, faults=(Fault(fault="stall", id="b"),))

    async def work(url):
        async with client(url, stall=0.1) as sender:
            return await asyncio.gather(*(send(sender, request(name)) for name in "abc"))

    replies, _ = drive(made, work)
    assert [reply.error is None for reply in replies] == [True, False, True]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object such as"),
        ('{"fault": "explode"}', 'fault: expected one of error-frame, .*, got "explode"'),
        ('{"request": 3}', "fault: expected one of .*, got nothing"),
        ('{"fault": "html", "after": 3}', "after: html does not take it; it takes header, id, req"),
        (
            '{"fault": "drop", "request": 0}',
            "request: expected a whole number of at least 1, got 0",
        ),
        ('{"fault": "drop", "after": 1.5}', "after: expected a whole number"),
        ('{"fault": "status", "status": 200}', "status: expected a status from 400 to 599"),
        ('{"fault": "drop", "header": "X"}', 'header: expected text such as "X-Key: value"'),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_its_fix(line, words, tmp_path):
    script = tmp_path / "faults.jsonl"
    script.write_text(f"# comment\n{line}\n")
    with pytest.raises(InputError, match=f"faults.jsonl: line 2: {words}"):
        read(script)


def test_a_script_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none.jsonl")
