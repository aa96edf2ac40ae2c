"""Answers that a vLLM is forced to give: which tokens are sent, and that they come back."""

import asyncio
from pathlib import Path

import pytest

from harness.client import Request
from harness.endpoint import Endpoint
from harness.vllm.engine import Vllm
from harness.wire.forced import answer
from harness.wire.pool import plain
from harness.wire.render import Renderer
from tests.test_vllm_engine import engine, measured, started
from workloads.prompt import marked


def request(name: str, seed: int, salt: int = 1) -> Request:
    prompt = marked((seed, 40)).salted(salt)
    return Request(id=name, prompt=prompt, output=6, session="s")


def sent(folder: Path, *flags: str):
    """The reply to a forced request."""

    async def main():
        async with started(engine(folder, *flags, forced_outputs=True), folder) as server:
            asked = request("r", 1)
            return await server.client.send(asked, cut=asyncio.Event(), on_first=lambda _: None)

    return asyncio.run(main())


def test_a_forced_answer_comes_back_token_by_token(tmp_path):
    reply = sent(tmp_path)
    assert (reply.error, reply.output_tokens, reply.finish_reason) == (None, 6, "length")
    assert reply.tokens.tolist() == [1] * 6


def test_an_answer_that_strays_is_a_failure_that_says_where(tmp_path):
    with pytest.raises(
        Exception, match=r"as it was forced to: (\d+) tokens of \1, another one from"
    ):
        sent(tmp_path, "--fake-stray")


def test_the_tokens_are_those_of_the_prompt_in_every_arm_and_no_others():
    renderer = Renderer(plain(32_000))

    def forced(*args, **more):
        return asyncio.run(answer(request(*args, **more), renderer)).tolist()

    assert len(forced("a", 1)) == 6
    assert forced("a", 1) == forced("b", 1, salt=2) != forced("a", 2)


def test_a_point_of_forced_answers_is_valid_and_says_so(tmp_path):
    point = measured(engine(tmp_path, forced_outputs=True), tmp_path)
    assert point.status == "finished"
    assert {row["output_tokens"] for row in point.rows().to_pylist()} == {6}
    observed = point.evidence.observed
    assert observed.requested["forced_outputs"] is observed.features["forced_outputs"] is True
    assert observed.effective["model_config.enable_trace_replay"] is True
    assert "hf_secret" not in str(observed.effective)


def test_a_vllm_without_the_flag_is_unsupported_and_says_which_has_it(tmp_path):
    vllm = engine(tmp_path, forced_outputs=True)
    script = Path(vllm.python).parent / "vllm"
    script.write_text(script.read_text().replace("  --enable-trace-replay", "  --other"))
    point = measured(vllm, tmp_path)
    assert point.status == "unsupported"
    assert "has no --enable-trace-replay, by its own help" in point.reason


@pytest.mark.parametrize("settings", [{"mode": "text", "tokenizer": "t"}, {"speculation": "real"}])
def test_what_cannot_be_forced_is_said_before_anything_starts(settings):
    with pytest.raises(ValueError, match="forced_outputs"):
        Vllm(forced_outputs=True, **settings)


def test_an_endpoint_can_be_forced_too():
    one = Endpoint(url="http://127.0.0.1:1", model="m", forced_outputs=True)
    assert one.dialect.path == "/inference/v1/generate"
