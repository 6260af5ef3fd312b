"""GMP itself, through gmpy2: no scheme, the arithmetic that most of the others are made of.

`mod_exp` is a random base to a random exponent as long as the key, modulo n squared: the mask r^n
of a textbook encryption. `mod_mul` is one product of two numbers modulo n squared.
"""

import gmpy2

from . import Operation
from .samples import FAST_BATCH, SLOW_BATCH, integers, require


def setup(bits):
    [n] = integers(1, bits)
    modulus = gmpy2.mpz(n | 1) ** 2
    [exponent] = map(gmpy2.mpz, integers(1, bits))
    numbers = [gmpy2.mpz(number) % modulus for number in integers(FAST_BATCH + 1, 2 * bits)]
    pairs = list(zip(numbers, numbers[1:]))
    bases = numbers[:SLOW_BATCH]

    def multiply():
        for left, right in pairs:
            left * right % modulus

    def raise_to_power():
        for base in bases:
            gmpy2.powmod(base, exponent, modulus)

    base, power = bases[0], gmpy2.powmod(bases[0], exponent, modulus)
    require(power == pow(int(base), int(exponent), int(modulus)), "a power")
    return {
        "mod_exp": Operation(raise_to_power, len(bases)),
        "mod_mul": Operation(multiply, len(pairs)),
    }
