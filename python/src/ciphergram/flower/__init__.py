"""Private aggregation for Flower: clients encrypt their updates, and the server adds what it cannot read.

Two lines change in an app::

    app = ClientApp(mods=[cg.flower.mod])
    strategy = cg.flower.Encrypted(FedAvg(...), key="keys/public.json", min_clients=3)

The mod is the first in the list, so that mods of differential privacy work on plain arrays. A node says which key is
its own by ``--node-config 'ciphergram-key="keys/clients/0.json"'``; `mod` has the rest.

What travels: ciphertexts, the names, types and shapes of tensors, their ranges in powers of two, metrics, and in
round 1 the initial model, which is public unless it is `initial` of a file that a key holder wrote by `seal`. The
weight of a client, ``num-examples``, travels encrypted; so metrics of training are plain means over clients. Replies
to EVALUATE are left as they are.

A round's ranges come from the last mean, which all clients opened, so nothing is asked and nothing more is shown.
The first round, and any in which a client's weight, tensors or more than 1 % of a tensor do not fit, has a second
exchange: clients announce the largest magnitude of each tensor and their weight, both rounded up to powers of two; or,
under a job with private ranges (``cg.keygen(ranges="agree:2")``), their ranges encrypted and no weight.
The largest weight announced holds until the next exchange; a mean is as fine as its sum of weights is close to the
largest one. Updates of 100 MB and more go faster with ``transport="datagram"``, in which every round asks, and for
the weight as it is: let the job settle the ranges where weights are private.

An exchange may seal the same update a second time, for another round: a server can then have two sums that contain it,
each of at least the job's minimum.

What this does not hide: the code of an app comes from whoever starts the run. A node that runs any code it is sent
shows its data to whoever sends it, so nodes should demand signed apps (``flower-supernode --trusted-entities``).
"""

from __future__ import annotations

from ._mod import mod
from ._models import initial, open, save, seal
from ._strategy import Encrypted

__all__ = ["Encrypted", "initial", "mod", "open", "save", "seal"]
