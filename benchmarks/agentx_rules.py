"""Whether our rules of AgentX-style replay and those of the public client agentx-harness agree.

Both plan the same traces: those of `--traces`, and random ones made to hit every rule and tie. What
each makes of them is compared: streams, anchors, delays, edges, messages down to the last token,
hits, and the starts of 16 lanes a trace. `--client` is the Python of an environment of its own:

    python -m venv ELSEWHERE && ELSEWHERE/bin/pip install agentx-harness==1.0.12

`--profile aiperf-mvp-0.13` is compared in the same way with aiperf==0.13.0 installed instead.

Recordings out of order can make steps wait for one another without end. The client refuses some of
those traces and would hang on others; we let such steps go, so their edges are not compared.
Prints how many of each are equal and different. Exits 0 only when nothing differs. 400 random
traces take about a minute.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from math import isclose
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson

from workloads.content import base_seed, block, block_seed, tail, tail_seed
from workloads.hits import hits
from workloads.messages import messages
from workloads.plan import Plan, plan
from workloads.profile import PROFILES, Profile
from workloads.start import moment, start
from workloads.stream import Stream
from workloads.weka import BLOCK, stream

SEED, LANES, POOL = 42, 16, 100_003
MODELS = ("served-a", "served-b")

CLIENT = """
import sys
from hashlib import sha256
from types import SimpleNamespace

import orjson
from aiperf.common.hash_id_random_generator import HashIdRandomGenerator
from aiperf.common.models import DatasetMetadata
from aiperf.dataset.loader._delay_cap import DelayCapTracker
from aiperf.dataset.loader.weka_trace import WekaTraceLoader
from aiperf.dataset.loader.weka_trace_models import WekaTrace
from aiperf.plugin.enums import DatasetSamplingStrategy
from aiperf.timing.conversation_source import ConversationSource
from aiperf.timing.trajectory_source import TrajectorySource

seed, lanes, pool, base, low, high, *models = sys.argv[1:]
pool = list(range(int(pool)))
digest = lambda tokens: sha256(",".join(map(str, tokens)).encode()).hexdigest()[:16]
tokenizer = SimpleNamespace(decode=lambda tokens: f"{len(tokens)}:{digest(tokens)}")
generator = SimpleNamespace(
    tokenizer=tokenizer, _cache={}, _tokenized_corpus=pool, _corpus_size=len(pool),
    _bpe_stable_terminator_tokens=[],
    _hash_id_corpus_rng=HashIdRandomGenerator(int(base), _internal=True),
)
loader = WekaTraceLoader.__new__(WekaTraceLoader)
absent = "max_isl max_osl max_context_length inter_turn_delay_cap_seconds user_block_size_override"
absent += " configured_trace_idle_gap_cap_seconds fixed_schedule_start_offset path"
absent += " fixed_schedule_end_offset tokenizer_revision"
for name in absent.split():
    setattr(loader, "_" + name, None)
for name in "ignore_trace_delays use_think_time_only tool_shaped_messages".split():
    setattr(loader, "_" + name, False)
loader._configured_model_names = models
loader._block_size = 64
loader._delay_cap_tracker = DelayCapTracker(cap_seconds=None)
loader.prompt_generator = generator


for line in sys.stdin.buffer:
    trace = WekaTrace.model_validate(orjson.loads(line))
    try:
        made = loader.convert_to_conversations({trace.id: [trace]})
    except NotImplementedError as error:
        sys.stdout.buffer.write(orjson.dumps({"id": trace.id, "refused": str(error)}) + b"\\n")
        continue
    metadata = DatasetMetadata(
        conversations=[one.to_metadata() for one in made],
        sampling_strategy=DatasetSamplingStrategy.SEQUENTIAL,
    )
    source = TrajectorySource.__new__(TrajectorySource)
    ConversationSource.__init__(source, dataset_metadata=metadata, dataset_sampler=None)
    source._random_seed = int(seed)
    source._start_min_ratio, source._start_max_ratio = float(low), float(high)
    source._children_by_parent = source._build_child_index()
    source._warned_live_delta_snapshot = True
    begun = []
    for lane in range(int(lanes)):
        one = source._build_timestamped_trajectory(trace.id, lane_index=lane)
        begun.append(one and one.snapshot and {
            "moment": one.snapshot.t_star_ms,
            "places": [
                [s.conversation_id, s.next_turn_index, s.next_dispatch_offset_ms,
                 s.waiting_on_children]
                for s in one.snapshot.states
            ],
            "ended": sorted([b.conversation_id, b.next_turn_index]
                            for b in one.snapshot.replay_resume_boundaries),
        })
    joins = {
        p.branch_id: k for c in made for k, turn in enumerate(c.turns) for p in turn.prerequisites
    }
    told = {
        "id": trace.id,
        "starts": begun,
        "branches": [
            [b.branch_id, b.child_conversation_ids, b.start_timestamp_ms, joins.get(b.branch_id),
             next(k for k, turn in enumerate(c.turns) if b.branch_id in turn.branch_ids)]
            for c in made for b in c.branches
        ],
        "streams": [
            {
                "id": c.session_id, "scope": c.replay_scope_id,
                "turns": [
                    {
                        "source": [t.source_outer_idx, t.source_inner_idx],
                        "timestamp": t.timestamp, "delay": t.delay, "model": t.model,
                        "output": t.max_tokens, "reset": bool(t.reset_context),
                        "messages": [[m["role"], m["content"]] for m in t.raw_messages],
                        "hits": [t.theoretical_prefix_cache_hit_blocks,
                                 t.theoretical_prefix_cache_total_blocks],
                        "after": [[p.conversation_id, p.turn_index]
                                  for p in t.replay_predecessors or []],
                    }
                    for t in c.turns
                ],
            }
            for c in made
        ],
    }
    sys.stdout.buffer.write(orjson.dumps(told) + b"\\n")
    sys.stdout.flush()
"""


def ours(made: Plan, profile: Profile) -> dict[str, Any]:
    """What we make of a trace, told as the client's driver tells it."""
    found = hits(made)
    return {
        "id": made.trace,
        "starts": [_start(made, lane, profile) for lane in range(LANES)],
        "branches": [
            [list(branch.streams), branch.start * 1000, branch.join, branch.spawn]
            for branch in made.branches
        ],
        "streams": [
            {"id": one.id, "scope": one.scope, "turns": list(_turns(made, one, found, profile))}
            for one in made.streams
        ],
    }


def _start(made: Plan, lane: int, profile: Profile) -> dict[str, Any] | None:
    at = moment(made, lane, profile, SEED)
    begun = start(made, lane, at, profile)
    return begun and {
        "moment": at * 1000,
        "places": [[*place.next, place.offset * 1000, place.waiting] for place in begun.places],
        "ended": sorted([name, turns] for name, turns in begun.ended.items() if turns),
    }


def _turns(made: Plan, one: Stream, found: Any, profile: Profile) -> Iterator[dict[str, Any]]:
    pool = np.arange(POOL)
    base = base_seed(SEED)
    for step, planned in zip(
        one.steps, messages(one, repeats_are_whole=profile.repeats_are_whole), strict=True
    ):
        ids = step.call.hash_ids[: step.call.blocks].tolist()
        contents = [block(pool, block_seed(base, made.trace, number)) for number in ids]
        last = tail(pool, tail_seed(*step.key), step.call.tail)
        told, place = [], 0
        for part in planned.parts:
            pieces = contents[place : place + part.blocks] + ([last] if part.tail else [])
            place += part.blocks
            told.append([part.role, _told(np.concatenate(pieces))])
        yield {
            "source": list(step.source),
            "timestamp": step.call.start * 1000,
            "delay": step.delay * 1000,
            "model": made.model(step, MODELS),
            "output": step.output,
            "reset": planned.reset,
            "messages": told[planned.fresh :],
            "hits": list(found[step.key]),
            "after": [list(key) for key in step.after],
        }


def _told(tokens: Any) -> str:
    digest = sha256(",".join(map(str, tokens.tolist())).encode()).hexdigest()[:16]
    return f"{len(tokens)}:{digest}"


def compare(counts: Counter[tuple[str, bool]], one: Any, other: Any, what: str) -> None:
    """Counts every value as equal or different; numbers are equal up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name, value in one.items():
            compare(counts, value, other[name], f"{what}.{name}" if what else name)
        return
    if what.endswith(("streams", "turns", "starts", "branches")) and len(one) == len(other):
        counts[what, True] += 1
        for mine, theirs in zip(one, other, strict=True):
            compare(counts, mine, theirs, what + "[]")
        return
    counts[what, _same(one, other)] += 1


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return isclose(one or 0.0, other or 0.0, rel_tol=1e-12, abs_tol=1e-6)
    return bool(one == other)


def theirs(client: str, folder: Path, profile: Profile) -> Iterator[dict[str, Any]]:
    """What the client makes of every trace in the folder, in name order."""
    names = sorted(folder.glob("*.json"))
    lines = b"\n".join(orjson.dumps(orjson.loads(name.read_bytes())) for name in names)
    arguments = [client, "-c", CLIENT, str(SEED), str(LANES), str(POOL), str(base_seed(SEED))]
    arguments += [str(profile.start_from), str(profile.start_to)]
    environment = os.environ | {"AIPERF_DATASET_WEKA_PARALLEL_WORKERS": "1"}
    answer = subprocess.run(
        [*arguments, *MODELS],
        input=lines,
        capture_output=True,
        env=environment,
        check=False,
        timeout=1800,
    )
    if answer.returncode:
        sys.exit(f"the client failed: {answer.stderr.decode()[-3000:]}")
    for line in answer.stdout.splitlines():
        if line.startswith(b"{"):
            told = orjson.loads(line)
            told["branches"] = [b[1:] for b in told.get("branches", ())]
            yield told


class Recorder:
    """Random calls of agents that share, cut, fork and drop contexts, on a coarse clock."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fresh = 0
        self.contexts: list[list[int]] = []

    def context(self) -> list[int]:
        """The next context of one of the agents, or of a new one."""
        random = self.random
        kind = random.random()
        if not self.contexts or kind < 0.05:
            self.contexts.append(self.grown([]))
            return self.contexts[-1]
        index = random.randrange(len(self.contexts))
        held = self.contexts[index]
        if kind < 0.12:
            return list(held)
        if kind < 0.3:
            held = held[: random.randint(1, max(1, len(held)))]
        made = self.grown(held) if random.random() < 0.85 else list(held)
        if kind < 0.22:
            self.contexts.append(made)
        else:
            self.contexts[index] = made
        return made

    def grown(self, held: list[int]) -> list[int]:
        """The context with a few new blocks."""
        count = self.random.choice([1, 1, 2, 3, 6, 30])
        self.fresh += count
        return [*held, *range(self.fresh - count, self.fresh)]

    def call(self, t: float) -> dict[str, Any]:
        """A call that starts then."""
        random = self.random
        ids = list(self.context())
        tokens = BLOCK * len(ids) + random.choice([0, 0, 7, 63])
        if random.random() < 0.06:
            ids = ids[: random.randint(0, len(ids))]
        scale = random.choice([1, 1, 1, 120])
        return {
            "t": t,
            "type": random.choice("ns"),
            "model": random.choices(["large", "small", "tiny"], [20, 2, 1])[0],
            "in": tokens,
            "out": random.choice([0, 1, 10, 64, 65, 200, 5000]),
            "hash_ids": ids,
            "api_time": random.choice([None, 0.0, 0.5, 1.0, 3.0, 10.0 * scale]),
        }


def recorded(number: int) -> dict[str, Any]:
    """A random trace."""
    random = Random(number)
    recorder = Recorder(random)
    t, requests = 0.0, []
    for place in range(random.randint(1, 40)):
        t += random.choice([0, 0, 0.5, 1, 1, 2.5, 10, 0.123456789, random.random() * 100])
        t += random.choice([0] * 30 + [4000])
        if random.random() < 0.12:
            requests.append(_agent(recorder, t, place))
        else:
            requests.append(recorder.call(t))
    if all(request["type"] == "subagent" for request in requests):
        requests.insert(0, recorder.call(0.0))
    if random.random() < 0.2:
        alone = recorder.grown([])
        small = {"hash_ids": alone, "in": BLOCK * len(alone), "out": random.choice([5, 64, 65])}
        requests.insert(0, recorder.call(0.0) | small)
    first = next(request for request in requests if request["type"] != "subagent")
    system = random.choice([0, 0, 40, 100])
    if len(first["hash_ids"]) < 2 or random.random() < 0.5:
        system = 0
    return {
        "id": f"random-{number:05d}",
        "models": ["large", "small", "tiny"],
        "block_size": BLOCK,
        "hash_id_scope": "local",
        "tool_tokens": system // 2,
        "system_tokens": system - system // 2,
        "requests": requests,
    }


def _agent(recorder: Recorder, t: float, place: int) -> dict[str, Any]:
    random = recorder.random
    relative = random.random() < 0.2
    inner, calls = 0.0, []
    for _ in range(random.randint(1, 8)):
        calls.append(recorder.call(inner if relative and inner < t else t + inner))
        inner += random.choice([0, 0.5, 1, 7])
    return {
        "t": t,
        "type": "subagent",
        "agent_id": f"agent_{place:03d}",
        "subagent_type": "x",
        "status": "completed",
        "duration_ms": random.choice([None, 0, 500, 3000, 60_000]),
        "total_tokens": None,
        "tool_use_count": None,
        "models": ["large"],
        "tool_tokens": 0,
        "system_tokens": 0,
        "requests": calls,
    }


def entangled(told: dict[str, Any]) -> bool:
    """Whether some of the steps wait for one another without end."""
    turns = {one["id"]: one["turns"] for one in told["streams"]}
    waits: dict[tuple[str, int], set[tuple[str, int]]] = {
        (name, place): {(one, turn) for one, turn in step["after"]} | {(name, place - 1)}
        for name, steps in turns.items()
        for place, step in enumerate(steps)
    }
    for children, _, join, spawn in told["branches"]:
        for child in children:
            waits[child, 0].add((told["id"], spawn))
            if join is not None:
                waits[told["id"], join].add((child, len(turns[child]) - 1))
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return True
    return False


def pairs(
    client: str, folders: list[Path], profile: Profile
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What we and the client make of every trace."""
    for folder in folders:
        for trace, other in zip(stream(str(folder)), theirs(client, folder, profile), strict=True):
            yield ours(plan(trace, profile), profile), other


def tally(counts: Counter[tuple[str, bool]], mine: dict[str, Any], other: dict[str, Any]) -> None:
    """Counts what the two make of one trace, and names what differs."""
    if "refused" in other:
        counts["traces that the client refuses", True] += 1
        return
    if entangled(other):
        counts["traces whose steps wait without end for the client", True] += 1
        for one in (*mine["streams"], *other["streams"]):
            one["turns"] = [turn | {"after": None} for turn in one["turns"]]
    before = counts.copy()
    compare(counts, mine, other, "")
    for what, same in counts - before:
        if not same:
            print(f"{other['id']}: {what} differs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", required=True)
    parser.add_argument("--profile", choices=PROFILES, default="agentx-v1")
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--random", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    counts: Counter[tuple[str, bool]] = Counter()
    with TemporaryDirectory() as made:
        for number in range(asked.seed, asked.seed + asked.random):
            trace = orjson.dumps(recorded(number))
            (Path(made) / f"{number:06d}.json").write_bytes(trace)
        folders = [Path(made)] if asked.random else []
        folders += [asked.traces] if asked.traces else []
        for mine, other in pairs(asked.client, folders, PROFILES[asked.profile]):
            tally(counts, mine, other)
    for what in sorted({what for what, _ in counts}):
        print(f"{what}: {counts[what, True]} equal, {counts[what, False]} different")
    different = sum(count for (_, same), count in counts.items() if not same)
    print(f"equal {counts.total() - different}, different {different}")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
