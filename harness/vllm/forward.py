"""Steps of a model timed alone by `vllm bench forward`: no server, no scheduler, no sampling."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from harness import gpus, processes
from harness.clock import now
from harness.engine import Deployment
from harness.vllm import birth, devices, evidence, flags, knobs
from harness.vllm.command import degrees, refuse_twice
from harness.vllm.flags import Offer
from harness.vllm.knobs import Options
from harness.vllm.log import read, telling
from harness.vllm.shape import misfits, shape_of
from results import steps
from results.errors import EngineError, UnsupportedError
from results.evidence import Observed
from workloads.forward import Forward, Step

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm

TOOL = "bench forward"

OUTPUT = "forward.json"
"""The file in which all that the tool tells is kept, beside its log."""

PAUSE = 1.0
"""Seconds between two looks at whether its log grows."""

REPLAYED = 1024
"""Tokens that a request behind a cached prefix may compute more, since it re-runs the last ones."""

SERVED = frozenset(
    (
        *("--compilation-config", "--enforce-eager", "--max-cudagraph-capture-size"),
        *("--enable-prefix-caching", "--no-enable-prefix-caching"),
        *("--enable-trace-replay", "--enable-scale-out"),
        *("--tool-call-parser", "--enable-auto-tool-choice"),
        *("--enable-request-id-headers", "--enable-server-load-tracking"),
    )
)
"""Flags of what only a server has: graphs of several sizes, a prefix cache, answers."""

Case = Mapping[str, Any]
"""What the tool tells of one step."""


def command(
    engine: "Vllm",
    deployment: Deployment,
    workload: Forward,
    output: Path,
    known: Offer | None = None,
) -> list[str]:
    """The words that time the steps of a workload, each flag of which must be `known`, if told.

    Raises UnsupportedError where a step, the arm or the topology cannot be had alone.
    """
    _check(engine, deployment, workload)
    topology, model = deployment.topology, engine.model or deployment.model
    for misfit in misfits(engine, topology, shape_of(model)):
        raise UnsupportedError(misfit)
    own = (*engine.flags, *deployment.flags)
    stated = flags.stated(own)
    turned = knobs.knobs(engine, deployment.replay, topology)
    asked = degrees(topology) | turned | _how(workload, output)
    refuse_twice(asked, stated)
    usual = knobs.recipe(engine, topology)
    asked |= {flag: value for flag, value in usual.items() if flag not in stated}
    asked = {flag: value for flag, value in asked.items() if flag not in SERVED}
    words = ["--model", model, *knobs.words(asked), *_cases(workload, topology.data)]
    if known is not None:
        flags.check(words, known, engine.python, TOOL)
    return [*_program(engine.python, topology.gpus), *TOOL.split(), *words, *own]


async def probe(
    engine: "Vllm", deployment: Deployment, workload: Forward, log: Path
) -> tuple[Observed, pa.Table]:
    """What ran, and a row for each run of a step; nothing of it is left afterwards.

    Raises UnsupportedError where the installed vLLM has no such tool, and EngineError where that
    fails, falls silent or cannot be ended.
    """
    variables = knobs.variables(engine, deployment)
    known = await flags.offered(engine.python, TOOL)
    words = command(engine, deployment, workload, log.with_name(OUTPUT), known)
    if engine.provenance == "measured":
        devices.check(deployment.topology, variables)
    build = await birth.installed(engine.python, variables)
    before, began = await gpus.memory(variables), now()
    program = await processes.start(words, variables, log)
    try:
        await _ended(program, log, engine.ready_timeout)
    finally:
        await program.stop(engine.stop_timeout)
        await birth.released(before, variables, engine.stop_timeout)
    told = _told(log)
    observed = _observed(engine, deployment, words, told, log)
    observed.faults.extend(_others(workload, told, deployment.topology.data))
    observed.start["seconds"] = round(now() - began, 3)
    observed.configuration.update({"version": build} if build else {})
    return observed, _rows(workload, told)


def _check(engine: "Vllm", deployment: Deployment, workload: Forward) -> None:
    topology = deployment.topology
    several = engine.gpus_per_node and topology.gpus > engine.gpus_per_node
    if topology.pools or several or engine.launcher:
        raise UnsupportedError(
            f"{topology.name} is to be more than one engine on this machine, and vllm {TOOL} runs "
            "one here: write a topology of one node without pools, and no launcher"
        )
    if deployment.replay == "on-eager":
        raise UnsupportedError(
            f"vllm {TOOL} captures each step in a graph of its own, so replay on-eager and on are "
            "one: write replay: [off, on]"
        )
    if workload.drafts > (engine.draft_tokens if engine.speculation else 0):
        raise UnsupportedError(
            f"{workload.drafts} drafts a step need speculation with as many draft_tokens: state "
            "both, or leave drafts out"
        )
    for step in workload.steps():
        _check_step(engine, step, topology.data)


def _check_step(engine: "Vllm", step: Step, ranks: int) -> None:
    if step.batch % ranks:
        raise UnsupportedError(
            f"a batch of {step.batch} cannot be dealt out evenly to {ranks} ranks: write multiples"
        )
    each = step.batch // ranks
    if engine.max_sequences and each > engine.max_sequences:
        raise UnsupportedError(
            f"{each} requests a rank are more than max_sequences {engine.max_sequences}: raise it"
        )
    again = REPLAYED if step.context and step.fresh > 1 + step.drafts else 0
    tokens = each * (step.fresh + again)
    if engine.max_batched_tokens and tokens > engine.max_batched_tokens:
        raise UnsupportedError(
            f"step {step.name} takes up to {tokens} tokens a rank, more than max_batched_tokens "
            f"{engine.max_batched_tokens}: raise it or leave it out, since nothing is cut in chunks"
        )


def _how(workload: Forward, output: Path) -> Options:
    return {
        # Lengths are drawn around those asked for unless this is 0.
        "--kv-len-jitter": "0",
        "--routing": workload.routing,
        "--iters": workload.iterations,
        "--samples": workload.samples,
        "--output-json": str(output),
    }


def _cases(workload: Forward, ranks: int) -> list[str]:
    """The steps in the tool's words, which count requests a rank: `8x1024+1=8*1@1025`."""
    return [word for step in workload.steps() for word in ("--case", _case(step, ranks))]


def _case(step: Step, ranks: int) -> str:
    drafts = f":{step.drafts}" if step.drafts else ""
    shape = f"{step.batch // ranks}*{step.fresh}@{step.context + step.fresh}{drafts}"
    return f"{step.name}={shape}"


def _program(python: str, ranks: int) -> list[str]:
    """What runs the vllm command: where there are several GPUs, a process for each."""
    if ranks == 1:
        return [python, str(flags.vllm_of(python))]
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    return [python, *launcher, "-m", "vllm.entrypoints.cli.main"]


async def _ended(program: processes.Program, log: Path, silence: float) -> None:
    """Waits for its end. Raises EngineError where it fails or says nothing for so many seconds."""
    said, since = 0, now()
    while not program.exit.done():
        await asyncio.wait({program.exit}, timeout=PAUSE)
        size = log.stat().st_size  # noqa: ASYNC240
        said, since = size, now() if size > said else since
        if now() - since > silence:
            raise EngineError(f"vllm {TOOL} says nothing for {silence:g} s: {telling(log)}")
    if program.status != "status 0":
        raise EngineError(f"vllm {TOOL} ended with {program.status}: {telling(log)}")


def _told(log: Path) -> list[Case]:
    output = log.with_name(OUTPUT)
    try:
        told = orjson.loads(output.read_bytes())
        unread = [one for one in told if not _readable(one)]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f"vllm {TOOL} left nothing to read in {output} ({error!r}): {telling(log)}"
        ) from error
    if unread:
        raise EngineError(
            f"vllm {TOOL} told requests or times in {output} in a form that is not known here, "
            "such as another version's: state an environment whose vLLM is 0.33.0"
        )
    cases: list[Case] = told
    return cases


def _readable(case: Case) -> bool:
    """Whether its requests and ranks are mappings, and the times of its runs are times."""
    requests, ranks = case["requests"], case["ranks"]
    times = ranks[0]["latency_us"]["samples_us"]
    parts = all(isinstance(one, dict) for one in (*requests, *ranks))
    return parts and all(isinstance(time, int | float) and time > 0 for time in times)


def _rows(workload: Forward, told: Sequence[Case]) -> pa.Table:
    """A row for each run of a step, with what was asked for."""
    rows = [
        {
            "batch": step.batch,
            "context_tokens": step.context,
            "new_tokens": step.fresh,
            "draft_tokens": step.drafts,
            "sample": number // workload.iterations,
            "microseconds": time,
        }
        for step, one in zip(workload.steps(), told, strict=False)
        for number, time in enumerate(one["ranks"][0]["latency_us"]["samples_us"])
    ]
    return pa.Table.from_pylist(rows, schema=steps.SCHEMA)


def _others(workload: Forward, told: Sequence[Case], ranks: int) -> list[str]:
    """Sentences on steps that are not those that were asked for."""
    asked = [
        [(step.fresh, step.context + step.fresh, step.drafts)] * (step.batch // ranks)
        for step in workload.steps()
    ]
    ran = [
        [(one.get("query_len"), one.get("kv_len"), one.get("num_draft_tokens")) for one in requests]
        for requests in (case["requests"] for case in told)
    ]
    names = [step.name for step in workload.steps()]
    if len(ran) != len(asked):
        return [f"{len(ran)} steps were timed, and {len(asked)} were asked for"]
    pairs = zip(names, asked, ran, strict=True)
    timed = [len(case["ranks"][0]["latency_us"]["samples_us"]) for case in told]
    fewest = max((*timed, workload.samples))
    return [
        *(
            f"step {name} ran with other requests than asked for"
            for name, one, two in pairs
            if one != two
        ),
        *(
            f"step {name} was timed {count} times, and other steps, or samples, are {fewest}"
            for name, count in zip(names, timed, strict=True)
            if count < fewest
        ),
    ]


def _observed(
    engine: "Vllm", deployment: Deployment, words: Sequence[str], told: Sequence[Case], log: Path
) -> Observed:
    found = evidence.told(read(log))
    asked = {
        name: value
        for name, value in evidence.requested(deployment, words).items()
        if name not in evidence.TOLD_ONLY
    }
    shown = evidence.observed(found, {}, asked)
    if shown.get("replay") == "on-eager":
        shown["replay"] = "on"
    first = [case["ranks"][0] for case in told]
    return Observed(
        provenance=engine.provenance,
        gpus=max((len(case["ranks"]) for case in told), default=None),
        requested=asked,
        features=shown,
        configuration={
            # Where it writes to is no part of what it does.
            "command": shlex.join(
                OUTPUT if word == str(log.with_name(OUTPUT)) else word for word in words
            ),
            "routing": _all(first, "routing"),
            "timing_scope": _all(first, "timing_scope"),
        },
        proofs=evidence.proofs(found, asked, shown, log.name),
        faults=evidence.faults(found, deployment.topology.gpus, None, log.name),
        start={
            **evidence.remarks(found),
            "graph_deterministic": _all(first, "graph_deterministic"),
            "finite": _all(first, "finite"),
        },
    )


def _all(ranks: Sequence[Case], name: str) -> Any:
    """What all steps have in common; a list where they differ."""
    values = [one.get(name) for one in ranks]
    return values[0] if values and all(one == values[0] for one in values) else values
