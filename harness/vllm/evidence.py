"""What a vLLM turned out to be, by its log and by what it says of its configuration.

A flag is no proof: replay switches itself off with a warning, and kernels choose themselves. The
front end's copy of the configuration is none either where the engine core decides, as it does over
the graphs of replay; there the log is the evidence, and a line that is absent counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from harness.engine import Deployment
from harness.vllm.flags import long
from harness.vllm.log import bare

MOST = 64
"""How many lines of one kind are kept: each rank writes its own."""

LINES = {
    "decoder": r"Decoder SWA bounded replay: in eager prefill steps, layer \d+ ",
    "decoder off": r"Decoder SWA bounded replay is off: .+",
    "encoder off": r"(?<!Decoder )SWA bounded replay (needs model runner V2|is off (under|on) )",
    "graphs": r"Capturing decoder replay CUDA graphs",
    "graphs changed": r"(?i)cudagraph.?mode\b.*(?:setting cudagraph_mode=|overriding to )([.\w]+)",
    "breakable": r"Auto-enabling VLLM_USE_BREAKABLE_CUDAGRAPH=1|Breakable CUDA graph enabled",
    "kv_format": r"Using DeepSeek's (\S+) KV cache format",
    "attention": r"Using (\w+) attention backend out of|cache block size to \d+ for (\S+) backend",
    "experts": r"Using '?([\w ]+?)'? \w+ MoE backend",
    "all2all": r"Using (\w+) all2all manager",
    "collectives": r"Using \[(.*?)\] all-reduce backends",
    "nccl": r"vLLM is using nccl==(\S+)",
    "expert_parallel": r"Expert parallelism is enabled",
    "sparse_logits": r"candidate consumers score only the candidate blocks",
    "fused_all_reduce": r"Lamport all-reduce fused with mHC for up to (\d+) tokens",
    "specialized_decode": r"specialized decode on, ",
    "engram": r"Resolved Engram configuration: (.+)",
    "huge pages failed": r"Engram (huge-page allocation|MADV_COLLAPSE) failed",
    "kv_tokens": r"KV cache size: ([\d,]+) tokens",
    "jit": r" during inference: .* This causes a latency spike",
}
"""Patterns of the lines that prove something; a group is what they prove."""

WHOLE = "kv_tokens"
"""The line without which a log shows no whole start, so that nothing is proven by absence."""

COUNTS = {
    "max_sequences": ("--max-num-seqs", "scheduler_config", "max_num_seqs"),
    "max_batched_tokens": (
        "--max-num-batched-tokens",
        "scheduler_config",
        "max_num_batched_tokens",
    ),
    "max_model_len": ("--max-model-len", "model_config", "max_model_len"),
    "capture_size": (
        "--max-cudagraph-capture-size",
        "compilation_config",
        "max_cudagraph_capture_size",
    ),
}
"""Settings that must be as their flags say, and where the server tells them."""

KERNELS = {
    "attention": ("--attention-backend", "attention_config", "backend"),
    "kv_format": ("--kv-cache-dtype", "cache_config", "cache_dtype"),
    "moe": ("--moe-backend", "kernel_config", "moe_backend"),
}
"""What chooses itself where no flag does, and where the server tells what it was told."""

SWITCHES = {
    "expert_parallel": "--enable-expert-parallel",
    "eplb": "--enable-eplb",
    "forced_outputs": "--enable-trace-replay",
}
"""What a flag alone asks for."""

GRAPHS = {
    "0": "NONE",
    "1": "PIECEWISE",
    "2": "FULL",
    "[2, 0]": "FULL_DECODE_ONLY",
    "[2, 1]": "FULL_AND_PIECEWISE",
}
"""The modes of CUDA graphs by the numbers that a server tells for them."""

TOLD_ONLY = frozenset(
    (*COUNTS, "moe", "eplb", "speculative", "forced_outputs", "prefix_caching", "graphs")
)
"""What no line of the log shows, and only a server that tells its configuration."""

Told = Mapping[str, Sequence[re.Match[str]]]
"""The lines of a log that prove something, by what it is."""

_LINES = {name: re.compile(pattern) for name, pattern in LINES.items()}


def told(lines: Iterable[str]) -> Told:
    """The lines that prove something, in their order."""
    found: dict[str, list[re.Match[str]]] = {name: [] for name in _LINES}
    for line in lines:
        for name, pattern in _LINES.items():
            if len(found[name]) < MOST and (match := pattern.search(line)):
                found[name].append(match)
    return found


def requested(deployment: Deployment, command: Sequence[str]) -> dict[str, Any]:
    """What was asked for and can be looked for, by name."""
    flags = stated(command)
    asked: dict[str, Any] = {"replay": deployment.replay} if deployment.replay else {}
    for name, (flag, *_) in COUNTS.items():
        if (value := flags.get(flag, "")).isdigit():
            asked[name] = int(value)
    for name, (flag, *_) in KERNELS.items():
        # `fp8` leaves the format to the backend, and `auto` everything.
        if (kernel := flags.get(flag, "auto").lower()) not in {"auto", "fp8"}:
            asked[name] = kernel
    asked |= {name: True for name, flag in SWITCHES.items() if flag in flags}
    if caching := [word for word in command if long(word) == "--enable-prefix-caching"]:
        asked["prefix_caching"] = not caching[-1].startswith("--no-")
    asked |= _graphs_asked(flags, asked)
    if attention := _json(flags.get("--attention-config")):
        asked |= {"sparse_logits": True} if attention.get("indexer_sparse_logits") is True else {}
    if speculative := _json(flags.get("--speculative-config")):
        asked |= {"speculative": speculative["method"]} if "method" in speculative else {}
    if _json(flags.get("--additional-config")).get("decode_backend") == "latency_specialized":
        asked["specialized_decode"] = True
    return asked


def _graphs_asked(flags: Mapping[str, str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The mode of CUDA graphs, where one is stated, and the largest of them that there can be."""
    mode = _json(flags.get("--compilation-config")).get("cudagraph_mode")
    mode = "NONE" if "--enforce-eager" in flags else mode
    told = {"graphs": mode.upper()} if isinstance(mode, str) else {}
    if "capture_size" not in asked:
        return told
    # No graph is larger than a step.
    most = 0 if mode == "NONE" else asked.get("max_batched_tokens", asked["capture_size"])
    return {**told, "capture_size": min(asked["capture_size"], most)}


def observed(found: Told, config: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What can be said of each of what was asked, and of the kernels; what is unknown is absent."""
    seen: dict[str, Any] = {
        name: value
        for name, (_, section, key) in COUNTS.items()
        if isinstance(value := _section(config, section).get(key), int)
    }
    kernels = {name: _kernel(name, found, config, asked.get(name)) for name in KERNELS}
    seen |= {name: kernel for name, kernel in kernels.items() if kernel}
    switches = {
        "expert_parallel": _proven("expert_parallel", found),
        "sparse_logits": _proven("sparse_logits", found),
        "specialized_decode": _proven("specialized_decode", found),
        "eplb": _section(config, "parallel_config").get("enable_eplb"),
        "forced_outputs": _section(config, "model_config").get("enable_trace_replay"),
        "speculative": _section(config, "speculative_config").get("method"),
        "prefix_caching": _section(config, "cache_config").get("enable_prefix_caching"),
        "graphs": _graphs(found, config),
    }
    seen |= {name: switches[name] for name in asked if switches.get(name) is not None}
    replay = replay_of(found, config) if found["kv_format"] or "replay" in asked else None
    return seen if replay is None else {**seen, "replay": replay}


def replay_of(found: Told, config: Mapping[str, Any]) -> str | None:
    """The replay arm that runs, or which half of it; None where the log does not show it.

    The encoder's side re-runs the last tokens of a prefix hit, the decoder's runs the later layers
    on the last tokens only.
    """
    if not found[WHOLE] and not found["decoder"]:
        return None
    allowed = _section(config, "cache_config").get("swa_bounded_replay")
    encoder = not found["encoder off"] and allowed is not False
    if not found["decoder"] or found["decoder off"]:
        # Only V4.1 has what the flag, which is set by default, is about.
        return "encoder only" if encoder and allowed and found["kv_format"] else "off"
    if not encoder:
        return "decoder only"
    return "on" if found["graphs"] else "on-eager"


def proofs(
    found: Told, asked: Mapping[str, Any], seen: Mapping[str, Any], log: str
) -> dict[str, str]:
    """For everything that is not as it was asked, the line that proves it, or that is absent."""
    apart = [name for name, value in asked.items() if name in seen and seen[name] != value]
    return {name: _proof(name, found, asked[name], seen[name], log) for name in apart}


def faults(found: Told, gpus: int, held: Sequence[str] | None, log: str) -> list[str]:
    """Sentences on why it is not what its topology and its configuration claim.

    `held` are the GPUs whose memory it took, where that is known.
    """
    told = []
    idle = [line for line in found["collectives"] if not line[1].strip()]
    if gpus > 1 and idle:
        told.append(
            f"its {gpus} GPUs do not work together as they should: {_quoted(idle[0], log)}: the "
            "NCCL that vLLM asks for is missing"
        )
    if held is not None and len(held) != gpus:
        names = ", ".join(held) or "none"
        told.append(f"GPUs: it took memory of {len(held)} ({names}), asked for {gpus}")
    if found["huge pages failed"]:
        line = _quoted(found["huge pages failed"][0], log)
        told.append(f"the Engram tables lie on small pages: {line}")
    return told


def remarks(found: Told) -> dict[str, Any]:
    """What else the log says, by name: what nobody asks for, and what another start changes."""
    values = {name: [_group(match) for match in found[name]] for name in _LINES}
    remarks: dict[str, Any] = {
        "kv_tokens": [int(value.replace(",", "")) for value in values["kv_tokens"]],
        "compiled_while_serving": len(values["jit"]),
        **{
            name: values[name][0]
            for name in ("engram", "experts", "nccl", "all2all", "collectives", "fused_all_reduce")
            if values[name]
        },
    }
    switches = ("breakable", "sparse_logits", "expert_parallel", "specialized_decode")
    return remarks | {name: True for name in switches if found[name]}


def stated(command: Sequence[str]) -> dict[str, str]:
    """The flags of a command line, long and with hyphens, each with its last value.

    A setting of a group is the group's: `-cc.mode 0` is not told.
    """
    flags: dict[str, str] = {}
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if not word.startswith("-") or word[1:2].isdigit():
            continue
        name, given, value = word.partition("=")
        if name.startswith("--no-"):
            flags.pop(long(name), None)
        elif "." not in name:
            flags[long(name)] = value if given else following
    return flags


def _json(text: str | None) -> dict[str, Any]:
    """The mapping that a flag's value is; empty where it is none."""
    try:
        value = orjson.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _kernel(name: str, found: Told, config: Mapping[str, Any], asked: object) -> str | None:
    """The kernel that the log names, else the one that the configuration states.

    Where the log names several, for several kinds of layers, it is the one that was asked for, or
    the first.
    """
    if lines := found.get(name):
        named = _group(lines[-1]).lower().split("/")
        return str(asked) if asked in named else named[0]
    _, section, key = KERNELS[name]
    value = _section(config, section).get(key)
    return value.lower() if isinstance(value, str) and value.lower() != "auto" else None


def _graphs(found: Told, config: Mapping[str, Any]) -> str | None:
    """The mode of CUDA graphs, as the log says that it was changed, else as it is told."""
    if changed := found["graphs changed"]:
        return _group(changed[-1]).strip(".").rpartition(".")[2].upper()
    told = _section(config, "compilation_config").get("cudagraph_mode")
    return GRAPHS.get(str(told))


def _proven(name: str, found: Told) -> bool | None:
    """Whether there is a line for it; None where its absence would prove nothing."""
    return True if found[name] else False if found[WHOLE] else None


def _proof(name: str, found: Told, asked: Any, seen: Any, log: str) -> str:
    if name == "replay":
        return _replay_proof(found, str(asked), str(seen), log)
    if found.get(shown := "graphs changed" if name == "graphs" else name):
        return _quoted(found[shown][-1], log)
    if name in {"expert_parallel", "sparse_logits", "specialized_decode"}:
        return f'{log} has no line "{_words(name)}"'
    return "/server_info says so"


def _replay_proof(found: Told, asked: str, seen: str, log: str) -> str:
    """The line by which it is known what replays, or that is absent."""
    if line := found["decoder off"] or found["encoder off"]:
        return _quoted(line[0], log)
    if seen in {"off", "encoder only"}:
        return f'{log} has no line "{_words("decoder")}"'
    if seen == "on-eager" and asked == "on":
        return f'{log} has no line "{_words("graphs")}"'
    graphs = found["graphs"] if asked == "on-eager" else ()
    return _quoted((graphs or found["decoder"])[0], log)


def _words(name: str) -> str:
    """A pattern as it reads."""
    return re.split(r"[\\(]", LINES[name])[0].strip().rstrip(",")


def _quoted(match: re.Match[str], log: str) -> str:
    return f'{log} says "{bare(match.string)}"'


def _group(match: re.Match[str]) -> str:
    return next((group.strip() for group in match.groups() if group), "")
