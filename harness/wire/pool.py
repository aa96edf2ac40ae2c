"""Where prompts take their tokens from: text of our own making, or plain ids of a vocabulary."""

import random
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from harness.wire.prose import prose
from results.errors import InputError

Ids = NDArray[np.int32]

SEED = 20_260_101
CHARACTERS = 1_000_000
PLAIN_IDS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """A ring of token ids; text exists where there is a tokenizer.

    `offsets` says where each token begins in `text`, and is None where the tokenizer's text of
    many tokens is not the texts of each in a row.
    """

    ids: Ids
    tokenizer: Tokenizer | None = None
    text: str = ""
    offsets: NDArray[np.int64] | None = field(default=None)


@lru_cache(maxsize=4)
def plain(vocabulary: int) -> Pool:
    """Ids of a vocabulary of this size, evenly drawn, without its first 32nd part.

    Special tokens customarily have the lowest ids; where they have the highest, `vocabulary`
    should be the first of those.
    """
    lowest = vocabulary // 32
    draw = random.Random(SEED)  # noqa: S311 - the same for everybody
    drawn = np.frombuffer(draw.randbytes(4 * PLAIN_IDS), dtype="<u4")
    return Pool(ids=(lowest + drawn % (vocabulary - lowest)).astype(np.int32))


def tokenized(path: str) -> Pool:
    """The pool of generated text under a tokenizer: its `tokenizer.json`, or the folder of it.

    Raises InputError where the file cannot be read.
    """
    file = Path(path)
    file = file / "tokenizer.json" if file.is_dir() else file
    try:
        return _tokenized(str(file), file.stat().st_mtime_ns)
    except OSError as error:
        raise InputError(f"tokenizer {path}: {error.strerror or error}") from error


@lru_cache(maxsize=2)
def _tokenized(path: str, _changed: int) -> Pool:
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # tokenizers raises nothing narrower
        raise InputError(f"tokenizer {path}: not a tokenizer.json: {error}") from error
    text = prose(CHARACTERS, SEED)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    texts = dict(zip(sorted(set(ids)), _each(tokenizer, sorted(set(ids))), strict=True))
    parts = [texts[token] for token in ids]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    whole = "".join(parts)
    simple = whole == tokenizer.decode(ids, skip_special_tokens=False)
    return Pool(
        ids=np.array(ids, dtype=np.int32),
        tokenizer=tokenizer,
        text=whole if simple else "",
        offsets=offsets if simple else None,
    )


def _each(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return tokenizer.decode_batch([[token] for token in ids], skip_special_tokens=False)
