"""Lanes of session trees, replayed by a profile: primers, pressure, then the window.

Which step may follow which are values of `workloads`; here is when. Nothing sleeps for a turn: all
of them stand in one agenda, and every answer moves its tree on.
"""

import asyncio

from harness import live, making
from harness.agenda import HAIR
from harness.client import Reply
from harness.clock import now
from harness.live import Live
from harness.making import Made
from harness.stage import Stage, make_ahead, plant
from harness.stage import set_up as stage_of
from harness.trial import Call, Trial, launch, send
from results.overflow import overflowed
from workloads.agentx import AgentX
from workloads.prompt import Prompt
from workloads.start import again, anchor, waits
from workloads.stream import Step

ENOUGH = 10
"""Requests after which, at the least, the share of failed ones may end a point."""


def set_up(trial: Trial, workload: AgentX) -> Stage:
    """The lanes as they stand before anything is sent; see `harness.stage`."""
    return stage_of(trial, workload, _ring, _look)


async def warm_up(stage: Stage) -> None:
    """Sends the primers, then the pressure, and makes ready what the window begins with."""
    delays = waits([start for start, _ in stage.begun])
    opened = now()
    for start, tree in stage.begun:
        for primer in start.primers:
            stage.agenda.add(
                opened + delays[start.lane, primer.key], tree.number, primer.key.stream
            )
    if delays:
        stage.flying = len(delays)
        await stage.over.wait()
        stage.over.clear()
    if stage.profile.pressure and not stage.failure:
        await _press(stage)
    if not stage.failure:
        for tree in stage.trees.values():
            for stream in tree.live:
                making.ahead(stage.trial, stage.made, tree, tree.step(stream))
        await making.all_of(stage.made)


async def _press(stage: Stage) -> None:
    """Sends each lane's next requests without delays and for one token, then lets them land."""
    stage.phase = "warm-up"
    for start, tree in stage.begun:
        for place in start.places:
            _offer(stage, tree, place.next.stream, now())
    if stage.flying:
        await stage.over.wait()
    stage.over.clear()
    if stage.fuse:
        stage.fuse.cancel()


async def follow(stage: Stage, opened: float) -> None:
    """Replays the window that has just opened; returns only where a failure ends it."""
    stage.phase, stage.idle = "window", opened
    found = {tree.number: live.places(tree) for tree in stage.trees.values()}
    first = anchor((place for places in found.values() for place in places), stage.profile)
    for number, places in found.items():
        tree = stage.trees[number]
        tree.held.clear()
        for place in places:
            stream = place.next.stream
            if place.waiting and not stage.profile.joins_keep_delay:
                tree.held[stream] = None
            else:
                stage.agenda.add(opened + max(0.0, place.offset - first), number, stream)
        _idle(stage, tree, opened)
    await stage.over.wait()
    assert stage.failure, "the window ended by itself"


def close(stage: Stage) -> None:
    """Sends nothing more."""
    stage.closed = True
    stage.agenda.close()
    stage.watch.close()
    making.forget_all(stage.made)
    if stage.building:
        stage.building.cancel()
    if stage.fuse:
        stage.fuse.cancel()


def _ring(stage: Stage) -> None:
    """Sends what has fallen due and may go."""
    for entry in stage.agenda.take():
        tree = stage.trees[entry.tree]
        if stage.phase == "primer":
            step = tree.streams[entry.stream].steps[tree.done[entry.stream] - 1]
            call = _call(stage, tree, step, making.make(stage.trial, tree, step, 1), entry.due)
            launch(stage.trial, _prime(stage, tree, call))
        else:
            _offer(stage, tree, entry.stream, entry.due)
    _settle(stage)


async def _prime(stage: Stage, tree: Live, call: Call) -> None:
    """Sends a primer; when the last one has ended, so has their phase."""
    reply = await send(stage.trial, call, _seen(stage, tree, call.request.prompt))
    stage.flying -= 1
    _warmed(stage, call, reply)
    if not stage.flying:
        stage.over.set()


def _offer(stage: Stage, tree: Live, stream: str, due: float) -> None:
    """Sends a stream's next step, which is due, unless it must wait or its lane has had enough."""
    step = tree.step(stream)
    if not live.ready(tree, step):
        tree.held[stream] = due
        if tree.hurried and not tree.flying:
            _hurry(stage, tree)
        return
    if stage.phase == "window" or _admit(stage, tree.lane):
        _dispatch(stage, tree, step, due, due)


def _admit(stage: Stage, lane: int) -> bool:
    """Whether the lane may send one more before the window opens."""
    pressure = stage.profile.pressure
    if stage.admitted[lane] >= pressure:
        return False
    stage.admitted[lane] += 1
    if all(stage.admitted[start.lane] >= pressure for start, _ in stage.begun):
        grace = stage.profile.warmup_grace
        why = (
            f"the warm-up did not end within {grace:g} s of its last request: the server is "
            "stalled, or too small for the load"
        )
        stage.fuse = asyncio.get_running_loop().call_later(grace, _fail, stage, why)
    return True


def _dispatch(stage: Stage, tree: Live, step: Step, planned: float, ready: float) -> None:
    """Sends a step, and begins what it spawned early."""
    stream, trial = step.key.stream, stage.trial
    window = stage.phase == "window"
    one = stage.made.pop((tree.number, step.key), None)
    if one is None:
        one = making.make(trial, tree, step, step.output if window else 1)
    tree.flying.add(stream)
    tree.idle, tree.hurried = None, False
    stage.flying += 1
    launch(trial, _answer(stage, tree, step, _call(stage, tree, step, one, planned, ready), one))
    moment = now()
    for begun in live.spawned(tree, step.spawns, early=True):
        _due(stage, tree, begun.id, moment + begun.offset)


async def _answer(stage: Stage, tree: Live, step: Step, call: Call, one: Made) -> None:
    """Sends a step and moves its tree on when it has ended."""
    trial = stage.trial

    # Earlier, making what follows would hold up what is sent in the same moment.
    def follow(_: float) -> None:
        if stage.phase == "window" and not stage.closed:
            making.next_of(trial, stage.made, tree, step)

    if one.preparing is not None:
        await one.preparing
    reply = await send(trial, call, _seen(stage, tree, call.request.prompt), follow)
    stage.flying -= 1
    stage.idle = max(stage.idle, reply.closed)
    if stage.closed:
        return
    if stage.phase == "window":
        _counted(stage, reply)
    else:
        _warmed(stage, call, reply)
    if stage.failure is None:
        _move(stage, tree, step, reply)
        _settle(stage)


def _seen(stage: Stage, tree: Live, prompt: Prompt) -> set[int]:
    """The prefixes that the cache may hold of a tree; notes those that other trees share."""
    unmarked = prompt.ends()[: prompt.marker]
    if len(unmarked):
        tree.seen |= stage.unmarked[tree.trace]
        stage.unmarked[tree.trace].update(prompt.prefix_hashes(unmarked).tolist())
    return tree.seen


def _move(stage: Stage, tree: Live, step: Step, reply: Reply) -> None:
    """Begins what the step spawned, puts the next one down, and lets go those that waited."""
    stream, moment = step.key.stream, reply.closed
    overflow = reply.error is not None and overflowed(reply.error)
    fresh = [] if overflow else live.spawned(tree, step.spawns, early=False)
    if overflow:
        live.stop(tree, stream)
        making.forget_next(stage.made, tree, step)
    else:
        live.end(tree, stream)
    for begun in fresh:
        _due(stage, tree, begun.id, moment + begun.offset)
    if stream in tree.live:
        following = tree.step(stream)
        if live.joined(tree, following) or stage.profile.joins_keep_delay:
            _due(stage, tree, stream, moment + following.delay)
        else:
            tree.held[stream] = None
    _release(stage, tree)
    if not tree.live:
        _recycle(stage, tree, moment)
    elif not tree.flying:
        _idle(stage, tree, moment)


def _due(stage: Stage, tree: Live, stream: str, moment: float) -> None:
    """Puts a stream's next step down for its moment; before the window, that is now."""
    if stage.phase == "window":
        making.ahead(stage.trial, stage.made, tree, tree.step(stream))
        stage.agenda.add(moment, tree.number, stream)
    else:
        _offer(stage, tree, stream, now())


def _release(stage: Stage, tree: Live) -> None:
    """Sends what was held back and may go now."""
    moment = now()
    for stream in live.released(tree):
        due = tree.held.pop(stream)
        if stage.phase == "window" or _admit(stage, tree.lane):
            planned = moment if due is None else due
            _dispatch(stage, tree, tree.step(stream), planned, moment)


def _recycle(stage: Stage, tree: Live, moment: float) -> None:
    """Gives the lane the next trace, from its first turn on, as soon as it has been made."""
    del stage.trees[tree.number]
    stage.free.append((tree.lane, moment))
    stage.unready += stage.phase == "window" and not stage.coming
    _fill(stage)


def _fill(stage: Stage) -> None:
    """Gives free lanes what has been made, and has more made."""
    while stage.free and stage.coming:
        lane, moment = stage.free.popleft()
        replay = stage.coming.popleft()
        make_ahead(stage, _arrived)
        fresh = plant(stage, replay, again(replay.plan, lane))
        stage.recycled += stage.phase == "window"
        _due(stage, fresh, fresh.trace, moment)


def _arrived(stage: Stage) -> None:
    """Goes on with a replay that has been made, where a lane waits for it."""
    make_ahead(stage, _arrived)
    if stage.free:
        _fill(stage)
        _settle(stage)


def _idle(stage: Stage, tree: Live, moment: float) -> None:
    """Notes since when the tree is idle, and when that will be too long."""
    tree.idle = moment
    if stage.phase == "window" and stage.profile.tree_idle_cap is not None:
        stage.watch.add(moment + stage.profile.tree_idle_cap, tree.number)


def _look(stage: Stage) -> None:
    """Hurries the trees that have been idle for too long."""
    cap = stage.profile.tree_idle_cap
    for entry in stage.watch.take():
        tree = stage.trees.get(entry.tree)
        if tree is None or tree.idle is None or cap is None or tree.idle + cap > now() + HAIR:
            continue
        tree.hurried = True
        _hurry(stage, tree)


def _hurry(stage: Stage, tree: Live) -> None:
    """Moves all timers of the tree so that its next one is due now."""
    first = stage.agenda.first(tree.number)
    if first is not None and first > now() + HAIR:
        stage.hurried["tree"].append(first - now())
        stage.agenda.advance(first - now(), tree.number)


def _settle(stage: Stage) -> None:
    """Ends the pressure when nothing is in flight, and bounds how long all of it is idle."""
    if stage.flying or stage.free or stage.closed or stage.phase == "primer":
        return
    if stage.phase == "warm-up":
        stage.over.set()
        return
    first = stage.agenda.first()
    limit = max(stage.idle + stage.profile.system_idle_cap, now())
    if first is not None and first > limit + HAIR:
        stage.hurried["system"].append(first - limit)
        stage.agenda.advance(first - limit)


def _warmed(stage: Stage, call: Call, reply: Reply) -> None:
    """Ends the point where a main stream could not be warmed up."""
    if (reply.error or reply.cut) and not call.depth and not stage.closed:
        why = reply.error or "it was cut"
        what = "primer" if stage.phase == "primer" else "warm-up request"
        _fail(stage, f"the {what} of {call.trace}, turn {call.key.turn}, failed: {why}")


def _counted(stage: Stage, reply: Reply) -> None:
    """Counts a request of the window; ends the point where too many have failed."""
    share = stage.profile.error_share
    stage.ended += 1
    stage.failed += reply.error is not None and not overflowed(reply.error)
    enough = max(len(stage.begun), ENOUGH)
    if share is not None and stage.ended >= enough and stage.failed > share * stage.ended:
        _fail(stage, f"{stage.failed} of {stage.ended} requests failed, more than {share:.0%}")


def _fail(stage: Stage, why: str) -> None:
    stage.failure = stage.failure or why
    close(stage)
    stage.over.set()


def _call(
    stage: Stage, tree: Live, step: Step, one: Made, planned: float, ready: float | None = None
) -> Call:
    return Call(
        trace=tree.trace,
        tree=tree.number,
        lane=tree.lane,
        key=step.key,
        depth=tree.streams[step.key.stream].depth,
        phase=stage.phase,
        request=one.request,
        planned=planned,
        ready=planned if ready is None else ready,
    )
