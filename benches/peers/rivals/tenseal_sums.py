"""TenSEAL (Microsoft SEAL): CKKS vectors, encrypted with a public key as its users do."""

import numpy
import tenseal

from .sums import CLIENTS, measured, slices

# As NVFlare has it.
SCALE = 2 ** 40


def setup_8192(_bits):
    """Sets up NVFlare's default."""
    return setup(8192, [60, 40, 40])


def setup_4096(_bits):
    """Sets up smaller parameters, nobody's default: enough for sums."""
    return setup(4096, [60, 49])


def setup(degree, primes):
    def context(kind):
        made = tenseal.context(tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=degree,
                               coeff_mod_bit_sizes=primes, encryption_type=kind, n_threads=1)
        made.global_scale = SCALE
        return made

    public = context(tenseal.ENCRYPTION_TYPE.ASYMMETRIC)
    secret = context(tenseal.ENCRYPTION_TYPE.SYMMETRIC)

    def encrypt(update, _client, under=public):
        return [tenseal.ckks_vector(under, part).serialize()
                for part in slices(update, degree // 2)]

    def aggregate(uploads):
        total = [tenseal.ckks_vector_from(public, part) for part in uploads[0]]
        for upload in uploads[1:]:
            for sum_, part in zip(total, upload):
                sum_.add_(tenseal.ckks_vector_from(public, part))
        return total

    def decrypt(total):
        values = numpy.concatenate([part.decrypt() for part in total])
        return (values / CLIENTS).astype(numpy.float32)

    return measured(encrypt, aggregate, decrypt,
                    encrypt_symmetric=lambda update, client: encrypt(update, client, secret))
