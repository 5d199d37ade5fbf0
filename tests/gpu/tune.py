#!/usr/bin/env python3
"""Tuning, probing and blocking on a GPU. Builds nothing; needs no PyTorch, but a compiler (parbake toolchain install 12.9).

    python3 tests/gpu/tune.py PARBAKE KERNELS [--json FILE]

PARBAKE is the command line's binary, KERNELS the folder of kernel sources that it was built from. Kernels that hang and
crash are planted in a copy. Prints one line a check, the figures, and closes with `N passed, N failed`.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

COUNT = {"passed": 0, "failed": 0}
ROWS = []
SHAPE = ["--shape", "rows=1,64,4096", "--shape", "hidden=4096"]
START = "    using Tile = "
PLANTED = (
    "    if constexpr (kRows == 8 && !kPeel) for (volatile int i = 1; i;) (void)i;\n"
    "    if constexpr (kRows == 16) *(volatile int*)8 = 1;\n" + START
)


def verdict(ok, text):
    COUNT["passed" if ok else "failed"] += 1
    print(f"{'ok  ' if ok else 'FAIL'} {text}", flush=True)


def parbake(words, workspace, timeout=400, **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PARBAKE_") or k == "PARBAKE_TOOLCHAINS"}
    env.update(PARBAKE_WORKSPACE=str(workspace), PARBAKE_KERNELS=str(KERNELS), **{f"PARBAKE_{k}": str(v) for k, v in settings.items()})
    return subprocess.run([str(PARBAKE), *words], env=env, capture_output=True, text=True, timeout=timeout)


def answer(done):
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return []


def tactic(words, workspace, **settings):
    """The tactic that the API log names, with who chose it."""
    done = parbake(["run", *words], workspace, LOG=3, **settings)
    lines = [line for line in done.stderr.splitlines() if ", tactic " in line]
    return lines[0].split(", tactic ")[1].split(", grid")[0] if lines else done.stderr


def timers(tmp):
    """Both timers give every tactic a time, and nearly the same one."""
    times = {}
    for timer in ("events", "globaltimer"):
        done = parbake(["--json", "tune", "rmsnorm", "dtype=bf16", *SHAPE, "--timer", timer], tmp / "ws")
        points = answer(done)
        rows = [(p["point"], r) for p in points for r in p["rows"] if r["timing"]]
        good = len(points) == 3 and all(p["best"] and p["place"].startswith("cuda") for p in points)
        graphs = all(r["timing"]["timer"] == timer and r["timing"]["launch"] == "graph" for _, r in rows)
        verdict(good and graphs and len(rows) >= 12, f"{timer}: {len(rows)} tactics measured as graphs {done.stderr[:500]}")
        times[timer] = {(point, r["tactic"]): r["timing"] for point, r in rows}
        for point, r in rows:
            t = r["timing"]
            ROWS.append({"point": point, "tactic": r["tactic"], **t})
            print(f"     {timer:12} {point}, {r['tactic']}: {t['median_us']:.2f} µs ({t['low_us']:.2f} to {t['high_us']:.2f})")
    both = [(k, times["events"][k]["median_us"], v["median_us"]) for k, v in times["globaltimer"].items() if k in times["events"]]
    apart = [f"{k}: {a:.2f}, {b:.2f}" for k, a, b in both if abs(a - b) > 0.1 * max(a, b) + 0.2]
    verdict(both and not apart, f"events and globaltimer agree within 10 % and 0.2 µs for {len(both)} rows {apart[:3]}")
    spread = [v["high_us"] / v["low_us"] for t in times.values() for v in t.values()]
    verdict(spread and sorted(spread)[len(spread) // 2] < 1.1, f"spread of samples: median {sorted(spread)[len(spread) // 2]:.3f}" if spread else "no samples")
    for setting, timer in (("on", "globaltimer"), ("off", "events"), ("auto", None)):
        done = parbake(["--json", "tune", "rmsnorm", "dtype=bf16", "--most", "1"], tmp / "ws", CONFIDENTIAL=setting)
        used = [r["timing"]["timer"] for p in answer(done) for r in p["rows"] if r["timing"]]
        verdict(used and (timer is None or set(used) == {timer}), f"PARBAKE_CONFIDENTIAL={setting}: {used} {done.stderr[:300]}")


def results(tmp):
    """A file is used by calls of its shapes, and not under another driver or with another image."""
    file = tmp / "tuned.json"
    done = parbake(["tune", "rmsnorm", "dtype=bf16", *SHAPE, "--out", str(file)], tmp / "ws")
    verdict(done.returncode == 0 and file.exists(), f"three points are written {done.stderr[:500]}")
    call = ["rmsnorm", "dtype=bf16", "--shape", "rows=4100", "--shape", "hidden=4096"]
    used = tactic(call, tmp / "ws", TUNED=file)
    verdict(used.endswith("(tuned)"), f"a call between the same powers of two takes {used}")
    kept = json.loads(file.read_text())
    for field, value in ((("machine", "driver"), "1.2"), (("artifact", "image"), "0" * 64)):
        edited = json.loads(json.dumps(kept))
        for result in edited["results"]:
            result[field[0]][field[1]] = value
        (tmp / "other.json").write_text(json.dumps(edited))
        used = tactic(call, tmp / "ws", TUNED=tmp / "other.json")
        verdict("(tuned)" not in used and "block=" in used, f"another {field[1]}: {used}")


def probing(tmp):
    """A kernel that hangs and one that breaks its context are found, blocked, and neither spoils what comes after."""
    global KERNELS
    original, KERNELS = KERNELS, tmp / "kernels"
    shutil.copytree(original, KERNELS)
    header = KERNELS / "norm/rmsnorm/rmsnorm.cuh"
    header.write_text(header.read_text().replace(START, PLANTED, 1))
    call = ["rmsnorm", "dtype=bf16", "--shape", "rows=64", "--shape", "hidden=384"]
    file = tmp / "blocked.json"
    done = parbake(["--json", "tune", *call, "--probe", "--limit", "20", "--out", str(file)], tmp / "ws")
    found = {r["tactic"]: r["what"] for r in answer(done)}
    hang = [t for t, what in found.items() if "rows=8 " in t and "peel=0" in t and what != "hang"]
    crash = [t for t, what in found.items() if "rows=16 " in t and what != "crash"]
    rest = [t for t, what in found.items() if "rows=8 " not in t and "rows=16 " not in t and what]
    verdict(len(found) >= 6 and not hang and not crash and not rest, f"probed {found} {done.stderr[:500]}")
    used = tactic(call, tmp / "ws", BLOCKLIST=file)
    verdict("block=" in used and "rows=8 " not in used and "rows=16 " not in used, f"with the blocklist a call takes {used}")
    forced = parbake(["run", *call], tmp / "ws", BLOCKLIST=file, TACTICS="rmsnorm:rows=16")
    verdict(forced.returncode == 1 and "PB-2204" in forced.stderr, f"a blocked tactic cannot be forced: {forced.stderr[:300]}")
    stuck = parbake(["tune", *call, "--limit", "10"], tmp / "ws")
    verdict(stuck.returncode == 1 and ("PB-2230" in stuck.stderr or "PB-2122" in stuck.stderr), f"measuring is watched over: {stuck.stderr[:300]}")
    KERNELS = original
    done = parbake(["run", *call], tmp / "ws")
    verdict(done.returncode == 0, "the GPU serves the next process")


def main():
    global PARBAKE, KERNELS
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parbake", type=pathlib.Path)
    arguments.add_argument("kernels", type=pathlib.Path)
    arguments.add_argument("--json", type=pathlib.Path)
    given = arguments.parse_args()
    PARBAKE, KERNELS = given.parbake.resolve(), given.kernels.resolve()
    with tempfile.TemporaryDirectory() as folder:
        tmp = pathlib.Path(folder)
        for check in (timers, results, probing):
            try:
                check(tmp)
            except (subprocess.TimeoutExpired, OSError, KeyError) as error:
                verdict(False, f"{check.__name__}: {error!r}"[:1000])
    if given.json:
        given.json.write_text(json.dumps(ROWS, indent=1))
    print(f"{COUNT['passed']} passed, {COUNT['failed']} failed")
    return 1 if COUNT["failed"] else 0


sys.exit(main())
