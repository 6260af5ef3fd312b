"""Where things are in a clone."""

import os
from pathlib import Path

# The folder of this comparison, from which rivals are started.
HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
# Where cargo puts what it builds.
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
EXECUTABLE_SUFFIX = ".exe" if os.name == "nt" else ""


def one_line(text, limit=200):
    """Returns `text` without line breaks and, if longer than `limit` characters, without its middle."""
    line = " ".join(text.split())
    half = limit // 2
    return line if len(line) <= limit else f"{line[:half]} ... {line[-half:]}"
