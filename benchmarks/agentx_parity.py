"""Whether our replay sends what the public client sends, and when: the server's log is the judge.

The client and paceline drive one server, `paceline sim`, from the same trace files, with the same
seed, concurrency and caps, scaled so that they are crossed. Its log says what came, when, how long
and in which messages; the clients only name their requests. Twelve settings: concurrency 1, 4 and
16, sessions with and without sub-agents, two seeds of these, profile ci-synth with agentx-harness
1.0.12; and one whose prompts grow beyond the server's context. `--profile aiperf-mvp-0.13` does it
with aiperf 0.13.0. Each is installed from the package index where `--clients` does not have it.

A setting agrees where, tree by tree,
- primers, warm-up and window are the same (trace, stream, turn), but for requests due within
  a quarter of a second of the window's end,
- each of them has the same input tokens, messages and output limit,
- as many requests were refused,
- a turn that joins sub-agents comes after all of them,
- X-Correlation-ID tells the streams of the trees apart,
- our requests come when they are due, or up to 10 ms later at p50, 25 ms at p95 and 100 ms at most,
- nobody's come more than 10 ms early, and the two are as late as each other, within 15 ms at p50
  and 25 ms at p95.

Due is by the trace, after the end of what a request follows, less what the caps take off. Ends and
idle times are those that the log has of the same client: see `agentx_moments.py`. Moments since the
window's start are printed, not judged: they drift apart by the server's own time for its answers
and by what the client needs from an answer's end to the next request, about 7 ms where we need 3.

The client is not its own equal: see docs/agentx-rules.md. Where nothing but moments differs both
run again, up to four times, and must agree once. `--itself` has the client in both places. Needs
two cores, and the right to favour its processes where others use them too; about 45 seconds a
setting. The figure is last; exits 0 only when all agree.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import agentx_stage
import numpy as np
import orjson
import yaml
from agentx_moments import EARLY, Moments, Sent, Side, Step, moments
from agentx_stage import MODEL, Setting, installed, run, serving, traces_of

from results import rows
from suites.exits import Exit
from workloads import weka
from workloads.plan import Plan, plan
from workloads.profile import PROFILES, Profile
from workloads.session import Key
from workloads.start import starts

CONCURRENCIES, SEEDS = (1, 4, 16), (1, 2)
LIMIT = 7200
SECONDS, GRACE = 12, 30

LATE = {50: 0.010, 95: 0.025, 100: 0.100}
"""Seconds by which requests of ours may be late at these percentiles."""

APART = {50: 0.015, 95: 0.025}
"""Seconds by which the two may differ in how late they are at these percentiles."""

KNOWN = 0.9
"""The share of the window's requests of which it must be known when they were due."""

ATTEMPTS = 4
"""How often both run at a setting where nothing but moments differs."""

EDGE = 0.25
"""Seconds at the window's end within which a request may be missing on one side."""

BUDGET = 1380
"""Seconds after which no further setting begins, and nothing runs again."""

SHOWN = 12
"""How many differences of a setting are named."""

CLIENTS = {"ci-synth": "agentx-harness==1.0.12", "aiperf-mvp-0.13": "aiperf==0.13.0"}


Name = tuple[Key, str, bool]
"""What a client says of a request: its step, its tree, and whether it is of the window."""

Client = Callable[[Setting, str, Path], Mapping[str, Name]]
"""Drives the server at a URL, with files in a folder, and names its requests by their ids."""


def public(program: Path, profile: Profile, files: Path) -> Client:
    """The public client under the profile's parameters."""

    def drive(setting: Setting, url: str, folder: Path) -> Mapping[str, Name]:
        mvp = profile.id == "aiperf-mvp-0.13"
        scenario = "inferencex-agentx-mvp" if mvp else "agentx"
        command = [program, "profile", "--scenario", scenario, "--unsafe-override"]
        command += ["--model", MODEL, "--url", url, "--endpoint-type", "chat", "--streaming"]
        command += ["--tokenizer", files / "tokenizer", "--use-server-token-count"]
        command += ["--input-file", traces_of(files, setting)]
        command += ["--custom-dataset-type", "weka_trace"]
        command += ["--num-dataset-entries", agentx_stage.TRACES]
        command += ["--concurrency", setting.concurrency]
        command += ["--random-seed", run_seed(setting, profile, folder.parent)]
        command += ["--benchmark-duration", SECONDS, "--benchmark-grace-period", GRACE]
        command += ["--trajectory-start-min-ratio", profile.start_from]
        command += ["--trajectory-start-max-ratio", profile.start_to]
        command += ["--system-idle-gap-cap-seconds", profile.system_idle_cap]
        if profile.tree_idle_cap is not None:
            command += ["--trace-idle-gap-cap-seconds", profile.tree_idle_cap]
        if profile.pressure:
            command += ["--warmup-requests-per-lane", profile.pressure]
        command += ["--workers-max", 1, "--record-processors", 1]
        command += ["--no-gpu-telemetry", "--no-server-metrics", "--ui", "none"]
        command += ["--export-level", "records", "--output-artifact-dir", folder / "artefacts"]
        run(command, folder, folder / "truth.jsonl")
        lines = (folder / "artefacts" / "profile_export.jsonl").read_bytes().splitlines()
        told = [orjson.loads(line)["metadata"] for line in lines]
        return {one["x_request_id"]: _public_name(one) for one in told}

    return drive


def _public_name(told: Mapping[str, Any]) -> Name:
    key = Key(told["conversation_id"], told["turn_index"])
    return key, told["root_correlation_id"], told["benchmark_phase"] == "profiling"


def ours(profile: Profile, files: Path) -> Client:
    """Our replay of the same profile."""

    def drive(setting: Setting, url: str, folder: Path) -> Mapping[str, Name]:
        engine = {"kind": "endpoint", "url": url, "model": MODEL, "mode": "chat"}
        engine |= {"tokenizer": str(files / "tokenizer"), "provenance": "plumbing"}
        traces = str(traces_of(files, setting))
        load = {"kind": "closed", "concurrency": setting.concurrency, "warmup": 0}
        load |= {"duration": f"{SECONDS}s", "grace": f"{GRACE}s"}
        experiment = {
            "name": "parity",
            "engine": engine,
            "topology": "TP1",
            "workload": {"kind": "agentx", "profile": profile.id, "traces": traces},
            "load": load,
        }
        suite = {"suite": "parity", "seed": setting.seed, "experiments": [experiment]}
        (folder / "suite.yaml").write_text(yaml.safe_dump(suite))
        program = Path(sys.executable).with_name("paceline")
        # Invalid for the chat template, whose tokens nobody asked for: that is another matter.
        command = [program, "run", "suite.yaml", "--quiet", "--out", folder / "run"]
        run(command, folder, folder / "truth.jsonl", codes=(0, Exit.INCOMPLETE))
        (point,) = folder.glob("run/*/*/")
        told = orjson.loads((point / "evidence.json").read_bytes())["protocol"]
        print(f"    {_crossed(told)}")
        return {row["request_id"]: _our_name(row) for row in rows.read(point).to_pylist()}

    return drive


def _crossed(told: Mapping[str, Any]) -> str:
    trees, all_idle = (told["hurried"][kind][0] for kind in ("tree", "system"))
    crossed = f"caps crossed: {trees} times by a tree, {all_idle} by all"
    return f"{crossed}; {told['recycled']} lanes recycled in the window"


def _our_name(row: Mapping[str, Any]) -> Name:
    return Key(row["stream"], row["turn"]), str(row["tree"]), row["phase"] in {"window", "drain"}


def run_seed(setting: Setting, profile: Profile, folder: Path) -> int:
    """The seed of the replay: the profile's, else that of our run, which is kept in the folder."""
    if profile.seed is not None:
        return profile.seed
    points = folder.glob("*/run/*/*/point.json")
    return next((int(orjson.loads(point.read_bytes())["seed"]) for point in points), setting.seed)


Span = tuple[float, float]
"""When a request arrived, and when it ended."""


def sent(
    drive: Client, setting: Setting, files: Path, folder: Path
) -> tuple[list[Sent], list[Span]]:
    """What the server saw of a client, in order of arrival, and when it refused more."""
    folder.mkdir()
    log = folder / "truth.jsonl"
    with serving(files / "tokenizer", log, setting.limit) as url:
        names = drive(setting, url, folder)
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()[1:]]
    lines.sort(key=lambda line: line["arrived"])
    # The public client does not tell of those that were refused.
    answered = [line for line in lines if line["finish"] != "refused"]
    found = [_sent(names[line["id"]], line) for line in answered if line["id"] in names]
    refused = [(line["arrived"], line["closed"]) for line in lines if line["finish"] == "refused"]
    unknown = len(answered) - len(found)
    print(f"    {len(found)} requests, {len(refused)} refused, {unknown} without a name")
    # Ours first asks for four tokens, to see that the server answers.
    if unknown > 1:
        sys.exit(f"{unknown} requests have no name among those that the client tells")
    return found, refused


def _sent(name: Name, line: Mapping[str, Any]) -> Sent:
    key, tree, window = name
    return Sent(
        key=key,
        tree=tree,
        window=window,
        arrived=line["arrived"],
        closed=line["closed"],
        asked=line["asked"],
        prompt=line["prompt"],
        cached=line["cached"],
        messages=tuple(map(tuple, line["messages"])),
        correlation=line["correlation"],
    )


def by_tree(found: Sequence[Sent]) -> dict[Step, Sent]:
    """The requests by tree and step, the trees of a trace numbered alike whoever sent them.

    Those of the start are told apart by what of them warmed up, and by who goes on first; the
    others began one by one.
    """
    trees: defaultdict[str, list[Sent]] = defaultdict(list)
    for one in found:
        trees[one.tree].append(one)
    traces: defaultdict[str, list[list[Sent]]] = defaultdict(list)
    for steps in trees.values():
        traces[steps[0].key.stream.partition("::")[0]].append(steps)

    def order(steps: list[Sent]) -> tuple[object, ...]:
        warm = sorted(step.key for step in steps if not step.window)
        first = next((step for step in steps if step.window), steps[0])
        return not warm, warm, first.arrived

    return {
        (number, step.key): step
        for alike in traces.values()
        for number, steps in enumerate(sorted(alike, key=order))
        for step in steps
    }


def side(found: Sequence[Sent], refused: Sequence[Span], first: int) -> Side:
    """The requests of a client that sent so many primers first."""
    steps = by_tree(found)
    if len(steps) != len(found):
        sys.exit(f"{len(found) - len(steps)} requests were sent twice in one tree")
    order = sorted(steps, key=lambda step: steps[step].arrived)
    warm = [step for step in order if not steps[step].window]
    window = [step for step in order if steps[step].window]
    return Side(
        steps=steps,
        primers=frozenset(warm[:first]),
        warmup=frozenset(warm[first:]),
        window=frozenset(window),
        began=_opened([steps[step] for step in warm], [steps[step] for step in window], refused),
        refused=refused,
    )


def _opened(warm: Sequence[Sent], window: Sequence[Sent], refused: Sequence[Span]) -> float:
    """When the first request of a window arrived, be it a refused one."""
    ended = max((one.closed for one in warm), default=0.0)
    arrivals = [one.arrived for one in window] + [arrived for arrived, _ in refused]
    return min((moment for moment in arrivals if moment > ended), default=0.0)


def told(step: Step) -> str:
    """A step in words."""
    tree, key = step
    return f"{key.stream} turn {key.turn} (tree {tree})"


def missing(one: Side, other: Side, whose: str) -> Iterator[str]:
    """The requests of one side that the other did not send."""
    for what in ("primers", "warmup", "window"):
        for step in sorted(getattr(one, what) - getattr(other, what)):
            due = expected(one, other, step)
            if what != "window" or due < SECONDS - EDGE:
                yield f"{what}: only {whose} sent {told(step)}, due at {due:.3f} s"


def expected(one: Side, other: Side, step: Step) -> float:
    """When one side's request would have come on the other, as late there as the turn before."""
    moment = one.steps[step].arrived - one.began
    before = (step[0], Key(step[1].stream, step[1].turn - 1))
    if before in one.window and before in other.window:
        ends = [side.steps[before].closed - side.began for side in (one, other)]
        moment += ends[1] - ends[0]
    return moment


def changed(mine: Side, theirs: Side) -> Iterator[str]:
    """The requests that both sent, but not with the same content."""
    for step in sorted(mine.steps.keys() & theirs.steps.keys()):
        one, other = mine.steps[step], theirs.steps[step]
        if one.content != other.content:
            yield f"content: {told(step)}: {one.content} here, {other.content} there"


def joined(one: Side, plans: Mapping[str, Plan]) -> dict[Step, float]:
    """How long after the last of the sub-agents that it joins each turn of the window came."""
    found = {}
    for tree, key in one.window:
        if (trace := plans.get(key.stream)) is None:
            continue
        ends = [
            one.steps[last].closed
            for name in trace.main.steps[key.turn].joins
            if (last := (tree, trace.stream(name).steps[-1].key)) in one.steps
        ]
        if ends:
            found[tree, key] = one.steps[tree, key].arrived - max(ends)
    return found


def misjoined(mine: Side, theirs: Side, plans: Mapping[str, Plan]) -> Iterator[str]:
    """The turns that came before the sub-agents that they join."""
    for one, whose in ((mine, "paceline"), (theirs, "the client")):
        for step, gap in sorted(joined(one, plans).items()):
            if gap < 0:
                yield f"join: {whose} sent {told(step)} {-gap:.3f} s before its sub-agents' end"


def mixed(one: Side, whose: str) -> Iterator[str]:
    """Whether X-Correlation-ID does not tell the streams of the trees apart."""
    named = {(tree, key.stream, one.steps[tree, key].correlation) for tree, key in one.steps}
    streams = {(tree, stream) for tree, stream, _ in named}
    names = {name for _, _, name in named}
    if not len(named) == len(streams) == len(names):
        yield f"identity: {whose} has {len(names)} correlation ids for {len(streams)} streams"


def beyond(seconds: Sequence[float], limits: Mapping[int, float], what: str) -> Iterator[str]:
    """At which percentiles the seconds are beyond their limits."""
    for percentile, limit in limits.items():
        if (found := np.percentile(seconds, percentile)) > limit:
            yield f"{what}: {1e3 * found:.1f} ms at p{percentile}, more than {1e3 * limit:.0f}"


def untimely(mine: Side, theirs: Side, here: Moments, there: Moments) -> Iterator[str]:
    """What differs in when requests came, from when they were due and between the two."""
    both = here.late.keys() & there.late.keys()
    window = mine.window & theirs.window
    if len(both) < KNOWN * len(window):
        yield f"moments: only known of {len(both)} of {len(window)} requests"
        return
    for one, whose in ((here, "paceline"), (there, "the client")):
        for step, late in sorted(one.late.items()):
            if late < -EARLY:
                yield f"early: {whose} sent {told(step)} {-1e3 * late:.1f} ms before it was due"
    if here.twice:
        yield f"early: paceline moved {here.twice} requests up that were not the next"
    yield from beyond(list(here.late.values()), LATE, "late: paceline")
    yield from beyond([abs(here.late[step] - there.late[step]) for step in both], APART, "apart")


def spread(seconds: Sequence[float]) -> str:
    """Percentiles in words."""
    found = [1e3 * np.percentile(seconds, percentile) for percentile in (50, 95, 100)]
    return "p50 {:.1f} ms, p95 {:.1f} ms, most {:.1f} ms".format(*found) if seconds else "n/a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What differs between two sides: in what was sent, and in when."""

    sent: tuple[str, ...]
    when: tuple[str, ...]


def compared(
    mine: Side, theirs: Side, here: Moments, there: Moments, plans: Mapping[str, Plan]
) -> Finding:
    """What differs at a setting, after some lines of what was compared."""
    known = here.late.keys() & there.late.keys()
    both, window = mine.steps.keys() & theirs.steps.keys(), mine.window & theirs.window
    cached = sum(mine.steps[step].cached == theirs.steps[step].cached for step in both)
    started = [
        abs((mine.steps[step].arrived - mine.began) - (theirs.steps[step].arrived - theirs.began))
        for step in window
    ]
    print(
        f"    {len(mine.primers)} primers, {len(mine.warmup)} more of warm-up, {len(window)} of "
        f"the window on both sides, {len(joined(mine, plans))} joins; {cached} of {len(both)} "
        "found as much in the cache"
    )
    print(f"    late: paceline {spread(list(here.late.values()))}; moved up twice {here.twice}")
    print(f"    late: the client {spread(list(there.late.values()))}; moved up twice {there.twice}")
    apart = [abs(here.late[step] - there.late[step]) for step in known]
    print(
        f"    apart, of {len(known)}: {spread(apart)}; from the start {spread(started)}", flush=True
    )
    gone = [*missing(mine, theirs, "paceline"), *missing(theirs, mine, "the client")]
    window_gone = [sentence for sentence in gone if sentence.startswith("window")]
    wrong = [sentence for sentence in gone if not sentence.startswith("window")]
    wrong += [*changed(mine, theirs), *misjoined(mine, theirs, plans)]
    wrong += [*mixed(mine, "paceline"), *mixed(theirs, "the client")]
    when = [*window_gone, *untimely(mine, theirs, here, there)]
    return Finding(sent=tuple(wrong), when=tuple(when))


def settings() -> Iterator[Setting]:
    """All of them, those with the fewest lanes first."""
    for concurrency, agents, seed in product(CONCURRENCIES, (False, True), SEEDS):
        yield Setting(concurrency=concurrency, agents=agents, seed=seed)
    yield Setting(concurrency=4, agents=True, seed=1, limit=LIMIT)


def differing(
    clients: Sequence[Client],
    setting: Setting,
    profile: Profile,
    files: Path,
    folder: Path,
    until: float,
) -> list[str]:
    """What differs between two clients at a setting, whose files are kept in the folder."""
    print(setting, flush=True)
    traces = traces_of(files, setting)
    if not traces.exists():
        made = agentx_stage.traces(setting.seed, agents=setting.agents)
        agentx_stage.write(made, traces)
    plans = {trace.id: plan(trace, profile) for trace in weka.read(str(traces))}
    folder.mkdir(parents=True)
    for attempt in range(ATTEMPTS):
        found = [
            sent(drive, setting, files, folder / f"{attempt}-{place}")
            for place, drive in enumerate(clients)
        ]
        seed = run_seed(setting, profile, folder)
        lanes = starts(cycle(plans.values()), setting.concurrency, len(plans), profile, seed)
        first = sum(len(lane.primers) for lane in lanes)
        mine, theirs = (side(*one, first) for one in found)
        here, there = (moments(one, lanes, plans, profile) for one in (mine, theirs))
        finding = compared(mine, theirs, here, there, plans)
        more = len(mine.refused), len(theirs.refused)
        wrong = [*finding.sent, *([] if more[0] == more[1] else [f"refused: {more}"])]
        if wrong or not finding.when or monotonic() > until:
            break
    return [*wrong, *finding.when]


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=CLIENTS, default="ci-synth")
    parser.add_argument("--settings", type=int, nargs="*", help="which of the thirteen, from 0")
    parser.add_argument("--clients", type=Path, help="a folder of environments, kept")
    parser.add_argument("--keep", type=Path, help="a new folder for logs and run folders")
    parser.add_argument("--itself", action="store_true")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    profile = PROFILES[asked.profile]
    chosen = [s for n, s in enumerate(settings()) if asked.settings is None or n in asked.settings]
    with TemporaryDirectory() as made:
        files = asked.keep or Path(made) / "kept"
        files.mkdir()
        agentx_stage.tokenizer(files / "tokenizer")
        program = installed(asked.clients or Path(made), CLIENTS[profile.id])
        client = public(program, profile, files)
        sides = [client if asked.itself else ours(profile, files), client]
        agree, until = 0, monotonic() + BUDGET
        for number, setting in enumerate(chosen):
            if monotonic() > until:
                print(f"{setting}: not run, the time is up")
                continue
            wrong = differing(sides, setting, profile, files, files / f"setting-{number}", until)
            agree += not wrong
            for sentence in islice(wrong, SHOWN):
                print(f"    {sentence}", flush=True)
            if len(wrong) > SHOWN:
                print(f"    and {len(wrong) - SHOWN} more", flush=True)
    print(f"{agree} of {len(chosen)} settings agree")
    sys.exit(agree != len(chosen))


if __name__ == "__main__":
    main()
