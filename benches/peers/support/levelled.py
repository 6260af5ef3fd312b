"""Work on encrypted vectors: the rows and the targets of ours."""

from .cases import Case, Target

# By bits of the product of all primes, as reports tell presets apart.
PRESETS = {140: "ckks-4096x1", 430: "ckks-8192x7"}
OPERATIONS = ("multiply", "rotate", "rotate_eight", "encrypt", "encrypt_owner", "decrypt", "screen")

# The SEAL that TenSEAL has inside is what people of federated learning have.
TARGETS = {
    ("multiply", 140): Target(None, 6.0, ("seal-no-hexl",)),
    ("rotate", 140): Target(None, 5.0, ("seal-no-hexl",)),
    ("encrypt", 140): Target(None, 6.0, ("seal-no-hexl",)),
    ("decrypt", 140): Target(None, 3.0, ("seal-no-hexl",)),
    # 40 ms for a client's 1,000,000 values.
    ("screen", 140): Target(25.0, None, ("seal-no-hexl",)),
    ("multiply", 430): Target(None, 8.0, ("seal-no-hexl",)),
    ("rotate", 430): Target(None, 8.0, ("seal-no-hexl",)),
}


def cases(operations, bits):
    """Returns the lines of the table for one preset; updates are screened on one level alone."""
    preset = PRESETS[bits]
    return [Case(f"{preset} {name}", f"{preset}/{name}", name, target=TARGETS.get((name, bits)))
            for name in operations if name != "screen" or bits == 140]
