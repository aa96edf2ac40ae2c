"""What is or may be a secret, and how values are written without one."""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "hidden"

_WORDS = (
    r"(?:token|secrets?|passw(?:or)?ds?|passphrase|sshpass|(?:api|access|private|secret)[_-]?keys?"
    r"|[a-z\d][_-]key|credentials?|authorization|cookie|(?:\b|_)(?:auth|jwt|pass|pat|pwd))[_-]?\d*"
)
_SECRET = re.compile(rf"(?i){_WORDS}$")
# A word of a vocabulary, what something is found by, and a path.
_OPEN_NAME = re.compile(
    r"(?i)(?:\b|_)(?:(?:bos|eos|pad|unk|sep|cls|mask|stop|begin|start|end|image|video|audio)[_-]token"
    r"|(?:cache|partition|routing|sort|public|ssl|tls)[_-]key)$"
)
_OPEN_VALUE = re.compile(r"(?i)\s*(?:\d{0,4}|true|false)\s*")
_SECRET_FLAG = re.compile(rf"(?i)(--\S*?{_WORDS})(?:=|\s+)('[^']*'|\S+)")
# Inside JSON, a header or a query, and what a header says before a key.
_SECRET_INSIDE = re.compile(rf"(?i){_WORDS}[\"']?\s*[:=]|\b(?:bearer|basic)\s+\S")
# What is one under any name: a header's value, and an address with a login.
_CREDENTIAL = re.compile(
    r"(?i:^\s*bearer\s+\S+\s*$|[:=]\s*[\"']?bearer\s+\S)|//[^/@\s:]*:[^/@\s]+@"
    # Base64, and not a word such as English.
    r"|(?:^|[:=])\s*[\"']?(?i:basic)\s+(?=\S+[\dA-Z=])(?:[\w+/=]{4})+[\"']?\s*$"
)
# What a text sets by name, as JSON, variables, queries and headers do, and how its value begins.
_SETTING = re.compile(
    r"""(?:["']([\w.-]+)\\?["']\s*:\s*\[?\s*\\?(?=["'])"""
    r"""|(?<![\w.-])(?:([\w.-]+)=(?!=)|(?=\w+[_-])([\w-]+):(?!\d)\s*))"""
    r"""(?=\\?["']?([^\s"',;&/]{1,6}))"""
)
# Up to the command that sshpass starts, whose -p is a port.
_PASSWORDS = {
    "sshpass -p": re.compile(
        r"(?:^|[\s/'\"])sshpass['\"]?(?:\s+-(?:[ehvV]\S*|[dfP]\s*\S+))*\s+['\"]?-[hvV]*p"
    ),
    "plink -pw": re.compile(r"(?:^|[\s/'\"])plink\s(?:.*\s)?-pw\s"),
    "curl -u": re.compile(
        r"(?:^|[\s/'\"])curl\s(?:.*\s)?(?:-[A-Za-z]*[uU]|--(?:proxy-)?user[\s=])\s*[^\s:]*:\S"
    ),
}
TELLING = re.compile(r"(?i)key|token|secret|pass|auth|cred|login|user|cookie|session")
_SWITCH = re.compile(r"-?\d{1,9}(\.\d{1,6})?|[A-Za-z][A-Za-z_]{0,31}")


def secret(name: str) -> bool:
    """Whether it is called as secrets are."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return bool(_SECRET.search(parted)) and not _OPEN_NAME.search(parted)


def _holds(text: str) -> bool:
    """Whether a text is a secret, or sets one, under whatever name."""
    return bool(_CREDENTIAL.search(text)) or any(
        secret("".join(name)) and not _OPEN_VALUE.fullmatch(value)
        for *name, value in _SETTING.findall(text)
    )


def stated(settings: Any, name: str = "") -> str | None:
    """The name of a setting in it that is or holds a secret; None where none does."""
    match settings:
        case Mapping():
            found = (stated(held, str(key)) for key, held in settings.items())
            return next((one for one in found if one), None)
        case list() | tuple():
            return next((one for held in settings if (one := stated(held, name))), None)
        case str() if not _OPEN_VALUE.fullmatch(settings):
            return name if secret(name) or _holds(settings) else None
    return None


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
