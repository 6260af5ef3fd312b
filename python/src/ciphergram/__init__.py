"""Private aggregation of gradients under homomorphic encryption."""

from __future__ import annotations

from ._native import __version__

__all__ = ["__version__"]
