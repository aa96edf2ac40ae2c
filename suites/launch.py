"""The folder that a plan runs into: one to go on with, or a new one."""

import secrets
from collections.abc import Callable
from pathlib import Path

from harness.environment import environment
from results.folder import RunFolder, complete, create, newest_unfinished, reopen
from suites.plan import Plan
from suites.suite import Suite


def launch(
    suite: Suite, planned: Plan, out: Path, *, new: bool, tell: Callable[[str], None]
) -> RunFolder:
    """The newest folder of this plan that is not complete, or a new one; `tell` hears which.

    Raises FolderError where it cannot be written, or another process writes to it.
    """
    unfinished = None if new else newest_unfinished(out, planned.suite, planned.hash)
    if unfinished:
        tell(f"Resuming {unfinished}")
        return reopen(unfinished)
    repeated = not new and complete(out, planned.suite, planned.hash)
    simulated = all(point.deployment.engine.clock == "virtual" for point in planned.points)
    # A simulated server is always new, so its runs may repeat to the byte. A real one may remember
    # an earlier run, so nothing that is sent to it may ever have been sent before.
    salt = suite.seed if simulated else secrets.randbits(32)
    made = create(out, planned.suite, suite.text, planned.facts(), environment(), salt)
    if repeated:
        tell(f"An earlier run of this very plan is complete: starting anew in {made.path}")
    return made
