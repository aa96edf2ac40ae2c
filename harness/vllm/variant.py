"""Builds of vLLM that are not the stock one, and what shows that one of them runs."""

from collections.abc import Mapping
from typing import Any

from harness.vllm import devices
from results.errors import UnsupportedError

CAPABLE = {"deepinfer-sm80": frozenset(("8.0", "8.6"))}
"""The compute capabilities of the GPUs that a variant is made for."""

STOCK = "stock"


def check(variant: str | None, variables: Mapping[str, str]) -> None:
    """Raises UnsupportedError where a GPU that a server would see is none of the variant's.

    Where nobody tells, nothing is refused.
    """
    made_for = CAPABLE.get(variant or "")
    there = devices.capabilities(variables)
    if made_for and (others := sorted(set(there) - made_for)):
        raise UnsupportedError(
            f"{variant} is made for GPUs of compute capability {' and '.join(sorted(made_for))}, "
            f"and here is {', '.join(others)}: run it where those are, or leave variant out"
        )


def observed(variant: str, build: Mapping[str, Any]) -> tuple[str, str]:
    """What the build is, and what shows it.

    A checkout has no list of what its files were, so there its digest alone tells it apart.
    """
    if build.get("stock"):
        return STOCK, "every file of its vllm package is as the wheel brought it"
    changed = build.get("changed")
    return variant, f"changed files: {', '.join(changed)}" if changed else "no list of its files"
