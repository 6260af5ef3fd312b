#!/usr/bin/env python3
"""What `x @ W` of an encrypted x is off by, beside TenSEAL (Microsoft SEAL) over the same ring: accuracy, not speed.

    pip install ./python tenseal==0.3.18 && python3 benches/peers/matrices.py

Standard normal x and W. N = 8192 and scale 2^40 of both; primes of ours 50 + 40 and one special of 50, of TenSEAL's
60 + 40 and one special of 60. Needs both packages in the interpreter that runs it.
"""

import argparse

import ciphergram
import numpy
import tenseal

SHAPES = [(64, 10), (784, 10), (784, 192), (784, 1024), (784, 3312)]
ROW = "| {:>16} | {:>9} | {:>9} | {:>9} |"


def ours(x, matrix):
    """Returns the product and its bound."""
    inputs, outputs = matrix.shape
    keys = ciphergram.ckks.keygen("ckks-4096x1", rotations=[f"matrix:{outputs}x{inputs}"])
    product = keys.public.encrypt(x).under(keys.evaluation) @ matrix
    return keys.decrypt(product), product.error


def tenseals(x, matrix):
    """Returns the product."""
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 60])
    context.global_scale = 2**40
    context.generate_galois_keys()
    return tenseal.ckks_vector(context, x.tolist()).mm(matrix.tolist()).decrypt()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=3, metavar="COUNT", help="keys; the largest error counts [3]")
    runs = options.parse_args().runs
    print(ROW.format("inputs × outputs", "ours", "bound", "TenSEAL"))
    for inputs, outputs in SHAPES:
        found, bounds, rivals = [], [], []
        for seed in range(runs):
            random = numpy.random.default_rng(seed)
            x, matrix = random.standard_normal(inputs), random.standard_normal((inputs, outputs))
            product, bound = ours(x, matrix)
            bounds.append(bound)
            found.append(numpy.abs(product - x @ matrix).max())
            rivals.append(numpy.abs(tenseals(x, matrix) - x @ matrix).max())
        figures = (f"{max(errors):.1e}" for errors in (found, bounds, rivals))
        print(ROW.format(f"{inputs} × {outputs}", *figures), flush=True)


if __name__ == "__main__":
    main()
