"""The command line of one `vllm serve`."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.engine import Deployment
from harness.topology import Topology
from harness.vllm import flags, knobs
from harness.vllm.knobs import Options
from harness.vllm.shape import misfits, shape_of
from results.errors import UnsupportedError

if TYPE_CHECKING:
    from harness.vllm.engine import Vllm

HOST = "127.0.0.1"

ALWAYS = (
    "--enable-prompt-tokens-details",
    "--enable-per-request-metrics",
    "--disable-uvicorn-access-log",
)
"""The flags by which requests are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where one server of a deployment is: its shape, its address, and what that place asks for.

    A server without a `port` answers no requests. `flags` are for its pool only.
    """

    shape: Topology
    port: int | None
    host: str = HOST
    options: Options = field(default_factory=dict)
    flags: tuple[str, ...] = ()


def command_of(
    engine: "Vllm", deployment: Deployment, site: Site, known: flags.Offer | None = None
) -> list[str]:
    """The words that start a server; of those by which requests are measured, only the `known`.

    Raises UnsupportedError where the model does not fit, where two places state the same flag, and
    where a flag of ours is not known.
    """
    model = engine.model or deployment.model
    for misfit in misfits(engine, site.shape, shape_of(model)):
        raise UnsupportedError(misfit)
    own = (*engine.flags, *site.flags, *deployment.flags)
    stated = flags.stated(own)
    asked = _asked(engine, deployment, site)
    refuse_twice(asked, stated)
    usual = knobs.recipe(engine, site.shape) | {
        flag: True for flag in ALWAYS if known is None or flag in known
    }
    asked |= {flag: value for flag, value in usual.items() if flag not in stated}
    words = knobs.words(asked)
    if known is not None:
        flags.check(words, known, engine.python)
    return [engine.python, str(flags.vllm_of(engine.python)), "serve", model, *words, *own]


def _asked(engine: "Vllm", deployment: Deployment, site: Site) -> Options:
    """The flags of the address, the topology, the arm, the knobs and the place."""
    reached = {"--host": site.host, "--port": site.port} if site.port is not None else {}
    return {
        **reached,
        "--served-model-name": engine.served_model_name or "vllm",
        **degrees(site.shape),
        **knobs.knobs(engine, deployment.replay, site.shape),
        **site.options,
    }


def degrees(shape: Topology) -> Options:
    """The flags of a topology."""
    sizes = {
        "--tensor-parallel-size": shape.tensor,
        "--pipeline-parallel-size": shape.pipeline,
        "--data-parallel-size": shape.data,
    }
    made: Options = {flag: n for flag, n in sizes.items() if n > 1}
    return made | ({"--enable-expert-parallel": True} if shape.experts else {})


def refuse_twice(asked: Options, stated: frozenset[str]) -> None:
    """Raises UnsupportedError where flags say what names say too: one would undo the other."""
    for flag in asked:
        if flags.long(flag) in stated:
            raise UnsupportedError(
                f"flags state {flags.long(flag)}, and so do the topology, the replay arm or the "
                "engine's own keys: take it out of one of them"
            )
