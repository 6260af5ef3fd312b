"""OpenFHE's CKKS by its wheel, with digits of its switching keys as large as security allows at our ring's degree."""

import openfhe

from .levelled import FIRST_BITS, SCALE_BITS, SETS, TURNS, measured


def make_context(degree, levels):
    """Returns the context with the fewest digits that are secure, and their number."""
    for digits in range(1, levels + 2):
        parameters = openfhe.CCParamsCKKSRNS()
        parameters.SetMultiplicativeDepth(levels)
        parameters.SetScalingTechnique(openfhe.ScalingTechnique.FIXEDMANUAL)
        parameters.SetFirstModSize(FIRST_BITS)
        parameters.SetScalingModSize(SCALE_BITS)
        parameters.SetRingDim(degree)
        parameters.SetNumLargeDigits(digits)
        parameters.SetSecurityLevel(openfhe.SecurityLevel.HEStd_128_classic)
        try:
            return openfhe.GenCryptoContext(parameters), digits
        except RuntimeError as error:
            why = error
    raise why


def setup(bits):
    degree, levels = SETS[bits]
    context, digits = make_context(degree, levels)
    for feature in ("PKE", "KEYSWITCH", "LEVELEDSHE"):
        context.Enable(getattr(openfhe.PKESchemeFeature, feature))
    keys, slots = context.KeyGen(), degree // 2
    context.EvalMultKeyGen(keys.secretKey)
    context.EvalRotateKeyGen(keys.secretKey, list(TURNS))

    def encrypt(values, key=keys.publicKey):
        return context.Encrypt(key, context.MakeCKKSPackedPlaintext(values))

    def rotate_eight(ciphertext):
        shared = context.EvalFastRotationPrecompute(ciphertext)
        return [context.EvalFastRotation(ciphertext, steps, 2 * degree, shared) for steps in TURNS]

    operations, facts = measured(
        slots, encrypt,
        lambda ciphertext: context.Decrypt(ciphertext, keys.secretKey).GetRealPackedValue()[:slots],
        lambda a, b: context.Rescale(context.EvalMult(a, b)),
        lambda ciphertext: context.EvalRotate(ciphertext, 1),
        rotate_eight,
        encrypt_owner=lambda values: encrypt(values, keys.secretKey))
    primes = "+".join(map(str, [FIRST_BITS, *[SCALE_BITS] * levels]))
    facts |= {"degree": degree, "levels": levels, "primes": primes,
              "note": f"digits: {digits}, special primes of 60 bits beside them"}
    return operations, facts
