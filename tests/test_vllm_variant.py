"""Builds of vLLM that carry the version of the one that they were made of."""

import base64
import hashlib
from pathlib import Path

import pytest

from harness.vllm import variant
from results.errors import UnsupportedError
from results.metrics import summarise
from tests.test_vllm_engine import engine, measured

SM80 = "deepinfer-sm80"


def package(folder: Path, *, patched: bool) -> dict[str, str]:
    """The variables under which a vllm of one file, with its wheel's list, is found."""
    root = folder / "site"
    for name in ("vllm", "vllm-0.33.0.dist-info"):
        (root / name).mkdir(parents=True)
    module = root / "vllm/__init__.py"
    module.write_text("")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"").digest()).rstrip(b"=").decode()
    (root / "vllm-0.33.0.dist-info/RECORD").write_text(f"vllm/__init__.py,sha256={digest},0\n")
    if patched:
        module.write_text("SM80 = True\n")
    return {"PYTHONPATH": str(root)}


def problems(point) -> list[str]:
    return [one for one in summarise(point).problems if "variant" in one]


def test_a_variant_is_shown_by_the_files_that_are_not_the_wheels():
    told = {"stock": False, "changed": ["vllm/a.py", "vllm/b.py"]}
    assert variant.observed(SM80, told) == (SM80, "changed files: vllm/a.py, vllm/b.py")


def test_a_stock_build_is_no_variant_and_the_point_is_invalid(tmp_path):
    surroundings = package(tmp_path, patched=False)
    point = measured(engine(tmp_path, variant=SM80, environment=surroundings), tmp_path)
    (problem,) = problems(point)
    assert problem.startswith(f"variant: asked for {SM80}, observed stock: every file of its vllm")


def test_a_patched_build_that_nobody_calls_one_is_told_of(tmp_path):
    surroundings = package(tmp_path, patched=True)
    summary = summarise(measured(engine(tmp_path, environment=surroundings), tmp_path))
    assert (
        "not as its wheel brought it, and no variant is stated: vllm/__init__.py" in summary.remarks
    )


def test_a_checkout_without_a_list_is_taken_at_its_word():
    assert variant.observed(SM80, {"files": "0123"}) == (SM80, "no list of its files")


def test_a_variant_is_refused_on_gpus_that_it_is_not_made_for(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 8.0\necho 9.0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    variant.check(SM80, {"CUDA_VISIBLE_DEVICES": "0"})
    variant.check("other", {})
    with pytest.raises(UnsupportedError, match=r"capability 8\.0 and 8\.6, and here is 9\.0"):
        variant.check(SM80, {})
