"""What the claims share: finding the program, running it, printing the one JSON line (see README.md beside this)."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def strata():
    """The program measured: $CLAIMS_BINARY, else the newest release build of this tree."""
    given = os.environ.get("CLAIMS_BINARY")
    built = sorted(ROOT.glob("build/*/cli/strata"), key=lambda p: p.stat().st_mtime, reverse=True)
    built = [p for p in built if p.parts[-3] in ("release", "host", "cuda")]
    if not given and not built:
        sys.exit("no build of strata found: run scripts/demo.sh first, or set CLAIMS_BINARY")
    return given or str(built[0])


def run(arguments, cwd, expect=0, timeout=1800):
    done = subprocess.run([strata(), *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout)
    if expect is not None and done.returncode != expect:
        sys.exit(f"strata {' '.join(arguments)} ended with {done.returncode}, not {expect}:\n{done.stderr[-2000:]}")
    return done


def train(cwd, out, *overrides, preset="austen-5m"):
    """Trains into `out` and returns (summary, metrics)."""
    run(["train", "--preset", preset, "--out", out, "--overwrite", *overrides], cwd)
    folder = pathlib.Path(cwd) / out
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return json.loads((folder / "summary.json").read_text()), metrics


def scratch():
    return tempfile.TemporaryDirectory(prefix="strata-claim-")


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def verdict(values, bar):
    """Whether the median reaches the bar: as all values do or none; else None where the spread is wider than its distance from it."""
    if min(values) >= bar or max(values) < bar:
        return min(values) >= bar
    median = statistics.median(values)
    return None if max(values) - min(values) > abs(median - bar) else median >= bar


def report(claim, value, unit, bar, holds, detail):
    print(json.dumps({"claim": claim, "value": value, "unit": unit, "bar": bar, "holds": holds, "detail": detail}))
    sys.exit(0 if holds in (True, None) else 1)
