"""Turns the GGUF file of a folder into a model that vLLM loads; run by an engine's own Python."""

import sys
from pathlib import Path


def main(source: Path, folder: Path) -> None:
    """Converts the only GGUF file in `source`, its weights back in bfloat16."""
    import torch  # noqa: PLC0415
    from transformers import (  # noqa: PLC0415
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )

    file = next(source.glob("*.gguf")).name
    plain = GgufConfig(gguf_file=file, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=file, quantization_config=plain, dtype=torch.bfloat16
    )
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(folder)
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
