"""The worker's own protocol, line by line, and the names it uses against the published package."""

import ast
import inspect
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Timer

import pytest

from harness.deepinfer import worker
from tests import fake_deepinfer

INIT = {"op": "init", "protocol": 1, "model": "m", "engine_args": {"disable_log_stats": False}}
PUBLISHED = os.environ.get("PACELINE_DEEPINFER")


@dataclass
class Spoken:
    """A worker to talk to in lines."""

    process: subprocess.Popen

    def tell(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def hear(self, *kinds):
        """The next event of one of these kinds."""
        while line := self.process.stdout.readline():
            event = json.loads(line)
            if event["ev"] in kinds:
                return event
        raise EOFError


@contextmanager
def spoken(**environment):
    process = subprocess.Popen(
        [sys.executable, "-P", fake_deepinfer.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "0", **environment},
        text=True,
    )
    # A worker that says nothing must not hold up the tests.
    end = Timer(20, process.kill)
    end.start()
    with process:
        try:
            yield Spoken(process)
        finally:
            process.stdin.close()
            process.wait(timeout=20)
            end.cancel()


def test_a_conversation_is_as_the_protocol_says():
    with spoken() as talk:
        talk.tell(**INIT, unknown="key")
        ready = talk.hear("ready", "error")
        assert (ready["ev"], ready["protocol"], ready["version"]) == ("ready", 1, "0.1.0")
        assert (ready["simulated"], ready["caps"]["prefix_cache"]) == (True, False)
        assert ready["features_observed"]["mode"] == "off"

        # What is forced is played again, token by token.
        asked = {"prompt_token_ids": [5, 6, 7], "max_tokens": 3, "forced_ids": [9, 8, 7]}
        talk.tell(op="submit", id="r1", **asked)
        assert [talk.hear("tok")["ids"] for _ in range(3)] == [[9], [8], [7]]
        end = talk.hear("done")
        assert (end["id"], end["finish"], end["n_in"], end["n_out"]) == ("r1", "length", 3, 3)

        # A prompt may come ahead of its request.
        talk.tell(op="prompt", id="r2", prompt_token_ids=[5] * 10)
        assert talk.hear("prompt")["id"] == "r2"
        talk.tell(op="submit", id="r2", max_tokens=1)
        assert talk.hear("done")["n_in"] == 10

        talk.tell(op="submit", id="r3", prompt_token_ids=[10**9], max_tokens=1)
        assert "outside of its vocabulary" in talk.hear("error")["msg"]
        talk.tell(op="submit", id="r4", prompt_token_ids=[], max_tokens=1)
        assert "prompt must not be empty" in talk.hear("error")["msg"]

        talk.tell(op="submit", id="r5", prompt_token_ids=[5], max_tokens=10_000)
        talk.hear("tok")
        talk.tell(op="abort", id="r5")
        talk.tell(op="stats")
        assert talk.hear("stats", "done")["unfinished"] == 0
        talk.tell(op="reset_cache")
        assert "no prefix cache" in talk.hear("error")["msg"]
        talk.tell(op="dance", id="r6")
        assert "does not know the op 'dance'" in talk.hear("error")["msg"]
        talk.tell(op="shutdown")
        assert talk.process.wait(timeout=20) == 0
        # What the engine prints is no reply.
        assert talk.process.stderr.read().startswith("loading weights\n")


def test_another_protocol_is_refused_before_anything_is_loaded():
    with spoken() as talk:
        talk.tell(**{**INIT, "protocol": 2})
        refusal = talk.hear("error", "ready")
        assert refusal["msg"] == "this worker speaks protocol 1, and was asked for 2"
        assert talk.process.wait(timeout=20) == 0
        assert talk.process.stderr.read() == ""


def test_steps_are_told_with_their_times_and_tokens():
    with spoken() as talk:
        talk.tell(**INIT)
        talk.tell(op="submit", id="r", prompt_token_ids=[5], max_tokens=3)
        steps = [talk.hear("step") for _ in range(4)]
    assert [step["num_tokens"] for step in steps] == [0, 1, 1, 1]
    assert [step["first_tokens"] for step in steps] == [0, 1, 0, 0]
    assert all(step["t0"] < step["t1"] for step in steps)
    assert steps[0]["gap"] == 0.0
    assert all(
        later["gap"] == pytest.approx(later["t0"] - earlier["t1"])
        for earlier, later in pairwise(steps)
    )


published = pytest.mark.skipif(
    not PUBLISHED, reason="PACELINE_DEEPINFER names no folder of the published sources"
)


def tree(path):
    return ast.parse((Path(PUBLISHED) / "deepinfer" / path).read_text())


def found(path, name):
    """The class or function of that name in a published module."""
    kinds = ast.ClassDef | ast.FunctionDef
    return next(
        node for node in ast.walk(tree(path)) if isinstance(node, kinds) and node.name == name
    )


def arguments(function):
    told = function.args
    return [one.arg for one in (*told.posonlyargs, *told.args, *told.kwonlyargs)]


@published
@pytest.mark.parametrize(
    ("path", "owner", "method", "fake"),
    [
        ("sampling_params.py", "SamplingParams", "__init__", fake_deepinfer.SamplingParams),
        ("entrypoints/llm.py", "LLM", "__init__", fake_deepinfer.LLM),
        ("engine/llm_engine.py", "LLMEngine", "add_request", fake_deepinfer.LLMEngine),
        ("engine/llm_engine.py", "LLMEngine", "abort_request", fake_deepinfer.LLMEngine),
        ("engine/llm_engine.py", "LLMEngine", "step", fake_deepinfer.LLMEngine),
        ("engine/llm_engine.py", "LLMEngine", "flush_inflight_reqs", fake_deepinfer.LLMEngine),
        ("engine/llm_engine.py", "LLMEngine", "has_unfinished_requests", fake_deepinfer.LLMEngine),
        (
            "engine/llm_engine.py",
            "LLMEngine",
            "get_num_unfinished_requests",
            fake_deepinfer.LLMEngine,
        ),
        ("engine/llm_engine.py", "LLMEngine", "close", fake_deepinfer.LLMEngine),
    ],
)
def test_the_simulated_engine_takes_the_published_arguments(path, owner, method, fake):
    bodies = [node for node in found(path, owner).body if isinstance(node, ast.FunctionDef)]
    wanted = arguments(next(body for body in bodies if body.name == method))
    own = inspect.signature(getattr(fake, method)).parameters.values()
    assert [one.name for one in own if one.kind is not one.VAR_KEYWORD] == wanted


@published
def test_the_engine_arguments_are_the_published_ones_in_their_order():
    fields = [
        node.target.id
        for node in found("engine/arg_utils.py", "EngineArgs").body
        if isinstance(node, ast.AnnAssign)
    ]
    own = list(inspect.signature(fake_deepinfer.EngineArgs).parameters)
    assert own == fields


@published
def test_what_the_engine_is_asked_of_itself_is_there():
    holders = {
        "parallel_config": ("config.py", "ParallelConfig"),
        "scheduler_config": ("config.py", "SchedulerConfig"),
        "": ("engine/llm_engine.py", "LLMEngine"),
    }
    for place in (worker.MODE, worker.WORLD, *worker.ARGUMENTS.values()):
        holder, _, name = place.rpartition(".")
        assert f"self.{name} =" in ast.unparse(found(*holders[holder])), place
    switches = (Path(PUBLISHED) / "deepinfer/environ.py").read_text()
    assert all(f" {name} = EnvVar" in switches for name in worker.SWITCHES)


@published
def test_the_output_has_the_published_fields():
    header = (Path(PUBLISHED) / "csrc/engine/outputs.hpp").read_text()
    struct = header.partition("struct RequestOutput {")[2].partition("\n};")[0]
    read = ("request_id", "token_id", "prompt_len", "finished", "finish_reason")
    assert all(f" {name};" in struct for name in read)
    assert all(f" {name} = 0;" in struct for name in ("draft_tok", "accept_tok"))
    reasons = (Path(PUBLISHED) / "csrc/engine/sequence.hpp").read_text()
    assert all(f'return "{reason}";' in reasons for reason in worker.ENDINGS)


@published
def test_the_switches_are_the_published_ones():
    source = (Path(PUBLISHED) / "deepinfer/environ.py").read_text()
    assert 'MODE = EnvVar.choice(default="off", choices=("off", "mask", "compact"))' in source
    assert "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS = EnvVar.int()" in source
    place = (Path(PUBLISHED) / "deepinfer/utils.py").read_text()
    assert 'int(os.getenv("MASTER_PORT", "23333")) - 50' in place
    device = (Path(PUBLISHED) / "deep_cluster/hardware/device.py").read_text()
    assert "def is_sm_major_10() -> bool:" in device
