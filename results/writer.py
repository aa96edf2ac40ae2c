"""One point's rows while they come in, and its files when it ends."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, Self

import orjson
import pyarrow as pa

from results import answers, document, rows, samples
from results.evidence import Evidence
from results.record import RequestRecord, batch

PAUSE = 1.0
"""Seconds of wall time between two batches, where there are rows."""

MOST_ROWS, MOST_PIECES = 4096, 100_000
"""How much is held back at most."""


class PointWriter:
    """Appends rows to requests.arrow, a batch about every second, and finishes the point."""

    def __init__(self, path: Path, attempts: int = 0) -> None:
        """A writer into the folder, after so many earlier attempts at the point."""
        self.path = path
        self.attempts = attempts
        self._arrow = path / "requests.arrow"
        self._records: list[RequestRecord] = []
        self._pieces = 0
        self._flushed = monotonic()
        self._open = True
        # Of an earlier attempt, whose rows are set aside; the server's samples are not kept.
        for name in (samples.GROWING, samples.COMPLETE):
            (path / name).unlink(missing_ok=True)
        self._heard: BinaryIO | None = None
        self._looks: tuple[pa.OSFile, pa.RecordBatchStreamWriter] | None = None
        with document.writing(self._arrow):
            self._file = pa.OSFile(str(self._arrow), "wb")
            self._stream = pa.ipc.new_stream(self._file, rows.SCHEMA)

    @property
    def log_path(self) -> Path:
        """Where the server's log belongs."""
        return self.path / "server.log"

    def add(self, record: RequestRecord) -> None:
        """Takes a row; it is on disk within about a second, or at the next flush."""
        self._records.append(record)
        self._pieces += len(record.piece_offsets)
        full = len(self._records) >= MOST_ROWS or self._pieces >= MOST_PIECES
        if full or monotonic() - self._flushed >= PAUSE:
            self.flush()

    def add_samples(self, looked: Sequence[samples.Sample]) -> None:
        """Takes what one look at the server's counters showed, and hands it to the system."""
        with document.writing(self.path / samples.GROWING):
            if self._looks is None:
                file = pa.OSFile(str(self.path / samples.GROWING), "wb")
                self._looks = (file, pa.ipc.new_stream(file, samples.SCHEMA))
            self._looks[1].write_batch(samples.batch(looked))

    def add_answer(self, answer: dict[str, Any]) -> None:
        """Takes what came of a question, and hands it to the system."""
        path = self.path / answers.GROWING
        with document.writing(path):
            if self._heard is None:
                self._heard = path.open("wb", buffering=0)
            self._heard.write(orjson.dumps(answer) + b"\n")

    def flush(self) -> None:
        """Hands all rows taken so far to the system. Raises FolderError where it refuses them."""
        if not self._records:
            return
        ready, self._records, self._pieces = self._records, [], 0
        try:
            with document.writing(self._arrow):
                self._stream.write_batch(batch(ready))
        except BaseException:
            # Half a batch may stand in the file, so nothing may follow it.
            self._shut()
            raise
        self._flushed = monotonic()

    def finish(
        self,
        status: str,
        reason: str | None,
        evidence: Evidence | None,
        steps: pa.Table | None,
        graded: pa.Table | None = None,
    ) -> None:
        """Writes everything but the outcome, then the outcome, which makes the point finished."""
        self.flush()
        self._close()
        rows.keep(self._arrow, self.path / "requests.parquet")
        samples.keep(self.path)
        if steps is not None:
            rows.write(self.path / "steps.parquet", steps)
        if graded is not None:
            answers.write(self.path / answers.NAME, graded)
        if evidence is not None:
            document.write(self.path / "evidence.json", asdict(evidence))
        document.write(self.path / "outcome.json", {"status": status, "reason": reason})
        with document.writing(self._arrow):
            self._arrow.unlink()
            (self.path / samples.GROWING).unlink(missing_ok=True)
            if graded is not None:
                (self.path / answers.GROWING).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Keeps the rows and gives the point no outcome, so that it is run again."""
        if self._open:
            self.flush()
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.abandon()

    def _close(self) -> None:
        self._open = False
        with document.writing(self._arrow):
            self._stream.close()
            self._file.close()
            if self._heard is not None:
                self._heard.close()
            if self._looks is not None:
                self._looks[1].close()
                self._looks[0].close()

    def _shut(self) -> None:
        self._open = False
        self._file.close()
