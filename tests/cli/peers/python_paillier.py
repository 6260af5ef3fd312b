#!/usr/bin/env python3
"""python-paillier reads our key, decrypts our ciphertexts and agrees with our sums.

    python python_paillier.py --binary target/release/ciphergram

Three clients' contributions are decrypted one by one with python-paillier and their fields added up
in the clear; the sum that `ciphergram aggregate` made, and the product of the ciphertexts modulo
n squared, must decrypt to those very fields. Once with a key of ours, and once with one that
python-paillier made and `ciphergram keygen --upgrade` made fit for sums.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import numpy
import phe

from support import Tensor, fail, run, write

SCHEME = "paillier-2048"
CLIENTS = 3
SEED = 21
VALUES = 700


def load_key(path):
    """As python-paillier's own `pheutil` loads a private key, with its checks."""
    document = json.loads(path.read_text())
    public = document["pub"]
    for part, field, wanted in [(document, "kty", "DAJ"), (public, "kty", "DAJ"),
                                (public, "alg", "PAI-GN1")]:
        if part.get(field) != wanted:
            fail(f"{path.name}: {field} is {part.get(field)!r} instead of {wanted!r}")
    if document.get("key_ops") != ["decrypt"] or public.get("key_ops") != ["encrypt"]:
        fail(f"{path.name}: key_ops are not those of a private key and its public part")
    n, p, q = (phe.util.base64_to_int(text) for text in (public["n"], document["p"], document["q"]))
    # Raises if p * q is not n.
    return phe.PaillierPrivateKey(phe.PaillierPublicKey(n), p, q)


def inspect(binary, path, *words):
    return json.loads(run(binary, "inspect", "--json", *words, path))


def ciphertexts(binary, path):
    """The raw ciphertexts of a contribution or a sum, as integers, in their order.

    This is the only function that knows how they are reached.
    """
    return [int(text, 16) for text in inspect(binary, path, "--ciphertexts")["ciphertexts"]]


def fields(plaintext, field_bits, count):
    """Field 0 stands in the least significant bits."""
    mask = (1 << field_bits) - 1
    return [plaintext >> (field_bits * index) & mask for index in range(count)]


def decrypt_all(key, binary, path):
    nsquare = key.public_key.nsquare
    raw = ciphertexts(binary, path)
    if not raw or any(not 0 < c < nsquare or math.gcd(c, nsquare) != 1 for c in raw):
        fail(f"{path.name}: no ciphertexts, or some that are not units modulo n squared")
    return raw, [key.raw_decrypt(c) for c in raw]


def write_foreign_key(path):
    """Writes a key of python-paillier as its `pheutil genpkey` does."""
    public, private = phe.generate_paillier_keypair(n_length=2048)
    text = phe.util.int_to_base64
    path.write_text(json.dumps({
        "kty": "DAJ", "key_ops": ["decrypt"], "p": text(private.p), "q": text(private.q),
        "kid": "Paillier private key",
        "pub": {"kty": "DAJ", "alg": "PAI-GN1", "n": text(public.n), "key_ops": ["encrypt"],
                "kid": "Paillier public key"}}))


def make_keys(binary, folder, foreign):
    folder.mkdir()
    if foreign:
        write_foreign_key(folder / "foreign.json")
        run(binary, "keygen", "--upgrade", folder / "foreign.json", "--out", folder / "keys")
    else:
        run(binary, "keygen", "--scheme", SCHEME, "--clients", CLIENTS, "--bits", 16,
            "--out", folder / "keys")


def make_contributions(binary, folder):
    generator = numpy.random.default_rng(SEED)
    paths, ranges = [], folder / "ranges.json"
    for index in range(CLIENTS):
        source, path = folder / f"g{index}.safetensors", folder / f"c{index}.cgm"
        write(source, {"g": Tensor.rounded("F32", generator.uniform(-1.0, 1.0, VALUES))})
        if not ranges.exists():
            run(binary, "ranges", "--policy", "fixed:1", "--out", ranges, source)
        run(binary, "encrypt", "--key", folder / "keys" / "clients" / f"{index}.json",
            "--in", source, "--out", path, "--ranges", ranges)
        paths.append(path)
    return paths


def check_sum(key, binary, contributions, total):
    described = inspect(binary, total)
    field_bits, head = described["field_bits"], described["head_fields"]
    count = key.public_key.n.bit_length() // field_bits
    parts = [decrypt_all(key, binary, path) for path in contributions]
    _, sums = decrypt_all(key, binary, total)
    if {len(raw) for raw, _ in parts} != {len(sums)}:
        fail("contributions and their sum have different numbers of ciphertexts")
    for index, found in enumerate(sums):
        product = math.prod(raw[index] for raw, _ in parts) % key.public_key.nsquare
        plain = [plaintexts[index] for _, plaintexts in parts]
        if found != sum(plain):
            fail(f"ciphertext {index}: the sum is not that of the plaintexts")
        # Where a head may be, a tag goes on from one field to the next.
        columns = zip(*(fields(m, field_bits, count)[head:] for m in plain))
        expected = [sum(column) for column in columns]
        if max(expected) >> field_bits:
            fail(f"ciphertext {index}: a field of the sum needs more than {field_bits} bits")
        if fields(found, field_bits, count)[head:] != expected:
            fail(f"ciphertext {index}: the sum's fields are not the sums of the fields")
        if key.raw_decrypt(product) != found:
            fail(f"ciphertext {index}: python-paillier's sum differs from ours")
    return len(sums), field_bits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, required=True, help="the ciphergram to check")
    binary = parser.parse_args().binary.resolve()
    with tempfile.TemporaryDirectory(prefix="ciphergram-paillier-") as name:
        for kind in "our key", "its key":
            folder = Path(name) / kind.replace(" ", "-")
            make_keys(binary, folder, foreign=kind == "its key")
            contributions = make_contributions(binary, folder)
            key = load_key(folder / "keys" / "secret.json")
            total = folder / "sum.cgm"
            run(binary, "aggregate", "--key", folder / "keys" / "public.json", "--out", total,
                *contributions)
            count, field_bits = check_sum(key, binary, contributions, total)
            print(f"{SCHEME}, {kind}: python-paillier agrees on {count} sums of fields of "
                  f"{field_bits} bits")


if __name__ == "__main__":
    main()
