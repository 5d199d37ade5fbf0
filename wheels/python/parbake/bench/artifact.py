"""Which kernel a call was served by, as the call itself says: one line of the API log, and the keys that belong to it.

The log's destination is read when the library opens, so `listen` comes before the first call of the process.
"""

import os
import re
import tempfile

from parbake.bench import sources

# The variables that listening sets: they are no settings of whoever started the benchmark.
OURS = ("PARBAKE_LOG_DEST",)

_LINE = re.compile(r"kernel (\S+) for (\S+) from (\S+), image ([0-9a-f]+), tactic (.*?), grid ")


class Log:
    """The API log of this process, in a file that nobody else sees."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="parbake-bench-", suffix=".log")
        os.environ["PARBAKE_LOG_DEST"] = self.file.name

    def call(self, work):
        """Runs `work` and gives its result and the artifacts that it was served by."""
        import parbake

        self.file.seek(0, os.SEEK_END)
        parbake.set_log_level(3)
        try:
            result = work()
        finally:
            parbake.set_log_level(int(os.environ.get("PARBAKE_LOG") or 0))
        return result, found(self.file.read().decode(errors="replace"))


def found(text):
    """The artifacts that lines of the log name, each once."""
    kernels = dict.fromkeys(_LINE.findall(text))
    return [_facts(*kernel) for kernel in kernels]


def _facts(uri, target, origin, image, tactic):
    facts = {
        "uri": uri,
        "target": target,
        "from": origin,
        "image": image,
        "tactic": {name: int(value) for name, value in (pair.split("=") for pair in tactic.split() if "=" in pair)},
    }
    # Who chose the tactic, if it was not the launcher: results of tuning, or a person for a diagnosis.
    facts |= {"chosen": word for word in ("tuned", "forced") if f"({word})" in tactic}
    return facts | _keys(uri, target)


def _keys(uri, target):
    """Build key and toolchain. A kernel of a bundle was built elsewhere: its build key is the bundle's to tell."""
    import parbake

    try:
        op, axes, tactic = sources.axes_of(uri)
        identities = parbake.explain(op, target=target, **axes, **tactic).identities
    except (ValueError, StopIteration, parbake.Error) as error:
        return {"build_key": None, "toolchain": None, "why": str(error).splitlines()[0]}
    key = identities["build_key"]
    fields = dict(map(tuple, key["fields"])) if key else {}
    return {
        "source_key": identities["source_key"]["digest"],
        "build_key": key["digest"] if key else None,
        "toolchain": fields.get("toolchain"),
    }
