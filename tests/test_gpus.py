"""What is read of GPUs, with a script in the place of the driver's tool."""

import asyncio
import os
import sys
from pathlib import Path

from harness import gpus
from harness.client import Page
from harness.sampling import values


def surroundings(folder: Path, **variables: str) -> dict[str, str]:
    """Variables under which nvidia-smi is the script."""
    tool = folder / "bin/nvidia-smi"
    tool.parent.mkdir(exist_ok=True)
    script = Path(__file__).with_name("fake_smi.py")
    told = " ".join(f"{name}={value}" for name, value in variables.items())
    tool.write_text(f'#!/bin/sh\nexec env {told} {sys.executable} {script} "$@"\n')
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:{os.environ['PATH']}"}


def page(text: str | None) -> Page:
    async def read() -> str | None:
        return text

    return Page(url="http://here/metrics", read=read)


async def beneath(told: Page) -> dict[str, float]:
    """The series of a page, once there is one of a GPU."""
    text = ""
    async with asyncio.timeout(10):
        while "gpu:" not in text:
            await asyncio.sleep(0.01)
            text = await told.read() or ""
    return dict(values(text.splitlines()))


def looked(around: dict[str, str], *chosen: str) -> dict[str, float]:
    async def main() -> dict[str, float]:
        async with gpus.watched(page("up 1"), around, chosen) as watched:
            return await beneath(watched)

    return asyncio.run(main())


def test_a_servers_page_gains_clocks_power_and_throttling(tmp_path):
    found = looked(surroundings(tmp_path), "1")
    assert found == {
        "up": 1,
        'gpu:sm_clock_hertz{gpu="1"}': 1980e6,
        'gpu:memory_clock_hertz{gpu="1"}': 2619e6,
        'gpu:power_watts{gpu="1"}': 350.5,
        'gpu:temperature_celsius{gpu="1"}': 41,
        'gpu:memory_used_bytes{gpu="1"}': 4 * 2**20,
        'gpu:throttle_reasons{gpu="1"}': 4,
    }


def test_an_older_driver_is_asked_by_older_names(tmp_path):
    found = looked(surroundings(tmp_path, FAKE_SMI_OLD="1"), "1")
    assert found['gpu:throttle_reasons{gpu="1"}'] == 4


def test_what_a_gpu_does_not_tell_is_absent():
    names = ("gpu:power_watts", "gpu:sm_clock_hertz")
    assert gpus.parsed("0, [N/A], 345", names) == ("0", {"gpu:sm_clock_hertz": 345e6})
    assert gpus.parsed("0, 1", names) is None
    assert gpus.parsed("No devices were found", ()) is None


def test_without_the_tool_nothing_is_known_and_the_page_stays(tmp_path):
    async def main() -> tuple[object, Page]:
        nowhere = {"PATH": str(tmp_path)}
        plain = page("up 1")
        async with gpus.watched(plain, nowhere) as watched:
            assert watched is plain
            return await gpus.memory(nowhere), watched

    assert asyncio.run(main())[0] is None


def test_memory_is_told_in_bytes_by_gpu(tmp_path):
    assert asyncio.run(gpus.memory(surroundings(tmp_path))) == {"0": 4 << 20, "1": 4 << 20}


def test_the_memory_of_gpus_that_a_program_does_not_see_is_anothers(tmp_path):
    around = {**surroundings(tmp_path), gpus.MASK: "1"}
    assert asyncio.run(gpus.memory(around)) == {"1": 4 << 20}


def test_a_server_that_does_not_answer_is_silent_whatever_the_gpus_say(tmp_path):
    async def main() -> str | None:
        async with gpus.watched(page(None), surroundings(tmp_path)) as watched:
            return await watched.read()

    assert asyncio.run(main()) is None
