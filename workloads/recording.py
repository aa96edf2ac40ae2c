"""Trace files as JSON values, one at a time: .json or .jsonl, gzipped or not, or a folder."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from results.errors import InputError

Stamps = tuple[tuple[str, int], ...]
"""Files, each with the moment of its last change."""


def stamps(path: str) -> Stamps:
    """The file, or a folder's in name order. Raises InputError where there is none."""
    try:
        return tuple((str(file), file.stat().st_mtime_ns) for file in _files(Path(path)))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


@lru_cache(maxsize=4)
def digest(files: Stamps) -> str:
    """16 hex digits over the content of the files, whatever they are called."""
    whole = hashlib.sha256()
    for file, _ in files:
        with Path(file).open("rb") as content:
            whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()[:16]


def records(path: Path) -> Iterator[tuple[str, bytes]]:
    """The text of each JSON value of a file, with its place in words.

    Raises InputError where the file cannot be read.
    """
    form = _format(path)
    if form is None:
        raise InputError(f"{path}: expected a .json or .jsonl file (.gz is fine too) or a folder")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if form == ".json":
                yield str(path), file.read()
                return
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield f"{path}: line {number}", line
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def value(text: bytes, place: str) -> Any:
    """The value of a text. Raises InputError where it is not one; large whole numbers may round."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{place}: is not one JSON value: {error}") from error


def exact(text: bytes, place: str) -> Any:
    """The same, slower, with whole numbers of any size as they are."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{place}: has a number that is too long to read: {error}") from error


def _files(path: Path) -> list[Path]:
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _format(file))
    for file in files:
        # Reading a pipe or a device might never end.
        if file.exists() and not file.is_file():
            raise InputError(f"{file}: is not a file: take it out, or name the traces themselves")
    if not files:
        raise InputError(f"{path}: has no .json or .jsonl file (.gz is fine too)")
    return files


def _format(path: Path) -> str | None:
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    return suffix if suffix in {".json", ".jsonl"} else None
