"""A simulated DeepInfer: modules with the published names and arguments, run by the real worker.

Its speed is made up: it loads for FAKE_LOADING seconds; a prefill takes FAKE_PREFILL seconds and
FAKE_TOKEN more for each token that is not replayed, a decode step FAKE_DECODE seconds. Outputs come
a step late, as the real engine's do where it schedules ahead.
"""

import os
import runpy
import sys
import time
from collections import deque
from pathlib import Path
from types import ModuleType, SimpleNamespace

WORKER = Path(__file__).parents[1] / "harness/deepinfer/worker.py"

VOCABULARY = 129_280
REPLAYED_LAYERS = 0.5
"""The share of a prefill's work that compact replay saves."""


def setting(name, usual):
    return float(os.environ.get(name, usual))


class SamplingParams:
    def __init__(
        self,
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        ignore_eos=False,
        max_tokens=16,
        logprobs=False,
        prompt_logprobs=False,
        top_logprobs=0,
        first_n_token_no_eos=0,
        eos_id=0,
        so_args=None,
        golden_token_ids=None,
        seq_seed=None,
    ):
        self.max_tokens = max_tokens
        self.golden_token_ids = golden_token_ids


class EngineArgs:
    def __init__(
        self,
        model,
        served_model_name="deepinfer-model",
        tokenizer=None,
        trust_remote_code=False,
        load_format="auto",
        seed=0,
        max_model_len=None,
        data_parallel_size=0,
        context_parallel_size=1,
        expert_parallel_size=1,
        engram_parallel_size=0,
        engine_rank=0,
        engine_group_rank=0,
        gpu_memory_utilization=0.90,
        max_num_batched_tokens=None,
        max_num_seqs=256,
        disable_log_stats=False,
        revision=None,
        tokenizer_revision=None,
        stop_preempted_request=True,
        engine_type=None,
        chunked_prefill=False,
        ignore_len=128 << 20,
        tokens_per_block=-1,
        lookahead_tokens=0,
        offline_inference=False,
    ):
        self.max_model_len = max_model_len or 4096
        self.max_num_batched_tokens = max_num_batched_tokens or max(self.max_model_len, 4096)
        self.max_num_seqs = max_num_seqs
        self.world_size = max(1, data_parallel_size) * context_parallel_size
        self.engine_rank = engine_rank
        self.chunked_prefill = chunked_prefill
        if self.max_num_batched_tokens < self.max_model_len and not chunked_prefill:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is smaller than "
                f"max_model_len ({self.max_model_len})"
            )


class RequestOutput(SimpleNamespace):
    @staticmethod
    def clone(pointer):
        return pointer


class LLMEngine:
    def __init__(self, args):
        self.args = args
        self.device = os.environ["CUDA_VISIBLE_DEVICES"]
        self.yoco_prefill_truncation_mode = os.environ.get(
            "FAKE_MODE", os.environ.get("DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "off")
        )
        keeps = int(os.environ.get("DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "0"))
        self.yoco_truncate_len = keeps if self.yoco_prefill_truncation_mode == "compact" else 0
        self.interval = int(os.environ.get("DEEPINFER_PREFILL_ATTEMPT_INTERVAL", "70"))
        self.drafts = int(os.environ.get("DEEPINFER_USE_NEXTN_DECODE", "0"))
        self.parallel_config = SimpleNamespace(world_size=args.world_size)
        self.scheduler_config = SimpleNamespace(
            max_model_len=args.max_model_len,
            max_num_seqs=args.max_num_seqs,
            max_num_batched_tokens=args.max_num_batched_tokens,
            chunked_prefill=args.chunked_prefill,
        )
        self.waiting, self.running = deque(), []
        self.late = []
        self.steps = self.decodes = 0

    def add_request(
        self,
        /,
        user_id,
        request_id,
        sampling_params,
        prompt_token_ids,
        multi_modal_data=None,
        arrival_time=None,
        extra=None,
        enqueue=True,
        chunk_checkpoints=None,
    ):
        if prompt_token_ids.size == 0:
            raise ValueError("prompt must not be empty")
        if prompt_token_ids.max() >= VOCABULARY:
            return None
        sequence = SimpleNamespace(
            id=request_id, prompt=prompt_token_ids, sampling=sampling_params, tokens=0
        )
        self.waiting.append(sequence)
        return sequence

    def abort_request(self, request_id):
        before = len(self.waiting) + len(self.running)
        self.waiting = deque(one for one in self.waiting if one.id != request_id)
        self.running = [one for one in self.running if one.id != request_id]
        return before - len(self.waiting) - len(self.running), 0

    def get_num_unfinished_requests(self):
        return len(self.waiting) + len(self.running)

    def has_unfinished_requests(self):
        unfinished = self.get_num_unfinished_requests() > 0
        if not unfinished and self.parallel_config.world_size > 1:
            # Where the ranks ask one another.
            time.sleep(0.0005)
        return unfinished

    def step(self):
        self.steps += 1
        if self.waiting and (not self.running or self.decodes >= self.interval):
            self.decodes = 0
            fresh = self._prefill()
        else:
            self.decodes += 1
            fresh = self._decode()
        if self.steps % 10 == 0:
            self._log()
        outputs, self.late = self.late, fresh
        if int(os.environ.get("FAKE_DEATH", "0")) == self.steps:
            sys.stderr.write("RuntimeError: CUDA error: an illegal memory access\n")
            os._exit(3)
        return outputs

    def flush_inflight_reqs(self):
        outputs, self.late = self.late, []
        return outputs

    def close(self):
        sys.stdout.write("closed\n")

    def _prefill(self):
        outputs, taken, tokens = [], [], 0
        while self.waiting and tokens < self.args.max_num_batched_tokens:
            sequence = self.waiting.popleft()
            if sequence.prompt.size > self.args.max_model_len:
                outputs.append(self._output(sequence, True, "prompt_length_exceeded"))
                continue
            tokens += sequence.prompt.size
            taken.append(sequence)
        saved = REPLAYED_LAYERS if self.yoco_prefill_truncation_mode == "compact" else 0.0
        time.sleep(setting("FAKE_PREFILL", 0.002) + setting("FAKE_TOKEN", 0) * tokens * (1 - saved))
        return outputs + [self._next(sequence) for sequence in taken]

    def _decode(self):
        time.sleep(setting("FAKE_DECODE", 0.001))
        running, self.running = self.running, []
        outputs = []
        for sequence in running:
            left = sequence.sampling.max_tokens - sequence.tokens
            drafted = min(self.drafts, left - 1)
            outputs += [self._output(sequence) for _ in range(drafted)]
            last = self._next(sequence)
            if self.drafts:
                last.draft_tok, last.accept_tok = self.drafts + 1, drafted + 1
            outputs.append(last)
        return outputs

    def _next(self, sequence):
        last = sequence.tokens + 1 >= sequence.sampling.max_tokens
        output = self._output(sequence, last, "length" if last else "")
        output.draft_tok = output.accept_tok = 1
        if not last:
            self.running.append(sequence)
        return output

    def _output(self, sequence, finished=False, reason=""):
        forced = sequence.sampling.golden_token_ids
        token = forced[sequence.tokens] if forced else int(sequence.prompt[-1])
        sequence.tokens += reason in {"", "length"}
        return RequestOutput(
            request_id=sequence.id,
            token_id=token,
            prompt_len=sequence.prompt.size,
            num_output_tokens=sequence.tokens,
            finished=finished,
            finish_reason=reason,
            draft_tok=0,
            accept_tok=0,
        )

    def _log(self):
        # The published logger writes to standard output too.
        sys.stdout.write(
            f"RANK {self.args.engine_rank}, GPU {self.device}, step {self.steps}, [stats] "
            "(is_prompt False | avg_SPS 9.500 | avg_nextn_accept_rate 50.00% | moe_lb 1.2500 | "
            "num_batched_tokens 8[0.10%] | TTFT (max 2.0 ms, mean 1.0 ms))\n"
        )
        sys.stdout.flush()


class LLM:
    def __init__(
        self,
        model,
        tokenizer=None,
        trust_remote_code=False,
        expert_parallel_size=1,
        revision=None,
        tokenizer_revision=None,
        seed=0,
        gpu_memory_utilization=0.9,
        decode_sequence=True,
        **kwargs,
    ):
        sys.stdout.write("loading weights\n")
        sys.stdout.flush()
        time.sleep(setting("FAKE_LOADING", 0))
        kwargs.setdefault("disable_log_stats", True)
        args = EngineArgs(
            model=model,
            tokenizer=tokenizer,
            trust_remote_code=trust_remote_code,
            expert_parallel_size=expert_parallel_size,
            revision=revision,
            tokenizer_revision=tokenizer_revision,
            seed=seed,
            gpu_memory_utilization=gpu_memory_utilization,
            offline_inference=True,
            **kwargs,
        )
        self.llm_engine = LLMEngine(args)


def switches():
    """The engine's variables as it reads them: numbers, where they are set."""
    usual = {"DEEPINFER_USE_NEXTN_DECODE": 0, "DEEPINFER_PREFILL_ATTEMPT_INTERVAL": 70}
    return {name: int(os.environ.get(name, value)) for name, value in usual.items()}


def modules():
    """The modules that the worker asks for, by name."""
    names = {
        "deepinfer": {"__version__": "0.1.0", "simulated": True},
        "deepinfer._C": {},
        "deepinfer._C.engine": {"RequestOutput": RequestOutput},
        "deepinfer.environ": {"envs": SimpleNamespace(**switches())},
        "deepinfer.entrypoints": {},
        "deepinfer.entrypoints.llm": {"LLM": LLM},
        "deepinfer.sampling_params": {"SamplingParams": SamplingParams},
        "deep_cluster": {},
        "deep_cluster.hardware": {},
        "deep_cluster.hardware.device": {
            "accelerator_kind": lambda: "nvidia",
            "is_sm_major_10": lambda: os.environ.get("FAKE_GPU", "sm100") == "sm100",
        },
    }
    made = {}
    for name, content in names.items():
        made[name] = ModuleType(name)
        made[name].__path__ = []
        vars(made[name]).update(content)
    return made


if __name__ == "__main__":
    sys.modules.update(modules())
    runpy.run_path(str(WORKER), run_name="__main__")
