"""Whether a server counted the prompt tokens that it was asked with, from suite to verdict."""

import orjson
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from harness.run import run
from harness.sim.server.serve import serving as simulating
from harness.wire.prose import prose
from results.folder import create
from results.metrics import summarise
from results.run import read
from suites.plan import plan
from suites.suite import load
from tests.scripted_server import DONE, c, r, script, serving, stop, u
from tests.sim_server import Quiet, hosted, site

SUITE = """
suite: lengths
experiments:
  - name: lengths
    engine: {engine}
    topology: TP1
    workload: {{kind: growing, turns: 6, first: 90, fresh: 30, output: 4, delay: 0}}
    load: {{kind: closed, concurrency: 2, sessions: 3, warmup: 0}}
"""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """The folder of a tokenizer with merges that has few words whole.

    So the text of tokens that were cut in the middle of a word becomes other tokens again.
    """
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([prose(60_000, 1)], trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save(str(folder / "tokenizer.json"))
    return folder


def measured(tmp_path, **engine):
    """The rows of a suite's one point on that engine, and what speaks against it."""
    file = tmp_path / "lengths.yaml"
    file.write_text(SUITE.format(engine=orjson.dumps({"kind": "endpoint", **engine}).decode()))
    planned = plan(load(str(file)))
    with create(tmp_path, "lengths", "", planned.facts(), {"host": "here"}, 7) as folder:
        assert run(planned.points, folder, Quiet()) == {"finished": 1}
    (point,) = read(folder.path).points
    summary = summarise(point)
    lengths = [problem for problem in summary.problems if "another input length" in problem]
    return point.rows().to_pylist(), lengths, summary


@pytest.mark.parametrize("mode", ["ids", "text", "chat"])
def test_lengths_are_as_asked_or_the_point_is_invalid_and_says_so(mode, tmp_path, tokenizer):
    # F-16: text of tokens, tokenized anew, has merges across the places where it was joined.
    made = site(tmp_path, tokenizer=tokenizer)
    with hosted(simulating(made)) as url:
        engine = {"url": url, "model": "simulated", "mode": mode, "tokenizer": str(tokenizer)}
        rows, lengths, _ = measured(tmp_path, **engine)
    lines = [orjson.loads(line) for line in made.log.read_bytes().splitlines()[1:]]
    truth = {line["id"]: line["prompt"] for line in lines}
    assert len(rows) == 18
    assert all(row["input_tokens"] == truth[row["request_id"]] for row in rows)
    apart = [abs(row["input_tokens"] - row["asked_input"]) for row in rows]
    assert bool(lengths) == bool(sum(apart)) == (mode != "ids")
    if lengths:
        assert lengths == [
            f"{sum(map(bool, apart))} of 18 requests have another input length than asked, by up "
            f"to {max(apart)} tokens"
        ]


def answering(extra, *thoughts):
    """A server whose template adds so many tokens to a prompt, and which thinks as it is told."""

    async def answer(asked, reader, writer):
        if not asked.path.startswith("/v1/completions"):
            await script((0, b""))(asked, reader, writer)
            return
        prompt, output = len(asked.fields["prompt"]) + extra, asked.fields["max_tokens"]
        words = [*map(r, thoughts), *[c("a")] * (output - len(thoughts))]
        frames = b"".join([*words, stop(), u(prompt, output), DONE])
        await script((0, frames))(asked, reader, writer)

    return serving(answer)


def test_a_server_that_adds_to_prompts_and_thinks_shows_it_in_every_row(tmp_path):  # F-17
    found = {}
    for name, server in {"plain": answering(0), "thinking": answering(79, "hm", "so")}.items():
        folder = tmp_path / name
        folder.mkdir()
        with hosted(server) as scripted:
            found[name] = measured(folder, url=scripted.url, model="m")
    for name, extra in (("plain", 0), ("thinking", 79)):
        rows, lengths, summary = found[name]
        assert {row["input_tokens"] - row["asked_input"] for row in rows} == {extra}
        assert {row["first_answer"] > row["first"] for row in rows} <= {name == "thinking", False}
        assert bool(lengths) == (name == "thinking")
        assert summary.figures["input_tokens"].value == sum(row["input_tokens"] for row in rows)
    words = "18 of 18 requests have another input length than asked, by up to 79 tokens"
    assert found["thinking"][1] == [words]
