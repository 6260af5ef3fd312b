"""The vectors that all rivals compute with while they are encrypted, and the check of what they find."""

import numpy

from . import Operation
from .samples import require

# By bits of the product of all our primes, as `ciphergram bench` tells presets apart: ring degree and levels. Primes
# are of 50 bits, and of 40 for each level, and special ones of 50.
SETS = {140: (8192, 1), 430: (16384, 7)}
FIRST_BITS, SCALE_BITS = 50, 40
TURNS = range(1, 9)

# Values of an update that is screened, in units in which its square fits the last level.
VALUES = 1_000_000
UNIT = 64


def numbers(count):
    """Returns numbers within 1."""
    return numpy.random.default_rng().uniform(-1, 1, count)


def measured(slots, encrypt, decrypt, multiply, rotate, rotate_eight, **more):
    """Returns a rival's operations on vectors of as many numbers as it has slots, and facts.

    `encrypt` makes a ciphertext of a list of numbers, `decrypt` a list of one, `multiply` also relinearises and
    rescales, `rotate` goes one slot to the left. `more` are other operations, by name.
    """
    values = numbers(slots)
    listed = values.tolist()
    a, b = encrypt(listed), encrypt(listed)
    error = numpy.abs(numpy.array(decrypt(a)) - values).max()
    off = {
        "a product": numpy.abs(numpy.array(decrypt(multiply(a, b))) - values * values).max(),
        "a rotation": numpy.abs(numpy.array(decrypt(rotate(a))) - numpy.roll(values, -1)).max(),
        "eight rotations": numpy.abs(
            numpy.array(decrypt(rotate_eight(a)[7])) - numpy.roll(values, -8)).max(),
    }
    for what, most in {"a fresh ciphertext": error, **off}.items():
        require(most < 1e-5, f"{what} that is off by {most}")
    operations = {
        "multiply": lambda: multiply(a, b),
        "rotate": lambda: rotate(a),
        "rotate_eight": lambda: rotate_eight(a),
        "encrypt": lambda: encrypt(listed),
        "decrypt": lambda: decrypt(a),
        **{name: (lambda way=way: way(listed)) for name, way in more.items()},
    }
    return {name: Operation(call, 1) for name, call in operations.items()}, {"error": float(error)}
