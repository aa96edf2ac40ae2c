"""A DeepSeek-V4.1 with all its layers and dimensions and few experts, for made-up weights.

Dimensions, layers and the layout of replay are those of V4.1-Flash; only the number of experts is
cut and the vision tower is two layers deep.
"""

from collections.abc import Iterator
from itertools import count, islice
from math import isqrt
from pathlib import Path
from typing import Any

import orjson
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

EXPERTS = 16
"""Of 384, and of 128 in draft layers: about 0.7 GiB each over all layers."""

VOCABULARY, POSITIONS = 129_280, 1_048_576
SPECIAL = ("<bos>", "<eos>", "<pad>")

ENGRAM_LAYERS, ENGRAM_ORDERS, ENGRAM_HEADS, ENGRAM_BUCKETS = (1, 14), 3, 8, 100_000
"""The layers that look up n-grams, of how many lengths, in how many parts of how many rows."""

DRAFT_LAYERS, DRAFT_TOKENS, DRAFTED_FROM = 3, 5, (37, 38, 39)
"""How many layers draft how many tokens, from what enters which layers."""

_LETTERS = " w%06d"
_CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write(folder: Path, *, engram: bool, drafts: bool) -> None:
    """Writes configuration and tokenizer, with a small Engram or none, and with drafts or none."""
    words = tokenizer()
    folder.mkdir()
    words.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name}_token": f"<{name}>" for name in ("bos", "eos", "pad")},
        "clean_up_tokenization_spaces": False,
        "model_max_length": POSITIONS,
        "chat_template": _CHAT,
    }
    for name, content in (
        ("tokenizer_config.json", told),
        ("config.json", configuration(words if engram else None, drafts=drafts)),
    ):
        (folder / name).write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def tokenizer() -> Tokenizer:
    """A token for each byte, and for each of the words that fill the vocabulary.

    What ids of words decode to encodes to the same ids again, so that prompts sent as text are as
    long as prompts sent as ids.
    """
    vocabulary = {word: number for number, word in enumerate(SPECIAL)}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[letter] = len(vocabulary)
    for number in range(len(vocabulary), VOCABULARY):
        # How ByteLevel writes a space.
        vocabulary[(_LETTERS % number).replace(" ", "\u0120")] = number
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" w[0-9]{6}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL))
    return made


def configuration(engram: Tokenizer | None, *, drafts: bool) -> dict[str, Any]:
    """The configuration of the model, with a small Engram for the tokenizer where there is one."""
    text = {
        **_TEXT,
        **(_engram(engram) if engram else _NO_ENGRAM),
        **(_DRAFTS if drafts else _NO_DRAFTS),
    }
    quantization = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [32, 32],
        "scale_fmt": "ue8m0",
        "expert_dtype": "fp4",
    }
    return {
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "image_token_id": 129_264,
        "quantization_config": quantization,
        "text_config": text,
        "vision_config": _VISION,
    }


_TEXT: dict[str, Any] = {
    "model_type": "deepseek_v41_text",
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "num_hidden_layers": 40,
    "hidden_size": 5120,
    "hidden_act": "silu",
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20,
    # Attention.
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1280,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "attention_bias": False,
    "rope_theta": 10_000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 65_536,
    },
    # Experts.
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2304,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    # The window, what is kept beyond it, and what is looked up there.
    "sliding_window": 128,
    "compress_rope_theta": 160_000,
    "kv_source_layer_ids": [2, 8, 14, 20],
    "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 512,
    "candidate_source_layer_id": 20,
    "candidate_topk_blocks": 2048,
    "candidate_block_size": 8,
    # Hyper-connections.
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    # Engram.
    "engram_max_ngram_size": 1 + ENGRAM_ORDERS,
    "engram_n_heads": ENGRAM_HEADS,
    "engram_head_dim": 256,
    "engram_pad_token_id": 2,
}

_RATIOS = [0] * 2 + [2] * 18 + [1] * 20
"""How many tokens each layer keeps as one beyond the window; 0 keeps nothing."""

_NO_DRAFTS: dict[str, Any] = {"num_nextn_predict_layers": 0, "compress_ratios": _RATIOS}

_DRAFTS: dict[str, Any] = {
    "num_nextn_predict_layers": DRAFT_LAYERS,
    # The window alone: vLLM looks for what is kept beyond it among the draft layers and finds none.
    "compress_ratios": [*_RATIOS, *[0] * DRAFT_LAYERS],
    "dspark_block_size": DRAFT_TOKENS,
    "dspark_target_layer_ids": list(DRAFTED_FROM),
    "dspark_noise_token_id": 128_799,
    "dspark_markov_rank": 256,
    "dspark_n_routed_experts": EXPERTS,
    "dspark_num_experts_per_tok": 3,
}

_VISION: dict[str, Any] = {
    "model_type": "deepseek_v41_vision",
    "num_hidden_layers": 2,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 2816,
    "patch_size": 14,
    "rope_theta": 10_000,
    "downsample_ratio": 3,
    "max_image_tokens": 1024,
    "min_pixels": 295_936,
    "max_wh_ratio": None,
}

_NO_ENGRAM: dict[str, Any] = {
    "engram_layer_ids": [],
    "engram_num_embeddings": [],
    "engram_vocab_size": 16_000_000,
    "engram_compressed_vocab_size": 99_092,
}


def _engram(words: Tokenizer) -> dict[str, Any]:
    """Two tables of about 2.4 million rows, 0.6 GiB each."""
    return {
        "engram_layer_ids": list(ENGRAM_LAYERS),
        "engram_num_embeddings": rows(),
        "engram_vocab_size": ENGRAM_BUCKETS,
        "engram_compressed_vocab_size": distinct(words),
    }


def rows() -> list[int]:
    """How many rows each table has: a prime number of them for each part, no prime twice.

    vLLM gives each length of n-grams the smallest primes that are left, and tables full KiB.
    """
    primes = _primes(ENGRAM_BUCKETS)
    parts = ENGRAM_ORDERS * ENGRAM_HEADS
    return [-(-sum(islice(primes, parts)) // 1024) * 1024 for _ in ENGRAM_LAYERS]


def _primes(least: int) -> Iterator[int]:
    """The primes from a number on."""
    return (n for n in count(least) if all(n % factor for factor in range(2, isqrt(n) + 1)))


def distinct(words: Tokenizer) -> int:
    """How many tokens are left when those that are read alike are one.

    The rule of vLLM's `build_compressed_token_map`, which refuses a model that states another size.
    """
    space = "\ue000"
    alike = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex("^ $"), space),
            normalizers.Strip(),
            normalizers.Replace(space, " "),
        ]
    )
    texts = words.decode_batch([[token] for token in range(VOCABULARY)], skip_special_tokens=False)
    return len(
        {
            words.id_to_token(token) if "\ufffd" in text else alike.normalize_str(text) or text
            for token, text in enumerate(texts)
        }
    )
