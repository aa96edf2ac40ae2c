"""What the simulated server answers, through the client that everything else uses."""

import asyncio
from dataclasses import replace

import numpy as np
import orjson
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.client import ANSWER, REASONING, TOOL
from harness.clock import run as run_on
from harness.engine import Deployment
from harness.sim.server import words
from harness.wire.prose import prose
from tests.sim_server import ask, call, client, drive, request, scrape, send, site, total


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A byte-level tokenizer of words, as the large models have."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([prose(40_000, 1)], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path


def replies_to(made, *requests, **dialect):
    """Replies to requests sent at once, the log, and what changed under /metrics."""

    async def work(url):
        async with client(url, **dialect) as sender:
            before = await scrape(url)
            replies = await asyncio.gather(*(send(sender, each) for each in requests))
            after = await scrape(url)
            return replies, {key: value - before[key] for key, value in after.items()}

    (replies, deltas), log = drive(made, work)
    return replies, log, deltas


def check(reply, line, wanted):
    """A reply agrees with what the server says of it."""
    assert reply.error is None
    assert reply.finish_reason == line["finish"] == "length"
    assert reply.output_tokens == wanted.output == line["output"] == sum(line["tokens"])
    assert (reply.input_tokens, reply.cached_tokens) == (line["prompt"], line["cached"])
    writes = [at for at, tokens in zip(line["writes"], line["tokens"], strict=True) if tokens]
    assert len(reply.stamps) == len(writes)
    assert (reply.stamps > writes).all()
    assert min(line["lags"]) >= 0
    assert line["arrived"] < line["queued"] < line["scheduled"] + 2e-6 < writes[0]
    assert reply.sent < line["queued"]
    assert reply.server_queue + reply.server_ttft < reply.stamps[0] - reply.sent


def test_a_completion_agrees_with_the_log_and_with_the_metrics(tmp_path):
    wanted = [request(f"r{number}", (number, 100), output=20 + number) for number in range(6)]
    replies, log, deltas = replies_to(site(tmp_path), *wanted, body={"return_token_ids": True})
    for each, reply in zip(wanted, replies, strict=True):
        check(reply, log[each.id], each)
        assert reply.tokens.tolist() == [tokens for tokens in log[each.id]["tokens"] if tokens]
        assert reply.input_tokens == 100
    output = sum(each.output for each in wanted)
    assert total(deltas, "generation_tokens_total") == output
    assert total(deltas, "prompt_tokens_total") == 600
    assert total(deltas, "prefix_cache_queries_total") == 600
    assert total(deltas, "request_success_total") == 6


def test_drafts_bring_several_tokens_a_frame_and_are_counted(tmp_path):
    engine = {"draft_tokens": 3, "acceptance_length": 2.5}
    wanted = [request(f"r{number}", output=60) for number in range(4)]
    replies, log, deltas = replies_to(site(tmp_path, engine=engine), *wanted, chunk_usage=True)
    for each, reply in zip(wanted, replies, strict=True):
        check(reply, log[each.id], each)
        assert reply.tokens.tolist() == [tokens for tokens in log[each.id]["tokens"] if tokens]
        assert reply.tokens.max() > 1
    drafted = sum(reply.draft_tokens for reply in replies)
    accepted = sum(reply.accepted_tokens for reply in replies)
    assert total(deltas, "spec_decode_num_draft_tokens_total") == drafted
    assert total(deltas, "spec_decode_num_accepted_tokens_total") == accepted
    assert total(deltas, "spec_decode_num_accepted_tokens_per_pos_total") == accepted
    assert total(deltas, "spec_decode_num_drafts_total") == drafted / 3


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_a_chat_thinks_under_either_name_and_counts_its_template(key, tokenizer, tmp_path):
    made = site(tmp_path, tokenizer=tokenizer, reasoning_share=0.25, reasoning_key=key)
    thinking, plainly = request("a", output=20), request("b", output=20)

    async def work(url):
        chat = {"mode": "chat", "tokenizer": tokenizer}
        async with (
            client(url, thinking=True, **chat) as one,
            client(url, thinking=False, **chat) as other,
        ):
            return await send(one, thinking), await send(other, plainly)

    (thought, said), log = drive(made, work)
    check(thought, log["a"], thinking)
    check(said, log["b"], plainly)
    assert thought.kinds.tolist() == [REASONING] * 5 + [ANSWER] * 15
    assert set(said.kinds.tolist()) == {ANSWER}
    assert said.input_tokens == 40 + 3


def test_a_chat_calls_a_tool_where_it_is_told_to(tokenizer, tmp_path):
    made = site(tmp_path, tokenizer=tokenizer, tool_calls=True)
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
    body = {"messages": [{"role": "user", "content": "go"}], "tools": tools, "max_tokens": 9}

    async def work(url):
        async with client(url, mode="chat", tokenizer=tokenizer, body={"tools": tools}) as sender:
            reply = await send(sender, request("a"))
        return reply, await ask(url, body, "/v1/chat/completions")

    (reply, (_, whole)), _ = drive(made, work)
    assert set(reply.kinds.tolist()) == {TOOL}
    assert reply.finish_reason == "tool_calls"
    (called,) = whole["choices"][0]["message"]["tool_calls"]
    assert called["function"]["name"] == "look_up"
    assert len(orjson.loads(called["function"]["arguments"])["text"].split()) == 9


def test_the_frames_of_a_chat_come_as_vllm_sends_them(tmp_path):
    body = {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hello, you"}]},
        ],
        "max_completion_tokens": 3,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }

    async def work(url):
        _, headers, text = await call(url, "/v1/chat/completions", orjson.dumps(body))
        return headers, text, await ask(url, body, "/tokenize")

    (headers, text, (_, counted)), _ = drive(site(tmp_path), work)
    assert headers["Content-Type"] == "text/event-stream"
    *events, done, rest = text.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    role, *pieces, usage = [orjson.loads(event[6:]) for event in events]
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [piece["usage"]["completion_tokens"] for piece in pieces] == [1, 2, 3]
    assert pieces[-1]["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == counted["count"] == 1 + 2 + 1 + 1 + 3 + 1 + 1


@pytest.mark.parametrize("other", [False, True])
def test_the_text_of_an_answer_has_as_many_tokens_when_read_again(other, tokenizer, tmp_path):
    made = site(tmp_path, tokenizer=tokenizer if other else None)

    async def work(url):
        body = {"prompt": "Count with me:", "max_tokens": 300, "return_token_ids": True}
        _, answer = await ask(url, body)
        choice = answer["choices"][0]
        _, again = await ask(url, {"prompt": choice["text"]}, "/tokenize")
        return choice["token_ids"], again["tokens"]

    (said, again), _ = drive(made, work)
    assert said == again
    assert len(said) == 300


def test_our_own_words_cover_every_text():
    vocabulary = words.own()
    text = "\n\n  naïve:\tfoo_bar 中文🦀 \ud800, internationalisation  "
    assert len(asyncio.run(vocabulary.encode(text))) == 12
    ids = [0, 1, 63, 64, 5000, words.WORDS - 1]
    assert asyncio.run(vocabulary.encode("".join(vocabulary.texts(ids)))).tolist() == ids


def test_the_same_prompt_gets_the_same_answer_and_another_seed_another_one(tmp_path):
    def answer(made, prompt):
        return drive(made, lambda url: ask(url, {"prompt": prompt, "max_tokens": 5}))[0][1]

    def text(made, prompt):
        return answer(made, prompt)["choices"][0]["text"]

    made = site(tmp_path)
    assert text(made, [5, 6]) == text(made, [[5, 6]])
    assert text(made, [5, 6]) != text(made, [5, 7])
    assert text(made, "five six") == text(made, ["five six"])
    assert text(made, [5, 6]) != text(replace(made, seed=1), [5, 6])
    assert answer(made, "x")["choices"][0]["finish_reason"] == "length"


def test_an_answer_whose_length_nobody_asked_for_stops(tmp_path):
    async def work(url):
        _, short = await ask(url, {"prompt": "x"})
        chat = {"messages": [{"role": "user", "content": "x"}]}
        _, long = await ask(url, chat, "/v1/chat/completions")
        return short, long

    (short, long), _ = drive(site(tmp_path, step=1e-4), work)
    assert (short["usage"]["completion_tokens"], long["usage"]["completion_tokens"]) == (16, 256)
    assert {short["choices"][0]["finish_reason"], long["choices"][0]["finish_reason"]} == {"stop"}


def test_the_log_tells_whose_a_request_is_and_what_it_asked(tmp_path):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one two three"}]},
    ]
    headers = {"X-Request-Id": "chat", "X-Session-ID": "tree", "X-Correlation-ID": "stream"}

    async def work(url):
        chat = {"messages": messages, "max_tokens": 5}
        await ask(url, chat, "/v1/chat/completions", headers)
        await ask(url, {"prompt": "x"}, headers={"X-Request-Id": "text"})
        await ask(url, {"prompt": "x", "n": 2}, headers={"X-Request-Id": "bad"})

    _, log = drive(site(tmp_path), work)
    keys = ("session", "correlation", "asked", "messages", "prompt")
    told = {name: [line.get(key) for key in keys] for name, line in log.items()}
    assert told == {
        "chat": ["tree", "stream", 5, [["system", 2], ["user", 3]], 2 + 3 + 2 * 2 + 1],
        "text": [None, None, None, [], 1],
        "bad": [None, None, None, None, None],
    }


def growing(turns):
    return [[(number, 150 + 10 * number) for number in range(turn + 1)] for turn in range(turns)]


@pytest.mark.parametrize("replay", ["on", "off"])
def test_a_growing_context_hits_what_the_machine_in_process_hits(replay, tmp_path):
    made = site(tmp_path, replay=replay)
    prompts = [request(f"r{n}", *parts, output=4) for n, parts in enumerate(growing(6))]

    async def in_process():
        deployment = Deployment(engine=made.engine, topology=made.topology, replay=replay)
        log = tmp_path / "virtual.log"
        async with made.engine.start(deployment, seed=0, log=log, keys={}) as server:
            return [await send(server.client, each) for each in prompts]

    async def on_the_wall(url):
        async with client(url) as sender:
            replies = [await send(sender, each) for each in prompts]
        return replies, await scrape(url)

    (replies, samples), _ = drive(made, on_the_wall)
    cached = [reply.cached_tokens for reply in replies]
    assert cached == [reply.cached_tokens for reply in run_on("virtual", in_process())]
    assert cached[0] == 0
    assert cached[-1] > 700
    assert total(samples, "prefix_cache_hits_total") == sum(cached)


def test_a_salt_keeps_caches_apart(tmp_path):
    async def work(url):
        found = []
        for salt in ("a", "a", "b", None):
            body = {"prompt": list(range(500)), "max_tokens": 1, "cache_salt": salt}
            _, answer = await ask(url, body)
            found.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        return found

    found, _ = drive(site(tmp_path), work)
    assert found == [0, 448, 0, 0]


def test_a_rank_that_is_asked_for_is_taken_and_the_others_take_turns(tmp_path):
    async def work(url):
        async with client(url) as sender:
            for number in range(2):
                await send(sender, request(f"pinned{number}", (1, 300), rank=1))
            for number in range(2):
                await send(sender, request(f"free{number}", (1, 300)))
        wrong = [
            await ask(url, {"prompt": "x"}, headers={"X-data-parallel-rank": rank})
            for rank in ("2", "-1", "x")
        ]
        return wrong, await scrape(url)

    (wrong, samples), log = drive(site(tmp_path, topology="DEP2"), work)
    ranks = {name: line["rank"] for name, line in log.items() if "rank" in line}
    assert ranks == {"pinned0": 1, "pinned1": 1, "free0": 0, "free1": 1}
    assert [log[name]["cached"] for name in ranks] == [0, 256, 0, 256]
    hits = [
        samples[f'vllm:prefix_cache_hits_total{{engine="{rank}",model_name="simulated"}}']
        for rank in (0, 1)
    ]
    assert hits == [0, 512]
    assert {status for status, _ in wrong} == {400}
    assert "out of range" in wrong[0][1]["error"]["message"]


def test_the_cache_is_emptied_only_while_no_request_holds_a_block(tmp_path):
    async def work(url):
        async with client(url) as sender:
            first = asyncio.Event()
            running = asyncio.create_task(
                send(sender, request("a", (1, 300), output=40), on_first=lambda _: first.set())
            )
            await first.wait()
            busy = await call(url, "/reset_prefix_cache", b"")
            usage = total(await scrape(url), "kv_cache_usage_perc")
            await running
            warm = await send(sender, request("b", (1, 300)))
            free = await call(url, "/reset_prefix_cache", b"")
            cold = await send(sender, request("c", (1, 300)))
        answers = [(status, orjson.loads(text)["success"]) for status, _, text in (busy, free)]
        return answers, usage, (warm.cached_tokens, cold.cached_tokens)

    (answers, usage, cached), _ = drive(site(tmp_path), work)
    assert answers == [(200, False), (200, True)]
    assert usage > 0
    assert cached == (256, 0)


def test_a_client_that_leaves_has_its_request_withdrawn(tmp_path):
    async def work(url):
        cut = asyncio.Event()
        async with client(url) as sender:
            left = await send(sender, request("left", output=5000), cut, lambda _: cut.set())
            await send(sender, request("stayed", output=50))
            samples = await scrape(url)
        return left, samples

    (left, samples), log = drive(site(tmp_path), work)
    assert left.cut
    assert total(samples, "num_requests_running") == 0
    assert log["left"]["finish"] == "cut"
    assert 0 < log["left"]["output"] < 100
    abort = 'vllm:request_success_total{engine="0",model_name="simulated",finished_reason="abort"}'
    assert samples[abort] == 1
    assert log["stayed"]["finish"] == "length"


def test_too_many_requests_for_the_memory_are_preempted_and_still_complete(tmp_path):
    engine = {"kv_tokens": 1280, "block_size": 16}
    wanted = [request(f"r{number}", (number, 150), output=150) for number in range(8)]
    replies, log, deltas = replies_to(site(tmp_path, engine=engine, step=5e-4), *wanted)
    for each, reply in zip(wanted, replies, strict=True):
        check(reply, log[each.id], each)
    preempted = sum(line["preemptions"] for line in log.values())
    assert total(deltas, "num_preemptions_total") == preempted > 0


def test_what_cannot_be_served_is_refused_as_openai_clients_expect(tmp_path):
    bodies = {
        "limit": {"prompt": [1] * 90, "max_tokens": 20},
        "model": {"prompt": "x", "model": "other"},
        "ids": {"prompt": [1, -4]},
        "mixed": {"prompt": [1, "x"]},
        "many": {"prompt": ["x", "y"]},
        "none": {},
        "empty": {"prompt": ""},
        "length": {"prompt": "x", "max_tokens": 0},
        "n": {"prompt": "x", "n": 2},
    }

    async def work(url):
        found = {name: await ask(url, body) for name, body in bodies.items()}
        status, _, text = await call(url, "/v1/completions", b"{no")
        found["json"] = status, orjson.loads(text)
        found["role"] = await ask(url, {"messages": [{"role": "x"}]}, "/v1/chat/completions")
        async with client(url) as sender:
            return found, await send(sender, request("ours", (1, 95)))

    (found, ours), log = drive(site(tmp_path, engine={"context_limit": 100}), work)
    assert found["model"][0] == 404
    assert {status for name, (status, _) in found.items() if name != "model"} == {400}
    assert all(answer["error"]["message"] for _, answer in found.values())
    assert "maximum context length" in found["limit"][1]["error"]["message"]
    assert "maximum context length" in ours.error
    assert ours.status == 400
    assert {line["finish"] for line in log.values()} == {"refused"}


def test_a_server_with_a_key_answers_only_who_has_it(tmp_path):
    made = site(tmp_path, key="sk-secret")

    async def work(url):
        right = await ask(url, {"prompt": "x"}, headers={"Authorization": "Bearer sk-secret"})
        wrong = await ask(url, {"prompt": "x"}, headers={"Authorization": "Bearer sk-other"})
        return right, wrong, await ask(url, {"prompt": "x"}), await call(url, "/health")

    ((right, _), (wrong, said), (without, _), health), _ = drive(made, work)
    assert (right, wrong, without, health[0]) == (200, 401, 401, 200)
    assert said["error"]["message"] == "The API key is missing or wrong."
    assert "sk-secret" not in repr(made) + made.log.read_text()


def test_it_says_what_it_is_and_that_it_is_simulated(tmp_path):
    made = site(tmp_path, topology="TP2xDP2", model="m", engine={"context_limit": 4096})

    async def work(url):
        paths = ["/version", "/server_info?config_format=json", "/v1/models", "/load"]
        answers = [orjson.loads((await call(url, path))[2]) for path in paths]
        named = await call(url, "/v1/completions", b'{"prompt": "x"}', {"X-Request-Id": "mine"})
        return answers, named

    ((version, information, names, load), (_, headers, text)), _ = drive(made, work)
    assert version["simulated"] is True
    assert "simulated" in version["version"]
    assert information["simulated"] is True
    parallel = information["vllm_config"]["parallel_config"]
    assert (parallel["tensor_parallel_size"], parallel["data_parallel_size"]) == (2, 2)
    assert names["data"][0]["id"] == "m"
    assert names["data"][0]["max_model_len"] == 4096
    assert load == {"server_load": 0}
    assert headers["X-Request-Id"] == "mine"
    assert orjson.loads(text)["id"] == "cmpl-mine"
    assert orjson.loads(text)["system_fingerprint"] == made.fingerprint


def test_streams_that_step_together_are_written_together(tmp_path):
    wanted = [request(f"r{number}", output=10) for number in range(16)]
    _, log, _ = replies_to(site(tmp_path, step=0.02), *wanted)
    writes = np.array([line["writes"][:10] for line in log.values()])
    lags = np.array([line["lags"][:10] for line in log.values()])
    steps, at = np.unique(np.round(writes - lags, 6), return_inverse=True)
    # Steps follow one another, so who waits when one begins is in it, and in all up to its last.
    assert (np.diff(steps) > 0.019).all()
    assert (np.diff(at.reshape(writes.shape)) == 1).all()
    waited = np.array([line["scheduled"] - line["queued"] for line in log.values()])
    assert (waited < 0.021).all()
    ends = steps[at.reshape(writes.shape)[:, 0]]
    assert ends - [line["scheduled"] for line in log.values()] == pytest.approx(0.02, abs=1e-5)
