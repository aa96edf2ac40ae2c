"""One cell of a grid, fully stated: all that is needed to run it again."""

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from harness.engine import Choosy, Deployment, prober
from harness.load import Closed, Load, Open, Recorded
from results.objectives import Objectives
from workloads.forward import Forward
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
    identity: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        # Taken once: a trace that changes on disk afterwards must not become another point.
        object.__setattr__(self, "identity", self.workload.identity())

    def check(self) -> None:
        """Raises UnsupportedError where the engine cannot do this work."""
        engine = self.deployment.engine
        if isinstance(self.workload, Forward):
            prober(engine)
        if isinstance(engine, Choosy):
            engine.check(self.workload, self.load, self.deployment)

    def describe(self) -> list[str]:
        """What starting its engine would do, a line each.

        Raises UnsupportedError where that cannot run the deployment, or time its steps.
        """
        engine = self.deployment.engine
        if isinstance(self.workload, Forward):
            return prober(engine).probing(self.deployment, self.workload)
        return engine.describe(self.deployment)

    @property
    def changed(self) -> bool:
        """Whether the workload's files hold something else than when the point was made."""
        return self.workload.identity() != self.identity

    @property
    def id(self) -> str:
        """12 hex digits over everything above: 8 would join two of 10,000 points once in 100."""
        return _digest(self._content())

    @property
    def pairing(self) -> str:
        """12 hex digits over what is sent, and how: equal under every deployment to compare."""
        content = self._content()
        names = ("workload", "load", "suite_seed", "repeat")
        return _digest({name: content[name] for name in names})

    @property
    def cell(self) -> str:
        """12 hex digits that repeats of this point share."""
        content = self._content()
        del content["position"], content["repeat"]
        return _digest(content)

    @property
    def seed(self) -> int:
        """Seeds the workload and the arrivals: equal under every deployment, new each repeat."""
        return seed_of(self.suite_seed, self.pairing)

    @property
    def noise_seed(self) -> int:
        """Seeds what differs between servers, wherever the point stands in the order."""
        return seed_of(self.suite_seed, self.cell, self.repeat, "noise")

    @property
    def name(self) -> str:
        """A readable name for people and folders: `agents-sim-TP4-on-agentx-closed-8-r0`."""
        arm = self.deployment.arm.replace("replay=", "")
        words = [self.experiment, arm, self.workload.label, _level(self.load), f"r{self.repeat}"]
        return " ".join(words).replace(" ", "-")

    def facts(self) -> dict[str, Any]:
        """What point.json says, readable without this code."""
        content = self._content()
        return {
            "id": self.id,
            "pairing": self.pairing,
            "cell": self.cell,
            "name": self.name,
            "arm": self.deployment.arm,
            "engine": self.deployment.engine.name,
            "gpus": self.deployment.topology.gpus,
            "seed": self.seed,
            **content,
            "workload": _plain(asdict(self)["workload"]),
            "identity": content["workload"],
        }

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        content["workload"] = content.pop("identity")
        return _plain(content)


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    """The content as it is after a way through JSON."""
    plain: dict[str, Any] = orjson.loads(orjson.dumps(content))
    return plain


def _level(load: Load) -> str:
    match load:
        case Closed():
            return f"closed {load.concurrency}"
        case Open():
            return f"open {load.rate:g}"
        case Recorded():
            return f"recorded {load.speed:g}"


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
