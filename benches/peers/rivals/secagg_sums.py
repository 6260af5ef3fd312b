"""Flower's SecAgg+: masks that neighbours share and one of its own, by the code that its clients run.

Three shares, two of which recover a secret, as in Flower's own example: a client has two neighbours.
Keys and shares are exchanged before the clock starts, nobody drops out, and no message is sent: that
favours it.
"""

from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState, _collect_masked_vectors, _setup, _share_keys)
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from .sums import CLIENTS, RANGE, VALUES, measured

SHARES, THRESHOLD = 3, 2
# Flower's default.
MODULUS = 2 ** 32


def setup(bits):
    steps = 2 ** bits
    terms = {Key.SAMPLE_NUMBER: CLIENTS, Key.SHARE_NUMBER: SHARES, Key.THRESHOLD: THRESHOLD,
             Key.CLIPPING_RANGE: RANGE, Key.TARGET_RANGE: steps, Key.MOD_RANGE: MODULUS,
             Key.MAX_WEIGHT: 1.0}
    clients = [SecAggPlusState(nid=number) for number in range(CLIENTS)]
    keys = [list(_setup(client, terms).values()) for client in clients]
    dealt = [deal(client, keys) for client in clients]
    shapes = [(1,), (VALUES,)]

    def encrypt(update, number):
        """A client's third stage: it has the shares of its neighbours, and masks its vector."""
        senders = [other for other in around(number) if other != number]
        received = {Key.SOURCE_LIST: senders,
                    Key.CIPHERTEXT_LIST: [dealt[sender][number] for sender in senders]}
        vector = ndarrays_to_parameters([update])
        masked = _collect_masked_vectors(clients[number], received, 1, vector)
        return masked[Key.MASKED_PARAMETERS]

    def aggregate(uploads):
        total, *others = ([bytes_to_ndarray(part) for part in upload] for upload in uploads)
        for other in others:
            total = arithmetic.parameters_addition(total, other)
        return arithmetic.parameters_mod(total, MODULUS)

    def decrypt(total):
        for number in range(CLIENTS):
            shares = [clients[holder].rd_seed_share_dict[number] for holder in around(number)]
            mask = pseudo_rand_gen(combine_shares(shares), MODULUS, shapes)
            total = arithmetic.parameters_subtraction(total, mask)
        factor, [vector] = arithmetic.factor_extract(arithmetic.parameters_mod(total, MODULUS))
        [summed] = dequantize([vector], RANGE, steps)
        summed -= (CLIENTS - 1) * RANGE
        summed *= steps / factor
        return summed.astype("float32")

    return measured(encrypt, aggregate, decrypt)


def around(number):
    """A client and its neighbours."""
    return [(number + offset) % CLIENTS for offset in (-1, 0, 1)]


def deal(client, keys):
    """The shares that a client sends, by receiver."""
    sent = _share_keys(client, {str(other): keys[other] for other in around(client.nid)})
    return dict(zip(sent[Key.DESTINATION_LIST], sent[Key.CIPHERTEXT_LIST]))
