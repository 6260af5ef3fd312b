"""Makes dp_accounting.json and discrete_gaussian.json: see README.md."""

import argparse
import datetime
import importlib.metadata
import json

import dp_accounting
import mpmath
from dp_accounting import pld, rdp

CASES = [
    (0.8, 1, 1e-5),
    (1.0, 1, 1e-5),
    (1.0, 10, 1e-5),
    (1.0, 10, 1e-8),
    (2.0, 20, 1e-6),
    (4.0, 1, 1e-5),
    (4.0, 100, 1e-5),
    (10.0, 1, 1e-5),
    (10.0, 1000, 1e-6),
    (50.0, 100, 1e-5),
]


def accounting():
    cases = []
    for sigma, rounds, delta in CASES:
        composed = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(sigma), rounds)
        by_rdp = rdp.RdpAccountant().compose(composed)
        by_pld = pld.PLDAccountant().compose(composed)
        cases.append({
            "sigma": sigma, "rounds": rounds, "delta": delta,
            "rdp": by_rdp.get_epsilon(delta),
            "pld": by_pld.get_epsilon(delta),
        })
    return {
        "package": f"dp-accounting=={importlib.metadata.version('dp-accounting')}",
        "date": datetime.date.today().isoformat(),
        "cases": cases,
    }


def probabilities():
    """Probabilities of the discrete Gaussian exp(-x v^2) over all integers, at 400 bits."""
    mpmath.mp.prec = 400
    cases = []
    for deviation in ["1", "1.5", "3.7", "64", "777.25", "2730"]:
        sigma = mpmath.mpf(deviation)
        x = int(mpmath.floor(2**127 / (2 * sigma**2)))
        rate = mpmath.mpf(x) / 2**127
        reach = int(mpmath.ceil(20 * sigma))
        total = 1 + 2 * mpmath.fsum(mpmath.exp(-rate * v * v) for v in range(1, reach))
        values = sorted({0, 1, 2} | {int(sigma * m) for m in (1, 2, 3, 6, 9, 11)})
        scaled = [int(mpmath.nint(mpmath.exp(-rate * v * v) / total * 2**127)) for v in values]
        cases.append({
            "rate": f"{x:x}", "values": values, "probabilities": [f"{p:x}" for p in scaled],
        })
    return {"package": f"mpmath=={importlib.metadata.version('mpmath')}", "cases": cases}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default=".")
    folder = parser.parse_args().folder
    for name, content in (("dp_accounting", accounting()), ("discrete_gaussian", probabilities())):
        with open(f"{folder}/{name}.json", "w", encoding="ascii") as out:
            json.dump(content, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
