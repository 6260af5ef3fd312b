"""Arguments that every run takes, and their kinds."""

import argparse
from pathlib import Path

from .environment import find_python
from .places import TARGET


def words(text):
    return text.split(",")


def numbers(text):
    return [int(word) for word in words(text)]


def positive(kind):
    def number(text):
        value = kind(text)
        if not value > 0:
            raise ValueError
        return value
    return number


def parser(description, rivals):
    """Returns the options of every run; `rivals` are the names of those that it can measure."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--binary", type=Path,
                       help="the ciphergram to measure [built if not given]")
    found.add_argument("--venv", type=Path, default=TARGET / "peers-venv", metavar="FOLDER",
                       help="where the rivals are, or are installed [%(default)s]")
    found.add_argument("--rivals", type=words, default=list(rivals), metavar="LIST",
                       help=f"whom to measure [{','.join(rivals)}]")
    found.add_argument("--rounds", type=positive(int), default=3, help="pairs of each [3]")
    found.add_argument("--seconds", type=positive(float), default=1.0,
                       help="how long each side of a pair is measured [1]")
    found.add_argument("--core", type=int, help="the core to run on [the last one allowed]")
    found.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return found


def add_openfhe(parser):
    """Adds the option of OpenFHE's Python."""
    parser.add_argument("--openfhe-python", default=find_python("3.10"), metavar="COMMAND",
                        help="a Python 3.10, for OpenFHE [%(default)s]")


def parse(parser, rivals):
    """Returns the options of the command line; exits where a rival is unknown."""
    found = parser.parse_args()
    unknown = set(found.rivals) - set(rivals)
    if unknown:
        parser.error(f"no such rival: {', '.join(sorted(unknown))}")
    return found
