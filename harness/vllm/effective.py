"""The configuration that a server says it runs with, setting by setting."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 300
"""Characters and entries beyond which a setting is no switch: it is kept in server_info.json."""

_OF_ONE_START = re.compile(
    r"(?i)(instance_id|_ports?|_ip|_buffer_name|_blocks|kv_cache_\w*(tokens|bytes|concurrency))$"
)
"""Settings that another start changes in any case."""

SECTIONS = {"vllm_config": "", "vllm_env": "env."}
"""What a server tells, and how the names of its settings begin."""


def effective(told: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting that is set, by the path to it: `cache_config.block_size`, `env.VLLM_X`.

    Those that another start changes in any case are left out.
    """
    return {
        name: value
        for section, prefix in SECTIONS.items()
        for name, value in _settings(told.get(section), prefix)
        if not _OF_ONE_START.search(name)
    }


def _settings(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for name, one in value.items():
                yield from _settings(one, f"{path}{name}.")
        case None:
            return
        case _ if len(str(value)) <= LONGEST:
            yield path.rstrip("."), value
