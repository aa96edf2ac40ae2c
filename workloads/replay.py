"""A trace ready to be replayed: its plan, and the prompt of every step."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from math import inf

from workloads.content import block_seed
from workloads.messages import messages, prompts
from workloads.plan import Plan, plan
from workloads.profile import Profile
from workloads.prompt import Prompt
from workloads.session import Key, Session, Turn
from workloads.stream import Step, Stream
from workloads.weka import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """A trace's streams, and what each step sends."""

    plan: Plan
    prompts: Mapping[Key, Prompt]


def replay(trace: Trace, profile: Profile, base: int, *, marker_first: bool = False) -> Replay:
    """The replay of a trace by the rules of the profile, its contents made from the seed `base`.

    The marker precedes the first user message; where it comes first of all, a trace that comes
    round again shares not even its system message with its earlier pass.
    """
    made = plan(trace, profile)
    seed = cache(lambda number: block_seed(base, trace.id, number))
    sent: dict[Key, Prompt] = {}
    for stream in made.streams:
        told = messages(stream, repeats_are_whole=profile.repeats_are_whole)
        for step, prompt in zip(
            stream.steps, prompts(stream, told, seed, marker_first=marker_first), strict=True
        ):
            sent[step.key] = prompt
    return Replay(plan=made, prompts=sent)


def session(made: Replay, max_delay: float | None = None) -> Session:
    """The replay as a session that starts at its first turn and keeps its delays, up to a limit."""
    began = made.plan.main.steps[0].call.start
    limit = inf if max_delay is None else max_delay
    lasts = {stream.id: stream.steps[-1].key for stream in made.plan.streams}
    turns: dict[Key, Turn] = {}
    for stream in made.plan.streams:
        for step in stream.steps:
            turns[step.key] = Turn(
                key=step.key,
                prompt=made.prompts[step.key],
                output=step.output,
                previous=_previous(stream, step),
                early=stream.early and not step.key.turn,
                delay=min(limit, step.delay if step.key.turn else stream.offset),
                after=(*(lasts[name] for name in step.joins), *step.after),
                recorded=step.call.start - began,
                depth=stream.depth,
            )
    return Session(trace=made.plan.trace, turns=_in_order(turns))


def _previous(stream: Stream, step: Step) -> Key | None:
    """The step after whose end a step is due."""
    turn = step.key.turn
    return stream.steps[turn - 1].key if turn else stream.spawn


def _in_order(turns: Mapping[Key, Turn]) -> tuple[Turn, ...]:
    """The turns by their recorded moments as far as each stands after all that it waits for."""
    by_moment = sorted(turns.values(), key=lambda turn: turn.recorded or 0.0)
    waits = {
        turn.key: [*turn.after, *([turn.previous] if turn.previous else [])] for turn in by_moment
    }
    return tuple(turns[key] for key in TopologicalSorter(waits).static_order())
