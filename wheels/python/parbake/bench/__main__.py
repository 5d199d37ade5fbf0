"""`python -m parbake.bench`: times ops beside their peers, and writes one row for each as a line of JSON."""

import argparse
import fnmatch
import json
import sys


def arguments(given=None):
    words = argparse.ArgumentParser(
        prog="python -m parbake.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("--op", default="*", metavar="GLOB", help="ops, by `family/op`, `op` or function; several with commas")
    words.add_argument("--workload", metavar="NAMES", help="workloads of docs/bench.md, with commas: U3,S2")
    words.add_argument("--backend", metavar="NAMES", help="parbake, torch, compile, triton, flashinfer; with commas "
                       "(default: all but compile)")
    words.add_argument("--json", metavar="FILE", help="adds the rows to FILE; `-` prints them instead of the table")
    words.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                       help="cpu: small sizes on the host target, to try the harness; no ratios then")
    words.add_argument("--timer", choices=("cupti", "kineto", "graph", "events"), help="this mechanism or none")
    words.add_argument("--rounds", type=int, default=3, help="how often each backend has its turn")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--flashinfer", metavar="MODULES", help="modules of FlashInfer that may be compiled, with commas")
    words.add_argument("--list", action="store_true", help="lists the workloads")
    words.add_argument("--warm", action="store_true", help="one call of each, untimed: compiles what is missing")
    return words.parse_args(given)


def chosen(given):
    """The workloads that are asked for; an unknown name is an error."""
    from parbake.bench import workloads

    every = workloads.every()
    if given.workload:
        names = given.workload.split(",")
        unknown = [n for n in names if n not in {w.name for w in every}]
        if unknown:
            sys.exit(f"error: there is no workload {', '.join(unknown)}; --list names them")
        every = [w for w in every if w.name in names]
    globs = given.op.split(",")
    every = [w for w in every if any(fnmatch.fnmatch(text, glob) for glob in globs for text in named(w))]
    if not every:
        sys.exit(f"error: no workload is of an op that matches {given.op}; --list names them")
    return every


def named(workload):
    """What a pattern is compared with."""
    op = workload.op or ""
    return op, op.rpartition("/")[2], workload.function


def backends(given):
    from parbake.bench.workload import BACKENDS

    names = given.backend.split(",") if given.backend else [b for b in BACKENDS if b != "compile"]
    unknown = [n for n in names if n not in BACKENDS]
    if unknown:
        sys.exit(f"error: there is no backend {', '.join(unknown)}; there are {', '.join(BACKENDS)}")
    return names


def main(given=None):
    given = arguments(given)
    # Wrong words are told before anything heavy is imported.
    wanted, names = chosen(given), backends(given)
    if given.list:
        for w in wanted:
            print(f"{w.name:<6}{w.op or '(no such op)':<44}{w.function:<40}{w.dtype:<5}{w.dims}")
        return 0
    try:
        import torch
    except ImportError:
        print("error: benchmarks need PyTorch\n  help: pip install 'parbake[torch]'", file=sys.stderr)
        return 3
    if given.device == "cuda" and not torch.cuda.is_available():
        print("error: PyTorch sees no GPU\n  help: `--device cpu` tries the harness on the host target", file=sys.stderr)
        return 3
    return measured(given, wanted, names)


def measured(given, wanted, names):
    from parbake.bench import artifact, device, harness, machine, table
    from parbake.bench.cupti import Unavailable
    from parbake.bench.workload import Frameworks

    log = artifact.Log()
    place = device.Cuda() if given.device == "cuda" else device.Cpu()
    allowed = None if given.flashinfer is None else given.flashinfer.split(",")
    frameworks = Frameworks(place, allowed)
    if given.warm:
        return warmed(wanted, names, frameworks, place)
    try:
        session = harness.Session(place, machine.Machine(place, artifact.OURS), frameworks, log=log, timer=given.timer,
                                  rounds=given.rounds, seed=given.seed)
    except Unavailable as why:
        print(f"error: no figures\n  {why}", file=sys.stderr)
        return 3
    for way, why in session.refused.items():
        print(f"note: not timed by {way}: {why}", file=sys.stderr)
    rows = []
    for workload in wanted:
        made = session.measure(workload if given.device == "cuda" else workload.reduced(), names)
        rows += made
        if given.json == "-":
            print("".join(json.dumps(row) + "\n" for row in made), end="", flush=True)
        elif given.json:
            with open(given.json, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in made)
    if given.json != "-":
        print(table.text(rows))
    for workload, backend, why in session.skipped:
        print(f"skipped: {workload} {backend}: {why}", file=sys.stderr)
    print(f"{len(rows)} rows, {len(session.skipped)} skipped, {len(session.failed)} wrong or failed", file=sys.stderr)
    return 1 if session.failed or not rows else 0


def warmed(wanted, names, frameworks, place):
    """Calls everything once. What fails says so when it is measured."""
    from parbake.bench import buffers
    from parbake.bench.workload import Missing

    for workload in wanted:
        maker = buffers.Maker(place, 1, 0)
        workload.inputs(maker)
        for name in names:
            try:
                with place.torch.inference_mode():
                    getattr(workload, name)(frameworks)(maker.sets()[0])
                place.synchronize()
            except Missing:
                continue
            except Exception as error:  # noqa: BLE001
                print(f"{workload.name} {name}: {type(error).__name__}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
