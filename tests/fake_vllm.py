"""Acts as the vllm command: `serve` with a streaming answer, counters, and a child that stays.

Like vLLM it is more than one process: an engine core in a session of its own, which shows no
environment, ignores polite signals, and holds a lock and shared memory; under it a worker. The
server ends when its engine core does, but not the other way round. Data-parallel ranks have
counters and prefix caches of their own, and a port each where they are asked for at several.
"""

# ruff: noqa: T201 - it is a command
import fcntl
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STARTED = time.monotonic()
NAMES = ("prompt_tokens", "generation_tokens", "prefix_cache_hits", "requests")
COUNTS: defaultdict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(NAMES, 0))
CACHES: defaultdict[int, set[int]] = defaultdict(set)
COUNTED = threading.Lock()
BLOCK = 64


def option(name: str, default: str = "") -> str:
    words = sys.argv
    return words[words.index(name) + 1] if name in words else default


def ranks() -> range:
    """The ranks that this process answers for."""
    first = int(option("--data-parallel-rank", option("--data-parallel-start-rank", "0")))
    every = int(option("--data-parallel-size", "1"))
    apart = {"--data-parallel-hybrid-lb", "--data-parallel-multi-port-external-lb"}
    if "--data-parallel-rank" in sys.argv:
        return range(first, first + 1)
    if apart & set(sys.argv):
        return range(first, first + int(option("--data-parallel-size-local", str(every))))
    return range(every)


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ranks = range(1)
    forced: list[int] | None = None

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/health":
                self.say(200, b"")
            case "/metrics":
                self.say(200, metrics(self.ranks).encode())
            case "/server_info":
                self.say(200, json.dumps({"vllm_config": configuration()}).encode())
            case "/version":
                self.say(200, b'{"version": "fake"}')
            case _:
                self.say(404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/reset_prefix_cache":
            print("emptied the caches of ranks", *self.ranks, flush=True)
            self.say(200, b'{"success": true}')
            return
        if time.monotonic() - STARTED < float(option("--fake-loading", "0")):
            self.say(503, b'{"message": "still loading"}')
            return
        if "--fake-mute" in sys.argv:
            time.sleep(60)
        if "--fake-refusal" in sys.argv:
            self.say(400, b'{"message": "there is no chat template"}')
            return
        with COUNTED:
            rank = self.rank()
            if rank is not None:
                COUNTS[rank]["requests"] += 1
            served = sum(counts["requests"] for counts in COUNTS.values())
            last = served == int(option("--fake-crash-at", "-1"))
        if rank is None:
            self.say(400, b'{"message": "data parallel rank out of range"}')
            return
        if self.path == "/inference/v1/generate":
            drawn = body["sampling_params"]
            body |= {"prompt": body["token_ids"], "max_tokens": drawn["max_tokens"]}
            self.forced = drawn["trace_decode_token_ids"]
            if "--fake-stray" in sys.argv:
                self.forced[-1] += 1
        self.stream(rank, body["prompt"], body["max_tokens"], last=last)

    def rank(self) -> int | None:
        """The rank that is to do it: the one named, or else each in turn."""
        named = self.headers["X-data-parallel-rank"]
        if named is None or "--fake-deaf" in sys.argv:
            served = sum(counts["requests"] for counts in COUNTS.values())
            return self.ranks[served % len(self.ranks)]
        return int(named) if int(named) in self.ranks else None

    def stream(self, rank: int, ids: list[int], output: int, *, last: bool) -> None:
        prompt = len(ids)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with COUNTED:
            ends = range(BLOCK, prompt, BLOCK)
            blocks = [hash(tuple(ids[:end])) for end in ends]
            hits = BLOCK * sum(block in CACHES[rank] for block in blocks)
            CACHES[rank].update(blocks)
            COUNTS[rank]["prompt_tokens"] += prompt
            COUNTS[rank]["prefix_cache_hits"] += hits
        for number in range(output):
            if last and number == 1:
                print("EngineDeadError: the engine core is gone", flush=True)
                os._exit(17)
            reason = "length" if number == output - 1 else None
            said = {"token_ids": [self.forced[number]]} if self.forced else {"text": "a"}
            self.frame({"choices": [{"index": 0, **said, "finish_reason": reason}]})
            with COUNTED:
                COUNTS[rank]["generation_tokens"] += 1
            time.sleep(0.005)
        cached = {"cached_tokens": hits}
        usage = {"prompt_tokens": prompt, "completion_tokens": output}
        self.frame({"choices": [], "usage": {**usage, "prompt_tokens_details": cached}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def frame(self, content: object) -> None:
        self.chunk(b"data: %b\n\n" % json.dumps(content).encode())

    def chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
        self.wfile.flush()

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def configuration() -> dict[str, dict[str, object]]:
    """What the front end believes: like vLLM's, it knows nothing of the engine core's graphs."""
    kinds = ("tensor", "pipeline", "data")
    sizes = {f"{kind}_parallel_size": int(option(f"--{kind}-parallel-size", "1")) for kind in kinds}
    seats = option("--fake-sequences", option("--max-num-seqs", "64"))
    captured = int(option("--max-cudagraph-capture-size", "512"))
    forced = "--enable-trace-replay" in sys.argv
    return {
        "parallel_config": sizes,
        "cache_config": {
            "swa_bounded_replay": "--no-swa-bounded-replay" not in sys.argv,
            "enable_prefix_caching": "--no-enable-prefix-caching" not in sys.argv,
        },
        "scheduler_config": {"max_num_seqs": int(seats)},
        "compilation_config": {"max_cudagraph_capture_size": captured},
        "model_config": {"hf_token": "hf_secret", "enable_trace_replay": forced},
    }


def told() -> None:
    """The lines of a start that prove what runs."""
    core = "(EngineCore pid=7) INFO 11-30 06:00:00 [model.py:1]"
    print(core, "Using DeepSeek's fp8_ds_mla KV cache format.")
    if "--no-swa-bounded-replay" not in sys.argv and "--fake-no-replay" not in sys.argv:
        print(core, "Decoder SWA bounded replay: in eager prefill steps, layer 20 writes its KV")
        if "--compilation-config" not in sys.argv and "-cc" not in sys.argv:
            print(core, "Capturing decoder replay CUDA graphs (PIECEWISE): 100% 4/4")
    print(core, "GPU KV cache size: 1,000 tokens, Maximum concurrency for 10 tokens", flush=True)


def metrics(ranks: range) -> str:
    extra = int(option("--fake-miscount", "0"))
    lines = ["# HELP made up"]
    with COUNTED:
        for rank in ranks:
            counts = dict(COUNTS[rank])
            counts["prompt_tokens"] += extra * counts["requests"]
            lines += [f'vllm:{name}_total{{engine="{rank}"}} {n}.0' for name, n in counts.items()]
    return "\n".join(lines) + "\n"


def core(lock: str, shared: str) -> None:
    """The engine core: starts a worker, and holds on to a lock and to shared memory."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    holder = Path(lock).open("w")  # noqa: SIM115 - held to the end
    fcntl.flock(holder, fcntl.LOCK_EX)
    with Path(shared).open("w+b") as file:
        file.truncate(4096)
        memory = mmap.mmap(file.fileno(), 4096)
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
    print("core is ready", flush=True)
    code = worker.wait()
    memory.close()
    Path(shared).unlink()
    sys.exit(f"RuntimeError: a worker ended with {code}")


def watch(engine: subprocess.Popen[bytes]) -> None:
    code = engine.wait()
    print(f"EngineDeadError: the engine core ended with {code}", flush=True)
    os._exit(1)


def serve() -> None:
    if meeting := option("--fake-meeting"):
        # Comes up when as many servers have begun as there are to be.
        folder, _, number = meeting.partition(":")
        Path(folder, str(os.getpid())).touch()
        while len(list(Path(folder).iterdir())) < int(number):
            time.sleep(0.01)
    if "--fake-death" in sys.argv:
        print("INFO 11-30 06:00:00 [core.py:1] loading")
        print("(EngineCore pid=7) ERROR 11-30 06:00:01 [core.py:2] ValueError: no such layer")
        sys.exit(3)
    if lock := option("--fake-core"):
        shared = f"/dev/shm/fake-{os.getpid()}"
        words = [sys.executable, __file__, "core", lock, shared]
        engine = subprocess.Popen(words, start_new_session=True, env={})
        threading.Thread(target=watch, args=(engine,), daemon=True).start()
    told()
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    if "--headless" in sys.argv:
        print("headless, from rank", option("--data-parallel-start-rank"), flush=True)
        time.sleep(float(option("--fake-headless-seconds", "600")))
        sys.exit("RuntimeError: the head does not answer")
    port, mine = int(option("--port")), ranks()
    several = "--data-parallel-multi-port-external-lb" in sys.argv
    for number, served in enumerate([range(r, r + 1) for r in mine] if several else [mine]):
        answers = type("Answers", (Answers,), {"ranks": served})
        # A machine that stands for several nodes has an address for each.
        host = os.environ.get("FAKE_NODE", option("--host"))
        server = ThreadingHTTPServer((host, port + number), answers)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()


def forward() -> None:
    """`bench forward`: 100 us, and one more for each request and for each 1,024 of its tokens."""
    if "--help=all" in sys.argv:
        words = ("model", "kv-len-jitter", "routing", "iters", "samples", "output-json", "case")
        print("".join(f"  --{word} VALUE\n" for word in words))
        print("  --swa-bounded-replay, --no-swa-bounded-replay\n  --max-num-seqs N")
        return
    told()
    if "--fake-failure" in sys.argv:
        sys.exit("ValueError: Case 'x' needs 9 KV blocks, but only 8 exist.")
    runs = int(option("--iters")) * int(option("--samples"))
    cases = [sys.argv[n + 1] for n, word in enumerate(sys.argv) if word == "--case"]
    results = [timed(*case.split("="), runs) for case in cases]
    Path(option("--output-json")).write_text(json.dumps(results))


def timed(name: str, shape: str, runs: int) -> dict[str, object]:
    count, _, rest = shape.partition("*")
    query, _, kv = rest.partition("@")
    context, _, drafts = kv.partition(":")
    length = int(context) + ("--fake-jitter" in sys.argv)
    request = {"query_len": int(query), "kv_len": length, "num_draft_tokens": int(drafts or 0)}
    # The folder of a point ends with its repeat and its id.
    repeat = int(Path(option("--output-json")).parent.name.rpartition("-r")[2].partition("-")[0])
    factors = json.loads(option("--fake-factors", "[1]"))
    time = (100.0 + int(count) + length / 1024) * factors[repeat % len(factors)]
    times = [time + 0.01 * (number % 3) for number in range(runs)]
    times = json.loads(option("--fake-times", json.dumps(times)))
    latency = {"median": time + 0.01, "samples_us": times}
    rank = {"latency_us": latency, "routing": "balanced", "timing_scope": "target_only"}
    return {"case": name, "requests": [request] * int(count), "ranks": [rank]}


def main() -> None:
    if sys.argv[1] == "core":
        core(*sys.argv[2:4])
    elif sys.argv[1:3] == ["bench", "forward"]:
        forward()
    elif "--help=all" in sys.argv:
        print("  --host HOST\n  --port PORT\n  --served-model-name NAME")
        print("  --enable-prompt-tokens-details, --no-enable-prompt-tokens-details")
        print("  --swa-bounded-replay, --no-swa-bounded-replay\n  --max-cudagraph-capture-size N")
        print("  --gpu-memory-utilization SHARE\n  --compilation-config JSON")
        print("  --kv-cache-memory-bytes N")
        print("  --kv-cache-dtype {auto,fp8}\n          not in --fake-prose")
        print("  --headless\n  --enable-expert-parallel\n  --kv-transfer-config JSON")
        names = ("size", "size-local", "start-rank", "rank", "address", "rpc-port")
        names += ("multi-port-external-lb", "hybrid-lb", "supervisor-port")
        print("\n".join(f"  --data-parallel-{name} X" for name in names))
        print("  --api-server-count N\n  --tensor-parallel-size N")
        print("  --enable-trace-replay\n  --enable-scale-out")
    else:
        serve()


if __name__ == "__main__":
    main()
