"""Acts as the vllm command: `serve` with a streaming answer, counters, and a child that stays.

Like vLLM it is more than one process: an engine core in a session of its own, which shows no
environment, ignores polite signals, and holds a lock and shared memory; under it a worker. The
server ends when its engine core does, but not the other way round.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STARTED = time.monotonic()
COUNTS = {"prompt_tokens": 0, "generation_tokens": 0, "prefix_cache_hits": 0, "requests": 0}
COUNTED = threading.Lock()


def option(name: str, default: str = "") -> str:
    words = sys.argv
    return words[words.index(name) + 1] if name in words else default


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/health":
                self.say(200, b"")
            case "/metrics":
                self.say(200, metrics().encode())
            case "/server_info":
                self.say(200, json.dumps({"vllm_config": configuration()}).encode())
            case "/version":
                self.say(200, b'{"version": "fake"}')
            case _:
                self.say(404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/reset_prefix_cache":
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
            COUNTS["requests"] += 1
            last = COUNTS["requests"] == int(option("--fake-crash-at", "-1"))
        self.stream(len(body["prompt"]), body["max_tokens"], last=last)

    def stream(self, prompt: int, output: int, *, last: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with COUNTED:
            COUNTS["prompt_tokens"] += prompt
        for number in range(output):
            if last and number == 1:
                print("EngineDeadError: the engine core is gone", flush=True)
                os._exit(17)
            reason = "length" if number == output - 1 else None
            self.frame({"choices": [{"index": 0, "text": "a", "finish_reason": reason}]})
            with COUNTED:
                COUNTS["generation_tokens"] += 1
            time.sleep(0.005)
        cached = {"cached_tokens": 0}
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
    sizes = {f"{kind}_parallel_size": 1 for kind in ("tensor", "pipeline", "data")}
    seats = option("--fake-sequences", option("--max-num-seqs", "64"))
    captured = int(option("--max-cudagraph-capture-size", "512"))
    return {
        "parallel_config": sizes,
        "cache_config": {"swa_bounded_replay": "--no-swa-bounded-replay" not in sys.argv},
        "scheduler_config": {"max_num_seqs": int(seats)},
        "compilation_config": {"max_cudagraph_capture_size": captured},
        "model_config": {"hf_token": "hf_secret"},
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


def metrics() -> str:
    extra = int(option("--fake-miscount", "0"))
    with COUNTED:
        counts = {**COUNTS, "prompt_tokens": COUNTS["prompt_tokens"] + extra * COUNTS["requests"]}
    lines = [f'vllm:{name}_total{{engine="0"}} {n}.0' for name, n in counts.items()]
    return "# HELP made up\n" + "\n".join(lines) + "\n"


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
    server = ThreadingHTTPServer((option("--host"), int(option("--port"))), Answers)
    server.daemon_threads = True
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    server.serve_forever()


def main() -> None:
    if sys.argv[1] == "core":
        core(*sys.argv[2:4])
    elif "--help=all" in sys.argv:
        print("  --host HOST\n  --port PORT\n  --served-model-name NAME")
        print("  --enable-prompt-tokens-details, --no-enable-prompt-tokens-details")
        print("  --swa-bounded-replay, --no-swa-bounded-replay\n  --max-cudagraph-capture-size N")
        print("  --gpu-memory-utilization SHARE\n  --compilation-config JSON")
        print("  --kv-cache-dtype {auto,fp8}\n          not in --fake-prose")
    else:
        serve()


if __name__ == "__main__":
    main()
