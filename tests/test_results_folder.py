"""Run folders: nothing is lost, nothing is done twice, and nothing half written is believed."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from results import document, rows
from results.errors import FolderError, InputError
from results.folder import RunFolder, create, newest, reopen
from results.run import RunPoint, read
from results.writer import PointWriter
from tests.test_results_record import cell, evidence, made, table

HASH = "0123456789abcdef"


def facts(number: int = 0) -> dict[str, Any]:
    return {**asdict(cell()), "id": f"0000000{number}", "name": f"agents r{number}", "extra": 1}


def begun(out: Path, points: int = 1, suite: str = "smoke") -> RunFolder:
    planned = [{"id": f["id"], "name": f["name"]} for f in map(facts, range(points))]
    plan = {"hash": HASH, "points": planned, "rules": {}}
    return create(out, suite, "experiments: []\n", plan, {"host": "here"}, salt=7)


def unfinished(out: Path) -> Path | None:
    return newest(out, "smoke", HASH, unfinished=True)


def only(path: Path) -> RunPoint:
    (point,) = read(path).points
    return point


def finish(writer: PointWriter, *records: Any, steps: pa.Table | None = None) -> None:
    for record in records:
        writer.add(record)
    writer.finish("finished", None, evidence(), steps)


def test_a_finished_point_is_read_back_whole(tmp_path: Path) -> None:
    records = [made([0.5, 0.6], tree=tree, request_id=str(tree)) for tree in range(3)]
    steps = pa.table({"begin": [0.0, 0.1], "tokens": [3, 4]})
    with begun(tmp_path) as folder:
        finish(folder.open_point(facts()), *records, steps=steps)
        assert folder.outcome("agents r0", "00000000") == "finished"
    moved = shutil.copytree(folder.path, tmp_path / "elsewhere")
    run = read(moved)
    assert (run.suite, run.run_id, run.planned) == ("smoke", "smoke-01234567-00000007", ())
    assert run.environment == {"host": "here"}
    assert (moved / "suite.yaml").read_text() == "experiments: []\n"
    point = only(moved)
    assert point.cell == cell(id="00000000", name="agents r0")
    assert (point.status, point.evidence) == ("finished", evidence())
    assert point.rows().to_pylist() == table(*records).to_pylist()
    assert point.rows().schema == rows.SCHEMA
    assert point.steps() == steps
    names = {path.name for path in point.path.iterdir()}
    assert names == {
        "point.json",
        "requests.parquet",
        "steps.parquet",
        "evidence.json",
        "outcome.json",
    }


def test_points_that_never_began_are_planned_and_interrupted_ones_are_broken(
    tmp_path: Path,
) -> None:
    with begun(tmp_path, points=3) as folder:
        with folder.open_point(facts(0)) as writer:
            writer.add(made([0.5]))
        folder.not_started(facts(1), "the port is taken")
    run = read(folder.path)
    assert [point.status for point in run.points] == ["broken", "not started"]
    assert run.points[1].reason == "the port is taken"
    assert run.points[0].rows().num_rows == 1
    assert run.points[1].rows().num_rows == 0
    assert run.planned == ("agents r2",)


def test_two_runs_of_one_second_do_not_share_a_folder(tmp_path: Path) -> None:
    paths = set()
    for _ in range(3):
        with begun(tmp_path) as folder:
            paths.add(folder.path)
    assert len(paths) == 3


def test_the_newest_unfinished_folder_of_the_same_plan_is_resumed(tmp_path: Path) -> None:
    assert newest(tmp_path / "none", "smoke", HASH) is None
    made_here = []
    for _ in range(3):
        with begun(tmp_path) as folder:
            made_here.append(folder.path)
    for suffix, path in zip(("", "-2", "-10"), made_here, strict=True):
        path.rename(tmp_path / f"smoke-20260101T000000Z{suffix}")
    last = tmp_path / "smoke-20260101T000000Z-10"
    assert unfinished(tmp_path) == last
    assert newest(tmp_path, "smoke", "another") is None
    with reopen(last) as folder:
        assert (folder.run_id, folder.salt) == ("smoke-01234567-00000007", 7)
        folder.not_started(facts(), "no time was left")
        assert unfinished(tmp_path) == last
        finish(folder.open_point(facts()), made([0.5]))
    assert unfinished(tmp_path) == tmp_path / "smoke-20260101T000000Z-2"
    assert newest(tmp_path, "smoke", HASH) == last


def test_a_suite_whose_name_begins_with_anothers_is_not_taken_for_it(tmp_path: Path) -> None:
    with begun(tmp_path, suite="smoke-long"):
        assert newest(tmp_path, "smoke", HASH) is None


def test_a_second_writer_is_told_who_writes_and_what_to_do(tmp_path: Path) -> None:
    with begun(tmp_path) as folder, pytest.raises(FolderError) as told:
        reopen(folder.path)
    assert str(folder.path) in str(told.value)
    assert f"process {os.getpid()}" in str(told.value)
    assert "--new" in str(told.value)
    reopen(folder.path).close()


def test_a_broken_attempt_is_kept_beside_the_next(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        for attempt in range(2):
            writer = folder.open_point(facts())
            writer.log_path.write_text(f"attempt {attempt}")
            writer.add(made([0.5], tree=attempt))
            writer.abandon()
        finish(folder.open_point(facts()), made([0.5], tree=9))
    point = only(folder.path)
    assert point.rows()["tree"].to_pylist() == [9]
    for attempt in (1, 2):
        kept = pa.Table.from_batches(rows.stream(point.path / f"broken-{attempt}.arrow"))
        assert kept["tree"].to_pylist() == [attempt - 1]
        log = point.path / f"broken-{attempt}.log"
        assert log.read_text() == f"attempt {attempt - 1}"


def test_a_point_that_is_to_be_run_again_keeps_what_it_has_until_it_begins(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        finish(folder.open_point(facts()), made([0.5], tree=1))
    with reopen(folder.path, again=["00000000"]) as folder:
        assert folder.outcome("agents r0", "00000000") is None
        folder.not_started(facts(), "no time was left")
        assert only(folder.path).status == "finished"
        with folder.open_point(facts()) as writer:
            assert writer.attempts == 1
            assert only(folder.path).status == "broken"
            finish(writer, made([0.5], tree=2))
        assert folder.outcome("agents r0", "00000000") == "finished"
    point = only(folder.path)
    assert point.rows()["tree"].to_pylist() == [2]
    assert pq.read_table(point.path / "broken-1.parquet")["tree"].to_pylist() == [1]


def test_equal_rows_give_equal_parquet_whenever_they_were_flushed(tmp_path: Path) -> None:
    records = [
        made([0.5, 0.6], tree=i, phase="warm-up" if i % 3 else "window", request_id=str(i))
        for i in range(300)
    ]
    contents = []
    for every in (1, 7, 1000):
        with begun(tmp_path) as folder:
            writer = folder.open_point(facts())
            for number, record in enumerate(records):
                writer.add(record)
                if number % every == 0:
                    writer.flush()
            writer.finish("finished", None, evidence(), None)
        contents.append((writer.path / "requests.parquet").read_bytes())
        assert only(folder.path).rows().to_pylist() == table(*records).to_pylist()
    assert contents[0] == contents[1] == contents[2]


def test_row_groups_end_by_rows_and_pieces_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "GROUP_ROWS", 10)
    monkeypatch.setattr(rows, "GROUP_PIECES", 15)
    records = [made([0.1] * (i % 5), tree=i) for i in range(57)]
    for size in (1, 8, 57):
        batches = table(*records).to_batches(max_chunksize=size)
        groups = list(rows._groups(iter(batches)))
        assert sum(group.num_rows for group in groups) == 57
        if size == 1:
            expected = [group.num_rows for group in groups]
        assert [group.num_rows for group in groups] == expected


def test_a_stream_cut_anywhere_gives_its_complete_batches(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        writer = folder.open_point(facts())
        ends = [(writer.path / "requests.arrow").stat().st_size]
        for number in range(5):
            writer.add(made([0.5], tree=number, arm=f"arm {number}"))
            writer.flush()
            ends.append((writer.path / "requests.arrow").stat().st_size)
        writer.abandon()
    path = writer.path / "requests.arrow"
    whole = path.read_bytes()
    for length in range(0, len(whole), 53):
        path.write_bytes(whole[:length])
        complete = max(0, sum(end <= length for end in ends) - 1)
        assert only(folder.path).rows()["tree"].to_pylist() == list(range(complete))


def test_rows_survive_a_kill_and_the_point_is_run_again(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from tests.test_results_folder import begun, facts, made
        folder = begun(Path(sys.argv[1]))
        writer = folder.open_point(facts())
        for number in range(10**9):
            writer.add(made([0.5], tree=number))
            if number % 100 == 99:
                writer.flush()
                print(number, flush=True)
        """
    with _python(code, tmp_path) as child:
        assert child.stdout
        flushed = [int(child.stdout.readline()) for _ in range(3)][-1]
        child.send_signal(signal.SIGKILL)
    path = unfinished(tmp_path)
    assert path
    kept = only(path).rows()["tree"].to_pylist()
    assert len(kept) > flushed
    assert kept == list(range(len(kept)))
    with reopen(path) as folder:
        assert folder.outcome("agents r0", "00000000") is None
        finish(folder.open_point(facts()), made([0.5], tree=5))
    assert only(path).rows()["tree"].to_pylist() == [5]


def test_a_crash_between_the_rows_and_the_outcome_runs_the_point_again(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        writer = folder.open_point(facts())
        writer.add(made([0.5], tree=1))
        writer.abandon()
        rows.keep(writer.path / "requests.arrow", writer.path / "requests.parquet")
        assert only(folder.path).status == "broken"
        assert only(folder.path).rows().num_rows == 1
        finish(folder.open_point(facts()), made([0.5], tree=2))
    assert only(folder.path).rows()["tree"].to_pylist() == [2]


@pytest.mark.parametrize("pieces", [200_000, 2_000])
def test_a_full_disk_is_a_sentence_and_leaves_no_outcome(tmp_path: Path, pieces: int) -> None:
    """A limit of 100 kB a file stands for the full disk: in the stream, or in what finishes it."""
    code = f"""
        import sys, resource
        from pathlib import Path
        import pyarrow as pa
        from tests.test_results_folder import begun, evidence, facts, made
        folder = begun(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        steps = pa.table({{"text": [str(hash(str(i))) for i in range(50_000)]}})
        with folder.open_point(facts()) as writer:
            writer.add(made([0.001 * i for i in range({pieces})]))
            writer.finish("finished", None, evidence(), steps)
        """
    with _python(code, tmp_path) as child:
        _, complaint = child.communicate()
    assert "FolderError: disk full while writing" in complaint
    assert "free space and run the same command again, finished points are kept" in complaint
    path = unfinished(tmp_path)
    assert path
    assert only(path).status == "broken"
    assert not list(path.glob("**/*.tmp"))
    with reopen(path) as folder:
        finish(folder.open_point(facts()), made([0.5]))
    assert only(path).status == "finished"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_and_a_spent_quota_say_the_same(tmp_path: Path, number: int) -> None:
    with pytest.raises(FolderError, match="disk full while writing"), document.writing(tmp_path):
        raise OSError(number, os.strerror(number))


def test_a_million_pieces_are_kept_within_400_megabytes(tmp_path: Path) -> None:
    code = """
        import sys
        from dataclasses import replace
        from pathlib import Path
        import numpy as np
        from benchmarks.memory import peak
        from tests.test_results_folder import begun, evidence, facts, made
        with begun(Path(sys.argv[1])) as folder, folder.open_point(facts()) as writer:
            pattern = made([0.01 * i for i in range(1000)])
            for number in range(1000):
                noise = np.random.default_rng(number).integers(1000, 20_000, size=1000)
                writer.add(replace(pattern, tree=number, piece_offsets=np.cumsum(noise)))
            writer.finish("finished", None, evidence(), None)
        print(peak())
        """
    with _python(code, tmp_path) as child:
        peak, complaint = child.communicate()
    assert not complaint
    assert int(peak) < 400e6
    (path,) = tmp_path.iterdir()
    assert only(path).rows().num_rows == 1000


def test_what_is_not_a_run_folder_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a run folder: it has no plan\.json"):
        read(tmp_path)
    with pytest.raises(FolderError, match=r"plan\.json: cannot be read"):
        reopen(tmp_path)


@pytest.mark.parametrize("name", ["plan.json", "point.json", "outcome.json"])
def test_another_format_is_refused_by_file_and_number(tmp_path: Path, name: str) -> None:
    with begun(tmp_path) as folder:
        finish(folder.open_point(facts()), made([0.5]))
    (path,) = folder.path.rglob(name)
    path.write_bytes(orjson.dumps({**orjson.loads(path.read_bytes()), "format": 2}))
    with pytest.raises(FolderError, match=f"{name}: has format 2, and this paceline reads"):
        read(folder.path)


def test_rows_of_another_format_are_refused(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        finish(folder.open_point(facts()), made([0.5]))
    point = only(folder.path)
    other = point.rows().replace_schema_metadata({"format": "2"})
    pq.write_table(other, point.path / "requests.parquet")
    with pytest.raises(FolderError, match=r"requests\.parquet: has format 2"):
        point.rows()


def test_every_json_file_is_strict_and_begins_with_its_format(tmp_path: Path) -> None:
    odd = replace(evidence(), closed=float("nan"))
    with begun(tmp_path) as folder:
        folder.open_point({**facts(), "limit": float("inf")}).finish("failed", "why", odd, None)
    files = list(folder.path.rglob("*.json"))
    assert {file.name for file in files} == {
        "plan.json",
        "environment.json",
        "point.json",
        "evidence.json",
        "outcome.json",
    }
    for file in files:
        content = orjson.loads(file.read_bytes())
        assert next(iter(content.items())) == ("format", document.FORMAT)


def _python(code: str, *arguments: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )


def test_what_strict_json_cannot_hold_is_kept_as_text(tmp_path: Path) -> None:
    document.write(tmp_path / "x.json", {"a": 10**30, "b": ["\ud83e", {"c": 1}]})
    assert document.read(tmp_path / "x.json") == {"a": str(10**30), "b": ["?", {"c": 1}]}


def test_a_writer_knows_how_many_attempts_came_before(tmp_path: Path) -> None:
    with begun(tmp_path) as folder:
        for attempts in range(3):
            writer = folder.open_point(facts())
            assert writer.attempts == attempts
            writer.add(made([0.5]))
            writer.abandon()
