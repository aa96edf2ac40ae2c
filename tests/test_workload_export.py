import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest

from results.errors import FolderError, InputError
from workloads.export import record, write
from workloads.inspection import check
from workloads.synthesis import generate
from workloads.weka import AGENT, REQUEST, TRACE, Agent, Call, Trace, read

NEEDED = {"t", "type", "model", "in", "out", "hash_ids", "api_time", "think_time"}


def content(trace: Trace) -> object:
    calls = [
        (call.start, call.duration, call.input, call.output, call.first, call.model)
        for call in trace.all_calls()
    ]
    ids = [call.hash_ids.tolist() for call in trace.all_calls()]
    agents = [(agent.id, agent.place, agent.end, agent.preamble) for agent in trace.agents]
    return trace.id, trace.preamble, calls, ids, agents


@pytest.mark.parametrize("name", ["made.jsonl", "made.jsonl.gz"])
def test_what_was_written_is_read_as_it_was(tmp_path: Path, name: str) -> None:
    traces = list(generate(8, 2, 16_384))
    assert any(trace.agents for trace in traces)
    requests = sum(1 for trace in traces for _ in trace.all_calls())
    assert write(traces, tmp_path / name) == (8, requests)
    assert list(map(content, read(str(tmp_path / name)))) == list(map(content, traces))


def test_equal_seeds_write_equal_files_and_others_do_not(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl.gz", "b.jsonl.gz", "c.jsonl.gz")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        write(generate(3, seed, 8192), path)
    first, same, other = (path.read_bytes() for path in paths)
    assert first == same
    assert gzip.decompress(first) != gzip.decompress(other)


def test_a_record_has_the_fields_of_the_schema_and_no_others() -> None:
    for trace in generate(8, 2, 16_384):
        made = orjson.loads(orjson.dumps(record(trace), option=orjson.OPT_SERIALIZE_NUMPY))
        assert made.keys() == TRACE - {"totals"}
        assert (made["block_size"], made["hash_id_scope"]) == (64, "local")
        moments = [entry["t"] for entry in made["requests"]]
        assert moments == sorted(moments)
        for entry in made["requests"]:
            inner = entry.get("requests", [])
            assert entry.keys() <= (AGENT if inner else REQUEST)
            for request in inner or [entry]:
                assert NEEDED <= request.keys() <= REQUEST
                assert request["in"] == 64 * len(request["hash_ids"])
                assert (request["think_time"] or 0.0) >= 0


def test_sub_agents_stand_where_they_were_read(tmp_path: Path) -> None:
    def call(start: float) -> Call:
        ids = np.array([1], dtype=np.int64)
        return Call(start=start, duration=1.0, input=70, output=0, hash_ids=ids)

    def agent(name: str, place: int, start: float) -> Agent:
        return Agent(id=name, place=place, end=start + 2, preamble=0, calls=(call(start),))

    trace = Trace(
        id="x",
        preamble=60,
        calls=(call(1.0), call(9.0)),
        agents=(agent("a", 0, 0.5), agent("b", 1, 3.0), agent("c", 1, 4.0), agent("d", 2, 11.0)),
    )
    order = [entry.get("agent_id", "-") for entry in record(trace)["requests"]]
    assert order == ["a", "-", "b", "c", "-", "d"]
    write([trace], tmp_path / "t.jsonl")
    assert list(map(content, read(str(tmp_path / "t.jsonl")))) == [content(trace)]
    assert [problem.field for problem in check(str(tmp_path / "t.jsonl"))] == ["t"]


def test_a_name_says_what_is_written(tmp_path: Path) -> None:
    for name in ("made.json", "made", "made.txt.gz"):
        with pytest.raises(InputError, match=r"ends in \.jsonl or \.jsonl\.gz"):
            write(generate(1, 1, 4096), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_whole_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    path.write_text("before")

    def broken() -> Iterator[Trace]:
        yield from generate(1, 1, 4096)
        raise InputError("enough")

    with pytest.raises(InputError, match="enough"):
        write(broken(), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FolderError, match="cannot write"):
        write(generate(1, 1, 4096), tmp_path / "none" / "made.jsonl")


def test_the_shipped_example_is_read_without_a_problem() -> None:
    path = Path(__file__).parents[1] / "examples" / "synthetic.jsonl.gz"
    assert check(str(path)) == []
    assert len(read(str(path))) == 12
