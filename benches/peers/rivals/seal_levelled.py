"""Microsoft SEAL, by the module of TenSEAL that is its own interface: the wheel's build is without Intel HEXL.

It has one special prime, so a digit of a switching key is one prime, where our larger presets group them; and no
rotations that share work. Its files are written to memory, where /dev/shm is.
"""

import os
import tempfile
from pathlib import Path

import numpy
import tenseal.sealapi as seal

from . import Operation
from .levelled import FIRST_BITS, SCALE_BITS, SETS, TURNS, UNIT, VALUES, measured, numbers
from .samples import require

SCALE = 2.0**SCALE_BITS


class Party:
    """All keys, and what works with them."""

    def __init__(self, degree, primes):
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(degree)
        parameters.set_coeff_modulus(seal.CoeffModulus.Create(degree, primes))
        self.context = seal.SEALContext(parameters, True, seal.SEC_LEVEL_TYPE.TC128)
        generator = seal.KeyGenerator(self.context)
        public, self.relinearisation, self.turns = seal.PublicKey(), seal.RelinKeys(), seal.GaloisKeys()
        generator.create_public_key(public)
        generator.create_relin_keys(self.relinearisation)
        self.slots = degree // 2
        steps = {*TURNS, *(2**bit for bit in range(self.slots.bit_length() - 1))}
        # Its rotations are by powers of three.
        generator.create_galois_keys([pow(3, step, 2 * degree) for step in sorted(steps)], self.turns)
        secret = generator.secret_key()
        self.encoder = seal.CKKSEncoder(self.context)
        self.public, self.secret = (seal.Encryptor(self.context, key) for key in (public, secret))
        self.decryptor = seal.Decryptor(self.context, secret)
        self.evaluator = seal.Evaluator(self.context)

    def encode(self, values):
        plain = seal.Plaintext()
        self.encoder.encode(values, SCALE, plain)
        return plain

    def encrypt(self, values):
        ciphertext = seal.Ciphertext()
        self.public.encrypt(self.encode(values), ciphertext)
        return ciphertext

    def encrypt_owner(self, values):
        return self.secret.encrypt_symmetric(self.encode(values))

    def decrypt(self, ciphertext):
        plain = seal.Plaintext()
        self.decryptor.decrypt(ciphertext, plain)
        return self.encoder.decode_double(plain)

    def multiply(self, a, b):
        product = seal.Ciphertext()
        self.evaluator.multiply(a, b, product)
        return self.lower(product)

    def lower(self, product):
        self.evaluator.relinearize_inplace(product, self.relinearisation)
        self.evaluator.rescale_to_next_inplace(product)
        return product

    def rotate(self, ciphertext, steps=1):
        turned = seal.Ciphertext()
        self.evaluator.rotate_vector(ciphertext, steps, self.turns, turned)
        return turned

    def rotate_eight(self, ciphertext):
        return [self.rotate(ciphertext, steps) for steps in TURNS]


def setup(bits):
    degree, levels = SETS[bits]
    primes = [FIRST_BITS, *[SCALE_BITS] * levels, FIRST_BITS]
    party = Party(degree, primes)
    operations, facts = measured(
        party.slots, party.encrypt, party.decrypt, party.multiply, party.rotate,
        party.rotate_eight, encrypt_owner=party.encrypt_owner)
    if levels == 1:
        operations["screen"] = Operation(screening(party), 1)
    facts |= {"degree": degree, "levels": levels,
              "primes": "+".join(map(str, primes)),
              "note": "the last special, a prime a digit, built without Intel HEXL"}
    return operations, facts


def screening(party):
    """Returns what screens one client's update: from files in memory to a norm and a product.

    Sums of products are switched and rescaled once, as ours are.
    """
    # The folder goes with what is returned.
    memory = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
    values = numbers(VALUES) / UNIT
    slices = [values[start:start + party.slots].tolist() for start in range(0, VALUES, party.slots)]
    paths = []
    for index, part in enumerate(slices):
        paths.append(str(Path(folder.name) / str(index)))
        party.encrypt_owner(part).save(paths[-1])
    reference = [party.encrypt(part) for part in slices]
    evaluator = party.evaluator

    def inner_sum(product):
        total = party.lower(product)
        for bit in range(party.slots.bit_length() - 1):
            evaluator.add_inplace(total, party.rotate(total, 2**bit))
        return total

    def screen(folder=folder):
        sums = [None, None]
        for path, other in zip(paths, reference):
            own = seal.Ciphertext()
            own.load(party.context, path)
            for index, factor in enumerate((own, other)):
                product = seal.Ciphertext()
                evaluator.multiply(own, factor, product)
                if sums[index] is None:
                    sums[index] = product
                else:
                    evaluator.add_inplace(sums[index], product)
        return [inner_sum(product) for product in sums]

    expected = float(numpy.square(values).sum())
    for found in screen():
        require(abs(party.decrypt(found)[0] / expected - 1) < 1e-3, "a norm")
    return screen
