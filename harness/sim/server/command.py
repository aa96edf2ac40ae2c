"""The command that serves the simulated engine, with every option of it."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

from typer import Option, echo

from results.errors import InputError

ENGINE: dict[str, tuple[Any, Any, Any]] = {
    "block_size": (int, 64, Option(min=1, help="Tokens of a KV block.")),
    "kv_tokens": (int, 4_000_000, Option(min=1, help="KV tokens of a rank.")),
    "max_sequences": (int, 256, Option(min=1, help="Requests a rank runs.")),
    "draft_tokens": (int, 0, Option(min=0, help="Drafts a step.")),
    "acceptance_length": (
        *(float | None, None),
        Option(min=1, help="Tokens a step with drafts brings, on average."),
    ),
    "noise": (float, 0.0, Option(min=0, help="Deviation of a step's time.")),
    "drift": (float, 0.0, Option(help="Change of a step's time per hour.")),
    "slowdown": (float, 1.0, Option(min=1e-6, help="Multiplies every step.")),
}
ANSWERS: dict[str, tuple[Any, Any, Any]] = {
    "right": (float, 0.9, Option(min=0, max=1, help="Of these questions, those it knows.")),
    "redrawn": (
        *(float, 0.05),
        Option(min=0, max=1, help="Those that each seed draws anew at that rate."),
    ),
    "loss": (float, 0.0, Option(min=0, max=1, help="Those that are wrong where replay is on.")),
}
OPTIONS: dict[str, tuple[Any, Any, Any]] = {
    "host": (str, "127.0.0.1", Option(help="Where to listen.")),
    "port": (int, 8000, Option(min=0, max=65535, help="0 takes a free one.")),
    "topology": (str, "TP1", Option(help="TP4, DEP2, TP2xPP3 and so on.")),
    "replay": (str, "on", Option(help="off, on-eager or on.")),
    "model": (str, "simulated", Option("--model-name", help="What the model is called.")),
    **ENGINE,
    "pace": (
        *(float | None, None),
        Option(min=0.001, help="Tokens per second and stream: even steps."),
    ),
    "context_limit": (int | None, None, Option(min=1, help="Tokens at most.")),
    "seed": (int, 0, Option(min=0, help="Seeds noise, drafts and answers.")),
    "tokenizer": (
        *(Path | None, None),
        Option(help="A tokenizer.json or its folder, instead of our own words."),
    ),
    "reasoning_share": (
        *(float, 0.5),
        Option(min=0, max=1, help="Of an answer that thinks, the part that does."),
    ),
    "reasoning_key": (str, "reasoning", Option(help="reasoning or reasoning_content.")),
    "tool_calls": (
        *(bool, False),
        Option("--tool-calls", help="Calls the first tool that a chat offers."),
    ),
    "answers": (
        *(Path | None, None),
        Option(help="Questions that it answers: GSM8K's JSON lines, or GPQA's CSV."),
    ),
    **ANSWERS,
    "log": (Path | None, None, Option(help="Where the truth is written.")),
    "faults": (Path | None, None, Option(help="A script of faults, JSON lines.")),
    "api_key_env": (str | None, None, Option(help="The variable that holds the key to ask for.")),
}
"""By its name, the kind of each option, what it is where nobody states it, and its help."""


def command(variables: Mapping[str, str]) -> Callable[..., None]:
    """The command `sim`; the key that it is to ask for comes from these variables."""

    def sim(**stated: Any) -> None:
        """Serve the simulated engine at an OpenAI-compatible endpoint, until Ctrl-C.

        Example: paceline sim --port 0 --log truth.jsonl
        """
        # Help must not wait for what only serving needs.
        from harness.sim.server.serve import serve  # noqa: PLC0415
        from harness.sim.server.site import site  # noqa: PLC0415

        engine = {name: stated.pop(name) for name in (*ENGINE, "context_limit")}
        accuracy = {name: stated.pop(name) for name in ANSWERS}
        made = site(
            engine=engine,
            accuracy=accuracy if stated["answers"] else None,
            key=_secret(variables, stated.pop("api_key_env")),
            **stated,
        )
        serve(made, lambda url: echo(f"paceline sim (SIMULATED) on {url}"))

    sim.__signature__ = Signature(  # type: ignore[attr-defined]  # of which typer makes the options
        [
            Parameter(
                name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
            )
            for name, (kind, default, option) in OPTIONS.items()
        ]
    )
    return sim


def _secret(variables: Mapping[str, str], name: str | None) -> str | None:
    """The secret that a variable holds."""
    if name is None:
        return None
    if not variables.get(name):
        raise InputError(f"--api-key-env {name}: the variable is not set: set it")
    return variables[name]
