"""What is or may be a secret, and how values are written without one."""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "hidden"

_WORDS = (
    r"(?:token|secret|passw(?:or)?d|passphrase|sshpass|(?:api|access|private)[_-]?key"
    r"|credentials?|authorization|cookie)"
)
_SECRET = re.compile(rf"(?i){_WORDS}$")
_SECRET_FLAG = re.compile(rf"(?i)(--\S*?{_WORDS})(?:=|\s+)('[^']*'|\S+)")
# Inside JSON, a header or a query, and what a header says before a key.
_SECRET_INSIDE = re.compile(rf"(?i){_WORDS}[\"']?\s*[:=]|\b(?:bearer|basic)\s+\S")
# What is one as a whole, under any name: a header's value, and an address with a login.
_CREDENTIAL = re.compile(r"(?i)^\s*(?:bearer|basic)\s+\S+\s*$|//[^/@\s:]*:[^/@\s]+@")
# Up to the command that sshpass starts, whose -p is a port.
_PASSWORDS = {
    "sshpass -p": re.compile(
        r"(?:^|[\s/'\"])sshpass['\"]?(?:\s+-(?:[ehvV]\S*|[dfP]\s*\S+))*\s+['\"]?-[hvV]*p"
    ),
    "plink -pw": re.compile(r"(?:^|[\s/'\"])plink\s(?:.*\s)?-pw\s"),
}
TELLING = re.compile(r"(?i)key|token|secret|pass|auth|cred|login|user|cookie|session")
_SWITCH = re.compile(r"-?\d{1,9}(\.\d{1,6})?|[A-Za-z][A-Za-z_]{0,31}")


def secret(name: str) -> bool:
    """Whether it is called as secrets are."""
    return bool(_SECRET.search(name))


def stated(settings: Any, name: str = "") -> str | None:
    """The name of a setting in it that is or holds a secret; None where none does."""
    match settings:
        case Mapping():
            found = (stated(held, str(key)) for key, held in settings.items())
            return next((one for one in found if one), None)
        case list() | tuple():
            return next((one for held in settings if (one := stated(held, name))), None)
        case None | bool() | "":
            return None
        case _:
            return name if secret(name) or _CREDENTIAL.search(str(settings)) else None


def passwords(line: str) -> list[str]:
    """The options in a command line after which a password stands, though not called so."""
    return [option for option, pattern in _PASSWORDS.items() if pattern.search(line)]


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
    return value if _SWITCH.fullmatch(value) and not TELLING.search(name) else HIDDEN
