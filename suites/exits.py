"""How a command ends: its exit code, its errors in a sentence, and its one line of JSON."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any

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


@contextmanager
def sentences() -> Iterator[None]:
    """Turns our errors into one sentence and an exit code."""
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
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{harmless(str(error.filename))}: " if error.filename else ""
        print(f"Error: {place}{error.strerror or error}", file=sys.stderr)
        raise typer.Exit(Exit.INCOMPLETE) from None
