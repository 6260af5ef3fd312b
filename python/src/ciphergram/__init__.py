"""Private aggregation of gradients under homomorphic encryption."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import ckks, errors
from ._ints import EncryptedArray, concatenate
from ._native import (
    AgreedRanges,
    Announcement,
    Client,
    ClientKey,
    Contribution,
    Device,
    Job,
    Keys,
    Member,
    PublicKey,
    Ranges,
    RangesKey,
    RangesProposal,
    RoundTerms,
    SecretKey,
    Server,
    Sum,
    Summing,
    __version__,
    aggregate,
    devices,
    join_round,
    keygen,
    keygen_members,
    load,
    load_keys,
    loads,
    merge_ranges,
    open_ranges,
    ranges,
    save,
    set_threads,
)
from ._opened import Opened
from .errors import *  # noqa: F403

if TYPE_CHECKING:
    from . import flare, flower, torch, transformers

_INTEGRATIONS = ("flare", "flower", "torch", "transformers")

__all__ = [
    "AgreedRanges",
    "Announcement",
    "Client",
    "ClientKey",
    "Contribution",
    "Device",
    "EncryptedArray",
    "Job",
    "Keys",
    "Member",
    "Opened",
    "PublicKey",
    "Ranges",
    "RangesKey",
    "RangesProposal",
    "RoundTerms",
    "SecretKey",
    "Server",
    "Sum",
    "Summing",
    "__version__",
    "aggregate",
    "ckks",
    "concatenate",
    "devices",
    "join_round",
    "keygen",
    "keygen_members",
    "load",
    "load_keys",
    "loads",
    "merge_ranges",
    "open_ranges",
    "ranges",
    "save",
    "set_threads",
    *errors.__all__,
]


def __getattr__(name: str) -> Any:
    # What takes a framework is imported when it is asked for, and only then needs the framework.
    if name in _INTEGRATIONS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
