"""What a step of the simulated engine takes: one pure function and its constants."""

from dataclasses import dataclass
from math import log2
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from harness.topology import Topology

Duration = Annotated[float, Ge(0), Le(100)]
Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds a unit of work takes: plausible, and not a prediction of any machine.

    The defaults follow, within a few per cent, cold prefills of 4K to 64K tokens and decodes of 1
    to 64 rows measured with vLLM 0.33 on one H200 with DeepSeek-V4.1 shrunk to 16 experts. They
    leave out that its 1K prompt took as long as its 4K prompt. Spreading over GPUs is not fitted.

    host: every step, whatever is in it. weights: reading them, every step; `expert_share` of it is
    divided among the ranks of a DEP topology.
    prefill_host, prefill_token, prefill_pair: a step with prompt tokens, each such token through
    all layers, and each (token, earlier token) pair it attends to.
    upper_share: the layers above the cut of SWA bounded replay, 20 of 40.
    eager_host: added to a step of fewer than `eager_below` prompt tokens where replay has no
    graphs.
    decode_row, draft_token, context_token: each row, each draft token verified, each token of
    context that is read.
    efficiency: what each further GPU of a rank adds, the first being 1.
    collective: every step, for each doubling of the GPUs that have to agree.
    """

    host: Duration = 6.7e-3
    weights: Duration = 2.4e-3
    expert_share: Share = 0.7
    prefill_host: Duration = 31e-3
    prefill_token: Duration = 61e-6
    prefill_pair: Duration = 1.6e-10
    upper_share: Share = 0.5
    eager_host: Duration = 30e-3
    eager_below: Annotated[int, Ge(0), Le(1_000_000_000)] = 8192
    decode_row: Duration = 0.235e-3
    draft_token: Duration = 20e-6
    context_token: Duration = 2e-10
    efficiency: Annotated[float, Gt(0), Le(1)] = 0.8
    collective: Duration = 0.3e-3


def even(seconds: float) -> Cost:
    """A cost under which every step takes as long, whatever is in it."""
    return Cost(
        host=seconds,
        weights=0.0,
        prefill_host=0.0,
        prefill_token=0.0,
        prefill_pair=0.0,
        eager_host=0.0,
        decode_row=0.0,
        draft_token=0.0,
        context_token=0.0,
        collective=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What a run of steps of equal composition computes; only `context` differs between them.

    `upper_tokens` and `upper_pairs` are what passes the layers above the cut. `context` has one
    entry a step: the tokens that its decode rows read.
    """

    context: NDArray[np.int64]
    rows: int = 0
    drafts: int = 0
    tokens: int = 0
    pairs: int = 0
    upper_tokens: int = 0
    upper_pairs: int = 0
    eager: bool = False


def step_seconds(cost: Cost, topology: Topology, work: Work) -> NDArray[np.float64]:
    """How long each of the steps takes, one entry a step.

    Prefill chunks keep every pipeline stage busy; a decode step passes them one after another.
    """
    prefill = _prefill(cost, work) / _speed(cost, topology.tensor * topology.pipeline)
    rows = cost.decode_row * work.rows + cost.draft_token * work.drafts
    decode = (rows + cost.context_token * work.context) / _speed(cost, topology.tensor)
    floor = cost.host + _weights(cost, topology) + _collectives(cost, topology)
    if work.tokens:
        floor += cost.prefill_host
    if work.eager and 0 < work.tokens < cost.eager_below:
        floor += cost.eager_host
    return np.asarray(floor + prefill + decode, dtype=np.float64)


def _prefill(cost: Cost, work: Work) -> float:
    upper = cost.upper_share
    tokens = (1 - upper) * work.tokens + upper * work.upper_tokens
    pairs = (1 - upper) * work.pairs + upper * work.upper_pairs
    return cost.prefill_token * tokens + cost.prefill_pair * pairs


def _speed(cost: Cost, gpus: int) -> float:
    return 1 + cost.efficiency * (gpus - 1)


def _weights(cost: Cost, topology: Topology) -> float:
    spread = topology.data if topology.experts else 1
    share = 1 - cost.expert_share + cost.expert_share / spread
    return cost.weights * share / _speed(cost, topology.tensor)


def _collectives(cost: Cost, topology: Topology) -> float:
    peers = topology.tensor * topology.pipeline * (topology.data if topology.experts else 1)
    return cost.collective * log2(peers)
