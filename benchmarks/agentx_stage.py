"""What `agentx_parity.py` stands on: short sessions, a tokenizer, a server, clients' programs.

The sessions are generated ones squeezed into a minute. The tokenizer has a token for each
character, so that any text cut anywhere is read again as it was cut, and eight for the marker of a
replay, as long as ours is.
"""

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from time import monotonic, sleep

import orjson
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from workloads import export
from workloads.synthesis import generate
from workloads.weka import BLOCK, Agent, Call, Trace

MODEL = "sim-model"
PACE = 200
PATIENCE = 150
"""Tokens a second of each stream, and the seconds that a client may take."""

TRACES = 6
LEAST_CALLS, MOST_CALLS = 6, 60
CONTEXT_LIMIT = 16_384
LEAST_OUTPUT, MOST_OUTPUT = 60, 200
SHORTER, LONGEST = 15.0, 6.0
"""What recorded times are divided by, and the seconds that none of them is longer than."""

WORD = " ZQXJKV"
"""The one word of the simulated server's answers: no text has it, and it is one token."""

MARKER = r"[0-9a-f]{12}\]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one comparison is made at."""

    concurrency: int
    agents: bool
    seed: int
    limit: int | None = None

    def __str__(self) -> str:
        told = "with" if self.agents else "without"
        limit = f", at most {self.limit} tokens" if self.limit else ""
        return f"concurrency {self.concurrency:2}, {told:7} sub-agents, seed {self.seed}{limit}"


def traces(seed: int, *, agents: bool) -> list[Trace]:
    """The same sessions for the same seed: all with sub-agents, or none."""
    random = Random(seed)
    fitting = (
        trace
        for trace in generate(160, seed, CONTEXT_LIMIT)
        if bool(trace.agents) == agents and LEAST_CALLS <= len(trace.calls) <= MOST_CALLS
    )
    return [_squeezed(trace, random) for trace in islice(fitting, TRACES)]


def write(made: Sequence[Trace], folder: Path) -> None:
    """A file for each trace, as the public clients read them, in the same order."""
    folder.mkdir()
    for number, trace in enumerate(made):
        text = orjson.dumps(export.record(trace), option=orjson.OPT_SERIALIZE_NUMPY)
        (folder / f"{number:03}-{trace.id}.json").write_bytes(text)


def tokenizer(folder: Path) -> None:
    """A folder that both clients and the server read as a tokenizer."""
    folder.mkdir()
    pairs = [f"{number:02x}" for number in range(256)]
    printable = [chr(code) for code in (9, 10, 13, *range(32, 127))]
    pieces = ["[rid:", "]\n\n", *pairs, *printable, WORD]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    digits = [rf"(?<=\[rid:[0-9a-f]{{{place}}})[0-9a-f]{{2}}" for place in range(0, 12, 2)]
    cuts = [rf"\[rid:(?={MARKER})", *digits, r"(?<=\[rid:[0-9a-f]{12})\]\n\n", WORD, r"(?m:.)"]
    made.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(cuts)), "isolated")
    made.decoder = decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps({**told, "unk_token": "?"}))


def traces_of(files: Path, setting: Setting) -> Path:
    """The folder of a setting's traces."""
    return files / f"{'with' if setting.agents else 'without'}-{setting.seed}"


@contextmanager
def serving(tokenizer: Path, log: Path, limit: int | None = None) -> Iterator[str]:
    """The URL of a fresh simulated server, whose context is limited where a limit is given."""
    program = Path(sys.executable).with_name("paceline")
    command = [str(program), "sim", "--port", "0", "--pace", str(PACE), "--model-name", MODEL]
    command += ["--tokenizer", str(tokenizer), "--log", str(log)]
    command += ["--context-limit", str(limit)] if limit else []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            favour(process.pid)
            yield url
        finally:
            process.terminate()


def favour(session: int) -> None:
    """Puts all threads of a session before whatever else runs here, where we may."""
    if not hasattr(os, "sched_setscheduler"):
        return
    for process in Path("/proc").glob("[0-9]*"):
        # Processes and threads may end meanwhile.
        with suppress(OSError):
            if os.getsid(int(process.name)) == session:
                for thread in (process / "task").iterdir():
                    os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def run(command: Sequence[object], folder: Path, log: Path, codes: tuple[int, ...] = (0,)) -> None:
    """Runs a client within bounds, before all else from its first answer in the log on.

    Ends all of this where it ends with none of the codes.
    """
    hub = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if name not in hub}
    words = [str(part) for part in command]
    with (
        (folder / "client.log").open("wb") as told,
        subprocess.Popen(
            words,
            stdout=told,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        ) as process,
    ):
        started, favoured = monotonic(), False
        while process.poll() is None:
            sleep(0.01)
            if not favoured and log.read_bytes().count(b"\n") > 1:
                favour(process.pid)
                favoured = True
            if monotonic() - started > PATIENCE:
                os.killpg(process.pid, signal.SIGKILL)
                sys.exit(f"{command[0]} took more than {PATIENCE} s")
    if process.returncode not in codes:
        sys.exit(f"{command[0]} failed:\n{(folder / 'client.log').read_text()[-3000:]}")


def installed(clients: Path, requirement: str) -> Path:
    """The client's program, in an environment of its own, which is made where it is missing."""
    folder = clients / requirement.replace("==", "-")
    program = folder / "bin" / "aiperf"
    if not program.exists():
        print(f"installing {requirement}, about 1 GB", file=sys.stderr)
        venv.create(folder, with_pip=True)
        python = str(folder / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", requirement]
        subprocess.run(pip, check=True, timeout=900)
    return program


def _squeezed(trace: Trace, random: Random) -> Trace:
    """The session with every stretch between two of its moments shortened, and none left long."""
    calls = list(trace.all_calls())
    moments = sorted({moment for call in calls for moment in (call.start, call.end)})
    ends = sorted({*moments, *(agent.end for agent in trace.agents)})
    places = {ends[0]: 0.0}
    for before, after in pairwise(ends):
        # Whole milliseconds, as the format has them for sub-agents.
        places[after] = round(places[before] + min(LONGEST, (after - before) / SHORTER), 3)
    system = random.choice([0, 0, BLOCK, 100])
    return replace(
        trace,
        preamble=min(system, BLOCK * min(calls[0].blocks - 1, 2)),
        calls=tuple(_call(call, places, random) for call in trace.calls),
        agents=tuple(_agent(agent, places, random) for agent in trace.agents),
    )


def _agent(agent: Agent, places: dict[float, float], random: Random) -> Agent:
    calls = tuple(_call(call, places, random) for call in agent.calls)
    return replace(agent, calls=calls, end=places[agent.end])


def _call(call: Call, places: dict[float, float], random: Random) -> Call:
    """The call with a short answer; every third has tokens that fill no block."""
    start = places[call.start]
    return replace(
        call,
        start=start,
        duration=round(places[call.end] - start, 3),
        input=call.input + random.choice([0, 0, random.randrange(1, BLOCK)]),
        output=LEAST_OUTPUT + call.output % (MOST_OUTPUT - LEAST_OUTPUT),
        first=None,
    )
