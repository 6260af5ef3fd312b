"""SecretFlow HEU: C++, through its scalars and through its arrays.

Two of its schemes are compared with: ZPaillier (its default, masks of the DJN form from tables) and
IPCL (Intel's library, in this wheel without the multi-buffer kernels that it was written for).
"""

import numpy
from heu import numpy as arrays
from heu import phe

from . import Operation
from .samples import FAST_BATCH, SLOW_BATCH, integers, require

# Scalars are of the type int64, so they have one bit less than the 64 of others.
SCALAR_BITS = 63


def setup_zpaillier(bits):
    return set_up(phe.SchemaType.ZPaillier, bits)


def setup_ipcl(bits):
    """Returns decryption and multiplication, the two at which it is quicker than ZPaillier."""
    operations = set_up(phe.SchemaType.IPCL, bits)
    return {name: operation for name, operation in operations.items()
            if name.startswith(("decrypt", "mul_plain"))}


def set_up(schema, bits):
    kit = arrays.setup(schema, bits)
    scalars = integers(SLOW_BATCH, SCALAR_BITS)
    return {**scalar_operations(kit, scalars), **array_operations(kit, scalars)}


def scalar_operations(kit, scalars):
    encryptor, decryptor = kit.encryptor().phe, kit.decryptor().phe
    evaluator = kit.evaluator().phe
    five, seven = encryptor.encrypt_raw(5), encryptor.encrypt_raw(7)

    def multiply():
        return [evaluator.mul(five, scalar) for scalar in scalars]

    require(decryptor.decrypt_raw(evaluator.add(five, seven)) == 12, "5 + 7")
    require(decryptor.decrypt_raw(multiply()[0]) == 5 * scalars[0], "5 times a scalar")
    return {
        "encrypt": Operation(lambda: encryptor.encrypt_raw(12345), 1),
        "decrypt": Operation(lambda: decryptor.decrypt_raw(five), 1),
        "add": Operation(lambda: evaluator.add(five, seven), 1),
        "mul_plain": Operation(multiply, len(scalars)),
    }


def array_operations(kit, scalars):
    encryptor, decryptor, evaluator = kit.encryptor(), kit.decryptor(), kit.evaluator()
    encoder = kit.integer_encoder(1)
    values = numpy.arange(FAST_BATCH)
    long = encryptor.encrypt(kit.array(values, encoder))
    encoded = kit.array(values[:SLOW_BATCH], encoder)
    short = encryptor.encrypt(encoded)
    factors = kit.array(numpy.array(scalars, numpy.int64), encoder)
    threes = kit.array(numpy.full(SLOW_BATCH, 3), encoder)

    def decrypted(vector):
        return decryptor.decrypt(vector).to_numpy(encoder).reshape(-1)

    require((decrypted(evaluator.add(short, short)) == 2 * values[:SLOW_BATCH]).all(), "sums")
    require((decrypted(evaluator.mul(short, threes)) == 3 * values[:SLOW_BATCH]).all(), "products")
    return {
        "encrypt/array": Operation(lambda: encryptor.encrypt(encoded), SLOW_BATCH),
        "decrypt/array": Operation(lambda: decryptor.decrypt(short), SLOW_BATCH),
        "add/array": Operation(lambda: evaluator.add(long, long), FAST_BATCH),
        "mul_plain/array": Operation(lambda: evaluator.mul(short, factors), SLOW_BATCH),
    }
