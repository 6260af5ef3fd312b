"""The numbers that the rivals compute with."""

import secrets

# Single operations a call. Large enough that the call itself costs nothing beside a millisecond of
# work, small enough that a second has several calls.
SLOW_BATCH = 8
# The same for what takes microseconds. Ciphertexts of such a batch still fit a second-level cache.
FAST_BATCH = 1000


def integers(count, bits):
    """Returns `count` random integers of exactly `bits` bits.

    Random ones, because a sliding window passes quickly over a scalar such as 2^62 + 12345.
    """
    top = 1 << (bits - 1)
    return [top | secrets.randbits(bits - 1) for _ in range(count)]


def require(condition, what):
    """Refuses a rival that computes something else, with which no comparison is fair."""
    if not condition:
        raise ArithmeticError(f"computes something else: {what}")
