"""Rows as a table. A ratio stands only beside a row whose result was right, timed by the same mechanism as ours."""


def ratios(rows):
    """Row → how many times as long as it the fastest other backend takes, for rows of ours."""
    found = {}
    for row in rows:
        if not comparable(row) or row["backend"] != "parbake":
            continue
        peers = [r for r in rows if r["backend"] != "parbake" and comparable(r) and same(r, row)]
        if peers:
            best = min(peers, key=lambda r: r["median_us"])
            found[id(row)] = best["median_us"] / row["median_us"], best["backend"]
    return found


def comparable(row):
    """Whether a figure may be compared: it was checked, and is not of a CPU's clock."""
    return row["check"]["ok"] is True and row.get("median_us") is not None and row["timer"] != "wall"


def same(a, b):
    return all(a[k] == b[k] for k in ("run", "workload", "op", "shape", "dtype", "gpu", "timer"))


HEADINGS = ("workload", "shape", "backend", ">µs", ">p10", ">p90", ">TB/s", ">roof", ">peer/us", "error", "timer")


def text(rows):
    """One line a row, in columns as wide as what is in them."""
    ratio = ratios(rows)
    cells = [[heading.removeprefix(">") for heading in HEADINGS]] + [line(row, ratio.get(id(row))) for row in rows]
    widths = [max(len(c[i]) for c in cells if i < len(c)) for i in range(len(HEADINGS))]
    lines = []
    for row in cells:
        padded = [c.rjust(w) if h.startswith(">") else c.ljust(w) for c, w, h in zip(row, widths, HEADINGS)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def line(row, best):
    """The cells of a row; of one that was wrong, why."""
    def number(key, form):
        return f"{row[key]:{form}}" if row.get(key) is not None else "-"

    check = row["check"]
    shape = f"{row['dtype']} " + " ".join(f"{k}={v}" for k, v in row["shape"].items())
    head = [row["workload"], shape, row["backend"]]
    error = "?" if check["error"] is None else f"{check['error']:.3g}"
    said = f"{error} of {check['tolerance']}"
    if not check["ok"]:
        return [*head, "WRONG", "", "", "", "", "", check["why"] or said, ""]
    if row.get("median_us") is None:
        return [*head, "-"]
    times = [number(key, ".2f") for key in ("median_us", "p10_us", "p90_us", "tb_s")]
    return [*head, *times, number("share", ".3f"), f"{best[0]:.2f}x" if best else "", said, f"{row['timer']} ({row['launch']})"]
