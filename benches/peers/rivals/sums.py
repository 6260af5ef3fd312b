"""The vectors that all rivals sum, and the check of their means."""

import numpy

from . import Operation
from .samples import require

VALUES, CLIENTS = 1_000_000, 10
# Values lie in -RANGE to RANGE.
RANGE = 1.0


def measured(encrypt, aggregate, decrypt, **more):
    """Returns a rival's operations on a round of its own, and facts about that round.

    `encrypt` makes a list of bytes of a vector and its client's number, `aggregate` whatever is the
    sum of the lists of all clients, `decrypt` the mean in float32. `more` are other ways to encrypt,
    by name.
    """
    generator = numpy.random.default_rng()
    updates = [generator.uniform(-RANGE, RANGE, VALUES).astype(numpy.float32)
               for _ in range(CLIENTS)]
    uploads = [encrypt(update, client) for client, update in enumerate(updates)]
    total = aggregate(uploads)
    mean = decrypt(total)
    require(mean.dtype == numpy.float32 and mean.shape == (VALUES,), "not a vector of float32")
    error = numpy.abs(mean - numpy.mean(updates, axis=0, dtype=numpy.float64)).max()
    require(error < 1e-3, f"a mean that is off by {error}")
    operations = {
        "encrypt": Operation(lambda: encrypt(updates[0], 0), 1),
        "aggregate": Operation(lambda: aggregate(uploads), 1),
        "decrypt": Operation(lambda: decrypt(total), 1),
    }
    for name, way in more.items():
        operations[name] = Operation(lambda way=way: way(updates[0], 0), 1)
    facts = {"bytes_per_value": sum(map(len, uploads[0])) / VALUES, "mean_error": float(error)}
    return operations, facts


def slices(vector, length):
    """Returns the vector in pieces, each for one ciphertext."""
    return [vector[start:start + length] for start in range(0, len(vector), length)]
