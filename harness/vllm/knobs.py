"""What a suite may turn at vLLM by name, each as the flags that do it."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from harness.engine import Deployment, Replay
from harness.topology import Topology
from results.errors import UnsupportedError
from results.secret import passwords, stated

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm

Options = dict[str, Any]
"""Flags with their values: True for a flag alone, a mapping for JSON."""

Engram = Literal["device", "host", "host-private", "host-thp", "across-ranks"]
Speculation = Literal["synthetic", "real"]
Graphs = Literal["eager", "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
Recipe = Literal["deepseek-v4.1"]

CAPTURE_SIZE = 512
"""The largest captured size of a stated replay arm, where nothing else states one.

From 1024 on, a prompt of 1K tokens runs in a graph that does not trim, so `on-eager` is `off`.
"""

SURROUNDINGS = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
"""What every server's environment has, unless the suite says otherwise."""

TELLING = frozenset({"--enable-log-requests", "--enable-log-outputs"})
"""Flags by which prompts, or answers, go into the server's log."""

SWITCH = "--swa-bounded-replay"
REPLAY: Mapping[Replay, str] = {"off": "--no-swa-bounded-replay", "on-eager": SWITCH, "on": SWITCH}

BARE = "a word without an option"

_MEGA_MOE = "deep_gemm_mega_moe"

_RECIPES: Mapping[Recipe, Options] = {
    "deepseek-v4.1": {
        "--tokenizer-mode": "deepseek_v41",
        "--reasoning-parser": "deepseek_v41",
        "--tool-call-parser": "deepseek_v41",
        "--enable-auto-tool-choice": True,
        "--language-model-only": True,
        "--max-model-len": 1_048_576,
        "--safetensors-load-strategy": "prefetch",
        "--enable-request-id-headers": True,
        "--enable-server-load-tracking": True,
    }
}
"""The launch lines that go with a model; what `flags` state too is left out of them."""


def check(engine: "Vllm") -> None:
    """Raises ValueError where the knobs of an engine contradict each other, or hold a secret."""
    lines = {"launcher": engine.launcher or "", "router": engine.router or ""}
    words = [word for line in lines.values() for word in ("--", *line.split())]
    own = (*engine.flags, *engine.prefill_flags, *engine.decode_flags)
    settings = {"environment": engine.environment, "model": engine.model, **lines}
    if refused := secret([*own, *words], settings):
        raise ValueError(refused)
    if engine.forced_outputs and engine.speculation:
        raise ValueError(
            "forced_outputs and speculation exclude each other, since vLLM forces no output where "
            "a draft model runs: remove one"
        )
    longest = engine.draft_tokens + 1
    if not 1 <= engine.acceptance_length <= longest:
        raise ValueError(
            f"acceptance_length {engine.acceptance_length:g} cannot be with {engine.draft_tokens} "
            f"draft tokens: write 1 to {longest}"
        )
    if engine.redundant_experts and not engine.eplb:
        raise ValueError("redundant_experts are for load balancing only: write eplb: true")
    if engine.sparse_logits and engine.index_format not in {None, "mxfp4"}:
        raise ValueError("sparse_logits needs index_format mxfp4: write that or remove it")


def secret(words: Sequence[str], settings: Mapping[str, Any]) -> str | None:
    """Why a flag with its value, or a setting, must not be stated; None where none is secret."""
    named: list[str | None] = [*passwords(" ".join(words))]
    for word, following in pairwise([*words, "--"]):
        if given := re.match(r"['\"]*(-*\w[\w.-]*)=(.*)", word, re.DOTALL):
            named.append(stated({given[1]: given[2]}))
        elif word.startswith("-"):
            value = "" if following.startswith("--") else following
            # A short option may have its value in the same word.
            named.append(stated({word: value}) and (word if word.startswith("--") else word[:2]))
        else:
            named.append(stated({BARE: word}))
    name = next(filter(None, [*named, stated(settings)]), None)
    return name and (
        f"{name} holds a secret, and a suite is copied into every run folder: set it as a variable "
        "where paceline is started, which servers inherit"
    )


def knobs(engine: "Vllm", replay: Replay | None, topology: Topology) -> Options:
    """The flags of the replay arm and of everything that the engine states by name.

    Raises UnsupportedError where they cannot be had together.
    """
    _together(engine, replay, topology)
    pinned = engine.capture_size or (CAPTURE_SIZE if replay else None)
    options: Options = {
        REPLAY[replay] if replay else "": bool(replay),
        "--compilation-config": _compilation(engine, replay),
        "--enforce-eager": engine.graphs == "eager",
        "--max-cudagraph-capture-size": None if engine.graphs == "eager" else pinned,
        "--max-num-batched-tokens": engine.max_batched_tokens,
        "--max-num-seqs": engine.max_sequences,
        "--gpu-memory-utilization": engine.resident_share,
        "--kv-cache-memory-bytes": engine.kv_cache_memory_bytes,
        _caching(engine): engine.prefix_caching is not None,
        "--attention-backend": engine.attention,
        "--kv-cache-dtype": engine.kv_format,
        "--attention-config": _attention(engine),
        "--moe-backend": engine.moe,
        "--engram-config": _engram(engine.engram, topology),
        "--speculative-config": _speculation(engine),
        "--enable-eplb": engine.eplb,
        "--eplb-config": _balancing(engine),
        "--enable-trace-replay": engine.forced_outputs,
        "--enable-scale-out": engine.forced_outputs,
    }
    return {flag: value for flag, value in options.items() if value not in (None, False, {})}


def made_up(engine: "Vllm", deployment: Deployment) -> bool:
    """Whether drafts are accepted as often as is stated, whatever they say."""
    flags = " ".join([*engine.flags, *deployment.flags])
    stated = "synthetic_acceptance" in flags or '"synthetic"' in flags
    return engine.speculation == "synthetic" or stated


def recipe(engine: "Vllm", topology: Topology) -> Options:
    """The launch line that goes with the model, if one is stated."""
    if not engine.recipe:
        return {}
    spread = {"--enable-ep-weight-filter": True} if topology.experts else {}
    return {**_RECIPES[engine.recipe], **spread}


def words(options: Options) -> list[str]:
    """The options as words of a command line."""
    made: list[str] = []
    for flag, value in options.items():
        told = json.dumps(value) if isinstance(value, Mapping) else str(value)
        made += [flag] if value is True else [flag, told]
    return made


def variables(
    engine: "Vllm", deployment: Deployment, around: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a server: ours, that of its place, of knobs and recipe, the suite's."""
    partition = ",".join(map(str, engine.layer_partition))
    return {
        **SURROUNDINGS,
        **(around or {}),
        **({"VLLM_ENGINE_READY_TIMEOUT_S": "3600"} if engine.recipe else {}),
        **({"VLLM_PP_LAYER_PARTITION": partition} if partition else {}),
        **engine.environment,
        **deployment.environment,
    }


def _together(engine: "Vllm", replay: Replay | None, topology: Topology) -> None:
    """Raises UnsupportedError where knobs do not go with the arm or the topology."""
    if replay == "on" and engine.graphs in {"eager", "NONE"}:
        raise UnsupportedError(
            f"replay on has graphs of its own, and graphs {engine.graphs} captures none: write "
            "replay: on-eager, or other graphs"
        )
    needing = "eplb" if engine.eplb else f"moe {_MEGA_MOE}" if engine.moe == _MEGA_MOE else None
    if needing and not topology.experts:
        raise UnsupportedError(
            f"{needing} needs experts that are spread over ranks, and {topology.name} has none: "
            "write a topology such as DEP2"
        )


def _caching(engine: "Vllm") -> str:
    return f"--{'' if engine.prefix_caching else 'no-'}enable-prefix-caching"


def _compilation(engine: "Vllm", replay: Replay | None) -> Options:
    """One mapping for all, because a second flag would undo the first."""
    eager = {"cudagraph_decoder_replay": False} if replay == "on-eager" else {}
    mode = engine.graphs if engine.graphs != "eager" else None
    return {**eager, **({"cudagraph_mode": mode} if mode else {})}


def _attention(engine: "Vllm") -> Options:
    kept = engine.index_format or ("mxfp4" if engine.sparse_logits else None)
    sparse = engine.sparse_logits
    return {
        **({"indexer_kv_dtype": kept} if kept else {}),
        **({"indexer_sparse_logits": sparse} if sparse is not None else {}),
    }


def _engram(placement: Engram | None, topology: Topology) -> Options:
    match placement:
        case None:
            return {}
        case "device":
            return {"cpu_offload": False}
        case "host":
            return {"cpu_offload": True}
        case "host-private":
            return {"cpu_offload": True, "dp_shared_memory": False}
        case "host-thp":
            # Huge pages back private tables only, and replicas share theirs unless told otherwise.
            private = {"dp_shared_memory": False} if topology.data > 1 else {}
            return {"cpu_offload": True, "use_thp": True, **private}
        case "across-ranks":
            return {"cpu_offload": True, "embedding_across_dp": True}


def _speculation(engine: "Vllm") -> Options:
    """DSpark: with an acceptance length that is made up, for speed, or with that of the drafts."""
    drafted = {
        "method": "dspark",
        "num_speculative_tokens": engine.draft_tokens,
        "draft_sample_method": "probabilistic",
    }
    match engine.speculation:
        case None:
            return {}
        case "synthetic":
            return {
                **drafted,
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": engine.acceptance_length,
                "enable_adaptive_verification": False,
            }
        case "real":
            return {
                **drafted,
                "rejection_sample_method": "block",
                "enable_adaptive_verification": True,
            }


def _balancing(engine: "Vllm") -> Options:
    if not engine.eplb:
        return {}
    return {
        "window_size": engine.rebalance_window,
        "step_interval": engine.rebalance_interval,
        "num_redundant_experts": engine.redundant_experts,
        "log_balancedness": True,
        "log_balancedness_interval": 1,
        "use_async": True,
    }
