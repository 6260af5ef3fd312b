"""The virtual environment that has the pinned rivals, and the core on which everything runs."""

import os
import subprocess
import sys
from pathlib import Path

from .places import HERE, one_line

REQUIREMENTS = HERE / "requirements.txt"
OPENFHE_REQUIREMENTS = HERE / "requirements-openfhe.txt"
# Libraries that would start a thread a core read these.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}


def prepare(folder, requirements=REQUIREMENTS, python=sys.executable):
    """Makes the environment of `requirements` in `folder`, unless it is there already.

    Returns its interpreter and one line for every package that could not be installed. A package
    that is missing is no error here: the rival that needs it will say so.
    """
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = requirements.read_text()
    # The list that the environment was filled from, so that a second run needs no network.
    stamp = folder / "requirements.installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter, []
    if not interpreter.exists():
        problem = complaint_of(python, "-m", "venv", folder)
        if problem:
            return interpreter, [f"no virtual environment: {problem}"]
    problems = install(interpreter, wanted.split())
    if not problems:
        stamp.write_text(wanted)
    return interpreter, problems


def prepare_each(options, apart):
    """Returns the interpreter of each rival, and one line for everything that could not be installed.

    The rival called `apart` is OpenFHE, whose wheel is for Python 3.10 alone, whatever its name says.
    """
    usual, problems = prepare(options.venv.absolute())
    interpreters = dict.fromkeys(options.rivals, usual)
    if apart in interpreters:
        folder = options.venv.absolute().with_name(f"{options.venv.name}-openfhe")
        interpreters[apart], more = prepare(folder, OPENFHE_REQUIREMENTS, options.openfhe_python)
        problems += [f"{apart}, by {options.openfhe_python}: {line}" for line in more]
    return interpreters, problems


def find_python(version):
    """Returns a command that runs this version of Python: one on the path that does run, else one of pyenv's."""
    usual = f"python{version}"
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [usual, *sorted(map(str, versions.glob(f"{version}.*/bin/{usual}")))]
    return next((command for command in found if complaint_of(command, "--version") is None), usual)


def install(interpreter, packages):
    """Installs all packages at once or, if that fails, each by itself, so that one does not stop others."""
    print(f"installing {', '.join(packages)}", file=sys.stderr)
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
           "--retries", "1"]
    if complaint_of(*pip, *packages) is None:
        return []
    complaints = {package: complaint_of(*pip, package) for package in packages}
    return [f"{package} cannot be installed: {why}" for package, why in complaints.items() if why]


def complaint_of(*command):
    """Returns the last line that a command wrote to its standard error, or None if it succeeded."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return one_line(lines[-1]) if lines else f"exit code {done.returncode}"


def pin(core):
    """Keeps this process and all that it will start to one core, and to one thread each.

    `core` is its number, or None for the last one allowed. Returns the number, or None where the
    system cannot pin.
    """
    os.environ.update(ONE_THREAD)
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {core})
    return core
