"""One JSON file of a run folder: strict, of a known format, and never half written."""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from results.errors import FolderError

# Format history. 1: the first.
FORMAT = 1

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the system says against writing `path` into a FolderError."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise FolderError(
                f"disk full while writing {path}: free space and run the same command again, "
                "finished points are kept"
            ) from error
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise FolderError(f"cannot write {path}: {reason}") from error


@contextmanager
def published(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, which takes its place when the block ends well.

    Raises FolderError where it cannot be written; then neither file is left.
    """
    if path.exists() and not path.is_file():
        # A rename would put a file where a device, a pipe or a folder was.
        raise FolderError(f"cannot write {path}: it is there and is not a file: name another one")
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes the content, with the format first, through a temporary name and rename.

    A number that is not finite becomes null.
    """
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    whole = {"format": FORMAT, **content}
    try:
        written = orjson.dumps(whole, option=options)
    except orjson.JSONEncodeError:
        # A server said something of itself that no strict JSON can hold.
        written = orjson.dumps(_strict(whole), option=options)
    with published(path) as temporary:
        temporary.write_bytes(written)


def _strict(value: Any) -> Any:
    """The value with what strict JSON cannot hold as text."""
    match value:
        case dict():
            return {_strict(str(key)): _strict(held) for key, held in value.items()}
        case list() | tuple():
            return [_strict(held) for held in value]
        case str():
            return value.encode(errors="replace").decode()
        case int() if not -(2**63) <= value < 2**63:
            return str(value)
    return value


def read(path: Path) -> dict[str, Any]:
    """The content without its format.

    Raises FolderError where the file is missing, is not strict JSON, or has another format.
    """
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise FolderError(f"{path}: cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise FolderError(f"{path}: is not strict JSON: {error}") from error
    found = content.pop("format", None) if isinstance(content, dict) else None
    if found != FORMAT:
        raise FolderError(
            f"{path}: has format {found}, and this paceline reads format {FORMAT}: "
            "use the version that wrote it, or run again"
        )
    return dict(content)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
