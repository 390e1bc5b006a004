"""Runs the parts of scripts/gpu_verify.sh on a build and writes a JSON file and a table.

Without a GPU, tests that need one skip themselves and the rest runs on the host backend with small models, so
that the script itself is tested. A part that fails does not stop the others, and each result is in the JSON
as soon as it is known. A second call with the same --out adds to it."""
import argparse
import dataclasses
import pathlib
import shutil
import signal
import sys
import time
import traceback

import processes
import quarter
import rates
import scenarios
import training
from check import Check, Machine
from conformance import conformance
from report import Report


@dataclasses.dataclass
class Part:
    name: str
    share: float  # a share of the time, relative to the other parts
    work: object
    highlights: object = None  # a function of its items: texts for the table


def loss_highlights(items):
    return [f"{kind}: {one['max_relative_error']:.1e} relative error to the host's losses" for kind, one in items.items() if "tolerance" in one]


# The parts of --quarter, whose shares are seconds.
QUARTER = tuple(Part(name, seconds, work, scenarios.highlights if name in ("in HBM", "offloaded", "6.5B", "1.2B") else None) for name, seconds, work in quarter.PARTS)

# The most valuable parts come first, because the machine may be taken away at any time. Later parts get the
# time that earlier ones leave.
PARTS = (Part("conformance", 25, conformance),
         Part("losses", 8, training.losses, loss_highlights),
         Part("choices", 8, training.choices, loss_highlights),
         Part("placements", 8, training.placements, lambda items: [one["output"] for one in items.values() if "output" in one]),
         Part("lifecycle", 10, training.lifecycle),
         Part("bindings", 15, rates.bindings),
         Part("scenarios", 50, scenarios.scenarios, scenarios.highlights),
         Part("rates", 12, rates.rates),
         Part("profile", 20, scenarios.profile_and_forecasts),
         Part("peers", 5, rates.peers),
         Part("sanitizer", 10, rates.sanitizer))  # fmt: skip


def options_of(arguments):
    parser = argparse.ArgumentParser(prog="gpu_verify", description=__doc__)
    names = [part.name for part in PARTS]
    parser.add_argument("--build", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--parts", default=",".join(names), help="comma-separated, of " + ",".join(names))
    parser.add_argument("--minutes", type=float, default=9.5, help="minutes in all, shared among the parts")
    parser.add_argument("--quick", action="store_true", help="small models and short measurements")
    parser.add_argument("--quarter", action="store_true", help="the list that fits a quarter of an hour: " + ", ".join(f"{part.name} {part.share} s" for part in QUARTER))
    parser.add_argument("--scenarios", help="only those whose names contain one of these texts: 1.2B, layer order")
    parser.add_argument("--case-limit", type=float, default=45, help="seconds that one test case may take")
    parser.add_argument("--run-limit", type=float, default=240, help="seconds that one scenario's run may take")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args(arguments)
    if options.quarter:
        parts = {part.name: part for part in QUARTER}
        asked = parser.get_default("parts") == options.parts
        wanted = list(parts) if asked else options.parts.split(",")
        if unknown := [name for name in wanted if name not in parts]:
            parser.error(f"unknown part {', '.join(unknown)}; the parts of --quarter are {', '.join(parts)}")
        options.parts = [parts[name] for name in parts if name in wanted]
        options.case_limit = min(options.case_limit, 20)
        return options
    wanted = options.parts.split(",")
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"unknown part {', '.join(unknown)}; the parts are {', '.join(names)}")
    options.parts = [part for part in PARTS if part.name in wanted]
    return options


def run_part(part, check, report):
    begin, error = time.monotonic(), None
    print(f"== {part.name}, {check.remaining_s():.0f} s at most", flush=True)
    report.begin(part.name)
    try:
        part.work(check)
    except processes.CheckFailed as failure:
        error = str(failure)
    except Exception:  # the next part may still work
        error = traceback.format_exc()[-processes.TAIL :]
    report.end(part.name, time.monotonic() - begin, error)


def table(report, parts):
    print(f"\n{report.gpu['name'] if report.gpu else 'no GPU: the host backend'}, commit {report.commit}")
    for part in parts:
        record = report.data["parts"].get(part.name)
        if record and "seconds" in record:
            print(f"  {part.name:<11} {record['seconds']:>6.1f} s  {report.row(part.name, part.highlights)}")
    failed = [part.name for part in parts if report.failures(part.name)]
    print(f"{report.path}; failed: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


def stop(number, _):
    raise SystemExit(128 + number)


def main():
    options = options_of(sys.argv[1:])
    end = time.monotonic() + options.minutes * 60
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    machine = Machine(options)
    report = Report(machine.out / "gpu_verify.json", options.commit, machine.gpu, machine.backend)
    parts = list(options.parts)
    try:
        begin = time.monotonic()
        for i, part in enumerate(parts):
            share = part.share / sum(later.share for later in parts[i:]) if machine.gpu else 1  # a host has time
            now = time.monotonic()
            until = begin + sum(one.share for one in parts[: i + 1]) if options.quarter else now + (end - now) * share
            run_part(part, Check(part.name, machine, report, min(end, until)), report)
    finally:
        processes.end_all()
        shutil.rmtree(machine.out / "run", ignore_errors=True)
        shutil.rmtree(machine.out / "nvme", ignore_errors=True)
        code = table(report, parts)
    return code


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    sys.exit(main())
