"""What is or may be a secret, and how values are written without one."""

import re
import shlex
from collections.abc import Iterable
from typing import Any

HIDDEN = "hidden"

_WORDS = r"(?:token|secret|passw(?:or)?d|api[_-]?key|credentials?|authorization)"
_SECRET = re.compile(rf"(?i){_WORDS}$")
_SECRET_FLAG = re.compile(rf"(?i)(--\S*?{_WORDS})(?:=|\s+)('[^']*'|\S+)")
# Inside JSON, a header or a query, and what a header says before a key.
_SECRET_INSIDE = re.compile(rf"(?i){_WORDS}[\"']?\s*[:=]|\b(?:bearer|basic)\s+\S")
_TELLING = re.compile(r"(?i)key|token|secret|pass|auth|cred|login|user|cookie|session")
_SWITCH = re.compile(r"-?\d{1,9}(\.\d{1,6})?|[A-Za-z][A-Za-z_]{0,31}")


def secret(name: str) -> bool:
    """Whether it is called as secrets are."""
    return bool(_SECRET.search(name))


def flags(words: Iterable[Any]) -> str:
    """A command's words as a shell takes them, the values of secret flags hidden."""
    return _SECRET_FLAG.sub(rf"\1 {HIDDEN}", shlex.join(map(str, words)))


def without_login(value: Any) -> Any:
    """The value, without user and password where it is an address."""
    return re.sub(r"//[^/@\s]+@", "//", value) if isinstance(value, str) else value


def open_setting(name: str, value: str) -> str:
    """A setting's value, hidden where its name or what it holds is as a secret's."""
    if secret(name) or _SECRET_INSIDE.search(value):
        return HIDDEN
    return str(without_login(value))


def open_variable(name: str, value: str) -> str:
    """A variable's or a header's value where it can only be a switch: a number or a plain word."""
    return value if _SWITCH.fullmatch(value) and not _TELLING.search(name) else HIDDEN
