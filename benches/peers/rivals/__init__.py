"""The libraries beside which ours is measured; this package runs in the virtual environment.

Every module has one function a scheme, `setup(bits)`: it makes a key of that many bits, checks that
the library computes what it should, and returns a dictionary from the name of an operation to an
`Operation`. A library that has several ways to do the same adds a word: `add` and `add/array`.

Operations are named as ours are: `encrypt` (public key, fresh randomness), `decrypt` (secret key,
to an encoded integer), `add` (ciphertext + ciphertext), `mul_plain` (ciphertext times a 64-bit
integer), `mod_exp` and `mod_mul` (modulo n squared).

Those of `SUM_RIVALS` sum vectors of float32: `bits` are those of a quantised value, and beside the
operations that `sums.measured` lists they return facts: bytes of an upload, error of the mean.

Those of `LEVELLED_RIVALS` compute with encrypted vectors: `bits` are those of the product of all our
primes, and the operations those of `ciphergram bench --ops ckks`; they return facts as well.
"""

from importlib import import_module
from typing import Callable, NamedTuple


class Operation(NamedTuple):
    """Something to measure: each call carries out `batch` single operations."""

    call: Callable[[], object]
    batch: int


class Rival(NamedTuple):
    """Where a rival is: `module` has `function(bits)`, and `distribution` is what was installed."""

    module: str
    function: str
    distribution: str


RIVALS = {
    "phe": Rival("python_paillier", "setup", "phe"),
    "fate": Rival("fate", "setup", "fate-utils"),
    "pypaillier": Rival("pypaillier", "setup", "pypaillier"),
    "heu-zp": Rival("heu", "setup_zpaillier", "sf-heu"),
    "heu-ipcl": Rival("heu", "setup_ipcl", "sf-heu"),
    "gmp": Rival("gmp", "setup", "gmpy2"),
}


SUM_RIVALS = {
    "tenseal-8192": Rival("tenseal_sums", "setup_8192", "tenseal"),
    "tenseal-4096": Rival("tenseal_sums", "setup_4096", "tenseal"),
    "openfhe": Rival("openfhe_sums", "setup", "openfhe"),
    "secagg": Rival("secagg_sums", "setup", "flwr"),
    "masks": Rival("masks", "setup", "cryptography"),
    "float32": Rival("plain", "setup", "numpy"),
}

LEVELLED_RIVALS = {
    "seal-no-hexl": Rival("seal_levelled", "setup", "tenseal"),
    "openfhe-ckks": Rival("openfhe_levelled", "setup", "openfhe"),
}


def find(name):
    """Returns where the rival called `name` is."""
    return {**RIVALS, **SUM_RIVALS, **LEVELLED_RIVALS}[name]


def set_up(name, bits):
    """Returns the operations of the rival called `name`, with a new key, and facts by name."""
    rival = find(name)
    found = getattr(import_module(f"rivals.{rival.module}"), rival.function)(bits)
    return (found, {}) if name in RIVALS else found
