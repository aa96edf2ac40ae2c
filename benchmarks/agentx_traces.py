"""What `agentx_parity.py` replays: generated sessions squeezed into a minute, and a tokenizer.

The tokenizer has a token for each character, so that any text cut anywhere is read again as it was
cut, and eight for the marker of a replay, as long as ours is.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import orjson
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from workloads import export
from workloads.synthesis import generate
from workloads.weka import BLOCK, Agent, Call, Trace

TRACES = 6
LEAST_CALLS, MOST_CALLS = 6, 60
CONTEXT_LIMIT = 16_384
LEAST_OUTPUT, MOST_OUTPUT = 60, 200
SHORTER, LONGEST = 10.0, 7.0
"""What recorded times are divided by, and the seconds that none of them is longer than."""

WORD = " ZQXJKV"
"""The one word of the simulated server's answers: no text has it, and it is one token."""

MARKER = r"[0-9a-f]{12}\]\n\n"


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
