#!/usr/bin/env python3
"""Makes the vectors of levelled CKKS of this folder by definitions, and with Microsoft SEAL's encoder.

    python3 -m venv venv && venv/bin/pip install mpmath==1.4.1 sympy==1.14.0 tenseal==0.3.18
    venv/bin/python make_ckks_vectors.py

writes `ckks_encoder.json` and `ckks_rings.json`. Nothing is random: the same bytes come out anywhere.

Numbers and polynomials are formulas of their index, so that files are short. Slots are the values of a polynomial at
the primitive 2N-th roots of unity zeta^(5^j); SEAL's are those at zeta^(3^k), which are the same and their
conjugates in another order. Nothing here knows how the library that is tested computes.
"""

import json
from pathlib import Path

import mpmath
import sympy
import tenseal.sealapi as seal

HERE = Path(__file__).resolve().parent
mpmath.mp.prec = 200
# Coefficients before rounding are written in this unit.
UNIT_BITS = 20
# Slots and binary logarithm of the scale, and how many coefficients are written.
ENCODINGS = [(8, 40, 16), (8, 12, 16), (32, 30, 64), (4096, 40, 12), (8192, 40, 12)]
# Ring degrees, bits of the primes, how many of the largest, and how many coefficients are written.
RINGS = [(16, 50, 2, 16), (64, 40, 1, 16), (8192, 50, 2, 8), (8192, 40, 2, 8), (16384, 40, 7, 8)]


def number(index, factor, shift):
    """Returns the number in a slot, within 1: a few bits, so that every format holds it."""
    return ((factor * index * index + shift * index + 77_777) % 2**20 - 2**19) / 2**19


def numbers(slots):
    """Returns the complex numbers of all slots."""
    return [complex(number(j, 7919, 104_729), number(j, 6101, 15_485)) for j in range(slots)]


def some(count, of):
    """Returns `count` indices below `of`, spread over them, first and last among them."""
    return sorted({i * (of - 1) // (count - 1) for i in range(count)})


def exact_coefficients(values, scale_bits, indices):
    """Returns coefficients of the polynomial that has these values, times the scale, in units of 2^-20.

    By definition: m(zeta^(5^j)) = z_j, and the conjugates at the other half of the roots, so that
    m_i = 2/N sum_j Re(z_j zeta^(-i 5^j)).
    """
    degree = 2 * len(values)
    roots = [mpmath.expjpi(mpmath.mpf(k) / degree) for k in range(2 * degree)]
    powers = [pow(5, j, 2 * degree) for j in range(len(values))]
    coefficients = []
    for i in indices:
        total = mpmath.fsum(mpmath.re(mpmath.mpc(z) * roots[-i * power % (2 * degree)])
                            for z, power in zip(values, powers))
        scaled = total * 2 / degree * mpmath.mpf(2) ** (scale_bits + UNIT_BITS)
        coefficients.append(int(mpmath.nint(scaled)))
    return coefficients


def seal_coefficients(values, scale_bits, indices):
    """Returns the same coefficients as SEAL rounds them."""
    slots, degree = len(values), 2 * len(values)
    parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
    parameters.set_poly_modulus_degree(degree)
    parameters.set_coeff_modulus(seal.CoeffModulus.Create(degree, [50, 50]))
    context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.NONE)
    q = parameters.coeff_modulus()[0].value()
    # Which of our slots is at zeta^(3^k), or the conjugate of one of ours.
    ours = {pow(5, j, 2 * degree): j for j in range(slots)}
    ordered = []
    for k in range(slots):
        power = pow(3, k, 2 * degree)
        ordered.append(values[ours[power]] if power in ours
                       else values[ours[2 * degree - power]].conjugate())
    plain = seal.Plaintext()
    seal.CKKSEncoder(context).encode(ordered, 2.0**scale_bits, plain)
    # Its plaintexts are transformed, in bit-reversed order, by the smallest root.
    root, bits = smallest_root(2 * degree, q), degree.bit_length() - 1
    transformed = [plain.data(i) for i in range(degree)]
    exponents = [2 * reversed_bits(i, bits) + 1 for i in range(degree)]
    inverse = pow(degree, -1, q)
    powers = [1]
    for _ in range(2 * degree - 1):
        powers.append(powers[-1] * root % q)
    coefficients = []
    for i in indices:
        total = sum(value * powers[-i * exponent % (2 * degree)]
                    for value, exponent in zip(transformed, exponents))
        coefficient = total * inverse % q
        coefficients.append(coefficient - q if coefficient > q // 2 else coefficient)
    return coefficients


def reversed_bits(index, bits):
    return int(format(index, f"0{bits}b")[::-1], 2)


def smallest_root(order, q):
    """Returns the smallest primitive root of unity of this order, a power of two."""
    any_root = next(root for root in (pow(x, (q - 1) // order, q) for x in range(2, q))
                    if pow(root, order // 2, q) == q - 1)
    square, root, least = any_root * any_root % q, any_root, any_root
    for _ in range(order // 2):
        root = root * square % q
        least = min(least, root)
    return least


def largest_primes(bits, degree, count):
    """Returns the largest primes of these bits that are 1 modulo 2N."""
    found, candidate = [], (2**bits - 1) // (2 * degree) * 2 * degree + 1
    while candidate >= 2**bits:
        candidate -= 2 * degree
    while len(found) < count:
        if sympy.isprime(candidate):
            found.append(candidate)
        candidate -= 2 * degree
    return found


def polynomial(degree, q, factor):
    """Returns residues that are quadratic in their index."""
    return [(factor * i * i + 1_234_567_891_011 * i + 987_654_321) % q for i in range(degree)]


def product(a, b, q):
    """Returns a product modulo X^N + 1 and q: of integers in which coefficients lie side by side."""
    degree, width = len(a), 16
    joined = [int.from_bytes(b"".join(x.to_bytes(width, "little") for x in p), "little") for p in (a, b)]
    raw = (joined[0] * joined[1]).to_bytes(2 * degree * width, "little")
    whole = [int.from_bytes(raw[i * width:][:width], "little") for i in range(2 * degree)]
    return [(low - high) % q for low, high in zip(whole[:degree], whole[degree:])]


def checksum(words, q):
    """Returns a sum that tells every word, and their order."""
    return sum((i + 1) * word for i, word in enumerate(words)) % q


def evaluate(a, x, q):
    value = 0
    for coefficient in reversed(a):
        value = (value * x + coefficient) % q
    return value


def encoding(slots, scale_bits, count):
    values, indices = numbers(slots), some(count, 2 * slots)
    return {"slots": slots, "scale_bits": scale_bits, "indices": indices,
            "exact": exact_coefficients(values, scale_bits, indices),
            "seal": seal_coefficients(values, scale_bits, indices)}


def ring(degree, bits, primes, count):
    q = largest_primes(bits, degree, primes)[-1]
    a, b = polynomial(degree, q, 2**45 + 59), polynomial(degree, q, 2**38 + 7)
    whole, root = product(a, b, q), smallest_root(2 * degree, q)
    if degree == 16:
        # Also by the definition, term by term.
        slow = [sum(a[j] * b[(i - j) % degree] * (1 if j <= i else -1) for j in range(degree)) % q
                for i in range(degree)]
        assert slow == whole
    indices = some(count, degree)
    places = [2 * reversed_bits(i, degree.bit_length() - 1) + 1 for i in indices]
    return {"degree": degree, "bits": bits, "number": primes - 1, "prime": q, "root": root, "indices": indices,
            "product": [whole[i] for i in indices], "product_checksum": checksum(whole, q),
            "transform": [evaluate(a, pow(root, place, q), q) for place in places]}


def write(name, document):
    text = json.dumps({"made_by": Path(__file__).name, **document}, indent=1)
    (HERE / name).write_text(text + "\n")


def main():
    write("ckks_encoder.json", {"unit_bits": UNIT_BITS, "cases": [encoding(*case) for case in ENCODINGS]})
    write("ckks_rings.json", {"cases": [ring(*case) for case in RINGS]})


if __name__ == "__main__":
    main()
