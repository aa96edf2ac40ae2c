"""What the page of one run, of several, and of a run gone wrong holds."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from reports.notation import doubt, show
from reports.page import render, write
from results import folder
from results.errors import FolderError, InputError
from results.evidence import Evidence, Observed
from results.metrics import summarise
from results.record import RequestRecord
from results.run import read

ENVIRONMENT = {"host": "node-1", "gpus": [{"name": "H200"}], "packages": {"vllm": None}}
HOSTILE = "<script>alert(1)</script>&\"'"


def _facts(arm, concurrency, **changes):
    name = f"agents-{arm}-{concurrency}".replace(" ", "-")
    facts = {
        "id": f"{crc32(name.encode()):08x}",
        "pairing": str(concurrency),
        "cell": name,
        "name": name,
        "experiment": "agents",
        "arm": arm,
        "engine": "sim",
        "gpus": 4,
        "seed": 1,
        "repeat": 0,
        "position": 0,
        "deployment": {},
        "workload": {"kind": "growing"},
        "load": {"kind": "closed", "concurrency": concurrency},
        "objectives": {},
    }
    return {**facts, **changes}


def _record(facts, tree):
    offsets = np.array([100_000, 110_000, 120_000 + 1000 * tree])
    ends = tree + offsets / 1e6
    return RequestRecord(
        run="run",
        point=facts["id"],
        arm=facts["arm"],
        repeat=0,
        position=0,
        trace="t",
        tree=tree,
        lane=0,
        stream="main",
        turn=0,
        depth=0,
        phase="window",
        planned=float(tree),
        ready=float(tree),
        sent=float(tree),
        first=float(ends[0]),
        first_answer=None,
        last=float(ends[-1]),
        closed=float(ends[-1]),
        state="ok",
        reason=None,
        status=200,
        finish_reason="length",
        asked_input=1000,
        asked_output=3,
        input_tokens=1000,
        output_tokens=3,
        cached_tokens=0,
        ceiling_tokens=0,
        prompt_hash="h",
        rank=None,
        request_id=f"r{tree}",
        client_lag=0.0,
        server_queue=None,
        server_ttft=None,
        draft_tokens=None,
        accepted_tokens=None,
        piece_offsets=offsets,
        piece_tokens=np.ones(3, dtype=np.int32),
    )


def _finish(run, facts, provenance="simulated", gpus=4, lost=0):
    """The point as finished; `lost` of its 12 requests failed."""
    writer = run.open_point(facts)
    for tree in range(12):
        record = _record(facts, tree)
        refused = replace(record, state="failed", reason="HTTP 429 Too Many Requests", status=429)
        writer.add(refused if tree < lost else record)
    observed = Observed(provenance=provenance, gpus=gpus)
    evidence = Evidence(observed=observed, clock="virtual", opened=0.0, closed=12.0)
    writer.finish("finished", None, evidence, None)


def _fail(run, facts, reason):
    run.open_point(facts).finish("failed", reason, None, None)


def _run(path, points, finish=(), name="smoke", environment=ENVIRONMENT):
    """A run whose points are planned; `finish` is called with the folder to let some happen."""
    plan = {"hash": "0" * 8, "points": points}
    with folder.create(path, name, "suite: smoke\n", plan, environment, 7) as run:
        for happen in finish:
            happen(run)
    return replace(read(run.path), path=Path(f"runs/{name}-20260102T030405Z"))


@pytest.fixture
def good(tmp_path):
    points = [_facts("TP4", 1), _facts("TP4", 2), _facts("DEP8", 1)]
    return _run(tmp_path, points, [lambda run, one=one: _finish(run, one) for one in points])


@pytest.fixture
def failed(tmp_path):
    dead, missing = _facts("TP4", 1), _facts("TP4", 2)
    return _run(tmp_path, [dead, missing], [lambda run: _fail(run, dead, "the server died")])


def _without_plotly(page):
    return page.replace(get_plotlyjs(), "plotly")


def _text(page):
    """What a reader sees."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", _without_plotly(page), flags=re.DOTALL)
    return re.sub(r"[ \n]+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_the_page_needs_nothing_from_outside(good):
    page = _without_plotly(render([good]))
    assert not re.search(r"""(?:src|href)\s*=|@import|\burl\(|https?://""", page)
    assert "default-src 'none'" in page


def test_the_page_has_plotly_once_and_offers_no_button_that_sends_a_chart_away(good):
    page = render([good])
    assert page.count(get_plotlyjs()) == 1
    assert "modeBarButtons: buttons" in page
    assert "sendChart" not in _without_plotly(page)


def test_each_chart_is_followed_by_a_table_with_its_numbers(good):
    page = _without_plotly(render([good]))
    parts = page.split('<div class="chart"')[1:]
    assert len(parts) == 2
    summaries = [summarise(point) for point in good.points]
    for part, key, axis in zip(parts, ("ttft.p50", "interactivity.p50"), ("y", "x"), strict=True):
        content = re.search(r'<script type="application/json">(.*?)</script>', part)[1]
        lines = json.loads(content)["data"]
        drawn = [value for line in lines for value in line[axis]]
        figures = [summary.figures[key] for summary in summaries]
        factor = 1000 if key == "ttft.p50" else 1
        assert drawn == pytest.approx([figure.value * factor for figure in figures])
        table = part[part.index("<table>") : part.index("</table>")]
        for figure in figures:
            assert f"{show(figure)} {doubt(figure)}" in _text(table)


def test_simulated_runs_are_marked_in_banner_tables_and_charts(good):
    text = _text(render([good]))
    assert "SIMULATED. These numbers come from a model of an engine" in text
    for heading in (
        "Results: agents",
        "TTFT against throughput",
        "Throughput against interactivity",
    ):
        assert f"{heading} (SIMULATED)" in text


def test_measured_runs_carry_no_mark(tmp_path):
    point = _facts("TP4", 1)
    run = _run(tmp_path, [point], [lambda run: _finish(run, point, "measured")])
    assert "SIMULATED" not in render([run])


def test_a_run_of_which_everything_failed_has_a_page_of_n_a(failed):
    page = render([failed])
    text = _text(page)
    assert "n/a" in text
    assert not re.search(r"\b(?:NaN|nan|Infinity|inf|None|null)\b", text)
    assert "the server died" in text
    assert "2 points: 1 failed, 1 not begun" in text
    assert get_plotlyjs() not in page


def test_a_run_of_which_nothing_began_and_no_run_at_all_have_a_page(tmp_path):
    assert "n/a: no points" in render([_run(tmp_path, [_facts("TP4", 1)])])
    assert "n/a: no runs" in render([])


def test_planned_points_that_did_not_begin_are_among_the_problems(failed):
    assert re.search(
        r"agents-TP4-2\s+not begun\s+smoke-20260102T030405Z ended", _text(render([failed]))
    )


def test_an_invalid_point_is_shown_with_its_reason(tmp_path):
    points = [_facts("TP4", 1), _facts("TP4", 2)]
    happen = [lambda run: _finish(run, points[0]), lambda run: _finish(run, points[1], gpus=1)]
    page = render([_run(tmp_path, points, happen)])
    assert "2 points: 1 finished, 1 INVALID" in _text(page)
    assert page.count("GPUs: the server runs on 1, asked for 4") >= 4
    assert "TP4, not valid" in page


def test_names_cannot_become_markup(tmp_path):
    points = [_facts(HOSTILE, 1, experiment=HOSTILE), _facts("ok", 1)]
    happen = [
        lambda run: _finish(run, points[0]),
        lambda run: _fail(run, points[1], HOSTILE),
    ]
    run = _run(tmp_path, points, happen, environment={HOSTILE: HOSTILE})
    page = _without_plotly(render([replace(run, suite=HOSTILE)]))
    assert "<script>alert" not in page
    assert "alert(1)</script>" not in page
    assert page.count("<script") == page.count("</script>")
    assert HOSTILE in _text(page)


def test_what_is_called_like_a_secret_is_hidden(tmp_path):
    environment = {"engine": {"HF_TOKEN": "s3cret", "api-key": "s3cret"}, "tokenizer": "v41"}
    text = _text(render([_run(tmp_path, [], environment=environment)]))
    assert "s3cret" not in text
    assert "v41" in text


def test_requests_that_failed_are_a_problem_of_a_valid_point(tmp_path):
    point = _facts("TP4", 1)
    run = _run(tmp_path, [point], [lambda run: _finish(run, point, lost=2)])
    text = _text(render([run]))
    assert "Problems None" not in text
    assert "2 x HTTP 429 Too Many Requests" in text.partition("Every point of")[0]
    assert "failed: 2 x HTTP 429 Too Many Requests" in text.partition("Every point of")[2]


def test_arms_that_several_runs_share_carry_the_name_of_their_run(good):
    other = replace(good, path=Path("runs/smoke-20260203T040506Z"))
    text = _text(render([good, other]))
    assert "smoke-20260102T030405Z: TP4" in text
    assert "smoke-20260203T040506Z: TP4" in text
    assert "smoke-20260102T030405Z: TP4" not in _text(render([good]))


def test_a_folder_named_twice_is_refused_by_name_and_leaves_no_page(good, tmp_path):
    again = replace(good, path=Path(f"other/../{good.path}"))
    with pytest.raises(InputError, match=rf"{good.path} is named more than once"):
        write([good, again], tmp_path / "report.html")
    assert not list(tmp_path.glob("*report*"))


def test_repeats_are_told_apart_from_cells(tmp_path):
    points = [
        _facts("TP4", load, id=f"{load}{repeat}", name=f"p{load}{repeat}", repeat=repeat)
        for load in (1, 2, 4)
        for repeat in (0, 1)
    ]
    assert "3 cells × 2 repeats = 6 points: 6 not begun" in _text(render([_run(tmp_path, points)]))
    uneven = _text(render([_run(tmp_path, points[:-1])]))
    assert "5 points of 3 cells: 5 not begun" in uneven


def test_a_name_that_repeats_the_one_above_is_faint(good):
    (results,) = re.findall(r"Results: agents.*?</table>", render([good]), flags=re.DOTALL)
    rows = re.findall(r'<tr( class="again")?><th scope="row"[^>]*>(\w+)', results)
    assert rows == [("", "TP4"), (' class="again"', "TP4"), ("", "DEP8")]


def test_the_command_to_run_it_again_is_the_one_that_was_given(good):
    plan = {**good.plan, "suite_path": "my suites/a.yaml", "overrides": ["seed=3", "a.0.b=[1, 2]"]}
    text = _text(render([replace(good, plan=plan)]))
    assert "paceline run 'my suites/a.yaml' --set seed=3 --set 'a.0.b=[1, 2]'" in text
    assert f"{good.path}/suite.yaml" in text


def test_an_older_folder_names_its_suite(good):
    assert "paceline run smoke " in _text(render([good]))


def test_the_glossary_has_the_words_of_the_field(good):
    page = render([good])
    terms = ("replay", "arm", "TP4, DEP2", "load", "session", "window", "cut", "n 354 in 6 runs")
    for term in terms:
        assert f"<dt>{term}</dt>" in page


def test_two_runs_of_one_name_are_told_apart_by_their_path(good):
    text = _text(render([good, replace(good, path=Path("other") / good.path.name)]))
    assert "runs/smoke-20260102T030405Z: TP4" in text
    assert "other/smoke-20260102T030405Z: TP4" in text


def test_the_page_takes_its_name_when_it_is_complete(good, tmp_path):
    target = tmp_path / "report.html"
    write([good], target)
    assert target.read_text(encoding="utf-8") == render([good])
    assert [path.name for path in tmp_path.iterdir() if "report" in path.name] == ["report.html"]


def test_a_place_that_cannot_be_written_is_named(good, tmp_path):
    with pytest.raises(FolderError, match=r"missing/report\.html"):
        write([good], tmp_path / "missing" / "report.html")


def test_the_page_of_a_failed_run_is_the_golden_one(failed):
    page = re.sub(r"(?<=<style>).*?(?=</style>)", "", render([failed]), flags=re.DOTALL)
    assert page == GOLDEN


GOLDEN = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<title>paceline: smoke</title>
<style></style>
</head>
<body>
<header>
<h1 dir="auto">paceline: smoke</h1>
<dl>
<dt>suite</dt><dd dir="auto">smoke</dd>
<dt>run</dt><dd dir="auto">smoke-20260102T030405Z</dd>
<dt>when</dt><dd dir="auto">2026-01-02 03:04 UTC</dd>
<dt>points</dt><dd dir="auto">2 points: 1 failed, 1 not begun</dd>
<dt>arms</dt><dd dir="auto">TP4 (4 GPUs)</dd>
<dt>provenance</dt><dd dir="auto">n/a</dd>
</dl>
</header>
<main>
<section>
<h2 dir="auto">Problems</h2>
<div class="scroll" role="region" tabindex="0" aria-label="Points without numbers that can be used">
<table>
<caption dir="auto">Points without numbers that can be used</caption>
<thead><tr><th scope="col" class="text" dir="auto">point</th><th scope="col" class="text" dir="auto">outcome</th><th scope="col" class="text" dir="auto">reason</th></tr></thead>
<tbody>
<tr><th scope="row" class="text" dir="auto">agents-TP4-1 (TP4)</th><td class="text" dir="auto">failed</td><td class="text" dir="auto">the server died</td></tr>
<tr><th scope="row" class="text" dir="auto">agents-TP4-2</th><td class="text" dir="auto">not begun</td><td class="text" dir="auto">smoke-20260102T030405Z ended before it: paceline run goes on from there</td></tr>
</tbody>
</table>
</div>
</section>
<section>
<h2 dir="auto">agents</h2>
<details open>
<summary dir="auto">Every point of agents</summary>
<dl>
<dt>workload</dt><dd dir="auto">growing</dd>
<dt>load</dt><dd dir="auto">closed 1</dd>
<dt>repeats</dt><dd dir="auto">1</dd>
</dl>
</details>
<h3 dir="auto">TTFT against throughput</h3>
<p>n/a: no point can be drawn.</p>
<ul class="notes">
<li dir="auto">not drawn: TP4, closed 1: failed: the server died</li>
</ul>
<div class="scroll" role="region" tabindex="0" aria-label="TTFT against throughput">
<table>
<caption dir="auto">TTFT against throughput</caption>
<thead><tr><th scope="col" class="text" dir="auto">arm</th><th scope="col" class="number">load</th><th scope="col" class="text" dir="auto">status</th><th scope="col" class="number">TTFT p50</th><th scope="col" class="number">TTFT p90</th><th scope="col" class="number">input + output per GPU</th><th scope="col" class="number">output per GPU</th></tr></thead>
<tbody>
<tr><th scope="row" class="text" dir="auto">TP4</th><td class="number">closed 1</td><td class="text" dir="auto">failed</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td></tr>
</tbody>
</table>
</div>
<ul class="notes">
<li dir="auto">TP4, closed 1: failed: the server died</li>
</ul>
<h3 dir="auto">Throughput against interactivity</h3>
<p>n/a: no point can be drawn.</p>
<ul class="notes">
<li dir="auto">not drawn: TP4, closed 1: failed: the server died</li>
</ul>
<div class="scroll" role="region" tabindex="0" aria-label="Throughput against interactivity">
<table>
<caption dir="auto">Throughput against interactivity</caption>
<thead><tr><th scope="col" class="text" dir="auto">arm</th><th scope="col" class="number">load</th><th scope="col" class="text" dir="auto">status</th><th scope="col" class="number">interactivity p50</th><th scope="col" class="number">interactivity p90</th><th scope="col" class="number">output per GPU</th></tr></thead>
<tbody>
<tr><th scope="row" class="text" dir="auto">TP4</th><td class="number">closed 1</td><td class="text" dir="auto">failed</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td></tr>
</tbody>
</table>
</div>
<ul class="notes">
<li dir="auto">TP4, closed 1: failed: the server died</li>
</ul>
</section>
<section>
<h2 dir="auto">Results</h2>
<div class="scroll" role="region" tabindex="0" aria-label="Results: agents">
<table>
<caption dir="auto">Results: agents</caption>
<thead><tr><th scope="col" class="text" dir="auto">arm</th><th scope="col" class="text" dir="auto">load</th><th scope="col" class="text" dir="auto">status</th><th scope="col" class="number">sessions</th><th scope="col" class="number">requests</th><th scope="col" class="number">TTFT p50</th><th scope="col" class="number">TTFT p90</th><th scope="col" class="number">TPOT p50</th><th scope="col" class="number">tok/s/user p90</th><th scope="col" class="number">output tok/s</th><th scope="col" class="number">tok/s/GPU</th><th scope="col" class="number">cache hit</th></tr></thead>
<tbody>
<tr><th scope="row" class="text" dir="auto">TP4</th><td class="text" dir="auto">closed 1</td><td class="text" dir="auto">failed</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td><td class="number">n/a</td></tr>
</tbody>
</table>
</div>
<ul class="notes">
<li dir="auto">TP4, closed 1: failed: the server died</li>
</ul>
</section>
</main>
<footer>
<section>
<h2 dir="auto">What the figures mean</h2>
<dl>
<dt>replay</dt><dd dir="auto">SWA bounded replay: vLLM re-runs the last 128 tokens of a prompt through the upper layers, instead of all of them. off: all of them; on-eager: replay, without CUDA graphs for it; on: replay, with them.</dd>
<dt>arm</dt><dd dir="auto">One of the things compared: an engine with its topology, replay and flags.</dd>
<dt>TP4, DEP2</dt><dd dir="auto">Topologies. TP4: tensor parallel, each layer split over 4 GPUs. DEP2: data parallel over 2 GPUs, each with sessions of its own, and the experts spread over both.</dd>
<dt>load</dt><dd dir="auto">How much work there is. closed 16: 16 live sessions, the next one begins when one ends. open 2/s: 2 sessions begin each second, however slow the answers are.</dd>
<dt>session</dt><dd dir="auto">One agent at its task: requests that build on one another, and those of its sub-agents. Where nothing builds on anything, one request or one batch.</dd>
<dt>window</dt><dd dir="auto">The time that counts. Warm-up requests come before it; primer requests only fill the cache for the one that follows. Both are kept as rows, and are in no figure.</dd>
<dt>cut</dt><dd dir="auto">Requests still under way when the window closed: neither a success nor a failure.</dd>
<dt>TTFT</dt><dd dir="auto">Time to first token: from sending a request to its first piece of output, whether reasoning, tool call or answer.</dd>
<dt>TPOT</dt><dd dir="auto">Time per output token: from the first piece of output to the last, over the tokens after the first piece; in a fixed batch, while all of it decodes.</dd>
<dt>interactivity</dt><dd dir="auto">Tokens per second that one user sees while an answer comes (tok/s/user), 1 / TPOT; p90 is the slow tail: nine requests in ten are at least as fast.</dd>
<dt>output</dt><dd dir="auto">Generated tokens per second in the window, over all GPUs or over each.</dd>
<dt>input + output</dt><dd dir="auto">Prompt and generated tokens per second in the window.</dd>
<dt>cache hit</dt><dd dir="auto">Prompt tokens taken from the prefix cache, as a share of all; the ceiling is what a cache without end would reach.</dd>
<dt>185–228 ms, n 354</dt><dd dir="auto">The figure&#x27;s true value lies between these with 95 % confidence, from so many samples.</dd>
<dt>n 354 in 6 runs</dt><dd dir="auto">The point was run so often: the figure is the mean over the runs, and the interval is of their spread. Counts are sums over the runs.</dd>
<dt>no interval</dt><dd dir="auto">Too few samples or runs to say how sure the figure is: why is below its table.</dd>
<dt>n too small</dt><dd dir="auto">Too few samples for the percentile: it is left out, not guessed.</dd>
<dt>n/a</dt><dd dir="auto">There is no such number; it is never taken for 0.</dd>
<dt>~</dt><dd dir="auto">The figure is approximate, for the reason below its table.</dd>
<dt>INVALID</dt><dd dir="auto">The point finished, but something speaks against its numbers: do not use them. They are drawn hollow and grey, and joined to no line.</dd>
</dl>
</section>
<section>
<h2 dir="auto">Environment</h2>
<div class="scroll" role="region" tabindex="0" aria-label="smoke-20260102T030405Z">
<table>
<caption dir="auto">smoke-20260102T030405Z</caption>
<thead><tr><th scope="col" class="text" dir="auto">key</th><th scope="col" class="text" dir="auto">value</th></tr></thead>
<tbody>
<tr><th scope="row" class="text" dir="auto">host</th><td class="text" dir="auto">node-1</td></tr>
<tr><th scope="row" class="text" dir="auto">gpus.0.name</th><td class="text" dir="auto">H200</td></tr>
<tr><th scope="row" class="text" dir="auto">packages.vllm</th><td class="text" dir="auto">n/a</td></tr>
</tbody>
</table>
</div>
</section>
<section>
<h2 dir="auto">Run it again</h2>
<pre>paceline run smoke</pre>
<p>In the folder where it was run. A suite may have changed since: as it was, without --set, it is kept in</p>
<ul>
<li><code>runs/smoke-20260102T030405Z/suite.yaml</code></li>
</ul>
</section>
</footer>
</body>
</html>
"""  # noqa: E501
