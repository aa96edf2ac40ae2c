"""Request rows on disk: an Arrow stream while they come in, Parquet once they are complete."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results import document, record
from results.errors import FolderError

SCHEMA = record.SCHEMA.with_metadata({"format": str(document.FORMAT)})

GROUP_ROWS, GROUP_PIECES = 8192, 500_000
"""Where a row group ends: at the row that reaches either."""

_LABELS = [field.name for field in SCHEMA if pa.types.is_dictionary(field.type)]
_PLAIN = [field.name for field in SCHEMA if not pa.types.is_list(field.type)]


def stream(path: Path) -> Iterator[pa.RecordBatch]:
    """Every complete batch of an Arrow stream that may end anywhere."""
    with pa.OSFile(str(path), "rb") as file:
        try:
            reader = pa.ipc.open_stream(file)
            _check(path, reader.schema)
            while True:
                yield reader.read_next_batch()
        except (StopIteration, pa.ArrowInvalid, OSError):
            return


def read(folder: Path) -> pa.Table:
    """The rows of a point's folder, of SCHEMA; none where it has none.

    Raises FolderError where they have another format or cannot be read.
    """
    complete, growing = folder / "requests.parquet", folder / "requests.arrow"
    # A point with an outcome is complete, whatever a crash just after it left behind.
    if complete.exists() and (not growing.exists() or (folder / "outcome.json").exists()):
        return parquet(complete)
    batches = list(stream(growing)) if growing.exists() else []
    if not batches:
        return SCHEMA.empty_table()
    return pa.Table.from_batches(batches).unify_dictionaries()


def read_steps(folder: Path) -> pa.Table | None:
    """The engine steps of a point's folder; None where it has none."""
    path = folder / "steps.parquet"
    return parquet(path) if path.exists() else None


def keep(source: Path, path: Path) -> None:
    """Copies an Arrow stream to Parquet, a row group at a time; equal rows give equal bytes."""
    with (
        document.published(path) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pq.ParquetWriter(
            file,
            SCHEMA,
            compression="zstd",
            version="2.6",
            use_dictionary=_PLAIN,
            column_encoding={"piece_offsets.list.element": "DELTA_BINARY_PACKED"},
        ) as writer,
    ):
        for group in _groups(stream(source)):
            writer.write_table(_settled(group), row_group_size=GROUP_ROWS)


def write(path: Path, table: pa.Table) -> None:
    """Writes rows that are complete: engine steps, answers."""
    metadata = {**(table.schema.metadata or {}), b"format": str(document.FORMAT).encode()}
    with document.published(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(metadata), temporary, compression="zstd", version="2.6"
        )


def parquet(path: Path) -> pa.Table:
    """The rows that `write` or `keep` wrote. Raises FolderError where they cannot be read."""
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise FolderError(f"{path}: cannot be read as Parquet: {error}") from error
    _check(path, table.schema)
    return table.unify_dictionaries()


def _check(path: Path, schema: pa.Schema) -> None:
    found = (schema.metadata or {}).get(b"format", b"none").decode()
    if found != str(document.FORMAT):
        raise FolderError(
            f"{path}: has format {found}, and this paceline reads format {document.FORMAT}: "
            "use the version that wrote it, or run again"
        )


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables whose ends depend on the rows alone, not on when they were flushed."""
    held: list[pa.RecordBatch] = []
    count = pieces = 0
    for whole in batches:
        rest = whole
        while rest.num_rows:
            lengths = pc.list_value_length(rest["piece_offsets"]).to_numpy(zero_copy_only=False)
            full = (pieces + np.cumsum(lengths)) >= GROUP_PIECES
            full |= (count + np.arange(1, rest.num_rows + 1)) >= GROUP_ROWS
            taken = int(full.argmax()) + 1 if full.any() else rest.num_rows
            held.append(rest.slice(0, taken))
            count, pieces = count + taken, pieces + int(lengths[:taken].sum())
            rest = rest.slice(taken)
            if full.any():
                yield pa.Table.from_batches(held)
                held, count, pieces = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _settled(group: pa.Table) -> pa.Table:
    """The group with its labels numbered in order of appearance, whatever its batches were."""
    for name in _LABELS:
        index = group.schema.get_field_index(name)
        plain = group[name].cast(pa.string()).combine_chunks()
        group = group.set_column(index, SCHEMA.field(name), plain.dictionary_encode())
    return group.combine_chunks()
