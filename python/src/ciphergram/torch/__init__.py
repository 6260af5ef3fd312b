"""PyTorch: gradients that ranks or silos average under encryption.

``protect`` puts encrypted rounds in the place of the all-reduce of a ``DistributedDataParallel`` model, or between the
silos of an FSDP2 one::

    with cg.Client(address, "keys/secret.json", number=rank) as client:
        model = DistributedDataParallel(model)
        cg.torch.protect(model, client)
        ...                                     # train as before

Every rank learns the mean of each step, and the gradients of another only with all others together; the server's
operator and any one rank together read those of every rank. What the process group sends by itself stays in clear:
the first rank's parameters and buffers, and which parameters were used.
"""

from __future__ import annotations

from ._protect import protect
from ._protection import Client, Protection

__all__ = ["Client", "Protection", "protect"]
