"""What is recorded of the machine that measures."""

import os

import pytest

from harness.environment import environment


def test_the_environment_tells_what_comparisons_ask_of_it() -> None:
    told = environment()
    assert {"host", "system", "processor", "cores", "usable_cores", "memory_bytes"} <= told.keys()
    assert {"paceline", "aiohttp", "numpy", "orjson", "tokenizers"} <= told["packages"].keys()
    assert all(told["packages"].values())


def test_a_process_that_may_use_fewer_cores_says_so() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("the system does not bind processes to cores")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert environment()["usable_cores"] == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_environment_holds_no_variables() -> None:
    assert not {"environment", "variables"} & environment().keys()
    assert os.environ.get("PATH", "none") not in str(environment())
