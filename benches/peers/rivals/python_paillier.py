"""python-paillier (`phe`) over gmpy2: Paillier with full-length masks, one value at a time."""

from phe import generate_paillier_keypair, util

from . import Operation
from .samples import SLOW_BATCH, integers, require


def setup(bits):
    require(util.HAVE_GMP, "python-paillier has not found gmpy2")
    public, secret = generate_paillier_keypair(n_length=bits)
    five, seven = public.encrypt(5), public.encrypt(7)
    scalars = integers(SLOW_BATCH, 64)
    # Without the final masking that `ciphertext()` adds.
    raw_five, raw_seven = five.ciphertext(False), seven.ciphertext(False)

    def multiply():
        return [five._raw_mul(scalar) for scalar in scalars]

    require(secret.decrypt(five + seven) == 12, "5 + 7")
    require(secret.raw_decrypt(five._raw_add(raw_five, raw_seven)) == 12, "5 + 7, raw")
    require(secret.raw_decrypt(multiply()[0]) == 5 * scalars[0], "5 times a scalar")
    return {
        "encrypt": Operation(lambda: public.raw_encrypt(12345), 1),
        "decrypt": Operation(lambda: secret.raw_decrypt(raw_five), 1),
        "add": Operation(lambda: five + seven, 1),
        "add/raw": Operation(lambda: five._raw_add(raw_five, raw_seven), 1),
        "mul_plain": Operation(multiply, len(scalars)),
    }
