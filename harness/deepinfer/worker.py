"""The worker of an offline engine: runs in DeepInfer's interpreter and speaks JSON lines.

It imports nothing of ours, because paceline is not installed there. docs/deepinfer.md states the
protocol; the engine's names are those of the published deepinfer 0.1.0.
"""

import fcntl
import json
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any

PROTOCOL = 1

ROOM = 1 << 20
"""Bytes of replies that fit into the pipe, so that a step does not wait for whoever reads them."""

ENDINGS = frozenset(("stop", "length"))
"""How a request ends well; what carries another reason repeats a token that was no answer."""

MODE, WORLD = "yoco_prefill_truncation_mode", "parallel_config.world_size"
"""Where the engine holds its replay mode, and on how many GPUs it runs."""

ARGUMENTS = {
    name: f"scheduler_config.{name}"
    for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "chunked_prefill")
}
"""Arguments by which it is known what it came to, and where the engine holds that."""

SWITCHES = (
    *("DEEPINFER_USE_NEXTN_DECODE", "DEEPINFER_ENABLE_MTP_VARLEN", "DEEPINFER_BATCH_INVARIANT"),
    *("DEEPINFER_ENFORCE_EAGER", "DEEPINFER_CUDAGRAPH_BATCH_SIZE_INTERVAL"),
    *("DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "DEEPINFER_PREFILL_ATTEMPT_INTERVAL"),
    *("DEEPINFER_FORCE_LOAD_BALANCE", "DEEPINFER_FORCE_IMBALANCE_RATIO"),
    *("DEEPINFER_EXPERT_REARRANGEMENT_STEP_INTERVAL", "DEEPINFER_ENGRAM_FORCE_GPU_STORAGE"),
)
"""Variables that decide what is measured, as the engine itself reads them."""

CAPABILITIES = {
    "online": False,
    "streaming": "step",
    "prefix_cache": False,
    "token_ids_in": True,
    "forced_output": True,
    "min_tokens": False,
    "usage_cached_tokens": False,
    "spec_stats": True,
    "replay_switch": ["off", "mask", "compact"],
}


@dataclass(slots=True, kw_only=True)
class Progress:
    """What has come of one request so far."""

    tokens: int = 0
    drafted: int = 0
    accepted: int = 0


class Lines:
    """Whole lines of a pipe, as they come."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.open = True
        self._descriptor = descriptor
        self._rest = bytearray()

    def read(self, *, wait: bool) -> list[dict[str, Any]]:
        """What has been told since the last time; waits for more where there is nothing to do."""
        if wait:
            select.select([self._descriptor], [], [])
        with suppress(BlockingIOError):
            while chunk := os.read(self._descriptor, ROOM):
                self._rest += chunk
            self.open = False
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines if line]


class Worker:
    """Steps one engine, and does between its steps what it is told."""

    def __init__(self, lines: Lines, replies: int) -> None:
        self._lines = lines
        self._replies = replies
        self._told: list[str] = []
        self._prompts: dict[str, Any] = {}
        self._progress: dict[str, Progress] = {}
        self._steps = 0
        self._ended: float | None = None
        self._unflushed = False
        self._working = True

    def run(self) -> None:
        """Starts the engine that is asked for, and serves it until the pipe is closed."""
        asked: list[dict[str, Any]] = []
        while not asked and self._lines.open:
            asked = self._lines.read(wait=True)
        if not asked:
            return
        first, *more = asked
        if reason := _refusal(first):
            self._tell(ev="error", msg=reason, unsupported=True)
            self._flush()
            return
        self._start(first)
        for one in more:
            self._do(one)
        busy = True
        while self._working and self._lines.open:
            # Ranks step together, the idle ones too, so none of them may wait for its own work.
            for one in self._lines.read(wait=self._alone and not busy):
                self._do(one)
            busy = self._step()
            self._flush()
        self._engine.close()

    def _start(self, asked: dict[str, Any]) -> None:
        package = import_module("deepinfer")
        numpy = import_module("numpy")
        self._ids: Callable[[list[int]], Any] = lambda ids: numpy.asarray(ids, dtype=numpy.int32)
        self._sampling = import_module("deepinfer.sampling_params").SamplingParams
        llm = import_module("deepinfer.entrypoints.llm").LLM(asked["model"], **asked["engine_args"])
        self._engine: Any = llm.llm_engine
        self._clone = import_module("deepinfer._C.engine").RequestOutput.clone
        self._alone = asked["engine_args"].get("data_parallel_size", 1) <= 1
        self._tell(
            ev="ready",
            protocol=PROTOCOL,
            engine="deepinfer",
            version=getattr(package, "__version__", None),
            simulated=bool(getattr(package, "simulated", False)),
            caps=CAPABILITIES,
            features_observed=_features(self._engine),
            clock="perf_counter",
            now=time.perf_counter(),
        )
        self._flush()

    def _do(self, asked: dict[str, Any]) -> None:
        name = asked.get("id")
        match asked.get("op"):
            case "prompt":
                self._prompts[str(name)] = self._ids(asked["prompt_token_ids"])
                self._tell(ev="prompt", id=name)
            case "submit":
                self._submit(str(name), asked)
            case "abort":
                self._prompts.pop(str(name), None)
                if self._progress.pop(str(name), None):
                    self._engine.abort_request(name)
            case "stats":
                count = self._engine.get_num_unfinished_requests()
                self._tell(ev="stats", unfinished=count, steps=self._steps)
            case "reset_cache":
                self._tell(ev="error", msg="the engine has no prefix cache to reset")
            case "shutdown":
                self._working = False
            case other:
                self._tell(ev="error", id=name, msg=f"this worker does not know the op {other!r}")

    def _submit(self, name: str, asked: dict[str, Any]) -> None:
        prompt = self._prompts.pop(name, None)
        if prompt is None:
            prompt = self._ids(asked["prompt_token_ids"])
        sampling = self._sampling(
            temperature=0.0,
            max_tokens=asked["max_tokens"],
            ignore_eos=asked.get("ignore_eos", True),
            golden_token_ids=asked.get("forced_ids"),
        )
        try:
            taken = self._engine.add_request(
                user_id=str(asked.get("session", "0")),
                request_id=name,
                sampling_params=sampling,
                prompt_token_ids=prompt,
                arrival_time=time.perf_counter(),
            )
        except (ValueError, RuntimeError) as error:
            self._tell(ev="error", id=name, msg=f"the engine refuses the request: {error}")
            return
        if taken is None:
            message = "the engine drops the request: a token id is outside of its vocabulary"
            self._tell(ev="error", id=name, msg=message)
            return
        self._progress[name] = Progress()

    def _step(self) -> bool:
        """Takes one step, or flushes what the last one left; whether there was anything to do."""
        begun = time.perf_counter()
        if self._engine.has_unfinished_requests():
            pointers = self._engine.step()
            self._unflushed = True
        elif self._unflushed:
            pointers = self._engine.flush_inflight_reqs()
            self._unflushed = False
        else:
            self._ended = None
            return False
        ended = time.perf_counter()
        # The pointers die at the next step.
        outputs = [self._clone(pointer) for pointer in pointers]
        firsts, tokens = self._tell_outputs(outputs, ended)
        self._steps += 1
        self._tell(
            ev="step",
            n=self._steps,
            t0=begun,
            t1=ended,
            gap=0.0 if self._ended is None else begun - self._ended,
            first_tokens=firsts,
            num_tokens=tokens,
            running=len(self._progress),
        )
        self._ended = ended
        return True

    def _tell_outputs(self, outputs: Sequence[Any], moment: float) -> tuple[int, int]:
        """Tells each request what came of it; how many had their first token, and all tokens."""
        firsts, tokens = 0, 0
        by_request: dict[str, list[Any]] = {}
        for output in outputs:
            by_request.setdefault(output.request_id, []).append(output)
        for name, own in by_request.items():
            progress = self._progress.get(name)
            if progress is None:
                continue
            ids = [one.token_id for one in own if not one.finished or one.finish_reason in ENDINGS]
            firsts += not progress.tokens and bool(ids)
            tokens += len(ids)
            progress.tokens += len(ids)
            # Of a step's outputs the last one counts its drafts, and itself among them.
            progress.drafted += sum(max(0, one.draft_tok - 1) for one in own)
            progress.accepted += sum(max(0, one.accept_tok - 1) for one in own)
            if ids:
                self._tell(ev="tok", id=name, t=moment, ids=ids)
            if own[-1].finished:
                self._tell_end(name, own[-1])
        return firsts, tokens

    def _tell_end(self, name: str, output: Any) -> None:
        progress = self._progress.pop(name)
        self._tell(
            ev="done",
            id=name,
            finish=output.finish_reason,
            n_in=output.prompt_len,
            n_out=progress.tokens,
            spec={"drafted": progress.drafted, "accepted": progress.accepted},
        )

    def _tell(self, **event: Any) -> None:
        self._told.append(json.dumps(event, separators=(",", ":")))

    def _flush(self) -> None:
        """Writes what is to be told, all of a step at once."""
        text = "".join(f"{line}\n" for line in self._told).encode()
        self._told.clear()
        while text:
            text = text[os.write(self._replies, text) :]


def _refusal(asked: dict[str, Any]) -> str | None:
    """Why what is asked first cannot be had here."""
    if asked.get("op") != "init" or asked.get("protocol") != PROTOCOL:
        return f"this worker speaks protocol {PROTOCOL}, and was asked for {asked.get('protocol')}"
    device = import_module("deep_cluster.hardware.device")
    kind = device.accelerator_kind()
    if kind == "nvidia" and not device.is_sm_major_10():
        return "DeepInfer runs on GPUs of compute capability 10 (SM100) and on Ascend 950 only"
    return None


def _features(engine: Any) -> dict[str, Any]:
    """What the engine says of itself; what this version does not hold is left out."""
    switches = import_module("deepinfer.environ").envs
    return {
        **_held(engine, {"mode": MODE, "gpus": WORLD}),
        "arguments": _held(engine, ARGUMENTS),
        "environment": _held(switches, dict(zip(SWITCHES, SWITCHES, strict=True))),
    }


def _held(holder: Any, places: dict[str, str]) -> dict[str, Any]:
    found = {}
    for name, place in places.items():
        with suppress(AttributeError):
            found[name] = attrgetter(place)(holder)
    return found


def main() -> None:
    """Serves standard input, with everything that others print sent to standard error."""
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(OSError):
        fcntl.fcntl(replies, fcntl.F_SETPIPE_SZ, ROOM)
    Worker(Lines(sys.stdin.fileno()), replies).run()


if __name__ == "__main__":
    main()
