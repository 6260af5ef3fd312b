#!/usr/bin/env python3
"""Makes the Paillier vectors of this folder with python-paillier, an independent implementation.

    python3 -m venv venv && venv/bin/pip install phe==1.5.0
    venv/bin/python make_paillier_vectors.py --bits 2048 --out paillier_phe_2048.json

The same arguments always give the same bytes: primes, plaintexts and masks come from SHAKE-256 over
a label, so nothing depends on a clock, the operating system or Python's own generator. The keys are
public by that very fact: never use them for anything but tests.
"""

import argparse
import hashlib
import json
import math
from pathlib import Path

import phe

PHE_VERSION = "1.5.0"
# Rounds of Miller-Rabin per candidate; the primes are fixed for ever, so the time is spent once.
PRIMALITY_ROUNDS = 40


class Stream:
    """Integers from SHAKE-256 over "seed/label/counter": readable, and the same everywhere."""

    def __init__(self, seed):
        self.seed = seed

    def bits(self, label, counter, bits):
        text = f"{self.seed}/{label}/{counter}".encode()
        return int.from_bytes(hashlib.shake_256(text).digest(bits // 8), "big")

    def below(self, label, counter, bound):
        # 128 surplus bits make the bias of the reduction too small to matter.
        bits = (bound.bit_length() + 128 + 7) // 8 * 8
        return self.bits(label, counter, bits) % bound


def find_prime(stream, label, bits):
    """The first prime of the stream that is 3 mod 4 and has its two top bits set.

    Two primes with both top bits set have a product of exactly twice their size.
    """
    counter = 0
    while True:
        top = 3 << (bits - 2)
        candidate = stream.bits(label, counter, bits) | top | 3
        if phe.util.is_prime(candidate, PRIMALITY_ROUNDS):
            return candidate
        counter += 1


def find_key(stream, bits):
    """Primes p and q, both 3 mod 4, with gcd(p-1, q-1) = 2."""
    p = find_prime(stream, "p", bits // 2)
    attempt = 0
    while True:
        q = find_prime(stream, f"q{attempt}", bits // 2)
        if p != q and math.gcd(p - 1, q - 1) == 2:
            assert (p * q).bit_length() == bits
            return p, q
        attempt += 1


def hexadecimal(value):
    """Big-endian, a whole number of bytes, lower case."""
    digits = f"{value:x}"
    return digits if len(digits) % 2 == 0 else "0" + digits


def unit(stream, label, counter, n):
    """A mask: a unit modulo n, as raw encryption needs."""
    value = stream.below(label, counter, n - 2) + 2
    assert math.gcd(value, n) == 1
    return value


def plaintexts(stream, n):
    """Pairs of plaintexts to add: the edges first, then ordinary ones, the last of which wraps."""
    middle = [(stream.below("m1", i, n), stream.below("m2", i, n)) for i in range(3)]
    return [("zero and zero", 0, 0), ("zero and one", 0, 1), ("one and n-1 wrap to zero", 1, n - 1),
            ("n-1 and n-1 wrap", n - 1, n - 1), ("64-bit words", 2**64 - 1, 2**64),
            *((f"random {i}", a, b) for i, (a, b) in enumerate(middle))]


def multipliers(stream, n):
    """Exponents below n/3: above it python-paillier inverts the ciphertext instead."""
    random = [stream.below("k", i, n // 3) for i in range(3)]
    return [0, 1, 2, 2**16 - 1, 2**64 - 1, *random]


def make_case(public, private, stream, index, case, k):
    name, m1, m2 = case
    # The first case has masks of one: its ciphertexts are bare, which shows the message part alone.
    r1 = 1 if index == 0 else unit(stream, "r1", index, public.n)
    r2 = 1 if index == 0 else unit(stream, "r2", index, public.n)
    c1, c2 = public.raw_encrypt(m1, r1), public.raw_encrypt(m2, r2)
    e1, e2 = phe.EncryptedNumber(public, c1), phe.EncryptedNumber(public, c2)
    total, scaled = e1._raw_add(c1, c2), e1._raw_mul(k)
    assert total == c1 * c2 % public.nsquare and scaled == pow(c1, k, public.nsquare)
    values = {
        "m1": m1, "r1": r1, "c1": c1, "m2": m2, "r2": r2, "c2": c2,
        "sum": total, "sum_decrypted": private.raw_decrypt(total),
        "k": k, "mul_plain": scaled, "mul_plain_decrypted": private.raw_decrypt(scaled),
    }
    assert private.raw_decrypt(c1) == m1 and private.raw_decrypt(c2) == m2
    assert values["sum_decrypted"] == (m1 + m2) % public.n
    assert values["mul_plain_decrypted"] == m1 * k % public.n
    return {"name": name, **{key: hexadecimal(value) for key, value in values.items()}}


def make_vectors(bits, seed):
    stream = Stream(f"{seed}/{bits}")
    p, q = find_key(stream, bits)
    public = phe.PaillierPublicKey(p * q)
    private = phe.PaillierPrivateKey(public, p, q)
    pairs = zip(plaintexts(stream, public.n), multipliers(stream, public.n), strict=True)
    cases = [make_case(public, private, stream, i, case, k) for i, (case, k) in enumerate(pairs)]
    return {
        "source": f"python-paillier {PHE_VERSION}", "seed": seed, "bits": bits,
        "p": hexadecimal(p), "q": hexadecimal(q), "n": hexadecimal(public.n), "cases": cases,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, required=True, help="size of n, a multiple of 16")
    parser.add_argument("--seed", default="ciphergram paillier vectors 1")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if phe.__version__ != PHE_VERSION:
        parser.error(f"needs phe {PHE_VERSION}, found {phe.__version__}")
    vectors = make_vectors(options.bits, options.seed)
    options.out.write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
