"""Generated agent sessions, distributed like the published AgentX corpus."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import ceil

import numpy as np

from workloads.corpus import PUBLISHED, Corpus
from workloads.curve import GOLDEN, Curve, Floats, chances, dealt, ranked
from workloads.prompt import seed_of
from workloads.weka import BLOCK, Agent, Call, Ids, Trace

LEAST_LIMIT = 4096
"""The smallest context limit, in tokens, that sessions can be scaled down to."""

LEAST_TURNS = 4

MODEL = "synthetic"
"""What the model of every generated request is called."""

PLASTIC = 1.2207440846057596
"""The root of x**4 = x + 1: its inverse powers spread points evenly in three dimensions."""

NO_IDS: Ids = np.zeros(0, dtype=np.int64)

Step = tuple[int, int]
"""How many blocks a turn keeps of the turn before, and how many it adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a session is before its turns: their number, the tokens it starts and compacts at.

    `agents` is how many turns each of its sub-agents has, and `width` how many spawn together.
    """

    turns: int
    start: float
    ceiling: float
    agents: tuple[int, ...]
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What a stream's turns are dealt: tokens added and answered, the gap before, and a chance."""

    added: Floats
    output: Floats
    gap: Floats
    chance: Floats


@lru_cache(maxsize=4)
def synthesize(sessions: int, seed: int, context_limit: int | None = None) -> tuple[Trace, ...]:
    """All that `generate` makes, kept for the next time."""
    return tuple(generate(sessions, seed, context_limit))


def generate(sessions: int, seed: int, context_limit: int | None = None) -> Iterator[Trace]:
    """That many sessions, in which no call needs more than `context_limit` tokens.

    What is drawn is dealt from the strata of its distribution, so that few sessions have the
    quantiles and means of many.
    """
    corpus = PUBLISHED if context_limit is None else PUBLISHED.scaled(context_limit)
    random = np.random.default_rng(seed_of(seed, "synthetic"))
    shapes = _shapes(random, corpus, sessions)
    turns = [shape.turns for shape in shapes]
    mains = _streams(random, turns, corpus.added, corpus.output, corpus.gap)
    sizes = [size for shape in shapes for size in shape.agents]
    starts = dealt(random, corpus.agent_start, [1] * len(sizes))
    inner = _streams(random, sizes, corpus.agent_added, corpus.agent_output, corpus.agent_gap)
    agents = zip((start.item() for start in starts), inner, strict=True)
    for number, (shape, main) in enumerate(zip(shapes, mains, strict=True)):
        spawned = list(islice(agents, len(shape.agents)))
        yield _trace(random, corpus, f"synthetic-{number:04}", shape, main, spawned)


def _shapes(random: np.random.Generator, corpus: Corpus, sessions: int) -> list[Shape]:
    """The sessions' shapes, mixed so that every few of them in a row stand for all."""
    length = ranked(random.random() + np.arange(sessions) * GOLDEN)
    # By length, so that the few long sessions, which have most of the turns, are mixed as well.
    start, limit, agents = (
        ranked(random.random() + length * PLASTIC**-power) for power in (1, 2, 3)
    )
    turns = np.rint(corpus.turns.strata(sessions)).clip(LEAST_TURNS)[length]
    starts = _starts(corpus, sessions)[start]
    ceilings = _ceilings(corpus, sessions)[limit]
    sizes = dealt(random, corpus.agent_turns, _agents(corpus, sessions)[agents].tolist())
    widths = dealt(random, corpus.agents_a_spawn, [1] * sessions)
    return [
        Shape(
            turns=int(turns[place]),
            start=min(float(starts[place]), float(ceilings[place])),
            ceiling=float(ceilings[place]),
            agents=tuple(max(1, round(size)) for size in sizes[place].tolist()),
            width=round(widths[place].item()),
        )
        for place in range(sessions)
    ]


def _starts(corpus: Corpus, sessions: int) -> Floats:
    """The tokens of the first contexts, the resumed sessions' first."""
    resumed = round(sessions * corpus.resumed)
    return np.concatenate(
        [corpus.resumed_start.strata(resumed), corpus.fresh_start.strata(sessions - resumed)]
    )


def _ceilings(corpus: Corpus, sessions: int) -> Floats:
    """The tokens at which sessions compact, so that the longest answer and a marker still fit."""
    ceiling = corpus.limit - corpus.most_output - BLOCK
    limited = round(sessions * corpus.limited)
    own = np.minimum(corpus.own_limit.strata(limited), ceiling)
    return np.concatenate([own, np.full(sessions - limited, ceiling)])


def _agents(corpus: Corpus, sessions: int) -> Ids:
    """How many sub-agents sessions have: some, then none."""
    having = round(sessions * corpus.with_agents)
    agents = np.zeros(sessions, dtype=np.int64)
    agents[:having] = np.rint(corpus.agents.strata(having)).clip(1)
    return agents


def _streams(
    random: np.random.Generator, turns: Sequence[int], added: Curve, output: Curve, gap: Curve
) -> list[Stream]:
    columns = [dealt(random, curve, turns) for curve in (added, output, gap)]
    return [
        Stream(added=of_one[0], output=of_one[1], gap=of_one[2], chance=of_one[3])
        for of_one in zip(*columns, chances(random, turns), strict=True)
    ]


def _trace(
    random: np.random.Generator,
    corpus: Corpus,
    name: str,
    shape: Shape,
    main: Stream,
    spawned: Sequence[tuple[float, Stream]],
) -> Trace:
    steps = _main_steps(random, corpus, shape, main)
    contexts, unused = _contexts(steps, NO_IDS, 0)
    # Sub-agents of a session begin with the same tools and instructions.
    base = np.arange(unused, unused + _blocks(corpus.agent_base))
    unused += len(base)
    spawns = _spawns(random, shape)
    left = iter(spawned)
    calls: list[Call] = []
    agents: list[Agent] = []
    moment = 0.0
    for step, context, output, gap, spawning in zip(
        steps, contexts, main.output, [*main.gap[1:], 0.0], spawns, strict=True
    ):
        calls.append(_call(corpus, moment, step, context, output))
        moment = calls[-1].end + gap
        for tokens, stream in islice(left, spawning):
            their_steps = _agent_steps(corpus, len(base), tokens, stream)
            theirs, unused = _contexts(their_steps, base, unused)
            inner = _agent_calls(corpus, calls[-1].end, their_steps, theirs, stream)
            agents.append(_agent(len(agents), len(calls), inner))
            moment = max(moment, agents[-1].end)
    return Trace(id=name, preamble=0, calls=tuple(calls), agents=tuple(agents))


def _main_steps(
    random: np.random.Generator, corpus: Corpus, shape: Shape, main: Stream
) -> list[Step]:
    """A main stream's turns: most add a few blocks; some compact, rewrite or edit the context."""
    most = _blocks(shape.ceiling / 2)
    steps = [(0, _blocks(shape.start))]
    for tokens, chance in zip(main.added[1:], main.chance[1:], strict=True):
        blocks, new = sum(steps[-1]), _blocks(tokens)
        if (blocks + new) * BLOCK > shape.ceiling or chance < corpus.compaction:
            keep = min(blocks, most, _blocks(_draw(random, corpus.kept)))
            steps.append((keep, min(most, _blocks(_draw(random, corpus.summary)))))
        else:
            keep = _kept(random, corpus, blocks, chance - corpus.compaction)
            steps.append((keep, blocks - keep + new))
    return steps


def _kept(random: np.random.Generator, corpus: Corpus, blocks: int, chance: float) -> int:
    """How many of its blocks a context keeps that only grows: all, unless some are sent anew."""
    if chance < corpus.rewrite:
        return min(blocks, _blocks(_draw(random, corpus.kept)))
    edited = chance < corpus.rewrite + corpus.edit
    return max(1, blocks - corpus.edited_blocks) if edited else blocks


def _agent_steps(corpus: Corpus, base: int, tokens: float, stream: Stream) -> list[Step]:
    """A sub-agent's turns, the first of which keeps the blocks of all: most add a few blocks."""
    blocks = _blocks(min(tokens, corpus.agent_limit / 2))
    shared = min(base, blocks - 1)
    steps = [(shared, blocks - shared)]
    for added in stream.added[1:]:
        blocks, new = sum(steps[-1]), _blocks(added)
        if (blocks + new) * BLOCK > corpus.agent_limit:
            steps.append((max(1, blocks // 4), min(new, _blocks(corpus.agent_limit / 2))))
        else:
            steps.append((blocks, new))
    return steps


def _contexts(steps: Sequence[Step], head: Ids, unused: int) -> tuple[list[Ids], int]:
    """The hash ids of each turn, and the first id that none of them has.

    The first turn keeps of `head`. Ids are new on first use, and whatever follows a changed block
    is new as well. Turns that only add are views of one array.
    """
    contexts: list[Ids] = []
    start = 0
    while start < len(steps):
        end = start + 1
        while end < len(steps) and steps[end][0] == sum(steps[end - 1]):
            end += 1
        sizes = [sum(step) for step in steps[start:end]]
        kept = steps[start][0]
        fresh = np.arange(unused, unused + sizes[-1] - kept)
        head = np.concatenate([head[:kept], fresh])
        unused += len(fresh)
        contexts += [head[:size] for size in sizes]
        start = end
    return contexts, unused


def _agent_calls(
    corpus: Corpus, start: float, steps: Sequence[Step], contexts: Sequence[Ids], stream: Stream
) -> tuple[Call, ...]:
    calls: list[Call] = []
    for step, context, output, gap in zip(
        steps, contexts, stream.output, [0.0, *stream.gap[1:]], strict=True
    ):
        began = calls[-1].end if calls else start
        calls.append(_call(corpus, began + gap, step, context, output))
    return tuple(calls)


def _agent(number: int, place: int, calls: tuple[Call, ...]) -> Agent:
    # The format counts how long a sub-agent took in milliseconds.
    took = ceil((calls[-1].end - calls[0].start) * 1000)
    return Agent(
        id=f"agent_{number:03}",
        place=place,
        end=calls[0].start + took / 1000,
        preamble=0,
        calls=calls,
    )


def _call(corpus: Corpus, start: float, step: Step, context: Ids, output: float) -> Call:
    answer = max(1, int(min(output, corpus.most_output)))
    first = round(corpus.latency + step[1] * BLOCK / corpus.prefill_rate, 3)
    return Call(
        start=round(float(start), 3),
        duration=round(first + answer / corpus.decode_rate, 3),
        input=len(context) * BLOCK,
        output=answer,
        hash_ids=context,
        model=MODEL,
        first=first,
    )


def _spawns(random: np.random.Generator, shape: Shape) -> list[int]:
    """How many sub-agents spawn after each main turn, so many at once; never after the last."""
    spawns = np.zeros(shape.turns, dtype=np.int64)
    bursts = np.arange(len(shape.agents)) // shape.width
    places = np.resize(random.permutation(shape.turns - 1), len(shape.agents))
    np.add.at(spawns, places[bursts], 1)
    counts: list[int] = spawns.tolist()
    return counts


def _draw(random: np.random.Generator, curve: Curve) -> float:
    return float(curve.at(random.random(1))[0])


def _blocks(tokens: float) -> int:
    return max(1, int(tokens) // BLOCK)
