"""The step machine of one data-parallel rank: queues, chunked prefill, KV blocks, preemption."""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine import Replay
from harness.sim.cache import NO_SLOTS, Cache
from harness.sim.chance import acceptance_rate, delivered, noise
from harness.sim.cost import Cost, Work, step_seconds
from harness.sim.job import Job, Moments
from harness.topology import Topology
from workloads.prompt import Prompt, seed_of

WINDOW = 128
"""Tokens of the sliding window: what replay computes again after a hit, and keeps of a chunk."""

_HORIZON = 4096
_TICK = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What makes one rank what it is; every rank of a server has the same."""

    block_size: int
    blocks: int
    max_batched_tokens: int
    max_sequences: int
    draft_tokens: int
    acceptance_length: float | None
    noise: float
    drift: float
    slowdown: float
    replay: Replay
    topology: Topology
    cost: Cost


@dataclass(slots=True, kw_only=True, eq=False)
class Plan:
    """Steps of equal composition, one after another; the first `done` of them have been taken."""

    rows: list[Job]
    chunks: list[tuple[Job, int]]
    context: NDArray[np.int64]
    starts: Moments
    ends: Moments
    done: int = 0


class Machine:
    """One rank. Moments are whole microseconds, and callers move them forward only.

    Each step takes a token (and the drafts) of every decoding request, then prompt tokens within
    the budget, first come, first served. A request is admitted when the blocks of its whole prompt
    fit. Where a decoding request lacks a block, the latest running one is preempted, and nothing is
    admitted in that step. Requests therefore run in the order in which they came, and at most the
    last of them is still in its prefill when a step begins.
    """

    def __init__(self, settings: Settings, *, rank: int, seed: int) -> None:
        self.settings = settings
        self.rank = rank
        self.seed = seed
        self.clock = 0
        self.steps = 0
        self.running: list[Job] = []
        self.waiting: deque[Job] = deque()
        self.due: deque[tuple[int, Job]] = deque()
        self.taken: list[dict[str, Any]] = []
        self._cache = Cache(settings.blocks)
        self._plan: Plan | None = None
        self._noise_seed = seed_of(seed, "noise", rank)
        drafts, length = settings.draft_tokens, settings.acceptance_length
        self._rate = acceptance_rate(drafts, length) if length else 0.0

    def fits(self, prompt: int, output: int) -> bool:
        """Whether the request can run when it is alone."""
        return self._blocks(prompt + output + self.settings.draft_tokens) <= self.settings.blocks

    def enqueue(self, name: str, prompt: Prompt, output: int, at: int) -> Job:
        """A request that waits; steps that start at or after `at` see it."""
        self.advance(at)
        self._plan = None
        if not self.running and not self.waiting:
            self.clock = max(self.clock, at)
        size, length = self.settings.block_size, prompt.length
        edges = np.arange(size, length + 1, size, dtype=np.int64)
        job = Job(
            id=name,
            prompt=length,
            output=output,
            keys=prompt.prefix_hashes(edges).tolist() if len(edges) else [],
            pace=delivered(self.seed, name, output, self.settings.draft_tokens, self._rate),
            arrived=at,
            target=length,
        )
        self.waiting.append(job)
        return job

    def withdraw(self, job: Job, at: int) -> None:
        """Ends a request early; a step that has started still runs with it, for nobody."""
        self.advance(at)
        if job.finish == "length" and job.last is not None and job.last <= at:
            return
        if job.finish is None:
            self._plan = None
            if job in self.running:
                self.running.remove(job)
            else:
                self.waiting.remove(job)
            self._release(job)
        job.finish = "cut"

    def advance(self, until: int) -> None:
        """Takes every step that starts before a moment."""
        while True:
            if self._plan is None:
                if self.clock >= until or not (self.running or self.waiting):
                    return
                self._plan = self._schedule()
            self._take(self._plan, until)
            if self._plan.done < len(self._plan.ends):
                return
            self._plan = None

    def forget(self, at: int) -> bool:
        """Empties the prefix cache; false, and nothing done, while a request holds a block."""
        self.advance(at)
        if self._cache.used:
            return False
        self._cache = Cache(self.settings.blocks)
        return True

    @property
    def usage(self) -> float:
        """The share of its blocks that requests hold."""
        return self._cache.used / self._cache.blocks

    def next_moment(self) -> int | None:
        """When to look again: something is due, a plan ends, or a step has certainly started."""
        if self.due:
            return self.due[0][0]
        if self._plan:
            return int(self._plan.ends[-1])
        # A request that comes at this very moment still belongs to the step that starts now.
        return self.clock + 1 if self.running or self.waiting else None

    def _schedule(self) -> Plan:
        rows, preempted = self._make_room([job for job in self.running if job.decoding])
        per_row = 1 + self.settings.draft_tokens
        budget = self.settings.max_batched_tokens - per_row * len(rows)
        chunks = [] if preempted else self._chunks(budget)
        steps = 1 if chunks or preempted else self._equal_steps(rows)
        context = self._context(rows, steps)
        durations = self._durations(self._work(rows, chunks, context))
        ends = self.clock + np.cumsum(durations)
        starts = ends - durations
        if self.settings.drift:
            steps = int(np.searchsorted(starts, (self.clock // _TICK + 1) * _TICK))
        return Plan(
            rows=rows,
            chunks=chunks,
            context=context[:steps],
            starts=starts[:steps],
            ends=ends[:steps],
        )

    def _make_room(self, rows: list[Job]) -> tuple[list[Job], bool]:
        """The rows that have the blocks for their next step, and whether one was preempted."""
        preempted: list[Job] = []
        for job in rows:
            while job not in preempted and self._growth(job, 0) > self._cache.available:
                preempted.append(self._preempt())
            if job not in preempted:
                self._give(job, self._growth(job, 0))
        return [job for job in rows if job not in preempted], bool(preempted)

    def _preempt(self) -> Job:
        job = self.running.pop()
        self._release(job)
        job.computed, job.target = 0, job.prompt + job.generated
        job.preemptions += 1
        self.waiting.appendleft(job)
        return job

    def _chunks(self, budget: int) -> list[tuple[Job, int]]:
        chunks = []
        job = self.running[-1] if self.running and not self.running[-1].decoding else self._admit()
        while job:
            tokens = min(budget, job.target - job.computed)
            chunks.append((job, tokens))
            budget -= tokens
            job = self._admit() if budget else None
        return chunks

    def _admit(self) -> Job | None:
        """The first waiting request, now running, where there is room for it."""
        if not self.waiting or len(self.running) == self.settings.max_sequences:
            return None
        job, size = self.waiting[0], self.settings.block_size
        # The last token is always computed: something must be sampled from.
        keys = job.keys[: (job.target - 1) // size]
        keys = keys[: self._cache.find(keys)]
        needed = self._blocks(job.target) - len(keys)
        if needed > self._cache.available - self._cache.unused(keys):
            return None
        self.running.append(self.waiting.popleft())
        job.slots = self._cache.hold(keys)
        self._give(job, needed)
        job.computed, reported = self._reuse(len(keys) * size)
        if job.scheduled is None:
            job.scheduled, job.cached, job.reused = self.clock, reported, job.computed
        return job

    def _reuse(self, hit: int) -> tuple[int, int]:
        """Of the tokens found in the cache, those not computed again, and those reported."""
        if self.settings.replay == "off":
            reused = max(0, hit - self.settings.block_size)
            return reused, reused
        return (hit - WINDOW, hit) if hit > WINDOW else (0, 0)

    def _equal_steps(self, rows: list[Job]) -> int:
        """How many steps these rows can take before one ends or lacks a block."""

        def short(step: int) -> bool:
            growth = sum(self._growth(job, job.ahead(step)) for job in rows)
            return growth > self._cache.available

        steps = min(_HORIZON, *(job.steps_left() for job in rows))
        return bisect_left(range(steps), True, key=short) if short(steps - 1) else steps

    def _context(self, rows: list[Job], steps: int) -> NDArray[np.int64]:
        """What the rows read in each step: all that they have computed, and the new token."""
        context = np.full(steps, sum(job.computed + 1 for job in rows), dtype=np.int64)
        if not self.settings.draft_tokens:
            return context + len(rows) * np.arange(steps)
        for job in rows:
            context += job.pace[job.decodes : job.decodes + steps] - job.pace[job.decodes]
        return context

    def _work(
        self, rows: list[Job], chunks: list[tuple[Job, int]], context: NDArray[np.int64]
    ) -> Work:
        replay = self.settings.replay
        kept = self.settings.max_batched_tokens if replay == "off" else WINDOW
        upper = [(job, min(tokens, kept)) for job, tokens in chunks]
        ends = [job.computed + tokens for job, tokens in chunks]
        return Work(
            context=context,
            rows=len(rows),
            drafts=len(rows) * self.settings.draft_tokens,
            tokens=sum(tokens for _, tokens in chunks),
            pairs=_pairs(chunks, ends),
            upper_tokens=sum(tokens for _, tokens in upper),
            upper_pairs=_pairs(upper, ends),
            eager=replay == "on-eager",
        )

    def _durations(self, work: Work) -> Moments:
        settings = self.settings
        hours = self.clock // _TICK * _TICK / 3.6e9
        factor = 1e6 * settings.slowdown * (1 + settings.drift * hours)
        microseconds = step_seconds(settings.cost, settings.topology, work) * factor
        if settings.noise:
            count = len(microseconds)
            microseconds *= noise(self._noise_seed, settings.noise, self.steps, count)
        return np.maximum(1, np.rint(microseconds)).astype(np.int64)

    def _take(self, plan: Plan, until: int) -> None:
        """Takes the planned steps that start before a moment."""
        done = int(np.searchsorted(plan.starts, until))
        ends = plan.ends[plan.done : done]
        if not len(ends):
            return
        self.clock = int(ends[-1])
        self.steps += len(ends)
        for job in plan.rows:
            self._give(job, self._growth(job, job.ahead(len(ends) - 1)))
            job.decode(ends)
        for job, tokens in plan.chunks:
            self._prefill(job, tokens)
        self._note(plan, done)
        plan.done = done
        for job in [*plan.rows, *(job for job, _ in plan.chunks)]:
            self._settle(job)

    def _prefill(self, job: Job, tokens: int) -> None:
        job.computed += tokens
        known = len(job.slots)
        fresh = job.keys[known : job.computed // self.settings.block_size]
        if fresh:
            job.slots = np.concatenate([job.slots, self._cache.publish(fresh)])
            job.owned -= len(fresh)
        if job.decoding:
            job.sample(self.clock)

    def _settle(self, job: Job) -> None:
        """Ends a request that has all its tokens, and says when something is due."""
        finished = job.generated == job.output
        if finished:
            job.finish = "length"
            self.running.remove(job)
            self._release(job)
        if finished or job.first == self.clock:
            self.due.append((self.clock, job))

    def _release(self, job: Job) -> None:
        self._cache.release(job.slots, job.owned)
        job.slots, job.owned = NO_SLOTS, 0

    def _give(self, job: Job, blocks: int) -> None:
        if blocks:
            self._cache.own(blocks)
            job.owned += blocks

    def _growth(self, job: Job, ahead: int) -> int:
        """Blocks that its decode step lacks, `ahead` tokens from now."""
        tokens = job.computed + ahead + 1 + self.settings.draft_tokens
        return self._blocks(tokens) - job.held

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_size)

    def _note(self, plan: Plan, done: int) -> None:
        steps = slice(plan.done, done)
        self.taken.append(
            {
                "rank": self.rank,
                "steps": done - plan.done,
                "start_us": int(plan.starts[plan.done]),
                "end_us": self.clock,
                "prefill_tokens": sum(tokens for _, tokens in plan.chunks),
                "decode_rows": len(plan.rows),
                "context_tokens": float(plan.context[steps].mean()),
                "waiting": len(self.waiting),
                "kv_blocks": self._cache.used,
            }
        )


def _pairs(chunks: list[tuple[Job, int]], ends: list[int]) -> int:
    """(token, earlier token) pairs of chunks that end at these positions."""
    return sum(
        tokens * (2 * end - tokens) // 2 for (_, tokens), end in zip(chunks, ends, strict=True)
    )
