"""Names of topologies, and how many GPUs and ranks they stand for."""

import pytest

from harness.topology import parse
from results.errors import InputError
from suites.topology import read


@pytest.mark.parametrize(
    ("name", "gpus", "ranks", "expert_ranks"),
    [
        ("TP4", 4, 1, 1),
        ("DEP2", 2, 2, 2),
        ("DEP8", 8, 8, 8),
        ("DEP16", 16, 16, 16),
        ("DEP32", 32, 32, 32),
        ("TP2xPP3", 6, 1, 1),
        ("PP6", 6, 1, 1),
        ("TP4xDP4", 16, 4, 1),
        ("TP2xDEP4", 8, 4, 8),
        ("4xDEP2+1xDEP32", 40, 1, 1),
        ("2xTP2xPP3+DEP8", 20, 1, 1),
    ],
)
def test_a_name_says_how_many_gpus_and_ranks(name, gpus, ranks, expert_ranks):
    topology = parse(name)
    assert (topology.gpus, topology.ranks, topology.expert_ranks) == (gpus, ranks, expert_ranks)


def test_pools_are_counted_whether_or_not_the_count_is_written():
    assert parse("DEP2+DEP32") == parse("1xDEP2+1xDEP32")
    prefill, decode = parse("4xDEP2+DEP32").pools
    assert (prefill.count, prefill.shape, prefill.gpus) == (4, parse("DEP2"), 8)
    assert (decode.count, decode.shape, decode.gpus) == (1, parse("DEP32"), 32)


@pytest.mark.parametrize(
    "name", ["", "+", "4x+TP1", "0xTP1+TP1", "4xTP1", "TP1+", "TPx2", "TP0", "TP2xTP2", "DP2xDEP2"]
)
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InputError):
        parse(name)


def test_three_pools_are_refused_with_what_two_are_for():
    with pytest.raises(InputError, match="3 pools: write two, the one that prefills and"):
        parse("TP1+TP1+TP1")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("4xdep2+1xEP32", "4xDEP2+1xDEP32"),
        ("dep2 + dep8", "1xDEP2+1xDEP8"),
        ("2xtp2xpp3+tp4", "2xTP2xPP3+1xTP4"),
        ("4+4", "1xTP4+1xTP4"),
        ("a+b", None),
    ],
)
def test_the_pools_that_were_meant_are_said(written, meant):
    problems = []
    assert read(written, ("topology",), problems) is None
    (problem,) = problems
    assert problem.sentence.endswith(f'got "{written}"' + f": write it as {meant}" * bool(meant))


def test_the_gpus_of_pools_are_bounded_as_all_are():
    problems = []
    read("999999xDEP2+1xTP1", ("topology",), problems)
    assert problems[0].sentence.startswith("expected at most 1,000,000 GPUs")
