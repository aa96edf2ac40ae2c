"""What the simulated server shows of itself under `/metrics`, with vLLM's names."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from harness.sim.server.wall import Pump

Sample = tuple[str, float]
"""More labels, and a number."""

Read = Callable[[Pump], Iterable[Sample]]

_REASONS = ("stop", "length", "abort", "error")


def _one(number: Callable[[Pump], float]) -> Read:
    return lambda pump: [("", number(pump))]


def _ended(pump: Pump) -> list[Sample]:
    return [(f',finished_reason="{reason}"', pump.totals.ended[reason]) for reason in _REASONS]


def _sources(pump: Pump) -> list[Sample]:
    totals = pump.totals
    computed = totals.prompt - totals.cached
    shares = {
        "local_compute": computed,
        "local_cache_hit": totals.cached,
        "external_kv_transfer": 0,
    }
    return [(f',source="{source}"', tokens) for source, tokens in shares.items()]


def _positions(pump: Pump) -> list[Sample]:
    counts = enumerate(pump.totals.accepted)
    return [(f',position="{position}"', tokens) for position, tokens in counts]


def _configuration(pump: Pump) -> list[Sample]:
    settings = pump.machine.settings
    sizes = f',block_size="{settings.block_size}",num_gpu_blocks="{settings.blocks}"'
    return [(f'{sizes},enable_prefix_caching="True"', 1)]


_GAUGES: dict[str, Read] = {
    "num_requests_running": _one(lambda pump: pump.load[1]),
    "num_requests_waiting": _one(lambda pump: pump.load[0]),
    "kv_cache_usage_perc": _one(lambda pump: pump.machine.usage),
    "cache_config_info": _configuration,
}
_COUNTERS: dict[str, Read] = {
    "prefix_cache_queries": _one(lambda pump: pump.totals.queried),
    "prefix_cache_hits": _one(lambda pump: pump.totals.hit),
    "prompt_tokens": _one(lambda pump: pump.totals.prompt),
    "prompt_tokens_cached": _one(lambda pump: pump.totals.cached),
    "prompt_tokens_by_source": _sources,
    "generation_tokens": _one(lambda pump: pump.totals.generated),
    "request_success": _ended,
    "num_preemptions": _one(lambda pump: pump.totals.preemptions),
}
_SPECULATION: dict[str, Read] = {
    "spec_decode_num_drafts": _one(lambda pump: pump.totals.drafts),
    "spec_decode_num_draft_tokens": _one(
        lambda pump: pump.totals.drafts * len(pump.totals.accepted)
    ),
    "spec_decode_num_accepted_tokens": _one(lambda pump: sum(pump.totals.accepted)),
    "spec_decode_num_accepted_tokens_per_pos": _positions,
}


def exposition(pumps: Sequence[Pump], model: str) -> str:
    """Prometheus' text format, with an `engine` label for each rank."""
    counters = _COUNTERS | (_SPECULATION if pumps[0].totals.accepted else {})
    parts = [_metric(name, "gauge", read, pumps, model) for name, read in _GAUGES.items()]
    parts += [_metric(name, "counter", read, pumps, model) for name, read in counters.items()]
    return "".join(parts)


def _metric(
    name: str, kind: Literal["gauge", "counter"], read: Read, pumps: Sequence[Pump], model: str
) -> str:
    sample = f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}"
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    lines = [f"# HELP {sample} SIMULATED {name.replace('_', ' ')}.", f"# TYPE {sample} {kind}"]
    for rank, pump in enumerate(pumps):
        labels = f'engine="{rank}",model_name="{escaped}"'
        lines += [f"{sample}{{{labels}{more}}} {float(number)}" for more, number in read(pump)]
    return "\n".join([*lines, ""])
