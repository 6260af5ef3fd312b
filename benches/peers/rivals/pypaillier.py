"""pypaillier: Rust over GMP, lists of serialised ciphertexts, masks of the DJN form.

Its `add_many` is one sum of a list: a batch of k additions parses k + 1 ciphertexts and serialises
one. Keys are made of safe primes, which may take a minute.
"""

import paillier

from . import Operation
from .samples import FAST_BATCH, SLOW_BATCH, integers, require


def setup(bits):
    public, secret = paillier.generate_keypair(bits)
    values = list(range(1, SLOW_BATCH + 1))
    ciphertexts = paillier.encrypt_integers(public, values)
    many = ciphertexts * (FAST_BATCH // SLOW_BATCH)
    scalars = integers(SLOW_BATCH, 64)

    def decrypted(blobs):
        return [int(text) for text in paillier.decrypt_many(secret, blobs)]

    def multiply():
        return paillier.multiply_integers_public(public, ciphertexts, scalars)

    require(decrypted(ciphertexts) == values, "plaintexts")
    require(decrypted([paillier.add_many(public, ciphertexts)]) == [sum(values)], "a sum")
    require(decrypted(multiply()) == [a * b for a, b in zip(values, scalars)], "products")
    return {
        "encrypt": Operation(lambda: paillier.encrypt_integers(public, values), SLOW_BATCH),
        "decrypt": Operation(lambda: paillier.decrypt_many(secret, ciphertexts), SLOW_BATCH),
        "add": Operation(lambda: paillier.add_many(public, many), len(many) - 1),
        "mul_plain": Operation(multiply, SLOW_BATCH),
    }
