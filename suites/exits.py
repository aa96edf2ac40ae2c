"""How a command ends: its exit code, its errors in a sentence, and its one line of JSON."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator


class Exit(IntEnum):
    """What the exit code says."""

    GOOD = 0
    GATE_FAILED = 1
    BAD_INPUT = 2
    INCOMPLETE = 3
    INCONCLUSIVE = 4
    INTERRUPTED = 130


def print_json(value: dict[str, Any]) -> None:
    """Prints a value as one line of JSON."""
    import orjson

    print(orjson.dumps(value).decode())


@dataclass(slots=True)
class Unheard:
    """A stream that goes `nowhere` once nobody reads it any more, as behind `| head`."""

    stream: TextIO
    nowhere: TextIO

    def __getattr__(self, name: str) -> Any:
        """All that is not written here is the stream's."""
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes the text, or drops it."""
        try:
            return self.stream.write(text)
        except BrokenPipeError:
            self._silence()
            return len(text)

    def flush(self) -> None:
        """Hands over what was written, or drops it."""
        try:
            self.stream.flush()
        except BrokenPipeError:
            self._silence()

    def _silence(self) -> None:
        # What is still held back would fail again when the interpreter ends.
        os.dup2(self.nowhere.fileno(), self.stream.fileno())


@contextmanager
def _unheard() -> Iterator[None]:
    """Lets a command go on where what it prints is not read to the end."""
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w") as nowhere:
        # There is no stream where the shell closed it.
        out, err = (Unheard(stream or nowhere, nowhere) for stream in before)
        sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
        try:
            yield
        finally:
            out.flush()
            err.flush()
            sys.stdout, sys.stderr = before


@contextmanager
def sentences() -> Iterator[None]:
    """Turns our errors into one sentence and an exit code; nobody has to read what is printed."""
    with _unheard(), _told():
        yield


@contextmanager
def _told() -> Iterator[None]:
    from reports.notation import harmless, harmless_lines
    from results.errors import InputError, PacelineError

    try:
        yield
    except PacelineError as error:
        # Lines of a name must not pass for lines of ours.
        told = harmless_lines(str(error)).replace("\n", "\n    ")
        print(f"Error: {told}", file=sys.stderr)
        bad_input = isinstance(error, InputError)
        raise typer.Exit(Exit.BAD_INPUT if bad_input else Exit.INCOMPLETE) from None
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except OSError as error:
        place = f"{harmless(str(error.filename))}: " if error.filename else ""
        print(f"Error: {place}{error.strerror or error}", file=sys.stderr)
        raise typer.Exit(Exit.INCOMPLETE) from None
