"""Recorded streams as prompts: whose message each block is, by the AgentX rules.

The replies in a prompt are the recorded ones, so prompts are the same under every engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from workloads.prompt import Role
from workloads.weka import BLOCK, Call, Ids


class Part(NamedTuple):
    """A message: whole blocks, then the tokens that fill none."""

    role: Role
    blocks: int
    tail: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A turn's messages, and how many of its leading blocks the turn before had too."""

    kept: int
    parts: tuple[Part, ...]


def layouts(calls: Sequence[Call], preamble: int) -> list[Layout]:
    """The messages of every turn of a stream whose system prompt has `preamble` tokens."""
    kept = [0, *(common(before, call) for before, call in pairwise(calls))]
    caps = _caps(calls, kept)
    system = min(ceil(preamble / BLOCK), calls[0].blocks)
    parts: list[Part] = [Part("system", system)] if system else []
    turns = []
    for turn, call in enumerate(calls):
        new, reply = call.blocks - system, 0
        if turn:
            before, new = calls[turn - 1], call.blocks - kept[turn]
            parts = _cut(parts, before.blocks - kept[turn])
            if any(part.role == "user" for part in parts):
                reply = _reply(new, call.tail, min(ceil(before.output / BLOCK), caps[turn]))
        if reply:
            parts = [*parts, Part("assistant", reply)]
        if new - reply or call.tail:
            parts = [*parts, Part("user", new - reply, call.tail)]
        turns.append(Layout(kept=kept[turn], parts=tuple(parts)))
    return turns


def common(before: Call, call: Call) -> int:
    """How many leading blocks both calls cover with equal hash ids."""
    most = min(before.blocks, call.blocks)
    return _prefix(before.hash_ids[:most], call.hash_ids[:most])


def _prefix(one: Ids, other: Ids) -> int:
    differing = one != other
    return int(differing.argmax()) if differing.any() else len(one)


def _cut(parts: list[Part], excess: int) -> list[Part]:
    """The messages without their last `excess` blocks and the tokens after those."""
    left = list(parts)
    while left and left[-1].blocks <= excess:
        excess -= left.pop().blocks
    if left:
        left[-1] = Part(left[-1].role, left[-1].blocks - excess)
    return left


def _reply(new: int, tail: int, most: int) -> int:
    """How many of the new blocks are the reply; the user's message is never empty."""
    reply = min(most, new)
    return reply - 1 if reply and reply == new and not tail else reply


def _caps(calls: Sequence[Call], kept: list[int]) -> list[int]:
    """The most reply blocks each turn may add, so that a later cut never ends in a reply."""
    caps = [call.blocks for call in calls]
    owners: list[int] = []
    for turn, call in enumerate(calls):
        del owners[kept[turn] :]
        owners.extend([turn] * (call.blocks - kept[turn]))
        if owners and not call.tail and kept[turn] == call.blocks:
            room = call.blocks - 1 - kept[owners[-1]]
            if owners[-1] and room >= 0:
                caps[owners[-1]] = min(caps[owners[-1]], room)
    return caps
