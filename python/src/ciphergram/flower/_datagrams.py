"""The server of rounds over datagrams, beside a strategy of Flower."""

from __future__ import annotations

from typing import Any

import ciphergram as cg

from ..errors import CiphergramError
from ._records import LOG, SERVER


class Datagrams:
    """A `Server` for each round, which late comers for an earlier one do not find at a port that is chosen anew."""

    def __init__(
        self,
        key: Any,
        job: cg.Job,
        min_clients: int,
        advertise: str | None,
        settings: dict[str, Any],
    ) -> None:
        self._key = key
        self._advertise = advertise
        self._settings = {**settings, "job": job, "min_clients": min_clients}
        self._server: cg.Server | None = None

    def begin(self, clients: int, timeout: float) -> dict[str, Any]:
        """Be ready for a round of so many clients; return what they need to find the server.

        Raises:
            NodeKeyError: A file of node keys cannot be used.
        """
        self._server = cg.Server(
            self._key,
            clients=clients,
            # Clients train before they join, some of them much longer than others.
            join_timeout=timeout / 2,
            round_timeout=timeout / 2,
            **self._settings,
        )
        return {
            "seconds": float(timeout),
            "clients": clients,
            SERVER: self._advertise or self._server.address,
            "server-key": self._server.server_key,
        }

    def close(self) -> None:
        """Stop the server, if there is one."""
        server, self._server = self._server, None
        if server is None:
            return
        try:
            server.stop()
        except CiphergramError as error:
            LOG.error("ciphergram: the server of datagrams: %s", error)
