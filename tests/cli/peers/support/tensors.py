"""Safetensors with numpy, bfloat16 included, which numpy itself does not have.

Files are written by hand from the format's description (eight bytes of length, a JSON header, raw
little-endian values) and read by the official library, so that what the binary writes is held
against somebody else's reader.
"""

import json
import struct
from dataclasses import dataclass

import numpy
import safetensors

# Digits after the leading one of each type, and the exponent of its smallest normal number.
MANTISSA_BITS = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7}
SMALLEST_EXPONENT = {"F64": -1022, "F32": -126, "F16": -14, "BF16": -126}
NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


@dataclass
class Tensor:
    """Values as float64, and the type that they have in the file."""

    dtype: str
    values: numpy.ndarray

    @classmethod
    def rounded(cls, dtype, values):
        """Values brought to the nearest that `dtype` can hold."""
        return cls(dtype, decode(dtype, encode(dtype, values), numpy.shape(values)))


def encode(dtype, values):
    if dtype == "BF16":
        # A bfloat16 is the upper half of a float32; ties go to the even one.
        bits = numpy.asarray(values, "<f4").view("<u4")
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return numpy.asarray(values, NUMPY_TYPES[dtype]).tobytes()


def decode(dtype, data, shape):
    if dtype == "BF16":
        values = (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = numpy.frombuffer(data, NUMPY_TYPES[dtype])
    return values.astype("f8").reshape(shape)


def write(path, tensors):
    """Writes a dictionary of tensors."""
    header, body = {}, b""
    for name, tensor in tensors.items():
        data = encode(tensor.dtype, tensor.values)
        offsets = [len(body), len(body) + len(data)]
        shape = list(tensor.values.shape)
        header[name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    # The format aligns the values to eight bytes.
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read(path):
    """Reads a dictionary of tensors with the official library."""
    entries = safetensors.deserialize(path.read_bytes())
    return {name: Tensor(entry["dtype"], decode(entry["dtype"], entry["data"], entry["shape"]))
            for name, entry in entries}


def ulp(dtype, values):
    """The distance between neighbouring numbers of a type around each value."""
    _, exponents = numpy.frexp(values)
    smallest = SMALLEST_EXPONENT[dtype]
    exponents = numpy.where(values == 0, smallest, numpy.maximum(exponents - 1, smallest))
    return numpy.ldexp(1.0, exponents - MANTISSA_BITS[dtype])
