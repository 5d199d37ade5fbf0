"""Runs parts of a test in child processes, and sees to it that none is waited for without end."""

import json
import os
import queue
import subprocess
import sys
import threading

# What the child begins a line with that is for the parent.
MARK = "@@ "
# Seconds that its imports may take.
START = 300.0


def say(**what):
    """From the child: `begin` and `end` of a check, its `shape`, and what else is known of it."""
    print(MARK + json.dumps(what), flush=True)


def hand_over(lines, to):
    """Line by line, and None where they end."""
    for line in lines:
        to.put(line)
    to.put(None)


def watch(script, part, options, limit, **environment):
    """The results of a part, from one child or, after a hang or a crash, several.

    The child is called as `script --child PART OPTIONS --done NAMES`. Where nothing is heard from it for `limit` seconds
    within a check that is a hang: it is killed, and the other checks go on in another child.
    """
    results, title = {}, f"{part}: " if environment else ""
    while True:
        words = [sys.executable, script, "--child", part, *options, "--done", ",".join(results)]
        environ = dict(os.environ, PYTHONUNBUFFERED="1", **environment)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environ)
        lines = queue.Queue()
        threading.Thread(target=hand_over, args=(process.stdout, lines), daemon=True).start()
        name, shape, lost = None, "", None
        while True:
            try:
                line = lines.get(timeout=limit if name else max(limit, START))
            except queue.Empty:
                process.kill()
                lost = f"a hang: nothing for {limit if name else max(limit, START):.0f} s"
                break
            if line is None:
                lost = f"the process ended with {process.wait()}" if name or process.wait() else None
                break
            if not line.startswith(MARK):
                print(line, end="", flush=True)
                continue
            said = json.loads(line[len(MARK) :])
            if "begin" in said:
                name, shape = said["begin"], ""
            elif "shape" in said:
                shape = said["shape"]
            elif "end" in said:
                results[said["end"]] = said
                name = None
                state = {True: "ok  ", False: "FAIL", None: "skip"}[said["ok"]]
                print(f"{state} {title}{said['end']}: {said['detail']}", flush=True)
        process.wait()
        if lost is None:
            return list(results.values())
        # What is lost before a check begins would be lost again.
        name = name or f"the {part} itself"
        results[name] = {"end": name, "ok": False, "detail": f"{lost}, at {shape or 'its beginning'}"}
        print(f"FAIL {title}{name}: {results[name]['detail']}", flush=True)
        if name.startswith("the "):
            return list(results.values())
