"""Questions asked, answered and graded: from a suite to answers.parquet."""

import asyncio
import signal
from collections import Counter
from dataclasses import replace

import numpy as np
import orjson
import pytest

from harness.client import Request
from harness.deepinfer.engine import DeepInfer
from harness.endpoint import Endpoint
from harness.engine import Deployment
from harness.load import Closed
from harness.run import run
from harness.sim.answers import Accuracy, said
from harness.sim.engine import SimulatedEngine
from harness.sim.server.faults import Fault
from harness.sim.server.serve import serving as simulating
from harness.sim.server.site import Site
from harness.sim.server.site import site as asked_for
from harness.topology import parse
from harness.vllm.engine import Vllm
from harness.wire.speech import speech
from results import answers
from results.errors import InputError, UnsupportedError
from results.folder import reopen
from results.run import read
from suites.description import describe
from suites.plan import plan
from suites.suite import load, shipped
from tests.question_runs import ARITHMETIC, answered, digest, folder_for, invented, planned, ran
from tests.scripted_server import DONE, c, r, script, serving, u
from tests.sim_server import client, hosted
from tests.test_run import Notes
from workloads.arithmetic import questions as arithmetic
from workloads.chat import Chat
from workloads.extraction import number
from workloads.questions import Questions

GSM8K = '{{"question": "How many is {0} and {0}?", "answer": "It is {1}.\\n#### {1}"}}\n'


def gsm8k(path, count):
    """A file like GSM8K's."""
    path.write_text("".join(GSM8K.format(n, 2 * n) for n in range(1, count + 1)))


def endpoint(url, **more):
    settings = "".join(f", {name}: {value}" for name, value in more.items())
    return f'{{kind: endpoint, url: "{url}", model: simulated{settings}}}'


def site(path, **settings):
    """A quick simulated server that knows the answers of a file."""
    engine = SimulatedEngine(accuracy=Accuracy(right=1, redrawn=0))
    return Site(engine=engine, topology=parse("TP1"), answers=path, **settings)


def test_every_question_is_asked_once_and_graded_as_it_was_answered(tmp_path):
    points, tables = answered(tmp_path, repeats=2, more="replay: [off, on]")
    assert [point.status for point in points] == ["finished"] * 4
    for point, table in zip(points, tables, strict=True):
        assert [row["question"] for row in table] == [f"arithmetic-{n}" for n in range(30)]
        asked = {row["request_id"]: row for row in point.rows().to_pylist()}
        for row, question in zip(table, arithmetic(), strict=False):
            right = number(question["answer"])
            request = asked[row["request"]]
            assert row["target"] == right
            assert row["score"] == (number(row["text"]) == right)
            assert row["parsed"]
            assert (row["state"], row["finish_reason"]) == ("ok", "stop")
            assert row["text_hash"] == digest(row["text"])
            assert row["prompt_hash"] == request["prompt_hash"]
            assert row["output_tokens"] == request["output_tokens"]
            assert request["asked_input"] is request["ceiling_tokens"] is None
    # The arms were asked the same, and each repeat draws some answers anew.
    hashes = {row["prompt_hash"] for row in tables[0]}
    assert all({row["prompt_hash"] for row in table} == hashes for table in tables)
    assert any(a["text"] != b["text"] for a, b in zip(tables[0], tables[1], strict=True))


def test_the_simulated_model_is_right_as_often_as_it_was_told_to_be():
    truth = Accuracy(right=0.9, redrawn=0.05, loss=0.05)

    def scores(run, replay):
        told = (
            said(truth, f"q{n}", "18", replay=replay, run=run, thinks=False) for n in range(3000)
        )
        return np.array([number(one.text) == "18" for one in told])

    first, second, lossy = scores(1, "off"), scores(2, "off"), scores(1, "on")
    assert first.mean() == pytest.approx(0.9, abs=4 * (0.09 / 3000) ** 0.5)
    # Two runs disagree where either draws anew: 2 * 0.0975 / 2 of them from .9 to .1 or back.
    flips = (first != second).mean()
    assert flips == pytest.approx(0.0975 * 2 * 0.09, abs=0.01)
    assert (lossy & ~first).sum() == 0
    assert first.mean() - lossy.mean() == pytest.approx(0.05 * 0.9, abs=0.016)


def test_the_evidence_says_what_was_asked_and_how(tmp_path):
    (point,), (table,) = answered(
        tmp_path,
        f"{ARITHMETIC}, shots: 2, temperature: 0.5, epochs: 2, thinking: true, effort: low",
    )
    told = point.evidence.accuracy
    assert (told.task, told.questions, told.epochs, told.shots) == ("paceline-arithmetic", 30, 2, 2)
    assert told.sampling == {"temperature": 0.5, "top_p": 1.0, "max_tokens": 512, "stop": []}
    assert (told.thinking, told.effort, told.synthetic_acceptance) == (True, "low", False)
    assert told.headline == "exact_match,paceline"
    assert told.lm_eval.startswith("0.")
    rows = answers.read(point.path)
    assert told.questions_hash == answers.questions_hash(rows)
    assert told.key_hash == answers.key_hash(rows)
    assert {name["name"] for name in table[0]["scores"]} == {
        "exact_match,paceline",
        "exact_match,strict-match",
        "exact_match,flexible-extract",
    }
    # The simulated model thinks where it is asked to, and reasoning is no part of what is graded.
    assert all(row["reasoning"] and "####" not in row["reasoning"] for row in table)


def test_epochs_have_seeds_of_their_own_which_no_arm_changes():
    asked = Questions(task="paceline-arithmetic", max_tokens=64, limit=5, epochs=3, temperature=1.0)
    seeds = {(chat.question, chat.epoch): chat.seed for chat in asked.chats()}
    assert len(set(seeds.values())) == 15
    other = {(chat.question, chat.epoch): chat.seed for chat in replace(asked, seed=1).chats()}
    assert not set(other.values()) & set(seeds.values())
    assert seeds == {(chat.question, chat.epoch): chat.seed for chat in asked.chats()}
    assert all(chat.seed is None for chat in replace(asked, temperature=0.0).chats())


CHAT = Chat(
    question="q",
    epoch=0,
    messages=(("system", "Be brief."), ("user", "How many?")),
    target="1",
    temperature=0.7,
    top_p=0.9,
    seed=11,
    thinking=False,
    effort="high",
)


def body(chat, **dialect):
    """What is sent for a chat."""

    async def main():
        async with client("http://127.0.0.1:1", **dialect) as made:
            request = Request(id="r", prompt=chat.prompt, output=77, session="s", chat=chat)
            return orjson.loads(await made.prepare(request))

    return asyncio.run(main())


def test_a_question_is_sent_in_its_own_words_and_with_nothing_that_prolongs_it():
    thinking = {"thinking": False, "enable_thinking": False}
    assert body(CHAT, exact_output=True) == {
        "model": "simulated",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How many?"},
        ],
        "max_tokens": 77,
        "temperature": 0.7,
        "top_p": 0.9,
        "seed": 11,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": thinking,
        "reasoning_effort": "high",
    }
    plain = body(replace(CHAT, thinking=None, effort=None, seed=None))
    assert not {"chat_template_kwargs", "reasoning_effort", "seed"} & plain.keys()


def test_answer_and_reasoning_are_read_in_both_spellings():
    frames = [
        c("") + r("think ", key="reasoning"),
        r("more", key="reasoning_content"),
        c("It is ") + c("18"),
        u(9, 4) + DONE,
    ]
    whole = b"".join(frames)
    assert speech([whole]) == ("It is 18", "think more")
    assert speech([whole[i : i + 1] for i in range(len(whole))]) == ("It is 18", "think more")
    assert speech([b"<html>"]) == ("", "")


def over_http(tmp_path, made, **settings):
    with hosted(simulating(made)) as url:
        return answered(
            tmp_path, "task: gsm8k, data: gsm8k.jsonl, shots: 1", engine=endpoint(url), **settings
        )


def test_a_server_that_knows_a_file_answers_its_questions(tmp_path):
    gsm8k(tmp_path / "gsm8k.jsonl", 12)
    (point,), (table,) = over_http(tmp_path, site(tmp_path / "gsm8k.jsonl"))
    assert point.status == "finished"
    assert [row["score"] for row in table] == [1.0] * 12
    assert all(row["finish_reason"] == "stop" and row["output_tokens"] for row in table)
    assert point.evidence.accuracy.synthetic_acceptance is None


def test_answers_that_reach_max_tokens_are_called_truncated(tmp_path):
    gsm8k(tmp_path / "gsm8k.jsonl", 4)
    _, (table,) = over_http(tmp_path, site(tmp_path / "gsm8k.jsonl"), tokens=5)
    assert all(row["truncated"] and row["finish_reason"] == "length" for row in table)
    assert {row["output_tokens"] for row in table} == {5}


def test_a_question_that_keeps_failing_is_a_row_and_loses_no_other(tmp_path):
    gsm8k(tmp_path / "gsm8k.jsonl", 6)
    # The warm-up and four questions pass; whatever is asked as the third one fails.
    faults = (
        Fault(fault="status", status=503, id=f"{digest('How many is 3 and 3?')}::0"),
        Fault(fault="drop", id=f"{digest('How many is 5 and 5?')}::0-0"),
    )
    made = site(tmp_path / "gsm8k.jsonl", faults=faults)
    (point,), (table,) = over_http(tmp_path, made, concurrency=2)
    states = {row["question"]: (row["state"], row["retries"], row["score"]) for row in table}
    lost, late = (
        states.pop(digest("How many is 3 and 3?")),
        states.pop(digest("How many is 5 and 5?")),
    )
    assert lost == ("failed", 2, None)
    assert late == ("ok", 1, 1.0)
    assert set(states.values()) == {("ok", 0, 1.0)}
    turns = Counter(row["turn"] for row in point.rows().to_pylist() if row["phase"] == "window")
    assert turns == {0: 6, 1: 2, 2: 1}


STOPPING = """
task: own
custom_dataset: !function own.data
test_split: test
output_type: generate_until
doc_to_text: q
doc_to_target: a
generation_kwargs: {until: ["Question", "b", "c", "d", "e!"]}
filter_list:
  - name: last
    filter: [{function: regex, regex_pattern: "([0-9]+)", group_select: -1}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
DATA = """
import datasets
def data(**_):
    return {'test': datasets.Dataset.from_list([{'q': 'How many?', 'a': '4'}])}
"""


def test_stop_strings_end_the_answer_and_never_the_reasoning(tmp_path):
    # F-23
    (tmp_path / "own.yaml").write_text(STOPPING)
    (tmp_path / "own.py").write_text(DATA)
    thought = r("identify the Question, e! then say 3")
    said_so = script(
        (0, thought + c("It is 4") + c("\nQuestion 9", finish="stop") + u(9, 9) + DONE)
    )
    with hosted(serving(said_so)) as server:
        (point,), (table,) = answered(tmp_path, "task: own.yaml", engine=endpoint(server.url))
    (row,) = table
    assert (row["score"], row["extracted"], row["finish_reason"]) == (1.0, "4", "stop string")
    assert row["text"] == "It is 4\nQuestion 9"
    assert "Question" in row["reasoning"]
    assert point.evidence.accuracy.sampling["stop"] == ["Question", "b", "c", "d", "e!"]
    assert point.evidence.accuracy.headline == "exact_match,last"
    assert all("stop" not in asked.fields for asked in server.asked if asked.body)


def test_reasoning_that_was_cut_is_no_answer_that_a_string_ended(tmp_path):
    # F-23, of a template that begins the reasoning and a server that does not tell it apart.
    (tmp_path / "own.yaml").write_text(STOPPING)
    (tmp_path / "own.py").write_text(DATA)
    thought = script((0, c("It is 4? The Question says", finish="length") + u(9, 9) + DONE))
    with hosted(serving(thought)) as server:
        engine = endpoint(server.url)
        _, (table,) = answered(tmp_path, "task: own.yaml, thinking: true", engine=engine)
    (row,) = table
    assert (row["truncated"], row["parsed"], row["score"]) == (True, False, 0.0)


def test_a_withheld_task_keeps_no_words_that_were_read_out_of_answers(tmp_path):
    whole = STOPPING.replace('"([0-9]+)"', '"(.+)"')
    (tmp_path / "own.yaml").write_text(whole)
    (tmp_path / "own.py").write_text(DATA.replace("'a': '4'", "'a': '4', 'group': 'a passage'"))
    said_so = script((0, c("the brindled zorblat", finish="stop") + u(9, 9) + DONE))
    with hosted(serving(said_so)) as server:
        engine = endpoint(server.url)
        _, (table,) = answered(tmp_path, "task: own.yaml, withheld: true", engine=engine)
    (row,) = table
    assert (row["parsed"], row["extracted"], row["target"]) == (True, None, None)
    assert row["group"] == digest("a passage")


def test_what_a_task_asks_twice_is_a_group(tmp_path):
    (tmp_path / "own.yaml").write_text(STOPPING)
    doubled = DATA.replace("[{'q'", "[{'q': 'Why?', 'a': '5'}] + 2 * [{'q'")
    (tmp_path / "own.py").write_text(doubled)
    asked = Questions(task=str(tmp_path / "own.yaml"), max_tokens=64).exam().questions
    alone, first, second = asked
    assert (alone.group, first.group) == (None, second.group)
    assert first.group == first.id != second.id


@pytest.mark.parametrize("said", ["It is 3 or 4", "#### 3:30", "#### 12 000", "#### none"])
def test_a_key_that_is_not_one_number_is_refused(tmp_path, said):
    path = tmp_path / "gsm8k.jsonl"
    path.write_bytes(orjson.dumps({"question": "How many?", "answer": said}))
    with pytest.raises(InputError, match="not one number after ####"):
        Questions(task="gsm8k", data=str(path), max_tokens=64).exam()


def test_a_task_that_cannot_grade_an_answer_fails_its_point_and_keeps_the_answers(tmp_path):
    (tmp_path / "own.yaml").write_text(STOPPING + "process_results: !function own.grade\n")
    (tmp_path / "own.py").write_text(
        DATA + "def grade(doc, results):\n    return {'exact_match': 1 // (results[0] == '4')}\n"
    )
    said_so = script((0, c("It is 5", finish="stop") + u(9, 9) + DONE))
    with hosted(serving(said_so)) as server:
        (point,) = ran(tmp_path, "task: own.yaml", engine=endpoint(server.url))
    assert point.status == "failed"
    assert "own cannot grade the answers, which are kept as they came: ZeroDiv" in point.reason
    assert point.answers() is None
    (kept,) = (point.path / "answers.jsonl").read_bytes().splitlines()
    assert orjson.loads(kept)["text"] == "It is 5"


def test_answers_are_on_disk_before_the_point_ends_and_a_broken_point_asks_again(tmp_path):
    made = planned(tmp_path)

    def interrupt(rows):
        if rows == 12:
            signal.raise_signal(signal.SIGINT)

    with folder_for(made, tmp_path) as folder, pytest.raises(KeyboardInterrupt):
        run(made.points, folder, Notes(on_row=interrupt))
    (point,) = read(folder.path).points
    assert point.answers() is None
    (growing,) = folder.path.rglob("answers.jsonl")
    early = [orjson.loads(line) for line in growing.read_bytes().splitlines()]
    assert 11 <= len([line for line in early if line["state"] == "ok"]) < 30
    assert all(line["text"] for line in early if line["state"] == "ok")
    with reopen(folder.path) as again:
        run(made.points, again, Notes())
    (point,) = read(folder.path).points
    assert point.status == "finished"
    assert {row["state"] for row in point.answers().to_pylist()} == {"ok"}
    assert (point.path / "broken-1.jsonl").exists()
    assert not growing.exists()
    notes = Notes()
    with reopen(folder.path) as again:
        run(made.points, again, notes)
    assert (notes.rows, notes.skipped) == (0, ["finished"])


def test_questions_that_do_not_fit_are_refused_before_one_is_asked(tmp_path):
    small = "{kind: sim, context_limit: 600, accuracy: {}}"
    (point,) = ran(tmp_path, engine=small, tokens=300)
    assert point.status == "unsupported"
    assert "max_tokens 300 do not fit: question arithmetic-" in point.reason
    assert "the model holds 600 tokens: lower max_tokens" in point.reason
    assert point.rows().num_rows == 0


def test_a_server_tells_whether_a_question_fits(tmp_path):
    gsm8k(tmp_path / "gsm8k.jsonl", 3)
    made = site(tmp_path / "gsm8k.jsonl")
    made = replace(made, engine=replace(made.engine, context_limit=100))
    with hosted(simulating(made)) as url:
        (point,) = ran(tmp_path, "task: gsm8k, data: gsm8k.jsonl", engine=endpoint(url))
    assert point.status == "unsupported"
    assert "the model holds 100 tokens" in point.reason
    assert point.rows().num_rows == 0


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (DeepInfer(), "can neither be asked in words"),
        (SimulatedEngine(), "knows no answers"),
        (Vllm(speculation="synthetic"), "synthetic acceptance"),
        (
            Vllm(flags=("--speculative-config", '{"synthetic_acceptance_length": 3}')),
            "synthetic acceptance",
        ),
        (Vllm(body={"temperature": 1}), "body states temperature, which a question states itself"),
        (
            Endpoint(url="http://h:1", model="m", body={"ignore_eos": True}),
            "body states ignore_eos",
        ),
    ],
)
def test_engines_that_would_answer_something_else_are_refused(engine, sentence):
    deployment = Deployment(engine=engine, topology=parse("TP1"))
    asked = Questions(task="paceline-arithmetic", max_tokens=64)
    with pytest.raises(UnsupportedError, match=sentence):
        engine.check(asked, Closed(concurrency=1, sessions=1), deployment)


def test_the_suites_that_ship_are_planned_in_full():
    real, demo = describe(plan(load("accuracy-gap"))), describe(plan(load("accuracy")))
    assert (len(real.rows), real.servers) == (16, 16)
    assert {row.answers for row in real.rows} == {1319, 12 * 198}
    assert all(" serve " in lines[-1] for lines in real.starts.values())
    assert "claims A14" in shipped()["accuracy-gap"].read_text()
    assert [row.answers for row in demo.rows] == [400] * 4
    assert all(row.prompt_tokens > 100_000 for row in demo.rows)


@pytest.mark.parametrize(
    ("workload", "load_", "sentence"),
    [
        (ARITHMETIC, "4, sessions: 10", "expected a closed load without sessions"),
        (ARITHMETIC, "4, duration: 10", "expected a closed load without sessions"),
        ("task: gsm8k, data: none.jsonl", "1", "data: expected a file of questions"),
        ("task: none.yaml", "1", "task: expected a task file"),
        ("task: gsm8k, data: bad.jsonl", "1", "line 2: expected question, answer"),
        ("task: hellaswag, data: bad.jsonl", "1", "says itself where its data is"),
        ("task: paceline-arithmetic, data: bad.jsonl", "1", "reads no file"),
    ],
)
def test_what_cannot_be_asked_is_said_of_the_suite(tmp_path, workload, load_, sentence):
    (tmp_path / "bad.jsonl").write_text(GSM8K.format(1, 2) + '{"question": "q"}\n')
    with pytest.raises(InputError, match=sentence):
        planned(tmp_path, workload, concurrency=load_)


def test_max_tokens_has_no_default(tmp_path):
    with pytest.raises(InputError, match=r"workload\.max_tokens: expected a whole number"):
        planned(tmp_path, "task: gsm8k", tokens="")


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        ("task: own.yaml", "has output_type multiple_choice, and only generate_until is text"),
        ("task: broken.yaml", "makes no questions of it: KeyError"),
        (f"{ARITHMETIC}, headline: bleu", "has the scores exact_match,paceline; "),
        (f"{ARITHMETIC}, shots: 9", "has 8 examples to show"),
    ],
)
def test_what_lm_eval_cannot_ask_is_found_out_before_anything_starts(tmp_path, workload, sentence):
    choices = STOPPING.replace("generate_until", "multiple_choice\ndoc_to_choice: ['4', '5']")
    (tmp_path / "own.yaml").write_text(choices.split("generation_kwargs")[0])
    (tmp_path / "broken.yaml").write_text(STOPPING.replace("test_split: test", "test_split: no"))
    (tmp_path / "own.py").write_text(DATA)
    made = planned(tmp_path, workload)
    with folder_for(made, tmp_path) as folder, pytest.raises(InputError, match=sentence):
        run(made.points, folder, Notes())
    assert read(folder.path).points == ()


def test_a_server_that_knows_choices_answers_with_the_letter_before_the_right_one(tmp_path):
    invented(tmp_path / "gpqa.csv", count=9)
    engine = {"acceptance_length": None}
    made = asked_for(
        engine=engine,
        topology="TP1",
        replay="on",
        reasoning_key="reasoning_content",
        pace=500.0,
        faults=None,
        accuracy={"right": 1.0, "redrawn": 0.0},
        answers=tmp_path / "gpqa.csv",
    )
    with hosted(simulating(made)) as url:
        _, (table,) = answered(
            tmp_path,
            "task: gpqa-diamond, data: gpqa.csv, thinking: true, epochs: 2",
            engine=endpoint(url),
        )
    assert [row["score"] for row in table] == [1.0] * 18
    assert len({row["extracted"] for row in table}) > 1
