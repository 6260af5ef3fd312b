"""The parts of the comparison; `run.py` says in which order."""
