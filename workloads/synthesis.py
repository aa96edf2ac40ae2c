"""Generated agent sessions, distributed like the published AgentX corpus."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count, islice
from math import ceil, exp, log, sqrt
from statistics import NormalDist

import numpy as np

from workloads.prompt import seed_of
from workloads.weka import BLOCK, Agent, Call, Ids, Trace, share

LEAST_LIMIT = 4096
"""The smallest context limit, in tokens, that sessions can be scaled down to."""

LEAST_TURNS = 4

Pair = tuple[float, float]
"""The median and the log-sigma of a lognormal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What sessions are drawn from: lengths in tokens, gaps in seconds, shares of one.

    Fitted to the published counts of the cc-traces-weka-062126 corpus (393 sessions, of which 38 %
    end at a limit of their own). `gaps` is a mixture of (share, median, log-sigma).
    """

    limit: float = 990_016
    limited: float = 0.38
    own_limit: Pair = (380_000, 0.45)
    turns: Pair = (65, 1.27)
    most_turns: float = 2200
    fresh_start: Pair = (34_000, 0.45)
    resumed_start: Pair = (140_000, 0.8)
    resumed: float = 0.45
    most_start: float = 900_000
    added: Pair = (1700, 1.30)
    compaction: float = 0.0015
    kept: Pair = (30_000, 0.6)
    summary: Pair = (15_000, 0.8)
    edit: float = 0.012
    edited_blocks: int = 8
    output: Pair = (616, 1.29)
    most_output: float = 65_536
    with_agents: float = 0.445
    agents: Pair = (4, 1.33)
    agents_a_spawn: float = 3
    agent_turns: Pair = (16, 0.94)
    agent_start: Pair = (22_000, 0.4)
    agent_added: Pair = (1150, 1.2)
    agent_limit: float = 420_000
    gaps: tuple[tuple[float, float, float], ...] = (
        (0.766, 2.69, 1.49),
        (0.205, 88.6, 0.98),
        (0.029, 1475, 2.06),
    )
    prefill_rate: float = 8000
    decode_rate: float = 60

    def scaled(self, limit: int) -> "Corpus":
        """The same shapes below another limit, for a smaller model or a quick demo.

        Contexts shrink with the limit; turns, and what each adds, with its square root.
        """
        whole = min(1.0, limit / self.limit)
        root = sqrt(whole)
        return replace(
            self,
            limit=self.limit * whole,
            own_limit=_times(self.own_limit, whole),
            turns=_times(self.turns, root),
            most_turns=self.most_turns * root,
            fresh_start=_times(self.fresh_start, whole),
            resumed_start=_times(self.resumed_start, whole),
            most_start=self.most_start * whole,
            added=_times(self.added, root),
            kept=_times(self.kept, whole),
            summary=_times(self.summary, whole),
            output=_times(self.output, root),
            most_output=self.most_output * whole,
            agents=_times(self.agents, root),
            agent_turns=_times(self.agent_turns, root),
            agent_start=_times(self.agent_start, whole),
            agent_added=_times(self.agent_added, root),
            agent_limit=self.agent_limit * whole,
        )


@lru_cache(maxsize=4)
def synthesize(sessions: int, seed: int, context_limit: int | None = None) -> tuple[Trace, ...]:
    """That many sessions, in which no call needs more than `context_limit` tokens.

    Turns, first contexts and the presence of sub-agents are drawn by strata, so that few sessions
    have the quantiles of many.
    """
    corpus = Corpus() if context_limit is None else Corpus().scaled(context_limit)
    random = np.random.default_rng(seed_of(seed, "synthetic"))
    ranks = [(random.permutation(sessions) + random.random(sessions)) / sessions for _ in range(3)]
    return tuple(
        _trace(f"synthetic-{number:04}", seed_of(seed, "synthetic", number), corpus, *rank)
        for number, rank in enumerate(zip(*ranks, strict=True))
    )


def _trace(
    name: str, seed: int, corpus: Corpus, length: float, start: float, alone: float
) -> Trace:
    random = np.random.default_rng(seed)
    ids = count()
    turns = int(
        np.clip(_at(corpus.turns, length), LEAST_TURNS, max(LEAST_TURNS, corpus.most_turns))
    )
    spawns = _spawns(random, corpus, turns) if alone < corpus.with_agents else Counter()
    step = partial(_main_step, random, corpus, _ceiling(random, corpus))
    calls: list[Call] = []
    agents: list[Agent] = []
    moment = 0.0
    for kept, context in _contexts(ids, turns, _start(corpus, start), step):
        calls.append(_call(random, corpus, moment, kept, context))
        ended = calls[-1].end
        for _ in range(spawns[len(calls)]):
            agent = _agent(random, corpus, ids, f"{len(agents):03}", len(calls), calls[-1].end)
            ended = max(ended, agent.end)
            agents.append(agent)
        moment = ended + _gap(random, corpus)
    return Trace(id=name, preamble=0, calls=tuple(calls), agents=tuple(agents))


def _agent(
    random: np.random.Generator,
    corpus: Corpus,
    ids: Iterator[int],
    name: str,
    place: int,
    start: float,
) -> Agent:
    turns = max(1, round(_draw(random, corpus.agent_turns)))
    tokens = min(_draw(random, corpus.agent_start), corpus.agent_limit / 2)
    step = partial(_agent_step, random, corpus)
    calls: list[Call] = []
    for kept, context in _contexts(ids, turns, tokens, step):
        calls.append(_call(random, corpus, start, kept, context))
        # Nobody types into a sub-agent, so its gaps are of the shortest kind.
        start = calls[-1].end + _draw(random, corpus.gaps[0][1:])
    return Agent(id=name, place=place, end=calls[-1].end, preamble=0, calls=tuple(calls))


def _contexts(
    ids: Iterator[int], turns: int, start: float, step: Callable[[int], tuple[int, int]]
) -> list[tuple[int, Ids]]:
    """The hash ids of each turn, and how many of them the turn before had too.

    Ids are new on first use, and whatever follows a changed block is new as well.
    """
    kept, contexts = [0], [_take(ids, _blocks(start))]
    for _ in range(turns - 1):
        keep, new = step(len(contexts[-1]))
        kept.append(keep)
        contexts.append(np.concatenate([contexts[-1][:keep], _take(ids, new)]))
    return list(zip(kept, share(contexts), strict=True))


def _main_step(
    random: np.random.Generator, corpus: Corpus, ceiling: float, blocks: int
) -> tuple[int, int]:
    """How many blocks a main turn keeps and adds: all and a few, or a compaction, or an edit."""
    new = _blocks(_draw(random, corpus.added))
    most = _blocks(ceiling / 2)
    if (blocks + new) * BLOCK > ceiling or random.random() < corpus.compaction:
        keep = min(blocks, most, _blocks(_draw(random, corpus.kept)))
        return keep, min(most, _blocks(_draw(random, corpus.summary)))
    edited = min(blocks - 1, corpus.edited_blocks) if random.random() < corpus.edit else 0
    return blocks - edited, edited + new


def _agent_step(random: np.random.Generator, corpus: Corpus, blocks: int) -> tuple[int, int]:
    """How many blocks a sub-agent's turn keeps and adds: all and a few, or a quarter of them."""
    new = _blocks(_draw(random, corpus.agent_added))
    if (blocks + new) * BLOCK > corpus.agent_limit:
        return max(1, blocks // 4), min(new, _blocks(corpus.agent_limit / 2))
    return blocks, new


def _call(
    random: np.random.Generator, corpus: Corpus, start: float, kept: int, context: Ids
) -> Call:
    output = int(np.clip(_draw(random, corpus.output), 1, corpus.most_output))
    fresh = (len(context) - kept) * BLOCK
    return Call(
        start=start,
        duration=fresh / corpus.prefill_rate + output / corpus.decode_rate,
        input=len(context) * BLOCK,
        output=output,
        hash_ids=context,
    )


def _spawns(random: np.random.Generator, corpus: Corpus, turns: int) -> Counter[int]:
    """How many sub-agents spawn after each number of main turns; never after the last."""
    agents = max(1, round(_draw(random, corpus.agents)))
    places = random.integers(1, turns, size=ceil(agents / corpus.agents_a_spawn))
    return Counter(np.resize(places, agents).tolist())


def _start(corpus: Corpus, rank: float) -> float:
    if rank < corpus.resumed:
        tokens = _at(corpus.resumed_start, rank / corpus.resumed)
    else:
        tokens = _at(corpus.fresh_start, (rank - corpus.resumed) / (1 - corpus.resumed))
    return min(tokens, corpus.most_start)


def _ceiling(random: np.random.Generator, corpus: Corpus) -> float:
    """The tokens at which a session compacts, so that the longest answer and a marker still fit."""
    ceiling = corpus.limit - corpus.most_output - BLOCK
    own = _draw(random, corpus.own_limit)
    return min(own, ceiling) if random.random() < corpus.limited else ceiling


def _gap(random: np.random.Generator, corpus: Corpus) -> float:
    shares = [share for share, _, _ in corpus.gaps]
    return _draw(random, corpus.gaps[random.choice(len(shares), p=shares)][1:])


def _draw(random: np.random.Generator, pair: Pair) -> float:
    return float(random.lognormal(log(pair[0]), pair[1]))


def _at(pair: Pair, rank: float) -> float:
    return pair[0] * exp(pair[1] * NormalDist().inv_cdf(max(rank, 1e-9)))


def _times(pair: Pair, factor: float) -> Pair:
    return (pair[0] * factor, pair[1])


def _blocks(tokens: float) -> int:
    return max(1, int(tokens) // BLOCK)


def _take(ids: Iterator[int], blocks: int) -> Ids:
    return np.fromiter(islice(ids, blocks), dtype=np.int64, count=blocks)
