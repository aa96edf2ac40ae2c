"""What the page of one run, of several, and of a run gone wrong holds."""

import html
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from zlib import crc32

import pytest
from plotly.offline import get_plotlyjs

from reports.notation import doubt, show
from reports.page import render, write
from results import folder
from results.errors import FolderError, InputError
from results.evidence import Evidence, Observed
from results.metrics import summarise
from results.run import read
from tests.test_results_record import cell, made

ENVIRONMENT = {"host": "node-1", "gpus": [{"name": "H200"}], "packages": {"vllm": None}}
HOSTILE = "<script>alert(1)</script>&\"'"


def _facts(arm, concurrency, **changes):
    name = f"agents-{arm}-{concurrency}".replace(" ", "-")
    facts = {
        "id": f"{crc32(name.encode()):08x}",
        "pairing": str(concurrency),
        "cell": name,
        "name": name,
        "arm": arm,
        "gpus": 4,
        "load": {"kind": "closed", "concurrency": concurrency},
        "objectives": {},
    }
    return {**asdict(cell()), **facts, **changes}


def _record(facts, tree):
    stamps = [0.1, 0.11, 0.12 + tree / 1000]
    return made(stamps, point=facts["id"], tree=tree, sent=float(tree), request_id=f"r{tree}")


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


def without_plotly(page):
    return page.replace(get_plotlyjs(), "plotly")


def seen(page):
    """What a reader sees."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", without_plotly(page), flags=re.DOTALL)
    return re.sub(r"[ \n]+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_the_page_needs_nothing_from_outside(good):
    page = without_plotly(render([good]))
    assert not re.search(r"""(?:src|href)\s*=|@import|\burl\(|https?://""", page)
    assert "default-src 'none'" in page


def test_the_page_has_plotly_once_and_offers_no_button_that_sends_a_chart_away(good):
    page = render([good])
    assert page.count(get_plotlyjs()) == 1
    assert "modeBarButtons: buttons" in page
    assert "sendChart" not in without_plotly(page)


def test_each_chart_is_followed_by_a_table_with_its_numbers(good):
    page = without_plotly(render([good]))
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
            assert f"{show(figure)} {doubt(figure)}" in seen(table)


def test_simulated_runs_are_marked_in_banner_tables_and_charts(good):
    text = seen(render([good]))
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


def test_a_run_of_which_nothing_began_and_no_run_at_all_have_a_page(tmp_path):
    assert "n/a: no points" in render([_run(tmp_path, [_facts("TP4", 1)])])
    assert "n/a: no runs" in render([])


def test_an_invalid_point_is_shown_with_its_reason(tmp_path):
    points = [_facts("TP4", 1), _facts("TP4", 2)]
    happen = [lambda run: _finish(run, points[0]), lambda run: _finish(run, points[1], gpus=1)]
    page = render([_run(tmp_path, points, happen)])
    assert "2 points: 1 finished, 1 INVALID" in seen(page)
    assert page.count("GPUs: the server runs on 1, asked for 4") >= 4
    assert "TP4, not valid" in page


def test_names_cannot_become_markup(tmp_path):
    points = [_facts(HOSTILE, 1, experiment=HOSTILE), _facts("ok", 1)]
    happen = [
        lambda run: _finish(run, points[0]),
        lambda run: _fail(run, points[1], HOSTILE),
    ]
    run = _run(tmp_path, points, happen, environment={HOSTILE: HOSTILE})
    page = without_plotly(render([replace(run, suite=HOSTILE)]))
    assert "<script>alert" not in page
    assert "alert(1)</script>" not in page
    assert page.count("<script") == page.count("</script>")
    assert HOSTILE in seen(page)


def test_what_is_called_like_a_secret_is_hidden(tmp_path):
    environment = {"engine": {"HF_TOKEN": "s3cret", "api-key": "s3cret"}, "tokenizer": "v41"}
    text = seen(render([_run(tmp_path, [], environment=environment)]))
    assert "s3cret" not in text
    assert "v41" in text


def test_requests_that_failed_are_a_problem_of_a_valid_point(tmp_path):
    point = _facts("TP4", 1)
    run = _run(tmp_path, [point], [lambda run: _finish(run, point, lost=2)])
    text = seen(render([run]))
    assert "Problems None" not in text
    assert "2 x HTTP 429 Too Many Requests" in text.partition("Every point of")[0]
    assert "failed: 2 x HTTP 429 Too Many Requests" in text.partition("Every point of")[2]


def test_arms_that_several_runs_share_carry_the_name_of_their_run(good):
    other = replace(good, path=Path("runs/smoke-20260203T040506Z"))
    text = seen(render([good, other]))
    assert "smoke-20260102T030405Z: TP4" in text
    assert "smoke-20260203T040506Z: TP4" in text
    assert "smoke-20260102T030405Z: TP4" not in seen(render([good]))


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
    assert "3 cells × 2 repeats = 6 points: 6 not begun" in seen(render([_run(tmp_path, points)]))
    uneven = seen(render([_run(tmp_path, points[:-1])]))
    assert "5 points of 3 cells: 5 not begun" in uneven


def test_a_name_that_repeats_the_one_above_is_faint(good):
    (results,) = re.findall(r"Results: agents.*?</table>", render([good]), flags=re.DOTALL)
    rows = re.findall(r'<tr( class="again")?><th scope="row"[^>]*>(\w+)', results)
    assert rows == [("", "TP4"), (' class="again"', "TP4"), ("", "DEP8")]


def test_the_command_to_run_it_again_is_the_one_that_was_given(good):
    plan = {**good.plan, "suite_path": "my suites/a.yaml", "overrides": ["seed=3", "a.0.b=[1, 2]"]}
    text = seen(render([replace(good, plan=plan)]))
    assert "paceline run 'my suites/a.yaml' --set seed=3 --set 'a.0.b=[1, 2]'" in text
    assert f"{good.path}/suite.yaml" in text


def test_two_runs_of_one_name_are_told_apart_by_their_path(good):
    text = seen(render([good, replace(good, path=Path("other") / good.path.name)]))
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
    assert page == (Path(__file__).parent / "golden/page.html").read_text()


def test_an_arm_carries_its_run_where_one_experiment_has_it_of_several(tmp_path):
    def made_of(name, experiment):
        point = _facts("TP4", 1, experiment=experiment)
        run = _run(tmp_path / name, [point], [lambda run: _finish(run, point)])
        return replace(run, path=Path(f"runs/{name}-20260102T030405Z"))

    apart = seen(render([made_of("one", "agents"), made_of("two", "batches")]))
    assert ": TP4" not in apart.replace("varies: TP4", "")
    alike = seen(render([made_of("three", "agents"), made_of("four", "agents")]))
    assert "three-20260102T030405Z: TP4" in alike
