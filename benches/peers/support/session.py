"""The beginning and the end of every run."""

import json
import sys
from datetime import datetime, timezone

from . import report
from .environment import pin
from .ours import Ours, OursFailed, build


def begin(options, prepare):
    """Returns our binary, what `prepare` gave beside the problems it met, and the core to run on.

    The time and the problems are kept for the file of figures.
    """
    options.time = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    # Lines are written as they come, even to a file.
    sys.stdout.reconfigure(line_buffering=True)
    try:
        ours = Ours((options.binary or build()).resolve())
    except OursFailed as error:
        sys.exit(f"error: {error}")
    prepared, options.problems = prepare(options)
    try:
        core = pin(options.core)
    except OSError as error:
        sys.exit(f"error: core {options.core}: {error.strerror}")
    print(f"core {core}, {options.rounds} rounds of {options.seconds} s a side"
          if core is not None else "!! this system cannot keep a process to one core")
    for problem in options.problems:
        print(f"!! {problem}")
    return ours, prepared, core


def end(options, ours, core, shares, figures):
    """Says what disturbed the run, writes all figures where asked, and gives the exit code. `shares`
    are the shares of the core that each measurement had."""
    if warning := report.busy_line(shares):
        print(warning)
    for (name, bits), why in ours.failures.items():
        print(f"!! ours, {bits} bits, failed at {name}: {why}")
    if options.json:
        figures = {
            "time": options.time, "machine": ours.machine, "commit": ours.commit, "core": core,
            "rounds": options.rounds, "seconds": options.seconds,
            "least_share": min(shares, default=1), "problems": options.problems, **figures,
            "failures": [{"operation": name, "bits": bits, "why": why}
                         for (name, bits), why in ours.failures.items()],
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if ours.failures else 0
