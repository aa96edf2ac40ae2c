import asyncio
import random

import numpy as np
import orjson
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.client import Request
from harness.wire.dialect import Dialect, worded
from harness.wire.pool import plain, tokenized
from harness.wire.prose import prose
from harness.wire.render import Renderer
from results.errors import InputError
from workloads.prompt import Prompt, marked


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory):
    """A byte-level tokenizer with merges across nothing but words, as the large models have."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([prose(60_000, 1)], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module")
def metaspace_file(tmp_path_factory):
    """A tokenizer whose texts of single tokens, in a row, are not the text of them all."""
    tokenizer = Tokenizer(models.BPE(unk_token="<u>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<u>"], show_progress=False)
    tokenizer.train_from_iterator([prose(30_000, 1)], trainer)
    path = tmp_path_factory.mktemp("metaspace") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def prompt_of(*segments: tuple[int, int], messages=()) -> Prompt:
    return Prompt(
        seeds=np.array([seed for seed, _ in segments], dtype=np.uint64),
        tokens=np.array([tokens for _, tokens in segments], dtype=np.int64),
        messages=messages,
    )


def ids_of(pool, prompt: Prompt) -> list[int]:
    return asyncio.run(Renderer(pool).ids(prompt)).tolist()


def test_a_prompt_has_exactly_its_tokens():  # F-16
    for lengths in ([1], [64, 64, 7], [4000], [8, 0, 3]):
        prompt = prompt_of(*enumerate(lengths))
        assert len(ids_of(plain(1000), prompt)) == prompt.length


def test_segments_follow_the_rule_of_the_reference_clients():
    pool = plain(1000)
    seed = 2**63 + 12345
    at = random.Random(seed).randrange(len(pool.ids))
    assert ids_of(pool, prompt_of((seed, 64))) == pool.ids[at : at + 64].tolist()


def test_a_segment_goes_on_at_the_beginning_of_the_pool(tokenizer_file):
    pool = tokenized(str(tokenizer_file))
    long = len(pool.ids) + 10
    ids = ids_of(pool, prompt_of((5, long)))
    at = random.Random(5).randrange(len(pool.ids))
    assert ids == np.roll(pool.ids, -at).tolist() + pool.ids[at : at + 10].tolist()
    text = asyncio.run(Renderer(pool).text(prompt_of((5, long))))
    assert text == pool.tokenizer.decode(ids)


def test_a_shorter_segment_is_the_beginning_of_a_longer_one():
    pool = plain(1000)
    assert ids_of(pool, prompt_of((9, 40)))[:17] == ids_of(pool, prompt_of((9, 17)))


def test_a_growing_prompt_keeps_its_beginning():  # invariant 9
    pool = plain(1000)
    first = ids_of(pool, prompt_of((1, 64), (2, 64)))
    assert ids_of(pool, prompt_of((1, 64), (2, 64), (3, 64)))[:128] == first


def test_salts_differ_and_lengths_do_not():
    pool = plain(1000)
    prompt = marked((1, 100))
    one, two = ids_of(pool, prompt.salted(11)), ids_of(pool, prompt.salted(12))
    assert len(one) == len(two) == 100
    assert one[:8] != two[:8]
    assert one[8:] == two[8:]


def test_plain_ids_lie_in_the_stated_range_and_never_change():
    pool = plain(1000)
    assert (pool.ids.min(), pool.ids.max()) == (31, 999)
    assert pool.ids[:4].tolist() == [205, 477, 859, 340]


def test_generated_text_is_the_same_everywhere():
    assert prose(5000, 7) == prose(5000, 7)
    assert len(prose(5000, 7)) >= 5000
    assert prose(5000, 7).isascii()


def test_text_is_the_decoded_ids(tokenizer_file, metaspace_file):
    prompt = prompt_of((1, 50), (2, 9), (3, 200))
    for path, simple in ((tokenizer_file, True), (metaspace_file, False)):
        pool = tokenized(str(path))
        assert (pool.offsets is not None) is simple
        text = asyncio.run(Renderer(pool).text(prompt))
        assert text == pool.tokenizer.decode(ids_of(pool, prompt), skip_special_tokens=False)


def test_messages_have_their_roles_and_their_own_text(tokenizer_file):
    pool = tokenized(str(tokenizer_file.parent))
    parts = (("system", 1), ("user", 2))
    renderer = Renderer(pool)
    prompt = prompt_of((1, 30), (2, 20), (3, 5), messages=parts)
    found = asyncio.run(renderer.messages(prompt))
    ids = ids_of(pool, prompt)
    assert [message["role"] for message in found] == ["system", "user"]
    assert found[0]["content"] == pool.tokenizer.decode(ids[:30])
    assert found[1]["content"] == pool.tokenizer.decode(ids[30:])
    again = asyncio.run(renderer.messages(prompt))
    assert again == found
    assert again[0]["content"] is found[0]["content"]
    alone = asyncio.run(renderer.messages(prompt_of((1, 30))))
    assert alone == [{"role": "user", "content": found[0]["content"]}]


@pytest.mark.parametrize("thinking", [True, False])
def test_thinking_is_always_explicit_in_chat(thinking, tokenizer_file):  # F-17
    dialect = Dialect(model="m", mode="chat", thinking=thinking)
    request = Request(id="r", prompt=prompt_of((1, 9)), output=4, session="s")
    body = asyncio.run(worded(dialect, request, Renderer(tokenized(str(tokenizer_file)))))
    fields = orjson.loads(body)
    assert fields["chat_template_kwargs"] == {"thinking": thinking, "enable_thinking": thinking}
    assert "reasoning_effort" not in fields
    assert dialect.path == "/v1/chat/completions"


def test_a_missing_or_odd_tokenizer_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        tokenized(str(tmp_path / "none.json"))
    odd = tmp_path / "tokenizer.json"
    odd.write_text("{}")
    with pytest.raises(InputError, match=r"not a tokenizer\.json"):
        tokenized(str(tmp_path))


def test_rendering_lets_the_loop_read_its_sockets():
    async def main():
        prompt = prompt_of(*((seed, 64) for seed in range(10_000, 13_000)))
        task = asyncio.create_task(Renderer(plain(1000)).ids(prompt))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(main()) > 5
