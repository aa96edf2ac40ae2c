"""The command that serves the simulated engine, with every option of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from results.errors import InputError


def command(variables: Mapping[str, str]) -> Callable[..., None]:
    """The command `sim`; the key that it is to ask for comes from these variables."""

    def sim(
        *,
        host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
        topology: Annotated[str, typer.Option(help="TP4, DEP2, TP2xPP3 and so on.")] = "TP1",
        replay: Annotated[str, typer.Option(help="off, on-eager or on.")] = "on",
        model_name: Annotated[str, typer.Option(help="What the model is called.")] = "simulated",
        block_size: Annotated[int, typer.Option(min=1, help="Tokens of a KV block.")] = 64,
        kv_tokens: Annotated[int, typer.Option(min=1, help="KV tokens of a rank.")] = 4_000_000,
        max_sequences: Annotated[int, typer.Option(min=1, help="Requests a rank runs.")] = 256,
        draft_tokens: Annotated[int, typer.Option(min=0, help="Drafts a step.")] = 0,
        acceptance_length: Annotated[
            float | None, typer.Option(min=1, help="Tokens a step with drafts brings, on average.")
        ] = None,
        noise: Annotated[float, typer.Option(min=0, help="Deviation of a step's time.")] = 0.0,
        drift: Annotated[float, typer.Option(help="Change of a step's time per hour.")] = 0.0,
        slowdown: Annotated[float, typer.Option(min=1e-6, help="Multiplies every step.")] = 1.0,
        pace: Annotated[
            float | None, typer.Option(min=0.001, help="Tokens per second and stream: even steps.")
        ] = None,
        context_limit: Annotated[int | None, typer.Option(min=1, help="Tokens at most.")] = None,
        seed: Annotated[int, typer.Option(min=0, help="Seeds noise, drafts and answers.")] = 0,
        tokenizer: Annotated[
            Path | None,
            typer.Option(help="A tokenizer.json or its folder, instead of our own words."),
        ] = None,
        reasoning_share: Annotated[
            float, typer.Option(min=0, max=1, help="Of an answer that thinks, the part that does.")
        ] = 0.5,
        reasoning_key: Annotated[
            str, typer.Option(help="reasoning or reasoning_content.")
        ] = "reasoning",
        tool_calls: Annotated[
            bool, typer.Option("--tool-calls", help="Calls the first tool that a chat offers.")
        ] = False,
        answers: Annotated[
            Path | None,
            typer.Option(help="Questions that it answers: GSM8K's JSON lines, or GPQA's CSV."),
        ] = None,
        right: Annotated[
            float, typer.Option(min=0, max=1, help="Of these questions, those it knows.")
        ] = 0.9,
        redrawn: Annotated[
            float, typer.Option(min=0, max=1, help="Those that each seed draws anew at that rate.")
        ] = 0.05,
        loss: Annotated[
            float, typer.Option(min=0, max=1, help="Those that are wrong where replay is on.")
        ] = 0.0,
        log: Annotated[Path | None, typer.Option(help="Where the truth is written.")] = None,
        faults: Annotated[Path | None, typer.Option(help="A script of faults, JSON lines.")] = None,
        api_key_env: Annotated[
            str | None, typer.Option(help="The variable that holds the key to ask for.")
        ] = None,
    ) -> None:
        """Serve the simulated engine at an OpenAI-compatible endpoint, until Ctrl-C.

        Example: paceline sim --port 0 --log truth.jsonl
        """
        # Help must not wait for what only serving needs.
        from harness.sim.server.serve import serve  # noqa: PLC0415
        from harness.sim.server.site import site  # noqa: PLC0415

        made = site(
            host=host,
            port=port,
            topology=topology,
            replay=replay,
            model=model_name,
            pace=pace,
            seed=seed,
            tokenizer=tokenizer,
            reasoning_share=reasoning_share,
            reasoning_key=reasoning_key,
            tool_calls=tool_calls,
            answers=answers,
            accuracy={"right": right, "redrawn": redrawn, "loss": loss} if answers else None,
            log=log,
            faults=faults,
            key=_secret(variables, api_key_env),
            engine={
                "block_size": block_size,
                "kv_tokens": kv_tokens,
                "max_sequences": max_sequences,
                "draft_tokens": draft_tokens,
                "acceptance_length": acceptance_length,
                "noise": noise,
                "drift": drift,
                "slowdown": slowdown,
                "context_limit": context_limit,
            },
        )
        serve(made, lambda url: typer.echo(f"paceline sim (SIMULATED) on {url}"))

    return sim


def _secret(variables: Mapping[str, str], name: str | None) -> str | None:
    """The secret that a variable holds."""
    if name is None:
        return None
    if not variables.get(name):
        raise InputError(f"--api-key-env {name}: the variable is not set: set it")
    return variables[name]
