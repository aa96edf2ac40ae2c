import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from results.errors import InputError
from workloads.weka import read, share, stream


def request(**changes: Any) -> dict[str, Any]:
    return {"t": 0.0, "type": "n", "in": 128, "out": 5, "hash_ids": [0, 1], **changes}


def trace(*requests: Any, **changes: Any) -> dict[str, Any]:
    return {"id": "x", "block_size": 64, "requests": list(requests), **changes}


def agent(*requests: Any, **changes: Any) -> dict[str, Any]:
    return {"t": 10.0, "type": "subagent", "agent_id": "a", "requests": list(requests), **changes}


def written(folder: Path, *traces: Any) -> str:
    path = folder / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, traces)))
    return str(path)


BAD: list[tuple[Any, str]] = [
    ([], "line 2: expected an object with requests, got []"),
    (trace(), "line 2: requests: expected a list of at least one request, got []"),
    (trace(3), "line 2: requests[0]: expected an object, got 3"),
    (trace(request(), id=5), "line 2: id: expected a text, got 5"),
    (trace(request(), block_size=16), "line 2: block_size: expected 64, the only size there is"),
    (trace(request(), hash_id_scope="global"), 'line 2: hash_id_scope: expected "local"'),
    (
        trace(request(), request(**{"in": "9"})),
        'line 2: requests[1].in: expected a whole number from 1 to 1,000,000,000, got "9"',
    ),
    (
        trace(request(out=-1)),
        "requests[0].out: expected a whole number from 0 to 1,000,000,000, got -1",
    ),
    (
        trace(request(out=True)),
        "requests[0].out: expected a whole number from 0 to 1,000,000,000, got true",
    ),
    (
        trace(request(t=None)),
        "requests[0].t: expected a number from -1,000,000,000 to 1,000,000,000, got null",
    ),
    (trace(request(type="z")), 'requests[0].type: expected "n" or "s", got "z"'),
    (trace(request(hash_ids=[0, 1.5])), "requests[0].hash_ids: expected a list of whole numbers"),
    (trace(request(hash_ids=[0, [1]])), "requests[0].hash_ids: expected a list of whole numbers"),
    (trace(request(hash_ids="01")), "requests[0].hash_ids: expected a list of whole numbers"),
    (trace(request(hash_ids=[1e30])), "requests[0].hash_ids: expected a list of whole numbers"),
    (trace(request(hash_ids=[2**70, "a"])), "requests[0].hash_ids: expected a list of whole"),
    (trace(request(), agent(request(), requests=3)), "requests[1].requests: expected a list of at"),
    (trace(request(), tool_tokens=200), "requests[0].hash_ids: expected at least 4, for 200 tool"),
    (trace(agent(request())), "requests: expected at least one outside sub-agents, got none"),
    (
        trace(request(), agent(request(), {"t": 1.0})),
        "line 2: requests[1].requests[1].hash_ids: expected a list of whole numbers, got nothing",
    ),
    (
        trace(request(), agent(request()), agent(request())),
        'requests[2].agent_id: expected a name that no other sub-agent has, got "a"',
    ),
    (trace(request(), id="good"), 'line 2: id: "good" is also in'),
]


@pytest.mark.parametrize(("record", "sentence"), BAD)
def test_a_bad_record_is_named_by_place_and_field(
    tmp_path: Path, record: Any, sentence: str
) -> None:
    path = written(tmp_path, trace(request(), id="good"), record)
    with pytest.raises(InputError) as refusal:
        read(path)
    assert str(refusal.value).startswith(path)
    assert sentence in str(refusal.value)


def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    cases = {
        "none.json": (None, "cannot be read: No such file"),
        "notes.txt": (b"{}", "expected a .json or .jsonl file"),
        "two.json": (b"{}\n{}", "is not one JSON value"),
        "empty.jsonl": (b"\n", "holds no trace"),
        "torn.json.gz": (gzip.compress(b"{}")[:-9], "cannot be read"),
        "plain.json.gz": (b"{}", "cannot be read"),
        "folder": (None, "has no .json or .jsonl file"),
    }
    (tmp_path / "folder").mkdir()
    for name, (content, sentence) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match=sentence):
            read(str(path))


def test_a_folder_is_read_in_name_order_whatever_its_files_are_called(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(orjson.dumps(trace(request(), id="2")))
    lines = b"\n\n".join(orjson.dumps(trace(request(), id=name)) for name in "34")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(orjson.dumps(trace(request(), id="1"))))
    (tmp_path / "LICENSE").write_text("not a trace")
    assert [found.id for found in read(str(tmp_path))] == ["1", "2", "3", "4"]


def test_a_file_is_parsed_again_only_when_it_changes(tmp_path: Path) -> None:
    path = written(tmp_path, trace(request()))
    first = read(path)
    assert read(path) is first
    os.utime(path, (1, 1))
    assert read(path) is not first


def test_unknown_keys_and_absent_options_are_fine(tmp_path: Path) -> None:
    record = trace(
        request(mood="fair", type="s", api_time=None),
        {"t": 3, "in": 1, "out": 0, "hash_ids": [], "api_time": -2},
        agent(),
        totals=None,
    )
    (found,) = read(written(tmp_path, record))
    assert [(call.start, call.duration) for call in found.calls] == [(0, 0), (3, 0)]
    assert not found.agents


def test_unknown_keys_are_kept_aside_where_they_stood(tmp_path: Path) -> None:
    inner = agent(request(t=10.0), colour=[3])
    record = trace(request(mood="fair"), request(stop="end"), inner, version=2, totals={})
    (found,) = read(written(tmp_path, record))
    assert found.aside == {"version": 2}
    assert [call.aside for call in found.calls] == [{"mood": "fair"}, {}]
    assert [sub.aside for sub in found.agents] == [{"colour": [3]}]


def test_models_and_first_tokens_are_read_where_they_are_recorded(tmp_path: Path) -> None:
    record = trace(
        request(type="s", model="m", ttft=0.7), request(ttft=0.7), request(type="s", model=4)
    )
    (found,) = read(written(tmp_path, record))
    assert [(call.model, call.first) for call in found.calls] == [
        ("m", 0.7),
        ("", None),
        ("", None),
    ]


def test_ids_of_any_size_keep_their_identity(tmp_path: Path) -> None:
    huge = 2**64 + 1
    record = trace(
        request(hash_ids=[huge, 2**63]),
        agent(request(hash_ids=[huge + 1, 5])),
        request(hash_ids=[huge, 2**63, huge + 1, -7], **{"in": 256}),
    )
    (found,) = read(written(tmp_path, record))
    assert [call.hash_ids.tolist() for call in found.calls] == [[0, 1], [0, 1, 2, 3]]
    assert found.agents[0].calls[0].hash_ids.tolist() == [2, 4]
    assert found.calls[0].hash_ids.dtype == np.int64
    assert np.shares_memory(found.calls[0].hash_ids, found.calls[1].hash_ids)


def test_ids_of_64_bits_stay_as_they_are(tmp_path: Path) -> None:
    (found,) = read(written(tmp_path, trace(request(hash_ids=[-(2**63), 2**63 - 1]))))
    assert found.calls[0].hash_ids.tolist() == [-(2**63), 2**63 - 1]


def test_a_truncated_list_leaves_a_tail_and_a_partial_block_is_dropped(tmp_path: Path) -> None:
    record = trace(request(**{"in": 500}), request(hash_ids=[0, 1, 2], **{"in": 150}))
    (found,) = read(written(tmp_path, record))
    assert [(call.blocks, call.tail) for call in found.calls] == [(2, 372), (2, 22)]


def test_traces_can_be_had_one_at_a_time(tmp_path: Path) -> None:
    traces = stream(written(tmp_path, trace(request(), id="1"), trace(request(out=-1), id="2")))
    assert next(traces).id == "1"
    with pytest.raises(InputError, match=r"line 2: requests\[0\]\.out"):
        next(traces)


def test_a_sub_agents_times_count_from_its_spawn_in_older_files(tmp_path: Path) -> None:
    old = agent(request(t=0.0), request(t=4.0, api_time=2.0))
    new = agent(request(t=10.0), request(t=14.0, api_time=2.0), agent_id="b", duration_ms=9000)
    (found,) = read(written(tmp_path, trace(request(), old, new)))
    assert [[call.start for call in sub.calls] for sub in found.agents] == [[10, 14], [10, 14]]
    assert [sub.end for sub in found.agents] == [16, 19]


def test_growing_hash_lists_share_their_memory() -> None:
    arrays = [np.array(ids, dtype=np.int64) for ids in ([1, 2], [1, 2, 3], [1, 9], [1, 9, 4])]
    shared = share(arrays)
    assert all(np.array_equal(a, b) for a, b in zip(shared, arrays, strict=True))
    assert np.shares_memory(shared[0], shared[1])
    assert np.shares_memory(shared[2], shared[3])
    assert not np.shares_memory(shared[1], shared[2])
