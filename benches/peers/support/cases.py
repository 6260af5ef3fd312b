"""The rows of the comparison, and the targets of ours."""

from dataclasses import dataclass

HEU = ("heu-zp", "heu-ipcl")


@dataclass(frozen=True)
class Target:
    """A rate, and a ratio to the fastest of some rivals: what we hold ourselves to on one core.

    `rate` is in operations a second, on a server's core with AVX-512 IFMA; None asks for no rate.
    `ratio` is our rate divided by theirs, in the same run; None asks for no ratio.
    """

    rate: float | None
    ratio: float | None
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """One line of the table: our `operation` beside what rivals call `rival_operation`."""

    label: str
    operation: str
    rival_operation: str
    portable: bool = False
    target: Target | None = None


TARGETS = {
    ("encrypt", 2048): Target(14_000, 5.6, ("heu-zp",)),
    ("encrypt", 3072): Target(4_000, 5.0, ("heu-zp",)),
    ("encrypt_owner", 2048): Target(25_000, 10.0, ("heu-zp",)),
    ("encrypt_owner", 3072): Target(8_000, 10.0, ("heu-zp",)),
    ("decrypt", 2048): Target(3_500, 5.8, (*HEU, "fate")),
    ("decrypt", 3072): Target(1_000, 6.0, (*HEU, "fate")),
    ("add", 2048): Target(2.0e6, 5.0, ("heu-zp",)),
    ("add", 3072): Target(0.9e6, 5.0, ("heu-zp",)),
    ("mul_plain", 2048): Target(18_000, 2.6, HEU),
    ("mul_plain", 3072): Target(8_000, None, HEU),
}
# The portable path takes at most 1.3 times as long as GMP.
PORTABLE_TARGET = Target(None, 1 / 1.3, ("gmp",))
PORTABLE_OPERATIONS = ("mod_exp", "mod_mul")
# Nobody else has a quicker encryption for who holds the secret key: it stands beside the usual one.
RIVAL_OPERATIONS = {"encrypt_owner": "encrypt"}

# Not an operation of `ciphergram bench`: whole files of float32, through the commands that people
# use. Times in seconds for 1,000,000 values at 16 bits.
FLOATS = "floats"
FLOAT_LIMITS_S = {("encrypt", 2048): 0.5, ("decrypt", 2048): 3.5}

DEFAULT_OPERATIONS = ("encrypt", "encrypt_owner", "decrypt", "add", "mul_plain", "mod_exp",
                      "mod_mul", FLOATS)


def cases(operations, bits, portable):
    """Returns the lines of the table for keys of `bits` bits; with `portable`, those of that path too."""
    found = [Case(name, name, RIVAL_OPERATIONS.get(name, name), False, TARGETS.get((name, bits)))
             for name in operations if name != FLOATS]
    if portable:
        found += [Case(f"{name} portable", name, name, True, PORTABLE_TARGET)
                  for name in PORTABLE_OPERATIONS]
    return found
