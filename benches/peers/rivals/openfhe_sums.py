"""OpenFHE: CKKS of depth 0, which is all that a sum needs, with its own choice of ring."""

import numpy
import openfhe

from .sums import CLIENTS, VALUES, measured, slices


def setup(_bits):
    parameters = openfhe.CCParamsCKKSRNS()
    parameters.SetMultiplicativeDepth(0)
    # One prime: its default technique would add another, for levels that are not there.
    parameters.SetScalingTechnique(openfhe.ScalingTechnique.FIXEDMANUAL)
    context = openfhe.GenCryptoContext(parameters)
    context.Enable(openfhe.PKESchemeFeature.PKE)
    context.Enable(openfhe.PKESchemeFeature.LEVELEDSHE)
    slots = context.GetRingDimension() // 2
    keys = context.KeyGen()

    def encrypt(update, _client, key=keys.publicKey):
        return [openfhe.Serialize(context.Encrypt(key, encode(part)), openfhe.BINARY)
                for part in slices(update, slots)]

    def encode(part):
        return context.MakeCKKSPackedPlaintext(part.astype(numpy.float64))

    def parse(part):
        return openfhe.DeserializeCiphertextString(part, openfhe.BINARY)

    def aggregate(uploads):
        total = [parse(part) for part in uploads[0]]
        for upload in uploads[1:]:
            for sum_, part in zip(total, upload):
                context.EvalAddInPlace(sum_, parse(part))
        return total

    def decrypt(total):
        parts = [context.Decrypt(part, keys.secretKey).GetRealPackedValue() for part in total]
        return (numpy.concatenate(parts)[:VALUES] / CLIENTS).astype(numpy.float32)

    return measured(encrypt, aggregate, decrypt,
                    encrypt_symmetric=lambda update, client: encrypt(
                        update, client, keys.secretKey))
