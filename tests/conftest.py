import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder with the recorded traces."""
    home = os.environ.get("PACELINE_DATA")
    if home is None:
        pytest.skip("PACELINE_DATA, the folder with the recorded traces, is not set")
    return Path(home) / "traces"
