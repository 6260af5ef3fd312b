"""Additive masks, as in FLASHE: no homomorphic encryption, but a stream cipher under a shared key.

A client adds the keystream of its number and the round to its packed values, modulo 2^64. A holder
of the key takes the keystreams of all contributors from the sum. `benches/README.md` says what that
does not protect against.
"""

import secrets

import numpy
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .sums import CLIENTS, RANGE, VALUES, measured

WORD_BITS = 64


def setup(bits):
    steps = 2 ** (bits - 1) - 1
    # As wide as the largest sum of all clients.
    field_bits = (CLIENTS * 2 * steps).bit_length()
    fields = WORD_BITS // field_bits
    words = -(-VALUES // fields)
    # In use, every round has its own number: a keystream that serves twice hides nothing.
    key, round_ = secrets.token_bytes(16), secrets.token_bytes(8)
    generator = numpy.random.default_rng()
    zeros = bytes(8 * words)

    def keystream(client):
        # The last four bytes count blocks.
        nonce = round_ + client.to_bytes(4, "big") + bytes(4)
        stream = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
        return numpy.frombuffer(stream.update(zeros), numpy.uint64)

    def encrypt(update, client):
        packed = pack(quantise(update))
        packed += keystream(client)
        return [packed.tobytes()]

    def quantise(update):
        """Returns it clipped, and rounded up or down at random so that the expectation is exact."""
        scaled = numpy.clip(update, -RANGE, RANGE)
        scaled *= steps / RANGE
        scaled += generator.random(VALUES, numpy.float32)
        numpy.floor(scaled, scaled)
        scaled += steps
        return scaled.astype(numpy.uint64)

    def pack(values):
        packed = numpy.zeros(words, numpy.uint64)
        for field in range(fields):
            part = values[field * words:(field + 1) * words]
            packed[:len(part)] |= part << numpy.uint64(field * field_bits)
        return packed

    def aggregate(uploads):
        total = numpy.zeros(words, numpy.uint64)
        for upload in uploads:
            total += numpy.frombuffer(upload[0], numpy.uint64)
        return total

    def decrypt(total):
        packed = total.copy()
        for client in range(CLIENTS):
            packed -= keystream(client)
        mean = numpy.empty(fields * words, numpy.float32)
        for field in range(fields):
            part = packed >> numpy.uint64(field * field_bits) & numpy.uint64(2 ** field_bits - 1)
            mean[field * words:(field + 1) * words] = part
        mean -= CLIENTS * steps
        mean *= RANGE / (CLIENTS * steps)
        return mean[:VALUES]

    return measured(encrypt, aggregate, decrypt)
