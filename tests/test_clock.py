import asyncio

import pytest

from harness import clock
from results.errors import EngineError


def test_virtual_time_jumps_to_each_timer_and_lands_on_it_exactly():
    moments = []

    async def wait(moment):
        await clock.until(moment)
        moments.append(clock.now())

    async def main():
        async with asyncio.TaskGroup() as group:
            for moment in (3600.25, 0.1, 7.000001):
                group.create_task(wait(moment))

    clock.run("virtual", main())
    assert moments == [0.1, 7.000001, 3600.25]


def test_virtual_moments_are_whole_microseconds_and_never_early():
    async def main():
        await clock.until(1 / 3)
        return clock.now()

    assert clock.run("virtual", main()) == 0.333334


def test_a_sum_of_delays_does_not_drift_on_the_virtual_clock():
    async def main():
        for step in range(1, 20_001):
            await clock.until(step * 0.005)
        return clock.now()

    assert clock.run("virtual", main()) == 100.0


def test_the_virtual_clock_refuses_threads():
    async def main():
        await asyncio.to_thread(print)

    with pytest.raises(EngineError, match="cannot wait for a thread"):
        clock.run("virtual", main())


def test_the_virtual_clock_says_when_everything_waits_for_nothing():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(EngineError, match="everything waits"):
        clock.run("virtual", main())


def test_the_wall_clock_is_the_monotonic_one():
    async def main():
        before = clock.now()
        await clock.until(before + 0.001)
        return clock.now() - before

    assert clock.run("wall", main()) >= 0.001
