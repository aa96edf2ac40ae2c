"""The errors that say that a prompt no longer fits the model's context."""

SIGNS = (
    "context length",
    "maximum context",
    "context_length_exceeded",
    "prompt is too long",
)
"""What the public clients look for."""


def overflowed(body: str) -> bool:
    """Whether an error's text says so: its session ends, because all later prompts are longer."""
    told = body.lower()
    return any(sign in told for sign in SIGNS)
