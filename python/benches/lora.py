"""A row of `python/bench.py`: what a site of the LoRA example sends in a round, beside float32."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "lora" / "lora.py"


def main() -> None:
    """Print the line."""
    spec = importlib.util.spec_from_file_location("lora_example", EXAMPLE)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{EXAMPLE} is no module")
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example
    spec.loader.exec_module(example)
    plain, sealed = example.bytes_of_an_update()
    ratio = sealed / plain
    row = {
        "what": "LoRA round of SmolLM2-135M, rank 8, bytes up",
        "ours": f"{sealed / 1e6:.2f} MB",
        "peer": f"{plain / 1e6:.2f} MB of float32",
        "ratio": ratio,
        "target": "<= 0.85",
        "met": ratio <= 0.85,
    }
    sys.stdout.write(json.dumps([row]) + "\n")


if __name__ == "__main__":
    main()
