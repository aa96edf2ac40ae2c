"""The fast machine against one that takes a step at a time, with lists and dictionaries only."""

from collections import OrderedDict
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from harness.sim.chance import acceptance_rate, delivered, noise
from harness.sim.cost import Cost, Work, step_seconds
from harness.sim.machine import Machine, Settings
from harness.topology import parse
from workloads.prompt import Prompt, seed_of

SETTINGS = Settings(
    block_size=16,
    blocks=4096,
    max_batched_tokens=256,
    max_sequences=8,
    draft_tokens=0,
    acceptance_length=None,
    noise=0.0,
    drift=0.0,
    slowdown=1.0,
    replay="off",
    topology=parse("TP1"),
    cost=Cost(),
)


def prompt_of(*segments):
    seeds, tokens = zip(*segments, strict=True)
    return Prompt(seeds=np.array(seeds, dtype=np.uint64), tokens=np.array(tokens, dtype=np.int64))


@dataclass(kw_only=True, eq=False)
class Slow:
    """A request of the slow machine."""

    id: str
    length: int
    output: int
    chain: list
    pace: list
    computed: int = 0
    got: int = 0
    decodes: int = 0
    keys: list = field(default_factory=list)
    own: int = 0
    scheduled: int | None = None
    cached: int = 0
    reused: int = 0
    preemptions: int = 0
    pieces: list = field(default_factory=list)
    decoding: bool = False
    finish: str | None = None


class SlowMachine:
    """The same rules, one step after another."""

    def __init__(self, settings, seed):
        self.settings, self.seed = settings, seed
        self.clock = self.steps = self.evictions = 0
        self.rate = acceptance_rate(settings.draft_tokens, settings.acceptance_length or 1)
        self.running, self.waiting, self.all = [], [], {}
        self.held, self.unused = {}, OrderedDict()

    def run(self, events):
        events = sorted(events, key=lambda event: event[0])
        while events or self.running or self.waiting:
            while events and (events[0][0] <= self.clock or not (self.running or self.waiting)):
                self.see(*events.pop(0))
            if self.running or self.waiting:
                self.step()

    def see(self, at, what, name, *rest):
        if what == "arrive":
            prompt, output = rest
            tokens = [
                (int(seed), index)
                for seed, count in zip(prompt.seeds, prompt.tokens, strict=True)
                for index in range(count)
            ]
            if not (self.running or self.waiting):
                self.clock = max(self.clock, at)
            size, length = self.settings.block_size, len(tokens)
            ends = range(size, length + 1, size)
            chain = [hash(tuple(tokens[:end])) for end in ends]
            pace = delivered(self.seed, name, output, self.settings.draft_tokens, self.rate)
            self.all[name] = Slow(id=name, length=length, output=output, chain=chain, pace=pace)
            self.waiting.append(self.all[name])
        if what == "cut" and name in self.all:
            job = self.all[name]
            if job.finish == "length" and job.pieces[-1][0] <= at:
                return
            job.pieces = [piece for piece in job.pieces if piece[0] <= at]
            if job.finish is None:
                (self.running if job in self.running else self.waiting).remove(job)
                self.free(job)
            job.finish = "cut"

    def blocks(self, tokens):
        return (tokens + self.settings.block_size - 1) // self.settings.block_size

    def room(self):
        return self.settings.blocks - len(self.held) - sum(job.own for job in self.running)

    def take(self, job, blocks):
        job.own += blocks
        while self.room() < len(self.unused):
            self.unused.popitem(last=False)
            self.evictions += 1

    def hold(self, key):
        self.unused.pop(key, None)
        self.held[key] = self.held.get(key, 0) + 1

    def free(self, job):
        for key in reversed(job.keys):
            self.held[key] -= 1
            if not self.held[key]:
                del self.held[key]
                self.unused[key] = None
        job.keys, job.own = [], 0

    def preempt(self):
        job = self.running.pop()
        self.free(job)
        job.computed, job.decoding = 0, False
        job.preemptions += 1
        self.waiting.insert(0, job)
        return job

    def step(self):
        settings = self.settings
        gone = []
        rows = [job for job in self.running if job.decoding]
        for job in rows:
            while job not in gone:
                lacking = self.blocks(job.computed + 1 + settings.draft_tokens)
                lacking -= len(job.keys) + job.own
                if lacking <= self.room():
                    self.take(job, lacking)
                    break
                gone.append(self.preempt())
        rows = [job for job in rows if job not in gone]
        budget = settings.max_batched_tokens - len(rows) * (1 + settings.draft_tokens)
        chunks = []
        for job in self.running:
            if job not in rows and budget and not gone:
                chunks.append((job, min(budget, job.length + job.got - job.computed)))
                budget -= chunks[-1][1]
        while not gone and budget and self.waiting and len(self.running) < settings.max_sequences:
            job = self.waiting[0]
            if not self.admit(job):
                break
            chunks.append((job, min(budget, job.length + job.got - job.computed)))
            budget -= chunks[-1][1]
        self.clock += self.duration(rows, chunks)
        self.steps += 1
        self.deliver(rows, chunks)

    def admit(self, job):
        size = self.settings.block_size
        target = job.length + job.got
        hit = []
        for key in job.chain[: (target - 1) // size]:
            if key not in self.held and key not in self.unused:
                break
            hit.append(key)
        new = self.blocks(target) - len(hit)
        if new > self.room() - sum(key in self.unused for key in hit):
            return False
        self.running.append(self.waiting.pop(0))
        for key in hit:
            self.hold(key)
        job.keys = hit
        self.take(job, new)
        found = len(hit) * size
        if self.settings.replay == "off":
            reported = job.computed = max(0, found - size)
        else:
            reported = found if found > 128 else 0
            job.computed = max(0, reported - 128)
        if job.scheduled is None:
            job.scheduled, job.cached, job.reused = self.clock, reported, job.computed
        return True

    def duration(self, rows, chunks):
        settings = self.settings
        pairs = upper_pairs = upper_tokens = 0
        for job, count in chunks:
            end = job.computed + count
            upper = count if settings.replay == "off" else min(count, 128)
            pairs += count * (2 * end - count) // 2
            upper_pairs += upper * (2 * end - upper) // 2
            upper_tokens += upper
        work = Work(
            context=np.array([sum(job.computed + 1 for job in rows)]),
            rows=len(rows),
            drafts=len(rows) * settings.draft_tokens,
            tokens=sum(count for _, count in chunks),
            pairs=pairs,
            upper_tokens=upper_tokens,
            upper_pairs=upper_pairs,
            eager=settings.replay == "on-eager",
        )
        hours = self.clock // 10_000_000 * 10_000_000 / 3.6e9
        microseconds = step_seconds(settings.cost, settings.topology, work)[0] * (
            1e6 * settings.slowdown * (1 + settings.drift * hours)
        )
        if settings.noise:
            microseconds *= noise(seed_of(self.seed, "noise", 0), settings.noise, self.steps, 1)[0]
        return max(1, round(float(microseconds)))

    def deliver(self, rows, chunks):
        settings = self.settings
        for job in rows:
            count = int(job.pace[job.decodes + 1] - job.pace[job.decodes])
            count = min(count, job.output - job.got)
            job.decodes += 1
            job.computed += count
            job.got += count
            job.pieces.append((self.clock, count))
        for job, count in chunks:
            job.computed += count
            for key in job.chain[len(job.keys) : job.computed // settings.block_size]:
                self.hold(key)
                job.keys.append(key)
                job.own -= 1
            if job.computed == job.length + job.got:
                job.got += 1
                job.decoding = True
                job.pieces.append((self.clock, 1))
        for job in [*rows, *(job for job, _ in chunks)]:
            if job.got == job.output:
                job.finish = "length"
                self.running.remove(job)
                self.free(job)


def scenario(seed):
    """Settings that are short of something, and arrivals, cuts and mere looks in order of time."""
    random = np.random.default_rng(seed)
    drafts = int(random.choice([0, 0, 3]))
    settings = replace(
        SETTINGS,
        blocks=int(random.choice([48, 64, 400])),
        max_batched_tokens=int(random.choice([48, 100, 256])),
        max_sequences=int(random.choice([2, 6, 12])),
        draft_tokens=drafts,
        acceptance_length=float(random.uniform(1, 4)) if drafts else None,
        noise=float(random.choice([0.0, 0.05])),
        drift=float(random.choice([0.0, 5.0])),
        slowdown=float(random.choice([1.0, 20.0])),
        replay=str(random.choice(["off", "on", "on-eager"])),
    )
    events = []
    for number in range(24):
        at = int(random.integers(0, 3_000_000 * settings.slowdown))
        segments = [(int(random.integers(2)), int(random.integers(1, 250)))]
        segments += [(10 + int(random.integers(4)), int(random.integers(1, 160)))] * 2
        segments.append((100 + number, int(random.integers(1, 60))))
        output = int(random.integers(1, 160))
        events.append((at, "arrive", str(number), prompt_of(*segments), output))
        if random.random() < 0.25:
            later = at + int(random.integers(0, 2_000_000 * settings.slowdown))
            events.append((later, "cut", str(number)))
        events.append((int(random.integers(0, 3_000_000 * settings.slowdown)), "look", ""))
    return settings, sorted(events, key=lambda event: event[0])


def fast(settings, seed, events):
    machine, jobs, cuts = Machine(settings, rank=0, seed=seed), {}, {}
    for at, what, name, *rest in events:
        if what == "arrive":
            jobs[name] = machine.enqueue(name, *rest, at)
        elif what == "cut":
            machine.withdraw(jobs[name], at)
            cuts[name] = at
        else:
            machine.advance(at)
    machine.advance(10**15)
    return machine, jobs, cuts


def test_the_fast_machine_does_what_the_slow_one_does():
    seen = {"evictions": 0, "preemptions": 0, "cuts": 0, "hits": 0}
    for seed in range(40):
        settings, events = scenario(seed)
        slow = SlowMachine(settings, seed)
        slow.run(events)
        machine, jobs, cuts = fast(settings, seed, events)
        assert (machine.clock, machine.steps) == (slow.clock, slow.steps), seed
        for name, job in jobs.items():
            twin = slow.all[name]
            until = cuts[name] if job.finish == "cut" else 10**15
            ends, counts = job.pieces(until)
            assert list(zip(ends.tolist(), counts.tolist(), strict=True)) == twin.pieces, seed
            for fact in ("finish", "scheduled", "cached", "reused", "preemptions"):
                assert getattr(job, fact) == getattr(twin, fact), (seed, name, fact)
        seen["evictions"] += slow.evictions
        seen["preemptions"] += sum(job.preemptions for job in jobs.values())
        seen["cuts"] += sum(job.finish == "cut" for job in jobs.values())
        seen["hits"] += sum(job.cached > 0 for job in jobs.values())
    assert min(seen.values()) > 20, seen


def alone(prompt, output=1, **changes):
    """The only request of a machine that has just started."""
    machine = Machine(replace(SETTINGS, block_size=64, **changes), rank=0, seed=0)
    job = machine.enqueue("alone", prompt, output, 0)
    machine.advance(10**15)
    return job


def second(shared, **changes):
    """The second of two requests that share a prefix of so many tokens."""
    machine = Machine(replace(SETTINGS, block_size=64, **changes), rank=0, seed=0)
    machine.enqueue("first", prompt_of((1, shared), (2, 200)), 5, 0)
    job = machine.enqueue("second", prompt_of((1, shared), (3, 200)), 5, 10**9)
    machine.advance(10**15)
    return job


@pytest.mark.parametrize(
    ("replay", "shared", "reported", "reused"),
    [
        ("off", 1024, 960, 960),
        ("on", 1024, 1024, 896),
        ("on-eager", 1024, 1024, 896),
        ("on", 192, 192, 64),
        ("on", 128, 0, 0),
        ("off", 128, 64, 64),
        ("off", 63, 0, 0),
    ],
)
def test_a_hit_is_counted_as_each_replay_arm_counts_it(replay, shared, reported, reused):
    job = second(shared, replay=replay)
    assert (job.cached, job.reused) == (reported, reused)


def test_a_prompt_that_is_wholly_cached_still_computes_its_last_token():
    machine = Machine(replace(SETTINGS, block_size=64, replay="on"), rank=0, seed=0)
    for moment in (0, 10**9):
        job = machine.enqueue(str(moment), prompt_of((1, 1024)), 1, moment)
    machine.advance(10**15)
    assert job.cached == 960


def test_a_block_is_found_only_once_it_has_been_computed():
    machine = Machine(replace(SETTINGS, max_batched_tokens=1024), rank=0, seed=0)
    machine.enqueue("first", prompt_of((1, 512), (2, 16)), 1, 0)
    beside = machine.enqueue("beside", prompt_of((1, 512), (3, 16)), 1, 0)
    after = machine.enqueue("after", prompt_of((1, 512), (4, 16)), 1, 1)
    machine.advance(10**15)
    assert (beside.cached, after.cached) == (0, 512 - 16)


def test_a_reply_is_not_found_in_the_cache():
    machine = Machine(replace(SETTINGS, blocks=40), rank=0, seed=0)
    machine.enqueue("first", prompt_of((1, 320)), 300, 0)
    machine.enqueue("other", prompt_of((2, 320)), 1, 10**10)
    job = machine.enqueue("again", prompt_of((1, 320), (9, 16)), 1, 2 * 10**10)
    machine.advance(10**15)
    assert job.cached == 320 - 16


def test_replay_nearly_halves_a_cold_prefill():
    prompt = prompt_of((1, 16_384))
    off, on = (alone(prompt, replay=arm, max_batched_tokens=8192).first for arm in ("off", "on"))
    assert 0.40 <= 1 - on / off <= 0.50


def test_replay_without_graphs_pays_for_short_prompts_only():
    def first(arm, tokens):
        return alone(prompt_of((1, tokens)), replay=arm, max_batched_tokens=8192).first

    assert first("on-eager", 4096) - first("on", 4096) == round(Cost().eager_host * 1e6)
    assert first("on-eager", 16_384) == first("on", 16_384)


@pytest.mark.parametrize(
    ("replay", "tokens", "seconds"),
    [
        ("off", 4096, 0.292),
        ("off", 16_384, 1.106),
        ("off", 65_536, 4.680),
        ("on", 4096, 0.166),
        ("on", 16_384, 0.590),
        ("on", 65_536, 2.520),
    ],
)
def test_a_cold_prefill_takes_about_what_it_took_on_one_h200(replay, tokens, seconds):
    job = alone(prompt_of((1, tokens)), replay=replay, max_batched_tokens=8192)
    assert job.first / 1e6 == pytest.approx(seconds, rel=0.06)


@pytest.mark.parametrize(("rows", "seconds"), [(1, 0.00936), (8, 0.0109), (64, 0.0244)])
def test_a_decode_step_takes_about_what_it_took_on_one_h200(rows, seconds):
    work = Work(context=np.array([1024 * rows]), rows=rows)
    assert step_seconds(Cost(), parse("TP1"), work)[0] == pytest.approx(seconds, rel=0.06)


def test_ranks_that_share_experts_read_fewer_weights():
    cost, work = Cost(collective=0.0), Work(context=np.array([0]), rows=1)
    apart, together = (step_seconds(cost, parse(name), work)[0] for name in ("DP8", "DEP8"))
    assert apart - together == pytest.approx(cost.weights * cost.expert_share * 7 / 8)


def test_drafts_bring_the_acceptance_length_on_average():
    job = alone(prompt_of((1, 100)), 30_000, draft_tokens=5, acceptance_length=3.2)
    _, counts = job.pieces(10**15)
    assert counts.sum() == 30_000
    assert counts[1:].mean() == pytest.approx(3.2, rel=0.03)
    assert counts.max() == 6


def test_noise_has_mean_one_and_the_stated_spread():
    factors = noise(7, 0.1, 100, 200_000)
    assert factors.mean() == pytest.approx(1, abs=0.002)
    assert factors.std() == pytest.approx(0.1, rel=0.02)
    assert (noise(7, 0.1, 5000, 10) == factors[4900:4910]).all()


def test_drift_lengthens_steps_by_its_share_in_an_hour():
    machine = Machine(replace(SETTINGS, drift=0.1), rank=0, seed=0)
    early = machine.enqueue("early", prompt_of((1, 100)), 1, 0)
    late = machine.enqueue("late", prompt_of((2, 100)), 1, 3_600_000_000)
    machine.advance(10**15)
    assert (late.first - late.arrived) / early.first == pytest.approx(1.1, rel=1e-3)


def test_a_machine_takes_the_latest_request_off_when_blocks_run_out():
    machine = Machine(replace(SETTINGS, blocks=20), rank=0, seed=0)
    early = machine.enqueue("early", prompt_of((1, 100)), 150, 0)
    late = machine.enqueue("late", prompt_of((2, 100)), 150, 0)
    machine.advance(10**15)
    assert (early.preemptions, late.preemptions) == (0, 1)
    assert late.generated == 150
