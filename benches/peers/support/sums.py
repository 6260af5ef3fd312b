"""Sums of float32 vectors: the rows, the targets of ours, and how they are shown."""

import tempfile
from pathlib import Path

from .cases import Case, Target
from .floats import VALUES, write_values
from .ours import OursFailed

# As `ciphergram bench` measures them: bits of a quantised value.
BITS = 16
LIBRARIES = ("tenseal-8192", "tenseal-4096", "openfhe")


def case(label, operation, rival_operation, limit_s=None, ratio=None):
    """Returns a line of the table; a limit is a time of one operation, on 1,000,000 values."""
    target = Target(1 / limit_s, ratio, LIBRARIES) if limit_s else None
    return Case(label, f"ckks-sum/{operation}", rival_operation, target=target)


# Libraries encrypt with a public key by default, and so do their users. Ours is symmetric, so
# their symmetric encryption has a line as well.
CASES = (
    case("encrypt", "encrypt", "encrypt", 0.015, 25.0),
    case("encrypt, theirs symmetric", "encrypt", "encrypt_symmetric"),
    case("aggregate 10", "aggregate", "aggregate", 0.015, 9.0),
    case("decrypt", "decrypt", "decrypt", 0.015, 5.0),
)

# (bits of a value, clients that there is headroom for, bytes a value at most): whole files.
UPLOADS = ((16, 10, None), (16, 64, 3.27), (8, 64, 2.2))


def uploads(ours):
    """Returns rows of {bits, clients, bytes_per_value, limit} of contributions of 1,000,000 float32."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="ciphergram-sums-") as folder:
        plain = Path(folder) / "plain.safetensors"
        write_values(plain)
        for bits, clients, limit in UPLOADS:
            keys, sealed = Path(folder) / f"keys-{bits}-{clients}", Path(folder) / "sealed.cgm"
            try:
                ours.run("keygen", "--scheme", "ckks-sum", "--clients", clients, "--bits", bits,
                         "--out", keys)
                ours.run("encrypt", "--key", keys / "secret.json", "--client", 0, "--in", plain,
                         "--out", sealed, "--clip", "1.0")
            except OursFailed as error:
                ours.failures[f"upload, {clients} clients", bits] = str(error)
                continue
            rows.append({"bits": bits, "clients": clients, "limit": limit,
                         "bytes_per_value": sealed.stat().st_size / VALUES})
            sealed.unlink()
    return rows


def milliseconds(seconds):
    """Returns a time in three digits."""
    return "-" if seconds is None else f"{1000 * seconds:,.{1 if seconds < 0.1 else 0}f}"


def as_lines(table):
    """Returns columns below each other: words to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return "\n".join("  ".join(
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in table)


def times_table(rows, rivals):
    """Returns milliseconds of each operation, ours and everyone's."""
    table = [["ms", "ours", *(rival.name for rival in rivals)]]
    for row in rows:
        theirs = row.rivals_s()
        table.append([row.case.label, milliseconds(row.ours_s()),
                      *(milliseconds(theirs.get(rival.name)) for rival in rivals)])
    facts = [rival.facts for rival in rivals]
    table.append(["upload, bytes a value", "below",
                  *(f"{fact['bytes_per_value']:.2f}" if fact else "-" for fact in facts)])
    table.append(["error of the mean", "<= 3.1e-5",
                  *(f"{fact['mean_error']:.1e}" if fact else "-" for fact in facts)])
    return as_lines(table)


def ratios_table(rows, rivals):
    """Returns how many times ours each rival's time is: the median over the pairs."""
    table = [["their time / ours", *(rival.name for rival in rivals)]]
    for row in rows:
        ratios = row.ratios()
        table.append([row.case.label, *(
            f"{ratios[rival.name]:.3g}" if rival.name in ratios else "-" for rival in rivals)])
    return as_lines(table)


def verdicts(rows, judge):
    """Returns one line for each target: what was found, and whether it is met."""
    words = {True: "yes", False: "NO", None: "unknown"}
    lines = []
    for row in rows:
        target = row.case.target
        if target is None:
            continue
        met, best = judge(row), row.best(target.beside)
        ratio = f"{row.ratios()[best]:.1f}x {best}" if best in row.ratios() else "-"
        lines.append(
            f"{row.case.label}: {milliseconds(row.ours_s())} ms, target <= "
            f"{1000 / target.rate:.0f} ms: {words[met['rate']]}; {ratio}, target >= "
            f"{target.ratio:.0f}x the quickest of the libraries: {words[met['ratio']]}")
    return lines


def upload_line(row):
    """Returns one line about an upload."""
    limit, found = row["limit"], row["bytes_per_value"]
    wanted = f", target <= {limit}: {'yes' if found <= limit else 'NO'}" if limit else ""
    return f"upload at {row['bits']} bits for {row['clients']} clients: {found:.3f} bytes a value{wanted}"
