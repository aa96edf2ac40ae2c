"""Tells which vLLM is installed, down to its files; run by an engine's own Python."""

import base64
import csv
import hashlib
import json
import sys
from importlib import metadata, util
from pathlib import Path

LIBRARIES = (
    *("torch", "triton", "transformers", "tokenizers", "flashinfer-python", "tilelang"),
    *("humming-kernels", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cutlass-dsl", "ray"),
    *("deep-gemm", "deep-ep", "nixl", "nixl-cu12", "nixl-cu13", "flash-mla", "numpy"),
)

MOST = 20
"""How many changed files are named."""


def main() -> None:
    """Prints one line of JSON: a digest of vLLM's files, those that are not the wheel's, versions.

    A patched build carries the version of the build that it was made of; its files do not.
    """
    found = util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        sys.exit("vllm is not installed here")
    folder = Path(found.submodule_search_locations[0])
    digests = {
        str(path.relative_to(folder.parent)): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    told = "\n".join(f"{name} {digest}" for name, digest in digests.items())
    changed = _changed(folder, digests)
    versions = {name: version for name in LIBRARIES if (version := _version(name))}
    words = {
        "files": hashlib.sha256(told.encode()).hexdigest()[:16],
        **({} if changed is None else {"stock": not changed}),
        **({"changed": changed} if changed else {}),
        "libraries": versions,
    }
    sys.stdout.write(json.dumps(words) + "\n")


def _changed(folder: Path, digests: dict[str, str]) -> list[str] | None:
    """The files that are not as their wheel brought them, by the wheel's own list.

    More than 20 are counted; None where there is no list, as in a checkout.
    """
    recorded = {
        path: digest.removeprefix("sha256=")
        for path, digest, _ in csv.reader(_recorded(folder))
        if path.startswith("vllm/") and digest.startswith("sha256=")
    }
    if not recorded:
        return None
    changed = [
        name
        for name in sorted(digests.keys() | recorded.keys())
        if "__pycache__" not in name and digests.get(name) != recorded.get(name)
    ]
    more = [f"and {len(changed) - MOST} more"] if len(changed) > MOST else []
    return [*changed[:MOST], *more]


def _recorded(folder: Path) -> list[str]:
    """The lines of RECORD of the distribution that lies beside the package."""
    for record in sorted(folder.parent.glob("vllm*.dist-info/RECORD")):
        lines = record.read_text(encoding="utf-8").splitlines()
        if any(line.startswith("vllm/") for line in lines):
            return lines
    return []


def _digest(path: Path) -> str:
    """As RECORD writes it."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
