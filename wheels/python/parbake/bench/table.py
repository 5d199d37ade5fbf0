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


def text(rows):
    """One line a row."""
    lines = [f"{'workload':<9}{'shape':<34}{'backend':<11}{'µs':>10}{'p10':>9}{'p90':>9}{'TB/s':>7}{'roof':>7}"
             f"{'peer/us':>9}  {'error':<22}timer"]
    ratio = ratios(rows)
    for row in rows:
        shape = f"{row['dtype']} " + " ".join(f"{k}={v}" for k, v in row["shape"].items())
        head = f"{row['workload']:<9}{shape:<34}{row['backend']:<11}"
        check = row["check"]
        error = "?" if check["error"] is None else f"{check['error']:.3g}"
        if not check["ok"]:
            lines.append(f"{head}{'WRONG':>10}  {check['why'] or 'error ' + error} ({check['tolerance']})")
            continue
        if row.get("median_us") is None:
            lines.append(f"{head}{'-':>10}")
            continue
        number = lambda key, form: f"{row[key]:{form}}" if row.get(key) is not None else "-"  # noqa: E731
        best = ratio.get(id(row))
        times = f"{row['median_us']:>10.2f}{row['p10_us']:>9.2f}{row['p90_us']:>9.2f}"
        speed = f"{number('tb_s', '.2f'):>7}{number('share', '.3f'):>7}{f'{best[0]:.2f}x' if best else '':>9}"
        lines.append(f"{head}{times}{speed}  {error + ' of ' + check['tolerance']:<22}{row['timer']} ({row['launch']})")
    return "\n".join(lines)
