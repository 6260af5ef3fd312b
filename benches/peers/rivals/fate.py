"""FATE's `fate_utils.paillier`: Rust over GMP, vectors, full-length masks."""

import numpy
from fate_utils import paillier

from . import Operation
from .samples import FAST_BATCH, SLOW_BATCH, integers, require

# Scalars are of the type int64, so they have one bit less than the 64 of others.
SCALAR_BITS = 63


def setup(bits):
    secret, public, coder = paillier.keygen(bits)
    values = numpy.arange(SLOW_BATCH, dtype=numpy.int64)
    encoded = coder.encode_i64_vec(values)
    # Masked, as ciphertexts are: without masks they are shorter numbers, and adding is quicker.
    ciphertexts = public.encrypt_encoded(encoded, True)
    long = paillier.Evaluator.cat([ciphertexts] * (FAST_BATCH // SLOW_BATCH))
    scalars = coder.encode_i64_vec(numpy.array(integers(SLOW_BATCH, SCALAR_BITS), numpy.int64))
    threes = coder.encode_i64_vec(numpy.full(SLOW_BATCH, 3, numpy.int64))

    def decrypted(vector):
        return numpy.asarray(coder.decode_i64_vec(secret.decrypt_to_encoded(vector)))

    require((decrypted(ciphertexts.add(public, ciphertexts)) == 2 * values).all(), "sums")
    require((decrypted(ciphertexts.mul(public, threes)) == 3 * values).all(), "products")
    return {
        "encrypt": Operation(lambda: public.encrypt_encoded(encoded, True), SLOW_BATCH),
        "decrypt": Operation(lambda: secret.decrypt_to_encoded(ciphertexts), SLOW_BATCH),
        "add": Operation(lambda: long.add(public, long), FAST_BATCH),
        "mul_plain": Operation(lambda: ciphertexts.mul(public, scalars), SLOW_BATCH),
    }
