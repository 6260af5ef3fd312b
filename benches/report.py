#!/usr/bin/env python3
"""Draws reports of `ciphergram bench --json` and figures of `benches/peers`, as a picture or as a page with all rows.

    ciphergram bench --json run.json
    python3 benches/report.py run.json --out run.png
    python3 benches/report.py before.json after.json --out both.html
    python3 benches/report.py benches/results/h200.json --markdown

It needs matplotlib (`benches/requirements.txt`). A page needs no other file; README.md has tables of `--markdown`.
"""

import argparse
import html
import io
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

WIDTH = 10.0  # inches
OURS_NAME = "Ciphergram"
OURS, OTHERS, LIMIT = "#1f5f99", "#9b9a95", "#e9e8e3"
SERIES = (OURS, "#d07c1f", "#488a55", "#865ba3")
# The part of the time that other work had the cores, above which a figure is marked.
DISTURBED = 0.1
# Bits a second of the link that sending is reckoned for, and bytes of the float32 that is protected.
LINK, FLOAT = 1e9, 4.0
PANELS = 4
SUBJECTS = {
    "sums": "Sums of 1,000,000 float32 of each of 10 clients",
    "paillier": "Operations of Paillier's scheme",
    "vectors": "Work on encrypted vectors",
}


def number(x):
    """Writes a number in three digits, or with commas between thousands."""
    return f"{x:,.0f}" if x >= 99.95 else f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"


def time(seconds):
    """Writes a time in three digits and a unit that suits it."""
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * scale >= 0.9995:
            return f"{number(seconds * scale)} {unit}"
    return f"{number(seconds * 1e9)} ns"


def name_of(row):
    """Names an operation; those of sums and of levelled schemes begin with the scheme."""
    return row["operation"] if row["scheme"] in ("paillier", "kernels") else f"{row['scheme']}/{row['operation']}"


def groups_of(reports):
    """Returns rows by scheme and bits, then by operation and engine, each with the number of its report."""
    groups = defaultdict(lambda: defaultdict(list))
    for index, (_, report) in enumerate(reports):
        for row in report["rows"]:
            if row["median_s"]:
                bits = None if row["scheme"] == "kernels" else row["bits"]
                subject = (name_of(row), row["engine"], row["threads"])
                groups[row["scheme"], bits][subject].append((index, row))
    return groups


def draw_operations(reports):
    """Draws a bar for each row, its limit behind it. An operation has one scale, or all of a group without limits."""
    groups = groups_of(reports)
    lines = sum(len(rows) for group in groups.values() for rows in group.values())
    figure, axes = plt.subplots(
        len(groups),
        figsize=(WIDTH, 0.8 * len(groups) + 0.24 * lines + 0.8),
        squeeze=False,
        layout="constrained",
        height_ratios=[sum(map(len, group.values())) + 1 for group in groups.values()],
    )
    words = "Operations a second; grey: what multiply instructions or transforms alone would allow"
    figure.suptitle(words, x=0, ha="left")
    for axis, ((scheme, bits), group) in zip(axes[:, 0], groups.items()):
        axis.set_title(scheme if bits is None else f"{scheme}, {bits} bits", loc="left", fontsize=10, weight="bold")
        place, ticks = 0, []
        fastest = max(1 / row["median_s"] for rows in group.values() for _, row in rows)
        has_limits = any(row["limit_fraction"] for rows in group.values() for _, row in rows)
        for (name, engine, threads), rows in group.items():
            limits = [1 / row["median_s"] / row["limit_fraction"] for _, row in rows if row["limit_fraction"]]
            most = max([*limits, *(1 / row["median_s"] for _, row in rows)]) if has_limits else fastest
            ticks.append((place + (len(rows) - 1) / 2, f"{name}  {engine}"))
            for index, row in rows:
                rate, part = 1 / row["median_s"], row["limit_fraction"]
                if part:
                    axis.barh(place, rate / part / most, color=LIMIT, height=0.8)
                axis.barh(place, rate / most, color=SERIES[index % len(SERIES)], height=0.6)
                words = [f"{number(rate)}/s", time(row["median_s"])]
                words += [f"{part:.0%} of limit"] if part else []
                words += [f"{rate * rows[0][1]['median_s']:.2f} × the first"] if index != rows[0][0] else []
                words += ["× disturbed"] if (row["disturbed"] or 0) > DISTURBED else []
                axis.text(1.02, place, ",  ".join(words), va="center", fontsize=8)
                place += 1
        axis.set_yticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=8)
        axis.set(xlim=(0, 1.9), xticks=[], ylim=(place - 0.4, -0.6))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    if len(reports) > 1:
        marks = [plt.Rectangle((0, 0), 1, 1, color=SERIES[index % len(SERIES)]) for index in range(len(reports))]
        labels = [label for label, _ in reports]
        figure.legend(marks, labels, loc="outside lower left", ncols=len(reports), frameon=False)
    return figure


def stages_of(rows):
    """Returns the stages of a client's way through a round, with their seconds and whether they are reckoned."""
    found = {row["operation"]: row for row in rows if row["scheme"] == "ckks-sum" and row["median_s"]}
    if not {"quantise", "encrypt", "aggregate", "decrypt"} <= found.keys():
        return []
    seconds = {name: row["median_s"] for name, row in found.items()}
    upload = found["encrypt"]["bytes_per_value"] * found["encrypt"]["values_per_operation"]
    sent = 8 * upload / LINK
    return [
        ("quantise", seconds["quantise"], False),
        ("encrypt", max(seconds["encrypt"] - seconds["quantise"], 0), False),
        (f"send {upload / 1e6:.2f} MB", sent, True),
        (f"sum {found['encrypt']['clients']}, at the aggregator", seconds["aggregate"], False),
        (f"receive {upload / 1e6:.2f} MB", sent, True),
        ("decrypt to the mean", seconds["decrypt"], False),
    ]


def draw_round(label, report):
    """Draws the stages of a round one after the other, if the report has them."""
    stages = stages_of(report["rows"])
    if not stages:
        return None
    figure, axis = plt.subplots(figsize=(WIDTH, 2.4), layout="constrained")
    total = sum(seconds for _, seconds, _ in stages)
    words = f"{label}: a round if nothing overlapped, {time(total)}; outlined: reckoned for 1 Gbit/s"
    axis.set_title(words, loc="left", fontsize=10)
    left = 0.0
    for place, (_, seconds, is_reckoned) in enumerate(stages):
        colours = {"color": "none", "edgecolor": OTHERS} if is_reckoned else {"color": OURS}
        axis.barh(place, seconds, left=left, **colours)
        left += seconds
        axis.text(left, place, f" {time(seconds)}", va="center", fontsize=8)
    axis.set_yticks(range(len(stages)), [name for name, _, _ in stages], fontsize=8)
    axis.tick_params(length=0)
    axis.set(xlim=(0, 1.1 * total), xticks=[])
    axis.invert_yaxis()
    axis.spines[:].set_visible(False)
    return figure


def draw_bytes(reports):
    """Draws the bytes a value of what clients upload, beside a float32, if a report has some."""
    sizes = {}
    for row in (row for _, report in reports for row in report["rows"]):
        if row["operation"] == "encrypt" and not row["insecure"]:
            if row["scheme"] == "ckks-sum":
                sizes.setdefault("ckks-sum", row["bytes_per_value"])
            elif row["scheme"] == "paillier" and row["values_per_operation"]:
                # A ciphertext is below n².
                sizes.setdefault(f"paillier-{row['bits']}", 2 * row["bits"] / 8 / row["values_per_operation"])
    if not sizes:
        return None
    figure, axis = plt.subplots(figsize=(WIDTH, 0.3 * len(sizes) + 0.7), layout="constrained")
    axis.set_title("Bytes a value, at 16 bits; line: float32", loc="left", fontsize=10)
    for place, (name, size) in enumerate(sorted(sizes.items(), key=lambda entry: entry[1])):
        axis.barh(place, size, color=OURS, height=0.6)
        axis.text(size, place, f" {size:.2f}", va="center", fontsize=8)
    axis.axvline(FLOAT, color="black", linewidth=1)
    axis.set_yticks(range(len(sizes)), sorted(sizes, key=sizes.get), fontsize=8)
    axis.set(xlim=(0, 1.15 * max(FLOAT, *sizes.values())), xticks=[])
    axis.invert_yaxis()
    axis.spines[:].set_visible(False)
    return figure


def subject_of(peers):
    """Returns what libraries are held beside each other at."""
    labels = [row["label"] for row in peers["rows"]]
    if peers.get("uploads") or any(label.startswith("aggregate") for label in labels):
        return "sums"
    return "vectors" if any(label.startswith("ckks-") for label in labels) else "paillier"


def path_of(peers):
    """Names the path that our processor took."""
    engines = (peers["machine"] or {}).get("engines", [])
    return engines[0]["description"].partition(",")[0] if engines else "?"


def panels_of(all_peers):
    """Returns the measures of comparisons: title, figures by library, ours first, and how a figure is written.

    Rivals are those of the first; ours are of all, each named by its path.
    """
    peers = all_peers[0]
    names = [OURS_NAME if len(all_peers) == 1 else f"{OURS_NAME}, {path_of(of)}" for of in all_peers]
    subject = subject_of(peers)
    rows = [row for row in peers["rows"] if row["rivals_s"]]
    # What only some do comes last.
    rows.sort(key=lambda row: ", " in row["label"])
    panels = []
    for row in rows:
        title = f"{row['label']}, {row['bits']} bits" if subject == "paillier" else row["label"]
        same = [(name, other) for name, of in zip(names, all_peers) for other in of["rows"]
                if (other["label"], other["bits"]) == (row["label"], row["bits"])]
        ours = {name: other["ours_s"] for name, other in same if other["ours_s"]}
        panels.append((title, ours | row["rivals_s"], time))
    if peers.get("uploads"):
        sizes = {names[0]: peers["uploads"][0]["bytes_per_value"]}
        sizes |= {rival["name"]: rival["bytes_per_value"] for rival in peers["rivals"] if rival.get("bytes_per_value")}
        panels.insert(sum(", " not in row["label"] for row in rows), ("bytes a value", sizes, number))
    return panels


def draw_peers(all_peers):
    """Draws every library in each measure of comparisons at one subject, some panels side by side."""
    peers, panels = all_peers[0], panels_of(all_peers)
    versions = {rival["name"]: rival.get("version") or "" for rival in peers["rivals"]}
    first = panels[0][1]
    names = {name for _, figures, _ in panels for name in figures}
    names = sorted(names, key=lambda name: (OURS_NAME not in name, first.get(name, math.inf)))
    lines = math.ceil(len(panels) / PANELS)
    figure, axes = plt.subplots(
        lines,
        PANELS,
        figsize=(WIDTH, lines * (0.24 * len(names) + 0.6) + 0.9),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    words = f"{SUBJECTS[subject_of(peers)]}: one core, in turn"
    words += f", {peers['rounds']} × {peers['seconds']} s a side, medians"
    words += ";\nlibraries of the first run" if len(all_peers) > 1 else ""
    if (busy := 1 - min(of["least_share"] for of in all_peers)) > DISTURBED:
        words += f"; other work had the core for up to {busy:.0%} of the time"
    figure.suptitle(words, x=0, ha="left", fontsize=10)
    for axis in axes.flat[len(panels):]:
        axis.axis("off")
    for axis, (title, figures, write) in zip(axes.flat, panels):
        axis.set_title(title, loc="left", fontsize=9, weight="bold")
        for place, name in enumerate(names):
            if figure_of := figures.get(name):
                is_ours = OURS_NAME in name
                axis.plot(figure_of, place, "o", color=OURS if is_ours else OTHERS, markersize=5)
                style = {"fontsize": 8, "weight": "bold" if is_ours else "normal", "va": "center"}
                axis.annotate(write(figure_of), (figure_of, place), (5, 0), textcoords="offset points", **style)
        least, most = min(figures.values()), max(figures.values())
        axis.set(xscale="log", xlim=(least / 1.4, max(most, 30 * least) * 6), ylim=(len(names) - 0.4, -0.6))
        axis.set_yticks(range(len(names)), [f"{name} {versions.get(name, '')}" for name in names], fontsize=8)
        axis.tick_params(labelbottom=False, which="both", length=0)
        axis.grid(axis="x", color=LIMIT)
        axis.spines[:].set_visible(False)
    return figure


def table(head, rows):
    """Returns a table of HTML; cells may hold anything."""
    lines = ["".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row)
             for tag, rows_of in (("th", [head]), ("td", rows)) for row in rows_of]
    return "<table>" + "".join(f"<tr>{line}</tr>\n" for line in lines) + "</table>\n"


def facts_of(report):
    """Returns what a report is of, by name."""
    machine, options = report["machine"], report.get("options") or {}
    engines = "; ".join(f"{engine['name']}: {engine['description']}" for engine in machine.get("engines", []))
    facts = {"date": report.get("time"), "commit": report.get("commit"), "processor": machine.get("cpu"),
             "cores": machine.get("cores"), "kernel": machine.get("kernel"), "compiler": machine.get("compiler"),
             "engines": engines, "threads": options.get("threads"), "seconds a row": options.get("seconds")}
    return {name: fact for name, fact in facts.items() if fact is not None}


COLUMNS = ("operation bits engine threads operations/s median p10 p90 limit disturbed count").split()


def cells_of(row):
    """Returns the cells of a row, in the order of `COLUMNS`."""
    times = [time(row[key]) if row[key] else "-" for key in ("median_s", "p10_s", "p90_s")]
    parts = [f"{row[key]:.1%}" if row.get(key) is not None else "-" for key in ("limit_fraction", "disturbed")]
    named = [name_of(row), row["bits"], row["engine"], row["threads"], number(1 / row["median_s"])]
    return [*named, *times, *parts, row["count"]]


def markdown(reports):
    """Returns a table in Markdown: operations a second, in brackets the part of the limit, a column for each report."""
    names, cells = [], defaultdict(dict)
    for label, report in reports:
        machine = report["machine"]
        engines = "; ".join(engine["description"] for engine in machine["engines"])
        design = machine.get("microarchitecture") or machine["cpu"]
        names.append(f"{label}: {engines}, {report['options']['threads']} threads, {design}")
        for row in (row for row in report["rows"] if row["median_s"]):
            part = f" ({row['limit_fraction']:.0%})" if row["limit_fraction"] else ""
            cells[name_of(row), row["bits"]][label] = number(1 / row["median_s"]) + part
    labels = [label for label, _ in reports]
    lines = [["operation", "bits", *labels], ["---"] * (2 + len(labels))]
    lines += [[f"`{name}`", bits, *(row.get(label, "") for label in labels)] for (name, bits), row in cells.items()]
    table = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
    return "\n".join([*(f"- {name}" for name in names), "", table])


def page(figures, reports, all_peers):
    """Returns a page with the figures, what they are of, and every row."""
    parts = [
        "<!DOCTYPE html><meta charset=utf-8><title>Ciphergram: measurements</title>",
        "<style>body{font:13px sans-serif;max-width:1000px;margin:2em auto}",
        "td,th{text-align:left;padding:.1em .8em .1em 0}svg{width:100%;height:auto}</style>",
        "<h1>Ciphergram: measurements</h1>",
    ]
    for figure in figures:
        text = io.StringIO()
        figure.savefig(text, format="svg")
        parts.append(text.getvalue()[text.getvalue().index("<svg"):])
    for peers in all_peers:
        missing = [rival for rival in peers["rivals"] if rival.get("failure")]
        lines = [f"{rival['name']} is not measured: {rival['failure']}" for rival in missing]
        lines = [f"<p>{html.escape(line)}</p>" for line in lines + peers.get("problems", [])]
        parts += [line for line in lines if line not in parts]
    for label, report in reports:
        parts += [f"<h2>{html.escape(label)}</h2>", table(["", ""], facts_of(report).items())]
        parts.append(table(COLUMNS, [cells_of(row) for row in report["rows"] if row["median_s"]]))
    return "\n".join(parts)


def picture(figures):
    """Returns all figures below each other, as one figure."""
    sizes = [figure.get_size_inches()[1] for figure in figures]
    whole, axes = plt.subplots(
        len(figures), figsize=(WIDTH, sum(sizes)), squeeze=False, height_ratios=sizes, layout="constrained"
    )
    for axis, figure in zip(axes[:, 0], figures):
        pixels = io.BytesIO()
        figure.savefig(pixels, format="png", dpi=200)
        pixels.seek(0)
        axis.imshow(plt.imread(pixels))
        axis.axis("off")
    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE", help="what `bench --json` or `benches/peers` wrote")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--out", type=Path, metavar="FILE", help="a picture (.png, .svg, .pdf), or a page (.html)")
    kind.add_argument("--markdown", action="store_true", help="print reports beside each other, as a table in Markdown")
    options = parser.parse_args()
    reports, all_peers = [], []
    for path in options.files:
        try:
            content = json.loads(path.read_text())
            if "rivals" in content:
                all_peers.append(content)
            elif "parts" in content:  # of `gpu.py`
                parts = {name: part["report"] for name, part in content["parts"].items()}
                reports += [part for part in parts.items() if part[1] and "rows" in part[1]]
            else:
                reports.append((path.stem, content))
        except (OSError, ValueError, TypeError) as error:
            sys.exit(f"error: {path}: {error}")
    try:
        if options.markdown:
            return print(markdown(reports))
        subjects = defaultdict(list)
        for peers in all_peers:
            subjects[subject_of(peers)].append(peers)
        # What one processor did on several paths is one picture.
        figures = []
        for of_one in subjects.values():
            are_paths = len(set(map(path_of, of_one))) == len(of_one)
            figures += map(draw_peers, [of_one] if are_paths else [[peers] for peers in of_one])
        if reports:
            figures += [draw_operations(reports), *(draw_round(*report) for report in reports), draw_bytes(reports)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        sys.exit(f"error: no report of `ciphergram bench --json`: {error!r}")
    figures = [figure for figure in figures if figure]
    if options.out.suffix == ".html":
        options.out.write_text(page(figures, reports, all_peers))
    else:
        (figures[0] if len(figures) == 1 else picture(figures)).savefig(options.out, dpi=160)


if __name__ == "__main__":
    main()
