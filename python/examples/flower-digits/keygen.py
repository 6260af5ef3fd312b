"""Make the keys: one folder, of which nodes get `secret.json` and `job.json`, and the server `public.json` and the job.

Run as ``python keygen.py keys``.
"""

from __future__ import annotations

import sys

import ciphergram as cg

if __name__ == "__main__":
    cg.keygen("ckks-sum", clients=10, bits=20, min_clients=3).save(sys.argv[1])
