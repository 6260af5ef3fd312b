"""Make identities of four clients, any three of whom open a sum together, their job and the server's key.

Run as ``python keygen.py keys``.
"""

from __future__ import annotations

import sys

import ciphergram as cg

if __name__ == "__main__":
    cg.keygen_members(sys.argv[1], clients=4, bits=20)
