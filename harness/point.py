"""One cell of a grid, fully stated: all that is needed to run it again."""

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from harness.engine import Deployment
from harness.load import Load
from results.objectives import Objectives
from workloads.prompt import seed_of
from workloads.session import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A deployment, a workload and a load, with its seed and its place in the order."""

    experiment: str
    deployment: Deployment
    workload: Workload
    load: Load
    objectives: Objectives = field(default_factory=Objectives)
    suite_seed: int = 0
    repeat: int = 0
    position: int = 0

    @property
    def id(self) -> str:
        """8 hex digits over everything above."""
        return _digest(self._content())

    @property
    def pairing(self) -> str:
        """8 hex digits over all but the deployment and the position: equal for what is compared."""
        content = self._content()
        del content["deployment"], content["position"]
        return _digest(content)

    @property
    def cell(self) -> str:
        """8 hex digits that repeats of this point share."""
        content = self._content()
        del content["position"], content["repeat"]
        return _digest(content)

    @property
    def seed(self) -> int:
        """Seeds the workload and the arrivals: equal under every deployment, new each repeat."""
        return seed_of(self.suite_seed, self.pairing)

    @property
    def noise_seed(self) -> int:
        """Seeds what differs between servers: the simulated engine's noise."""
        return seed_of(self.suite_seed, self.id, "noise")

    @property
    def name(self) -> str:
        """A readable name for people and folders: `agents-sim-TP4-replay-on-closed-8-r0`."""
        arm = self.deployment.arm.replace("replay=", "").replace(" ", "-")
        level = f"{self.load.kind}-{_level(self.load)}"
        return f"{self.experiment}-{arm}-{self.workload.kind}-{level}-r{self.repeat}"

    def facts(self) -> dict[str, Any]:
        """What point.json says, readable without this code."""
        return {
            "id": self.id,
            "pairing": self.pairing,
            "cell": self.cell,
            "name": self.name,
            "arm": self.deployment.arm,
            "engine": self.deployment.engine.name,
            "gpus": self.deployment.topology.gpus,
            "seed": self.seed,
            **self._content(),
        }

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(orjson.dumps(asdict(self)))
        return content


def _level(load: Load) -> str:
    value = getattr(load, "concurrency", None) or getattr(load, "rate", None)
    return f"{value or getattr(load, 'speed', 1):g}"


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]
