"""Functions that the claims share: finding the program, running it, printing the JSON line (see README.md in
this folder)."""
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def strata():
    """Path of the program to measure: $CLAIMS_BINARY, else the newest release build of this tree."""
    given = os.environ.get("CLAIMS_BINARY")
    built = sorted(ROOT.glob("build/*/cli/strata"), key=lambda p: p.stat().st_mtime, reverse=True)
    built = [p for p in built if p.parts[-3] in ("release", "host", "cuda")]
    if not given and not built:
        sys.exit("no build of strata found: run scripts/demo.sh first, or set CLAIMS_BINARY")
    return given or str(built[0])


def need(path):
    """The program at `path` of the build folder. If it is not built the claim is broken; this is no reason
    for a null verdict."""
    found = pathlib.Path(os.environ.get("CLAIMS_BUILD") or pathlib.Path(strata()).parents[1]) / path
    if not os.access(found, os.X_OK):
        sys.exit(f"{found} is not built: the presets dev and release build it (STRATA_BUILD_BENCH, STRATA_BUILD_TESTS)")
    return str(found)


def run(arguments, cwd, expect=0, timeout=1800):
    done = subprocess.run([strata(), *arguments], cwd=cwd, capture_output=True, text=True, errors="replace", timeout=timeout)
    if expect is not None and done.returncode != expect:
        sys.exit(f"strata {' '.join(arguments)} ended with {done.returncode}, not {expect}:\n{done.stderr[-2000:]}")
    return done


def metrics(folder):
    """The steps in a run's metrics.jsonl, without validations and without an incomplete last line."""
    whole = (pathlib.Path(folder) / "metrics.jsonl").read_text().rpartition("\n")[0]
    return [line for line in map(json.loads, whole.splitlines()) if "loss" in line]


def last_json(text):
    """Parses the last line of a program's stdout; the lines before may be log output of imported Python
    packages."""
    lines = text.strip().splitlines()
    return json.loads(lines[-1]) if lines else sys.exit("a line of JSON was expected, and nothing was printed")


def train(cwd, out, *overrides, preset="austen-5m"):
    """Trains into `out` and returns (summary, metrics)."""
    run(["train", "--preset", preset, "--out", out, "--overwrite", *overrides], cwd)
    folder = pathlib.Path(cwd) / out
    return json.loads((folder / "summary.json").read_text()), metrics(folder)


def opened_files(pid, folder):
    """What a process has open below `folder`: (path under /proc, name, stat) of each. A process opens and closes
    files while it is looked at, and what is gone by then is left out."""
    inside = os.path.realpath(folder) + "/"
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            name = os.readlink(descriptor)
            if name.startswith(inside):
                yield str(descriptor), name, descriptor.stat()


def unnamed_file(pid, folder, min_bytes):
    """Path of the unlinked file that a process has in `folder`, found by its size, since inherited log files
    may be there too."""
    opened = list(opened_files(pid, folder))
    found = [path for path, _, of in opened if of.st_nlink == 0 and of.st_size >= min_bytes]
    if len(found) != 1:
        sys.exit(f"process {pid} has {len(found)} unlinked files of {min_bytes} bytes or more in {folder}, not one: "
                 f"{[(name, of.st_size) for _, name, of in opened]}")  # fmt: skip
    return found[0]


def scratch():
    return tempfile.TemporaryDirectory(prefix="strata-claim-")


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def verdict(values, bar):
    """Whether the median reaches the bar. The spread is reported, but does not matter."""
    return statistics.median(values) >= bar


def at_most(values, bar):
    """verdict() for a bar that the median must not exceed."""
    return statistics.median(values) <= bar


def report(claim, value, unit, bar, holds, detail):
    """Prints the line and exits. holds: True, False, or None if hardware or a peer is absent, which
    detail["skip_reason"] names."""
    if holds is None and not detail.get("skip_reason"):
        sys.exit(f"{claim}: no verdict, and no skip_reason in its detail")
    print(json.dumps({"claim": claim, "value": value, "unit": unit, "bar": bar, "holds": holds, "detail": detail}))
    sys.exit(0 if holds in (True, None) else 1)
