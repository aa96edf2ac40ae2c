"""Text as tokens: a small tokenizer of our own, or somebody's tokenizer.json."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from results.errors import InputError

Ids = NDArray[np.int64]

WORDS = 1 << 17
"""The size of our own vocabulary."""

LONGEST = 8
"""Characters of a token of our own; what is longer is cut."""

_PIECE = re.compile(rf"\s?\w{{1,{LONGEST}}}|\s?[^\w\s]|\s+")
_SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aiou"]
_PLACES = {syllable: place for place, syllable in enumerate(_SYLLABLES)}
_BATCH = 10_000
_TRIED = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vocabulary:
    """How text becomes ids, and ids text.

    `answers` are the ids that answers are made of: the text of many in a row becomes as many ids
    again. `size` is above every id, so special tokens begin there.
    """

    size: int
    answers: Ids
    texts: Callable[[list[int]], list[str]]
    encode: Callable[[str], Awaitable[Ids]]


def own() -> Vocabulary:
    """Words of three syllables: id 0 is ` bababa`.

    Text is cut into words of at most `LONGEST` letters, digits and underscores, single other
    characters, each with the one blank before it, and runs of blanks. A word that is one of ours
    has its own id; every other piece gets its CRC-32 modulo the size of the vocabulary.
    """
    return Vocabulary(
        size=WORDS,
        answers=np.arange(WORDS, dtype=np.int64),
        texts=lambda ids: [_word(token) for token in ids],
        encode=_encode,
    )


def read(path: Path) -> Vocabulary:
    """The vocabulary of a `tokenizer.json`, or of the folder it is in.

    Raises InputError where it cannot be read, or no word of it survives decoding and encoding.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing narrower
        raise InputError(f"tokenizer {file}: not a tokenizer.json: {error}") from error

    async def encode(text: str) -> Ids:
        # A thread, so that a long prompt holds up no stream: tokenizers lets go of the interpreter.
        found = await asyncio.to_thread(tokenizer.encode, text, add_special_tokens=False)
        return np.array(found.ids, dtype=np.int64)

    return Vocabulary(
        size=tokenizer.get_vocab_size(with_added_tokens=True),
        answers=_stable(tokenizer, file),
        texts=lambda ids: tokenizer.decode_batch([[token] for token in ids]),
        encode=encode,
    )


def _stable(tokenizer: Tokenizer, file: Path) -> Ids:
    """Ids of whole words, blank first, whose text is that one id again."""
    ids = sorted(tokenizer.get_vocab(with_added_tokens=False).values())
    texts = tokenizer.decode_batch([[token] for token in ids])
    words = [
        (token, text)
        for token, text in zip(ids, texts, strict=True)
        if text[:1] == " " and text[1:].isalpha() and text.isascii()
    ][:_TRIED]
    again = tokenizer.encode_batch([text for _, text in words], add_special_tokens=False)
    stable = [token for (token, _), found in zip(words, again, strict=True) if found.ids == [token]]
    if not stable:
        raise InputError(f"tokenizer {file}: no word of it is the same token when read again")
    return np.array(stable, dtype=np.int64)


def pieces(text: str) -> tuple[list[int], list[str]]:
    """The ids of a text in our own vocabulary, and the piece of it that each stands for."""
    found = [piece.group() for piece in _PIECE.finditer(text)]
    return [_identity(piece) for piece in found], found


async def _encode(text: str) -> Ids:
    pieces = _PIECE.finditer(text)
    ids: list[int] = []
    while batch := [_identity(piece.group()) for piece in islice(pieces, _BATCH)]:
        ids += batch
        await asyncio.sleep(0)
    return np.array(ids, dtype=np.int64)


@lru_cache(maxsize=1 << 16)
def _identity(piece: str) -> int:
    word = piece.lstrip()
    places = [_PLACES.get(word[start : start + 2]) for start in (0, 2, 4)]
    if len(word) == 6 and None not in places:
        first, second, third = places
        token = (first or 0) << 12 | (second or 0) << 6 | (third or 0)
        if token < WORDS:
            return token
    return crc32(piece.encode(errors="surrogatepass")) % WORDS


def _word(token: int) -> str:
    places = (token >> 12 & 63, token >> 6 & 63, token & 63)
    return " " + "".join(_SYLLABLES[place] for place in places)
