"""A server of the simulated engine, through the client that everything else uses."""

import asyncio
import re
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import orjson
import pytest

from harness.client import Request
from harness.clock import now, run, until
from harness.engine import Deployment
from harness.sim.engine import SimulatedEngine
from harness.topology import parse
from results.errors import UnsupportedError
from workloads.prompt import Prompt


def request(name, *segments, output=20, rank=None):
    seeds, tokens = zip(*segments, strict=True)
    prompt = Prompt(seeds=np.array(seeds, dtype=np.uint64), tokens=np.array(tokens, dtype=np.int64))
    return Request(id=name, prompt=prompt, output=output, session="s", rank=rank)


def serve(path, drive, *, topology="TP1", replay="on", seed=1, **settings):
    """What `drive` makes of a server's client, and the server's own log."""
    engine = SimulatedEngine(**settings)
    deployment = Deployment(engine=engine, topology=parse(topology), replay=replay)

    async def main():
        async with engine.start(deployment, seed=seed, log=path / "server.log", keys={}) as server:
            return await drive(server)

    outcome = run("virtual", main())
    lines = (path / "server.log").read_bytes().splitlines()
    return outcome, [orjson.loads(line) for line in lines]


async def send(server, wanted, *, at=0.0, cut=None, on_first=lambda moment: None):
    await until(at)
    return await server.client.send(wanted, cut=cut or asyncio.Event(), on_first=on_first)


def together(*sends):
    async def drive(server):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(send(server, wanted, at=at)) for wanted, at in sends]
        return [task.result() for task in tasks]

    return drive


def mixed(number, random):
    shared = (int(random.integers(3)), int(random.integers(200, 4000)))
    own = (100 + number, int(random.integers(1, 3000)))
    return request(str(number), shared, own, output=int(random.integers(1, 300)))


def traffic(number=40):
    random = np.random.default_rng(3)
    return [(mixed(index, random), float(random.uniform(0, 30))) for index in range(number)]


def same(one, other):
    return all(
        np.array_equal(a.stamps, b.stamps) and np.array_equal(a.tokens, b.tokens)
        for a, b in zip(one, other, strict=True)
    )


def test_every_token_asked_for_is_delivered_once(tmp_path):
    sends = traffic()
    replies, log = serve(
        tmp_path, together(*sends), kv_tokens=12_000, draft_tokens=3, acceptance_length=2.0
    )
    for (wanted, at), reply in zip(sends, replies, strict=True):
        assert reply.error is None
        assert not reply.cut
        assert reply.finish_reason == "length"
        assert reply.tokens.sum() == reply.output_tokens == wanted.output
        assert reply.input_tokens == wanted.prompt.length
        assert len(reply.stamps) == len(reply.tokens) == len(reply.kinds)
        assert (np.diff(reply.stamps) > 0).all()
        assert reply.sent == pytest.approx(at, abs=1e-6)
        assert reply.closed == reply.stamps[-1]
        waited = reply.server_queue + reply.server_ttft
        assert waited == pytest.approx(reply.stamps[0] - reply.sent)
        assert reply.accepted_tokens <= reply.draft_tokens
    head, *rows = log
    assert head["SIMULATED"]["kv_tokens"] == 12_000
    assert [row["arrived_us"] for row in rows] == sorted(row["arrived_us"] for row in rows)
    assert sum(row["output"] for row in rows) == sum(wanted.output for wanted, _ in sends)
    assert sum(row["preemptions"] for row in rows) > 0


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path):
    settings = {"noise": 0.1, "draft_tokens": 3, "acceptance_length": 2.0}
    one, again, other = (
        serve(tmp_path, together(*traffic()), seed=seed, **settings)[0] for seed in (1, 1, 2)
    )
    assert same(one, again)
    assert not same(one, other)


def test_the_log_agrees_with_the_replies(tmp_path):
    replies, (_, *rows) = serve(tmp_path, together(*traffic()), topology="DEP2")
    by_id = {row["id"]: row for row in rows}
    for number, reply in enumerate(replies):
        row = by_id[str(number)]
        assert row["rank"] == reply.rank
        assert row["first_us"] == round(reply.stamps[0] * 1e6)
        assert row["last_us"] == round(reply.stamps[-1] * 1e6)
        assert row["cached_reported"] == reply.cached_tokens
        assert row["cached_true"] == max(0, reply.cached_tokens - 128)
        assert row["finish"] == "length"


def test_the_first_token_is_told_at_its_moment(tmp_path):
    told = []

    async def drive(server):
        return await send(
            server,
            request("a", (1, 5000)),
            on_first=lambda moment: told.append((moment, now())),
        )

    reply, _ = serve(tmp_path, drive)
    assert told == [(reply.stamps[0], reply.stamps[0])]


def test_a_request_sent_when_another_ends_joins_the_next_step(tmp_path):
    async def drive(server):
        async with asyncio.TaskGroup() as group:
            long = group.create_task(send(server, request("long", (1, 100), output=200)))
            await send(server, request("short", (2, 100), output=50))
            joined = await send(server, request("next", (3, 100), output=1))
        return long.result(), joined

    (long, joined), _ = serve(tmp_path, drive)
    assert joined.server_queue == 0
    assert joined.stamps[0] in long.stamps


def test_a_cut_request_keeps_what_had_arrived(tmp_path):
    async def drive(server):
        cut = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            sent = group.create_task(send(server, request("a", (1, 1000), output=500), cut=cut))
            waits = group.create_task(
                send(server, request("b", (2, 60_000), output=5), at=1.999, cut=cut)
            )
            await until(2.0)
            cut.set()
        after = await send(server, request("c", (3, 100), output=5))
        return sent.result(), waits.result(), after

    (reply, waited, after), (_, *rows) = serve(tmp_path, drive)
    assert reply.cut
    assert reply.error is None
    assert 0 < reply.output_tokens < 500
    assert reply.output_tokens == reply.tokens.sum() == len(reply.stamps)
    assert reply.stamps[-1] <= reply.closed == 2.0
    assert waited.cut
    assert len(waited.stamps) == 0
    assert after.output_tokens == 5
    assert [row["finish"] for row in rows] == ["cut", "cut", "length"]
    assert rows[0]["output"] == reply.output_tokens


def test_a_cut_at_the_moment_of_a_token_keeps_it(tmp_path):
    wanted = request("a", (1, 1000), output=50)
    whole, _ = serve(tmp_path, together((wanted, 0.0)))
    moments = []

    def drive_to(piece):
        async def drive(server):
            cut = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                sent = group.create_task(send(server, wanted, cut=cut, on_first=moments.append))
                await until(whole[0].stamps[piece])
                cut.set()
            return sent.result()

        return drive

    for piece in (0, 20):
        reply, _ = serve(tmp_path, drive_to(piece))
        assert reply.cut
        assert reply.stamps.tolist() == whole[0].stamps[: piece + 1].tolist()
    assert moments == [whole[0].stamps[0]] * 2
    reply, _ = serve(tmp_path, drive_to(49))
    assert not reply.cut
    assert reply.output_tokens == 50


def test_a_cancelled_request_leaves_the_server(tmp_path):
    async def drive(server):
        task = asyncio.create_task(send(server, request("a", (1, 1000), output=10**6)))
        await until(5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await send(server, request("b", (2, 1000), output=5))

    reply, (_, first, _) = serve(tmp_path, drive, max_sequences=1)
    assert reply.output_tokens == 5
    assert reply.server_queue < 0.02
    assert first["finish"] == "cut"


def test_requests_that_a_stopping_server_leaves_get_an_error(tmp_path):
    async def drive(server):
        task = asyncio.create_task(send(server, request("a", (1, 1000), output=10**6)))
        await until(5.0)
        return task

    async def main():
        engine = SimulatedEngine()
        deployment = Deployment(engine=engine, topology=parse("TP1"))
        async with engine.start(deployment, seed=1, log=tmp_path / "log", keys={}) as server:
            task = await drive(server)
        return await task

    reply = run("virtual", main())
    assert "stopped" in reply.error
    assert not reply.cut
    assert reply.output_tokens > 0


@pytest.mark.parametrize(
    ("wanted", "settings", "says"),
    [
        (request("a", (1, 900), output=200), {"context_limit": 1000}, "maximum context"),
        (request("a", (1, 900), output=200), {"kv_tokens": 1024}, "KV cache"),
        (request("a", (1, 900), rank=2), {}, "rank 2 of 1"),
        (request("a", (1, 900), output=0), {}, "at least one"),
    ],
)
def test_a_request_that_cannot_run_fails_with_a_sentence(tmp_path, wanted, settings, says):
    (reply,), (_, row) = serve(tmp_path, together((wanted, 1.0)), **settings)
    assert re.search(says, reply.error)
    assert reply.error.endswith((".", "tokens."))
    assert (reply.status, len(reply.stamps)) == (400, 0)
    assert row["finish"] == "refused"


def turns(rank):
    async def drive(server):
        segments, replies = [(1, 4096)], []
        for turn in range(4):
            wanted = request(str(turn), *segments, rank=rank)
            replies.append(await send(server, wanted))
            segments.append((10 + turn, 2048))
        return replies

    return drive


def test_a_pinned_session_keeps_its_hits_and_an_unpinned_one_loses_them(tmp_path):
    pinned, _ = serve(tmp_path, turns(1), topology="DEP2")
    assert [reply.rank for reply in pinned] == [1, 1, 1, 1]
    assert [reply.cached_tokens for reply in pinned] == [0, 4096, 6144, 8192]
    unpinned, _ = serve(tmp_path, turns(None), topology="DEP2")
    assert [reply.rank for reply in unpinned] == [0, 1, 0, 1]
    assert [reply.cached_tokens for reply in unpinned] == [0, 0, 4096, 6144]


def test_an_unpinned_request_goes_to_the_least_loaded_rank(tmp_path):
    sends = [(request("a", (1, 100), output=1000, rank=0), 0.0)]
    sends += [(request(str(number), (2, 100), output=1), 1.0 + number) for number in range(3)]
    replies, _ = serve(tmp_path, together(*sends), topology="DEP2")
    assert [reply.rank for reply in replies[1:]] == [1, 1, 1]


def test_a_slowdown_multiplies_every_step(tmp_path):
    sends = [(request("a", (1, 5000), output=300), 0.0)]
    (plain,), _ = serve(tmp_path, together(*sends))
    (slow,), _ = serve(tmp_path, together(*sends), slowdown=1.05)
    assert np.diff(slow.stamps) / np.diff(plain.stamps) == pytest.approx(1.05, rel=1e-3)


def test_steps_account_for_all_prompt_tokens_and_all_time(tmp_path):
    sends = [(request(str(number), (number, 1000), output=100), 0.0) for number in range(8)]

    async def drive(server):
        replies = await together(*sends)(server)
        return replies, server.steps(), server.observe()

    (replies, steps, observed), _ = serve(tmp_path, drive, replay="off")
    rows = steps.to_pylist()
    assert sum(row["prefill_tokens"] * row["steps"] for row in rows) == 8000
    assert sum(row["decode_rows"] * row["steps"] for row in rows) == 8 * 99
    assert all(a["end_us"] == b["start_us"] for a, b in pairwise(rows))
    assert rows[-1]["end_us"] == round(max(reply.closed for reply in replies) * 1e6)
    assert len(rows) < 20
    assert observed.provenance == "simulated"
    assert observed.features == observed.requested == {"replay": "off"}
    assert observed.configuration["ranks"] == observed.gpus == 1


def test_settings_survive_json_and_wrong_ones_are_refused():
    settings = orjson.loads(orjson.dumps(asdict(SimulatedEngine())))
    assert settings["kind"] == "sim"
    assert settings["cost"]["upper_share"] == 0.5
    with pytest.raises(ValueError, match="belong together"):
        SimulatedEngine(draft_tokens=3)
    with pytest.raises(ValueError, match="at most 4"):
        SimulatedEngine(draft_tokens=3, acceptance_length=4.5)
    with pytest.raises(ValueError, match="raise it to 256"):
        SimulatedEngine(max_batched_tokens=100)


def test_it_says_that_it_is_simulated_and_takes_no_flags():
    engine = SimulatedEngine()
    deployment = Deployment(engine=engine, topology=parse("DEP2"))
    assert "SIMULATED" in engine.describe(deployment)[0]
    with pytest.raises(UnsupportedError, match="no flags"):
        engine.describe(Deployment(engine=engine, topology=parse("TP1"), flags=("--x",)))
