"""One row a graded question and epoch, and the Parquet file they are kept in."""

import base64
import hashlib
import zlib
from pathlib import Path

import orjson
import pyarrow as pa

from results import rows
from results.errors import FolderError

GROWING, NAME = "answers.jsonl", "answers.parquet"
"""The file of a point's answers while they come in, and the file of all of them, graded."""

SCORES = pa.list_(
    pa.struct(
        [pa.field("name", pa.string(), nullable=False), pa.field("value", pa.float64(), False)]
    )
)

SCHEMA = pa.schema(
    [
        pa.field("task", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("group", pa.string()),
        pa.field("prompt_hash", pa.string(), nullable=False),
        pa.field("target_hash", pa.string(), nullable=False),
        pa.field("request", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("finish_reason", pa.string()),
        pa.field("truncated", pa.bool_(), nullable=False),
        pa.field("empty", pa.bool_(), nullable=False),
        pa.field("parsed", pa.bool_(), nullable=False),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("retries", pa.int32(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("scores", SCORES, nullable=False),
        pa.field("extracted", pa.string()),
        pa.field("target", pa.string()),
        pa.field("text", pa.string()),
        pa.field("reasoning", pa.string()),
        pa.field("text_hash", pa.string()),
    ]
)
"""`score` is the headline, null where the request failed or was cut; `scores` are all metrics."""

STOPPED = "stop string"
"""The finish reason of an answer in which a string stood that ends it."""

COMPACT = ("task", "question", "epoch", "group", "score", "scores")
"""What two sides are compared by, and a baseline file keeps."""


def read(folder: Path) -> pa.Table | None:
    """The answers of a point's folder; None where it has none.

    Raises FolderError where they have another format or other columns.
    """
    path = folder / NAME
    if not path.exists():
        return None
    table = rows.parquet(path)
    if not table.schema.equals(SCHEMA, check_metadata=False):
        raise FolderError(
            f"{path}: has other columns than this paceline's answers: use the version that wrote "
            "it, or run again"
        )
    return table


def write(path: Path, table: pa.Table) -> None:
    """Writes the answers, of SCHEMA, to a file."""
    rows.write(path, table.cast(SCHEMA))


def compact(table: pa.Table) -> pa.Table:
    """The graded answers without any text, as a small file can keep them."""
    graded = table.filter(table["score"].is_valid())
    return graded.select(COMPACT).combine_chunks()


def packed(table: pa.Table) -> str:
    """Compact answers as one word."""
    content = orjson.dumps({name: table[name].to_pylist() for name in COMPACT})
    return base64.b64encode(zlib.compress(content, 9)).decode()


def unpacked(word: str) -> pa.Table:
    """The compact answers that a word holds. Raises ValueError where it holds none."""
    try:
        content = orjson.loads(zlib.decompress(base64.b64decode(word, validate=True)))
        fields = [SCHEMA.field(name) for name in COMPACT]
        return pa.table({name: content[name] for name in COMPACT}, schema=pa.schema(fields))
    except (ValueError, zlib.error, KeyError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"answers that cannot be read: {error}") from error


def questions_hash(table: pa.Table) -> str:
    """What tells sets of questions apart, and what was sent of each."""
    return _hash(table, "prompt_hash")


def key_hash(table: pa.Table) -> str:
    """What tells keys apart: which answer of each question is right."""
    return _hash(table, "target_hash")


def _hash(table: pa.Table, column: str) -> str:
    """SHA-256 over the sorted lines `question:value`, each once."""
    pairs = zip(table["question"].to_pylist(), table[column].to_pylist(), strict=True)
    lines = sorted({f"{question}:{value}" for question, value in pairs})
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
