"""The figures of a run: as a table for people, as JSON for programs."""


# A process that has less of its core than this shares it with something.
QUIET_SHARE = 0.9


def rate(seconds):
    """Returns operations a second, in three or four digits."""
    if seconds is None:
        return "-"
    value = 1 / seconds
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"


def describe(target):
    """Returns a target in words: what is asked, and beside whom."""
    if target is None:
        return ""
    parts = []
    if target.rate:
        parts.append(f">= {rate(1 / target.rate)}/s")
    if target.ratio and target.ratio < 1:
        parts.append(f"<= {1 / target.ratio:.1f}x the time of {' or '.join(target.beside)}")
    elif target.ratio:
        parts.append(f">= {target.ratio:.1f}x {' or '.join(target.beside)}")
    return ", ".join(parts)


def judge(row):
    """Returns whether a row meets its target: each part as True, False or None where it is not known."""
    target, ours_s = row.case.target, row.ours_s()
    parts = {}
    if target and target.rate:
        parts["rate"] = None if ours_s is None else 1 / ours_s >= target.rate
    if target and target.ratio:
        found = row.ratios().get(row.best(target.beside))
        parts["ratio"] = None if found is None else found >= target.ratio
    return parts


def verdict(row):
    """Returns `yes`, or which part is not met or not known."""
    words = {True: "yes", False: "NO", None: "unknown"}
    parts = judge(row)
    if len(set(parts.values())) == 1:
        return words[next(iter(parts.values()))]
    return ", ".join(f"{part} {words[met]}" for part, met in parts.items())


def table(rows, names):
    """Returns rates of ours and of each rival in `names`, and how many times theirs ours is."""
    head = ["operation", "ours/s", *(f"{name}/s" for name in names), "ratio to best", "target",
            "met"]
    lines = [head]
    for row in rows:
        theirs, ratios, best = row.rivals_s(), row.ratios(), row.best()
        ratio = f"{ratios[best]:.2f}x {best}" if best in ratios else "-"
        lines.append([row.case.label, rate(row.ours_s()), *(rate(theirs.get(n)) for n in names),
                      ratio, describe(row.case.target), verdict(row)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    first_word = len(names) + 3
    return "\n".join(
        "  ".join(cell.rjust(width) if 0 < column < first_word else cell.ljust(width)
                  for column, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines)


def floats_line(row):
    """Returns one line about whole files."""
    limit, seconds = row["limit_s"], row["median_s"]
    wanted = f", target <= {limit} s: {'yes' if seconds <= limit else 'NO'}" if limit else ""
    return f"{row['command']} {row['values']:,} float32: {seconds:.2f} s{wanted}"


def busy_line(shares):
    """Returns a warning if other work had the core too, or None. Our binary times itself by the clock."""
    busy = [share for share in shares if share < QUIET_SHARE]
    if not busy:
        return None
    return (f"!! the core was busy with other work in {len(busy)} of {len(shares)} measurements, "
            f"at worst {100 * (1 - min(busy)):.0f} %: ours may be faster than it looks here")


def as_json(row):
    """Returns one row with every figure: times in seconds per operation, ratios of rates."""
    case, target = row.case, row.case.target
    return {
        "label": case.label, "operation": case.operation, "portable": case.portable, "bits": row.bits,
        "ours_s": row.ours_s(), "rivals_s": row.rivals_s(), "ratios": row.ratios(),
        "best": row.best(), "pairs_s": row.pairs, "ways_s": row.ways, "failures": row.failures,
        "target": target and {"rate": target.rate, "ratio": target.ratio,
                              "beside": target.beside},
        "met": judge(row),
    }
