"""What the checks here share: starting the binary, and safetensors of every float type."""

from .processes import fail, free_port, run, run_together
from .tensors import Tensor, read, ulp, write

__all__ = ["Tensor", "fail", "free_port", "read", "run", "run_together", "ulp", "write"]
