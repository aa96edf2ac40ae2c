"""What the simulated server says: its answers as frames of a stream, or as one body."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.sim.job import Job
from harness.sim.server.asked import Asked
from harness.sim.server.words import Vocabulary
from workloads.prompt import seed_of

Frame = dict[str, Any]

_OPENING, _CLOSING = '{"text": "', '"}'


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """One answer, all of whose tokens are known from the start.

    The first `reasoning` tokens are reasoning, under the key `reasoning_key`.
    """

    asked: Asked
    id: str
    model: str
    created: int
    fingerprint: str
    ids: list[int]
    texts: list[str]
    reasoning: int
    reasoning_key: str

    @property
    def finish(self) -> str:
        """Why it ends."""
        if self.asked.tool:
            return "tool_calls"
        return "length" if self.asked.bounded else "stop"

    def frame(self, choices: list[Frame], **more: Any) -> Frame:
        """A frame of the stream."""
        kind = "chat.completion.chunk" if self.asked.chat else "text_completion"
        return self._named(kind, choices) | more

    def role(self) -> Frame:
        """The frame that only names the role."""
        delta = {"role": "assistant", "content": ""}
        more: Frame = {}
        if self.asked.token_ids:
            more["prompt_token_ids"] = self.asked.ids.tolist()
        return self.frame([{"index": 0, "delta": delta, "finish_reason": None}], **more)

    def piece(self, first: int, tokens: int) -> Frame:
        """The frame of so many tokens, from the first on."""
        end = first + tokens
        last = end == len(self.ids)
        choice: Frame = {"index": 0, "finish_reason": self.finish if last else None}
        if self.asked.chat:
            choice["delta"] = self._delta(first, end)
        else:
            choice["text"] = "".join(self.texts[first:end])
        if self.asked.token_ids:
            choice["token_ids"] = self.ids[first:end]
            if not first and not self.asked.chat:
                choice["prompt_token_ids"] = self.asked.ids.tolist()
        more = {"usage": self._counts(end)} if self.asked.chunk_usage else {}
        return self.frame([choice], **more)

    def total(self, job: Job, drafts: int) -> Frame:
        """The frame that counts, after the last token."""
        return self.frame([], **self._summary(job, drafts))

    def whole(self, job: Job, drafts: int) -> Frame:
        """All of it as one body."""
        choice: Frame = {"index": 0, "finish_reason": self.finish}
        if self.asked.token_ids:
            choice |= {"token_ids": self.ids, "prompt_token_ids": self.asked.ids.tolist()}
        if self.asked.chat:
            message = {"role": "assistant", "content": None} | self._delta(0, len(self.ids))
            choice["message"] = message
        else:
            choice["text"] = "".join(self.texts)
        kind = "chat.completion" if self.asked.chat else "text_completion"
        return self._named(kind, [choice]) | self._summary(job, drafts)

    def _named(self, kind: str, choices: list[Frame]) -> Frame:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _delta(self, first: int, end: int) -> Frame:
        cut = min(max(first, self.reasoning), end)
        delta: Frame = {}
        if cut > first:
            delta[self.reasoning_key] = "".join(self.texts[first:cut])
        if end > cut and self.asked.tool:
            delta["tool_calls"] = [self._call(self.asked.tool, cut, end)]
        elif end > cut:
            delta["content"] = "".join(self.texts[cut:end])
        return delta

    def _call(self, tool: str, first: int, end: int) -> Frame:
        opens, closes = first == self.reasoning, end == len(self.ids)
        arguments = "".join(self.texts[first:end])
        arguments = (_OPENING if opens else "") + arguments + (_CLOSING if closes else "")
        if not opens:
            return {"index": 0, "function": {"arguments": arguments}}
        function = {"name": tool, "arguments": arguments}
        return {"index": 0, "id": f"call-{self.id}", "type": "function", "function": function}

    def _counts(self, output: int) -> Frame:
        prompt = len(self.asked.ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
        }

    def _summary(self, job: Job, drafts: int) -> Frame:
        cached = {"prompt_tokens_details": {"cached_tokens": job.cached}}
        return {
            "usage": self._counts(len(self.ids)) | cached,
            "metrics": _metrics(job, drafts),
        }


def answer_ids(asked: Asked, seed: int, vocabulary: Vocabulary) -> list[int]:
    """The tokens of an answer: the same prompt always gets the same ones."""
    random = np.random.Generator(np.random.Philox(key=seed_of(seed, "answer", asked.prompt.hash)))
    places = random.integers(len(vocabulary.answers), size=asked.output)
    ids: list[int] = vocabulary.answers[places].tolist()
    return ids


def _metrics(job: Job, drafts: int) -> Frame:
    """What vLLM tells of a request, with its names and in milliseconds."""
    assert job.scheduled is not None
    assert job.first is not None
    assert job.last is not None
    generation, queue = (job.last - job.first) / 1e3, (job.scheduled - job.arrived) / 1e3
    gaps = job.output - 1
    found: Frame = {
        "time_to_first_token_ms": (job.first - job.scheduled) / 1e3,
        "queue_time_ms": queue,
        "generation_time_ms": generation,
        "mean_itl_ms": generation / gaps if gaps else None,
        "tokens_per_second": gaps / generation * 1e3 if generation else None,
    }
    if drafts:
        found["speculative_decoding"] = _speculation(job, drafts)
    return found


def _speculation(job: Job, drafts: int) -> Frame:
    pieces = sum(map(len, job.ends))
    steps = pieces - len(job.sampled)
    accepted = job.output - pieces
    return {
        "num_spec_steps": steps,
        "num_draft_tokens": steps * drafts,
        "num_accepted_draft_tokens": accepted,
        "mean_acceptance_length": 1 + accepted / steps if steps else None,
        "draft_acceptance_rate": accepted / (steps * drafts) if steps else None,
    }
