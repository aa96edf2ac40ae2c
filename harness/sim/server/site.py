"""What a simulated server is: what it simulates, how it speaks, and where it listens."""

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson

from harness.engine import Deployment, Replay
from harness.sim.answers import Accuracy
from harness.sim.cost import even
from harness.sim.engine import SimulatedEngine
from harness.sim.machine import Settings
from harness.sim.server import faults as script
from harness.sim.server.faults import Fault
from harness.topology import Topology, parse
from results.errors import InputError

T = TypeVar("T")

ReasoningKey = Literal["reasoning", "reasoning_content"]

REPLAYS: tuple[Replay, ...] = ("off", "on-eager", "on")
KEYS: tuple[ReasoningKey, ...] = ("reasoning", "reasoning_content")

VERSION = "0.33.0+paceline.simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One server. `log` is where the truth goes; `key` is shown nowhere.

    Thinking answers begin with a `reasoning_share` of reasoning; `tool_calls` answers with a call
    of the first tool where a chat offers any. `tokenizer` is a `tokenizer.json` or its folder.
    Chats that end with a question of the file `answers` are answered as its key has it.
    """

    engine: SimulatedEngine
    topology: Topology
    replay: Replay = "on"
    seed: int = 0
    model: str = "simulated"
    host: str = "127.0.0.1"
    port: int = 0
    log: Path | None = None
    faults: tuple[Fault, ...] = ()
    key: str | None = field(default=None, repr=False)
    tokenizer: Path | None = None
    reasoning_share: float = 0.5
    reasoning_key: ReasoningKey = "reasoning"
    tool_calls: bool = False
    answers: Path | None = None

    @property
    def settings(self) -> Settings:
        """What each rank is."""
        deployment = Deployment(engine=self.engine, topology=self.topology, replay=self.replay)
        return self.engine.settings(deployment)

    @property
    def configuration(self) -> dict[str, Any]:
        """All that decides its answers and their speed."""
        return {
            "engine": asdict(self.engine),
            "topology": self.topology.name,
            "ranks": self.topology.ranks,
            "replay": self.replay,
            "seed": self.seed,
            "model": self.model,
            "tokenizer": self.tokenizer and str(self.tokenizer),
            "answers": self.answers and str(self.answers),
        }

    @property
    def fingerprint(self) -> str:
        """A name for that, as vLLM puts one into every frame."""
        digest = hashlib.sha256(orjson.dumps(self.configuration)).hexdigest()[:8]
        return f"paceline-sim-{self.topology.name}-{digest}"

    def facts(self) -> dict[str, Any]:
        """What `/server_info` says, in the shape of vLLM's."""
        topology, engine = self.topology, self.engine
        return {
            "simulated": True,
            "configuration": self.configuration,
            "vllm_config": {
                "model_config": {"model": self.model, "max_model_len": engine.context_limit},
                "parallel_config": {
                    "tensor_parallel_size": topology.tensor,
                    "pipeline_parallel_size": topology.pipeline,
                    "data_parallel_size": topology.data,
                    "enable_expert_parallel": topology.experts,
                },
                "cache_config": {
                    "block_size": engine.block_size,
                    "num_gpu_blocks": self.settings.blocks,
                    "enable_prefix_caching": True,
                },
                "scheduler_config": {
                    "max_num_seqs": engine.max_sequences,
                    "max_num_batched_tokens": engine.max_batched_tokens,
                },
                "speculative_config": {"num_speculative_tokens": engine.draft_tokens}
                if engine.draft_tokens
                else None,
            },
        }


def site(
    *,
    engine: dict[str, Any],
    topology: str,
    replay: str,
    reasoning_key: str,
    pace: float | None,
    faults: Path | None,
    accuracy: dict[str, float] | None = None,
    **settings: Any,
) -> Site:
    """The site that a command line asks for; `pace` makes every step equally long.

    Raises InputError where a value cannot be used.
    """
    if pace is not None:
        engine["cost"] = even((engine["acceptance_length"] or 1.0) / pace)
    try:
        made = SimulatedEngine(accuracy=Accuracy(**accuracy) if accuracy else None, **engine)
    except ValueError as error:
        raise InputError(str(error)) from error
    return Site(
        engine=made,
        topology=_one_engine(topology),
        replay=_one_of("--replay", replay, REPLAYS),
        reasoning_key=_one_of("--reasoning-key", reasoning_key, KEYS),
        faults=script.read(faults) if faults else (),
        **settings,
    )


def _one_engine(written: str) -> Topology:
    """The topology of that name, which has no pools: the server is one engine."""
    found = parse(written)
    if found.pools:
        raise InputError(
            f"--topology: expected one engine such as TP4 or DEP2, got two pools, {written}: the "
            "simulated server has none"
        )
    return found


def _one_of(option: str, value: str, known: tuple[T, ...]) -> T:
    for name in known:
        if name == value:
            return name
    raise InputError(f'{option}: expected one of {", ".join(map(str, known))}, got "{value}"')
