"""One rival, in a process that lives as long as the comparison and measures when it is asked to.

    python -m rivals.serve NAME BITS

Everything is a line of JSON. The first one written says what there is to measure:
`{"version": "1.5.0", "operations": ["add", "decrypt"], "facts": {}}`. Then each line read,
`{"operation": "add", "seconds": 0.5}`, is answered with what `rivals.timing.measure` found,
`{"median_s": 4e-6, "count": 120000, "share": 0.99}`. `{"error": "..."}` in place of either says why
there is none. The process ends with its input.
"""

import importlib.metadata
import json
import os
import sys

from rivals import find, set_up
from rivals.timing import measure


def main():
    name, bits = sys.argv[1], int(sys.argv[2])
    # Some libraries log to standard output: what they write there goes to standard error instead.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(what):
        document = attempt(what)
        print(json.dumps(document), file=answers, flush=True)
        return "error" not in document

    operations = {}

    def introduce():
        found, facts = set_up(name, bits)
        operations.update(found)
        version = importlib.metadata.version(find(name).distribution)
        return {"version": version, "operations": sorted(operations), "facts": facts}

    def fulfil(request):
        median_s, count, share = measure(operations[request["operation"]], request["seconds"])
        return {"median_s": median_s, "count": count, "share": share}

    if answer(introduce):
        for line in sys.stdin:
            answer(lambda line=line: fulfil(json.loads(line)))


def attempt(what):
    """Returns what `what` does, or why it failed. A panic in Rust is a BaseException here."""
    try:
        return what()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
