"""A look at a server's counters every second, while a point runs on the wall clock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

import orjson

from harness.client import Page
from harness.clock import now
from results.samples import UP, Sample

PAUSE = 1.0
"""Seconds between the beginnings of two looks."""

SETTLING = 0.2
"""Seconds after the last request in which a server may still count."""

_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}

Keep = Callable[[Sequence[Sample]], None]


@asynccontextmanager
async def sampled(page: Page | None, keep: Keep) -> AsyncIterator[None]:
    """Looks before the block begins, every second, and after it has ended; with no page, never."""
    if page is None:
        yield
        return
    sampler = Sampler(page, keep)
    # The request that the server was tried with may not have been counted yet.
    await asyncio.sleep(SETTLING)
    await sampler.look()
    looking = asyncio.ensure_future(_looking(sampler))
    try:
        yield
        await asyncio.sleep(SETTLING)
    finally:
        looking.cancel()
        await asyncio.wait({looking})
    await sampler.look()


async def _looking(sampler: "Sampler") -> None:
    while True:
        await asyncio.sleep(PAUSE)
        await sampler.look()


class Sampler:
    """Reads one server's page, and hands on what is new or has changed since it read it last."""

    def __init__(self, page: Page, keep: Keep) -> None:
        self._page = page
        self._keep = keep
        self._origin: float | None = None
        self._lines: set[str] = set()
        self._values: dict[str, float] = {}
        self._names: dict[str, tuple[str, str]] = {}

    async def look(self) -> None:
        """Asks once; a server that does not answer is a sample too."""
        page = await self._page.read()
        moment = now()
        self._origin = moment if self._origin is None else self._origin
        moment -= self._origin
        samples = [self._sample(moment, UP, "{}", float(page is not None))]
        lines = [] if page is None else page.splitlines()
        # Requests wait while a page is read, and most of its lines are those of the last one.
        changed = [line for line in lines if line not in self._lines]
        self._lines = set(lines) or self._lines
        for series, value in values(changed):
            if self._values.get(series) != value:
                self._values[series] = value
                if series not in self._names:
                    self._names[series] = labelled(series)
                samples.append(self._sample(moment, *self._names[series], value))
        self._keep(samples)

    def _sample(self, moment: float, name: str, labels: str, value: float) -> Sample:
        return Sample(moment=moment, source=self._page.url, name=name, labels=labels, value=value)


def values(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Each series in lines of Prometheus's text format, as it is written there, with its value.

    Lines that are none, values that are no number, buckets of histograms, of which there are more
    than of all else, and times of creation are left out.
    """
    for line in lines:
        if not line or line[0] == "#" or "_bucket{" in line:
            continue
        end = line.rfind("}") + 1 or line.find(" ")
        series, rest = line[:end], line[end:].split()
        if "_created" in series and series.partition("{")[0].endswith("_created"):
            continue
        with suppress(ValueError, IndexError):
            value = float(rest[0])
            if value == value:  # noqa: PLR0124 - nothing else is unequal to itself
                yield series, value


def labelled(series: str) -> tuple[str, str]:
    """A series taken apart: its name, and its labels as JSON in the order of their names."""
    name, _, rest = series.partition("{")
    labels, place = {}, 0
    while (equals := rest.find('="', place)) >= 0:
        key = rest[place:equals].strip(", ")
        labels[key], place = _quoted(rest, equals + 2)
    return name, orjson.dumps(labels, option=orjson.OPT_SORT_KEYS).decode()


def _quoted(text: str, place: int) -> tuple[str, int]:
    """The value that begins at a place, and the place after its closing quote."""
    parts = []
    while place < len(text) and text[place] != '"':
        if text[place] == "\\" and place + 1 < len(text):
            place += 1
            parts.append(_ESCAPES.get(text[place], "\\" + text[place]))
        else:
            parts.append(text[place])
        place += 1
    return "".join(parts), place + 1
