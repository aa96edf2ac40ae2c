"""The models that are made here."""

import random
from pathlib import Path

import orjson
import pytest
from tokenizers import Tokenizer

from harness.vllm import shrunk
from harness.vllm.models import make
from harness.wire.pool import tokenized
from results.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("models") / "v41"
    make("v41-shrunk", place, Path("no-python"))
    return place


def text_of(folder: Path) -> dict:
    return orjson.loads((folder / "config.json").read_bytes())["text_config"]


def test_layers_and_dimensions_are_those_of_v41(folder):
    text = text_of(folder)
    assert (text["num_hidden_layers"], text["hidden_size"], text["head_dim"]) == (40, 5120, 512)
    assert len(text["compress_ratios"]) == 40
    assert text["compress_ratios"][text["kv_source_layer_ids"][-1]] == 1
    assert set(text["kv_source_layer_ids"]) <= set(text["index_source_layer_ids"])
    assert text["n_routed_experts"] >= text["num_experts_per_tok"]
    assert text["engram_layer_ids"] == []


def test_ids_of_words_survive_the_way_through_text(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    draw = random.Random(1)
    ids = [draw.randrange(259, shrunk.VOCABULARY) for _ in range(5000)]
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert tokenizer.encode(text, add_special_tokens=False).ids == ids


def test_any_text_survives_the_way_through_ids(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "def f(x):\n\treturn 'naïve 中文🦀'  # w00 w000300 w9999999"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_chat_can_be_sent_from_its_tokenizer(folder):
    pool = tokenized(str(folder))
    assert pool.offsets is not None
    assert pool.offsets[-1] == len(pool.text)


def test_a_small_engram_has_a_prime_number_of_rows_for_each_part(tmp_path):
    make("v41-shrunk-engram", tmp_path / "m", Path("no-python"))
    text = text_of(tmp_path / "m")
    assert text["engram_layer_ids"] == [1, 14]
    # The 24 primes from 100,003 to 100,313, and the 24 after them, up to whole KiB.
    assert text["engram_num_embeddings"] == [2_404_352, 2_411_520]
    # All words differ; of 256 bytes and 3 names, 26 capitals are small letters, and blanks are one.
    assert text["engram_compressed_vocab_size"] == shrunk.VOCABULARY - 26 - 3


def test_drafts_are_three_layers_of_the_window_alone_that_start_from_late_layers(folder, tmp_path):
    make("v41-shrunk", tmp_path / "m", Path("no-python"), drafts=True)
    text, without = text_of(tmp_path / "m"), text_of(folder)
    layers = text["num_hidden_layers"]
    assert (text["num_nextn_predict_layers"], without["num_nextn_predict_layers"]) == (3, 0)
    assert text["compress_ratios"] == [*without["compress_ratios"], 0, 0, 0]
    # vLLM hands over what enters a layer: nothing enters layer 0 that was computed.
    assert text["dspark_target_layer_ids"] == sorted(set(text["dspark_target_layer_ids"]))
    assert all(0 < layer <= layers for layer in text["dspark_target_layer_ids"])
    assert text["dspark_n_routed_experts"] >= text["dspark_num_experts_per_tok"]
    assert text["dspark_noise_token_id"] < text["vocab_size"]
    drafted = {key for key in text if key.startswith("dspark")}
    assert drafted
    assert not drafted & without.keys()
    changed = {key for key in without if text[key] != without[key]}
    assert changed == {"num_nextn_predict_layers", "compress_ratios"}


def test_drafts_of_a_model_that_has_none_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nano has no drafts: --drafts is for v41-shrunk and"):
        make("nano", tmp_path / "m", Path("no-python"), drafts=True)


def test_a_model_that_is_there_is_left_alone(folder):
    before = (folder / "config.json").stat().st_mtime_ns
    make("v41-shrunk-engram", folder, Path("no-python"))
    assert (folder / "config.json").stat().st_mtime_ns == before


def test_a_name_that_is_none_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(InputError, match="v41 is none: write nano, smollm2, v41-shrunk or v41-"):
        make("v41", tmp_path / "m", Path("no-python"))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/m cannot be made: .*choose another place"):
        make("v41-shrunk", tmp_path / "file/m", Path("no-python"))
