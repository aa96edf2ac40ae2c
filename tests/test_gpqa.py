"""GPQA: an order of choices that nothing can change, and texts that are kept nowhere."""

import hashlib
import subprocess
import sys
from collections import Counter

import pyarrow.parquet as pq
import pytest

from harness.engine import Deployment
from harness.topology import parse
from harness.vllm.engine import Vllm
from reports.page import write
from results.errors import InputError, UnsupportedError
from results.run import read
from tests.question_runs import answered, digest, invented, planned
from tests.scripted_server import DONE, c, script, serving, u, whole
from tests.sim_server import hosted
from workloads.documents import GPQA, LETTERS, documents, perm, rows
from workloads.questions import Questions

WORDS = ("zorblat", "vexels", "quendling", "frabble", "sprocken")


def keys(found, seed=0, epoch=0):
    made = documents(GPQA, found, seed=seed, epoch=epoch)
    return {doc["id"]: doc["target"] for doc in made}


def test_the_order_of_choices_is_that_of_their_hashes():
    told = [hashlib.sha256(f"0:0:rec001:{option}".encode()).hexdigest() for option in range(4)]
    assert [told[option] for option in perm("rec001", 0, 0)] == sorted(told)
    assert perm("rec001", 0, 0) == perm("rec001", 0, 0)
    assert len({perm("rec001", seed, 0) for seed in range(20)}) > 5
    assert len({perm("rec001", 0, epoch) for epoch in range(20)}) > 5


def test_letters_are_spread_evenly():
    many = 4000
    letters = Counter(LETTERS[perm(f"q{n}", 3, 1).index(0)] for n in range(many))
    # Four standard deviations of a fair draw.
    assert all(abs(letters[letter] - many / 4) < 4 * (many * 3 / 16) ** 0.5 for letter in LETTERS)


def test_a_question_less_changes_no_other_key(tmp_path):
    invented(tmp_path / "gpqa.csv")
    found = rows(GPQA, str(tmp_path / "gpqa.csv"))
    whole = keys(found)
    assert keys(found[:7] + found[8:]) == {k: v for k, v in whole.items() if k != "rec007"}
    assert keys(reversed(found)) == whole
    assert keys(found, seed=1) != whole
    assert keys(found, epoch=1) != whole


def test_another_process_makes_the_same_key(tmp_path):
    # F-24
    invented(tmp_path / "gpqa.csv")
    code = (
        "import sys; from workloads.documents import GPQA, documents, rows; "
        "made = documents(GPQA, rows(GPQA, sys.argv[1]), seed=0, epoch=0); "
        "print(sorted((doc['id'], doc['target']) for doc in made))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "gpqa.csv")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(sorted(keys(rows(GPQA, str(tmp_path / "gpqa.csv"))).items()))


def test_no_text_of_a_question_reaches_a_disk(tmp_path):
    texts = invented(tmp_path / "gpqa.csv")
    points, (table,) = answered(
        tmp_path,
        "task: gpqa-diamond, data: gpqa.csv, epochs: 2, temperature: 0.6, thinking: true",
        engine="{kind: sim, accuracy: {right: 0.7}}",
    )
    assert len(table) == 40
    assert {row["extracted"] for row in table} <= set(LETTERS)
    # What the model said is known by its hash alone: 'The answer is (X)' has no text of its own.
    assert all(row["text"] is row["reasoning"] is row["target"] is None for row in table)
    assert all(row["text_hash"] for row in table)
    key = keys(rows(GPQA, str(tmp_path / "gpqa.csv")))
    first = {row["question"]: row["target_hash"] for row in table if row["epoch"] == 0}
    assert first == {name: digest(letter) for name, letter in key.items()}
    write([read(points[0].path.parent)], tmp_path / "runs" / "report.html")
    assert kept(tmp_path / "runs", [*texts, *WORDS]) == []
    assert points[0].evidence.accuracy.questions == 20


async def quoting(asked, reader, writer):
    """Answers the check, and refuses every chat with its own words."""
    if asked.path == "/v1/chat/completions":
        await whole("400 Bad Request", asked.body)(asked, reader, writer)
    else:
        await script((0, c("a") + u(16, 4) + DONE))(asked, reader, writer)


def test_a_server_that_quotes_a_question_is_not_quoted(tmp_path):
    texts = invented(tmp_path / "gpqa.csv", count=3)
    with hosted(serving(quoting)) as server:
        points, (table,) = answered(
            tmp_path,
            "task: gpqa-diamond, data: gpqa.csv",
            engine=f'{{kind: endpoint, url: "{server.url}", model: m}}',
            concurrency=1,
        )
    (point,) = points
    assert point.status == "failed"
    # Nothing that was refused for good is asked again.
    assert len([one for one in server.asked if one.path.endswith("chat/completions")]) == 4
    assert {row["reason"] for row in table} == {
        "HTTP 400, and what the server said of it is withheld"
    }
    assert {(row["state"], row["score"], row["retries"]) for row in table} == {("failed", None, 0)}
    assert kept(tmp_path / "runs", [*texts, *WORDS]) == []


def kept(folder, words):
    """The files of a folder, byte for byte or as Parquet, that hold any of these words."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            text = path.read_bytes().decode(errors="replace")
            if path.suffix == ".parquet":
                text += str(pq.read_table(path).to_pylist())
            found += [(path.name, word) for word in words if word in text]
    return found


def test_a_question_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "gpqa.csv"
    invented(path, 3)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"rec001,secret words,a,b,c,d\n")
    with pytest.raises(InputError, match="question rec001 is there more than once") as e:
        Questions(task="gpqa-diamond", data=str(path), max_tokens=64).exam()
    assert "secret" not in str(e.value)


def test_a_file_without_a_column_of_gpqa_is_refused_before_the_run(tmp_path):
    path = tmp_path / "gpqa.csv"
    path.write_text("Record ID,Question\nrec1,secret words\n")
    with pytest.raises(
        InputError, match=r"row 1: expected Record ID.* got nothing for Correct"
    ) as e:
        planned(tmp_path, "task: gpqa-diamond, data: gpqa.csv")
    assert "secret" not in str(e.value)


def test_the_tasks_that_shuffle_anew_are_refused(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "task: own\ndataset_path: Idavidrein/gpqa\noutput_type: generate_until\n"
        "custom_dataset: !function own.data\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n"
        "generation_kwargs: {until: []}\n"
    )
    (tmp_path / "own.py").write_text(
        "import datasets\n"
        "def data(**_):\n"
        "    return {'test': datasets.Dataset.from_list([{'q': 'x', 'a': 'y'}])}\n"
    )
    (point,) = planned(tmp_path, "task: own.yaml").points
    with pytest.raises(InputError, match="write gpqa-diamond, which fixes their order"):
        point.workload.exam()


def test_a_server_that_would_log_questions_is_refused(tmp_path):
    invented(tmp_path / "gpqa.csv", count=2)
    (point,) = planned(tmp_path, "task: gpqa-diamond, data: gpqa.csv").points
    engine = Vllm(flags=("--enable-log-requests",))
    with pytest.raises(UnsupportedError, match="would log the questions"):
        engine.check(point.workload, point.load, Deployment(engine=engine, topology=parse("TP1")))
