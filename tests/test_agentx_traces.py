"""What must hold for every recorded trace."""

from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

from workloads.content import base_seed, block_seed
from workloads.hits import hits, theoretical
from workloads.messages import messages, prompts
from workloads.plan import Plan, plan
from workloads.profile import AGENTX_V1
from workloads.prompt import MARKER_TOKENS
from workloads.session import Key
from workloads.start import moment, start
from workloads.weka import Trace, read


@pytest.fixture(scope="session")
def traces(recorded: Path) -> Sequence[Trace]:
    return read(str(recorded))


@pytest.fixture(scope="module")
def plans(traces: Sequence[Trace]) -> Sequence[Plan]:
    return [plan(trace, AGENTX_V1) for trace in traces]


def waits(made: Plan) -> dict[Key, set[Key]]:
    """What each step waits for."""
    lasts = {stream.id: stream.steps[-1].key for stream in made.streams}
    found: dict[Key, set[Key]] = {}
    for stream in made.streams:
        before = stream.spawn
        for step in stream.steps:
            found[step.key] = {*step.after, *(lasts[name] for name in step.joins)}
            found[step.key] |= set() if before is None else {before}
            before = step.key
    return found


def test_every_request_is_one_step(traces: Sequence[Trace], plans: Sequence[Plan]) -> None:
    for trace, made in zip(traces, plans, strict=True):
        steps = [*made.steps()]
        assert len({step.source for step in steps}) == len(steps)
        assert sorted(id(step.call) for step in steps) == sorted(map(id, trace.all_calls()))


def test_every_step_can_be_sent_in_an_order_that_begins_with_the_main_stream(
    plans: Sequence[Plan],
) -> None:
    for made in plans:
        order = [*TopologicalSorter(waits(made)).static_order()]
        assert order[0] == made.main.steps[0].key
        assert {*order} == {step.key for step in made.steps()}
        spawned = [name for step in made.main.steps for name in step.spawns]
        assert sorted(spawned) == sorted(stream.id for stream in made.streams[1:])


def test_prompts_are_as_long_as_recorded(plans: Sequence[Plan]) -> None:
    for made in plans[::3]:
        seed = cache(lambda one, trace=made.trace: block_seed(base_seed(42), trace, one))
        for stream in made.streams:
            found = messages(stream, repeats_are_whole=True)
            sent = prompts(stream, found, seed)
            for step, prompt in zip(stream.steps, sent, strict=True):
                assert prompt.marker is not None
                assert prompt.length == step.call.input + MARKER_TOKENS
                seeds = np.delete(prompt.seeds, prompt.marker)
                ids = step.call.hash_ids[: step.call.blocks].tolist()
                assert seeds[: len(ids)].tolist() == [seed(one) for one in ids]


def test_starts_divide_every_trace_at_one_moment(plans: Sequence[Plan]) -> None:
    for made in plans:
        for lane in range(4):
            at = moment(made, lane, AGENTX_V1, 42)
            found = start(made, lane, at, AGENTX_V1)
            assert found is not None
            assert any(not place.waiting for place in found.places)
            for stream in made.streams:
                ended = found.ended[stream.id]
                assert all(step.call.start < at for step in stream.steps[:ended])
                assert all(step.call.start >= at for step in stream.steps[ended : ended + 1])


def test_the_traces_repeat_what_they_are_known_to(plans: Sequence[Plan]) -> None:
    found = [hit for made in plans for hit in hits(made).values()]
    assert len(found) == 976
    assert sum(hit.blocks for hit in found) / sum(hit.total for hit in found) == pytest.approx(
        0.9563, abs=1e-4
    )
    assert theoretical(hits(plans[0])) is not None
