"""How it is noticed that a server hangs, and that it compiles, on a clock that jumps."""

import asyncio
from pathlib import Path

from harness import clock
from harness.client import Page
from harness.sampling import values
from harness.vllm.pulse import COMPILED, Pulse

STILL = 'vllm:num_requests_running{engine="0"} 3\nvllm:generation_tokens_total 40\n'
IDLE = 'vllm:num_requests_running{engine="0"} 0\nvllm:generation_tokens_total 40\n'
JIT = (
    "(Worker pid=9) WARNING 11-29 06:00:00 [jit_monitor.py:140] Triton kernel JIT compilation "
    "during inference: _scores. This causes a latency spike; consider extending warmup to cover.\n"
)


def watched(folder: Path, pages: list[str | None], patience: float = 5) -> str | None:
    """What is said after a look a second at these pages; None where all is well."""
    left = iter(pages)

    async def read() -> str | None:
        return next(left)

    async def main() -> str | None:
        pulse = Pulse(Page(url="here", read=read), [folder / "server.log"], patience)
        for _ in pages:
            await asyncio.sleep(1)
            await pulse.page.read()
        return await pulse.hung() if pulse.over else None

    return clock.run("virtual", main())


def moving(count: int) -> list[str | None]:
    return [STILL.replace("40", str(40 + number)) for number in range(count)]


def test_a_server_that_has_requests_and_takes_no_step_hangs(tmp_path):
    words = "the server hangs: it has 3 requests and no step since 6 s"
    assert watched(tmp_path, [STILL] * 7) == words


def test_a_server_that_answers_no_question_hangs(tmp_path):
    assert watched(tmp_path, [STILL] + [None] * 6) == (
        "the server hangs: it answers no question since 6 s"
    )


def test_a_server_that_moves_or_has_nothing_to_do_does_not_hang(tmp_path):
    assert watched(tmp_path, moving(60)) is None
    assert watched(tmp_path, [IDLE] * 60) is None
    assert watched(tmp_path, ([STILL] * 4 + [IDLE]) * 9) is None


def test_a_server_that_tells_no_counters_is_not_said_to_hang(tmp_path):
    assert watched(tmp_path, ["vllm:num_requests_running 2\n"] * 60) is None


def test_kernels_that_are_compiled_while_it_serves_are_counted(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(JIT)

    async def read() -> str:
        return IDLE

    async def count(pulse: Pulse) -> float:
        told = await pulse.page.read()
        return dict(values((told or "").splitlines()))[COMPILED]

    async def main() -> list[float]:
        pulse = Pulse(Page(url="here", read=read), [log], 5)
        counts = [await count(pulse)]
        for part in (JIT * 2 + JIT[:40], JIT[40:], "nothing else\n"):
            with log.open("a") as file:
                file.write(part)
            counts.append(await count(pulse))
        return counts

    # Those of before it served do not count, and a line counts when it is whole.
    assert clock.run("virtual", main()) == [0, 2, 3, 3]
