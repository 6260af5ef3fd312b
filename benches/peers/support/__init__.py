"""What the comparison is made of; `run.py` says in which order."""
