"""What the page says of the points of an experiment: what they share, and what varies."""

from reports.page import render
from tests.test_report_page import _facts, _finish, _run, seen


def _asked(tmp_path, *points):
    """The page of these points, all of them finished."""
    return seen(
        render([_run(tmp_path, points, [lambda run, one=one: _finish(run, one) for one in points])])
    )


def test_the_page_says_what_every_point_was_run_with_and_what_varies(tmp_path):
    workload = {"kind": "agentx", "traces": "t/", "generated": 24, "trace_seed": 0, "first": None}
    engine = {"kind": "sim", "name": "sim", "context_limit": None, "cost": {"host": 0.5}}
    points = [
        _facts(
            "TP4",
            level,
            workload=workload,
            deployment={"engine": engine, "topology": {"name": "TP4"}, "model": "m", "flags": []},
            objectives={"ttft": 2.0, "tpot": None},
            suite_seed=7,
        )
        for level in (1, 2)
    ]
    text = _asked(tmp_path, *points)
    assert (
        "Every point of agents workload agentx, traces t/ load closed engine sim, name sim, "
        "cost.host 0.5 topology TP4 model m goodput TTFT <= 2 s seed of the suite 7 repeats 1 "
        "varies load concurrency 1, 2"
    ) in text


def test_what_every_point_was_run_with_holds_no_secret(tmp_path):
    engine = {
        "kind": "endpoint",
        "proxy": "http://me:s3cret@proxy:80",
        "headers": {"X-Tenant": "s3cret"},
        "body": {"api_key": "s3cret", "top_k": 1},
        "environment": {"HF_TOKEN": "s3cret"},
        "flags": ["--api-key", "s3cret", "--max-num-batched-tokens", "8192"],
        "model": "served",
    }
    deployment = {"engine": engine, "model": "default", "environment": {"HF_TOKEN": "s3cret"}}
    text = _asked(tmp_path, _facts("TP4", 1, deployment=deployment))
    assert "s3cret" not in text
    assert "headers X-Tenant, body.api key hidden, body.top k 1, environment HF_TOKEN" in text
    assert "--api-key hidden --max-num-batched-tokens 8192" in text
    assert "model served" in text
    assert "default" not in text


def test_how_many_recorded_traces_fit_is_said_for_each_limit(tmp_path):
    points = [
        _facts(
            "TP4",
            level,
            workload={"kind": "agentx", "traces": "t/", "context_limit": limit},
            identity={"fitting": [fits, 24]},
        )
        for level, limit, fits in ((1, 65_536, 13), (2, 65_536, 13), (4, 131_072, 24))
    ]
    assert (
        "traces 13 of 24 traces fit context_limit 65,536; 24 of 24 traces fit context_limit 131,072"
    ) in _asked(tmp_path, *points)
    assert "fit context_limit" not in _asked(tmp_path, _facts("TP4", 1, identity={}))
