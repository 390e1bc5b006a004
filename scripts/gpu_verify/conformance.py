"""Runs every test that needs a GPU, each GoogleTest case in a process of its own, so that a case that
corrupts the GPU's context or its process does not affect the others."""
import concurrent.futures
import json
import os
import re

from processes import TAIL, CheckFailed


def listed(text):
    """The cases that --gtest_list_tests prints."""
    cases, suite = [], ""
    for line in text.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith(" ") and name:
            cases.append(suite + name)
        elif name.endswith("."):
            suite = name
    return cases


def verdict(done, report):
    """Returns {} if the case passed, else {"skipped": ...} or {"error": ...}."""
    if not done.ok:
        return {"error": done.describe_exit()}
    try:
        (case,) = (case for suite in json.loads(report.read_text())["testsuites"] for case in suite["testsuite"])
        if case["result"] == "SKIPPED":
            why = re.search(r": Skipped\n(.*?)\n*\[  SKIPPED", done.out, re.DOTALL)  # the report has it only from 1.13 on
            return {"skipped": why[1].strip()[:500] if why else "no reason given"}
        return {"error": "failed with exit code 0"} if "failures" in case else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"error": f"exit code 0, but no valid report of this one case: {error!r}"}


class Case:
    def __init__(self, check, test, name):
        self.check, self.test, self.name = check, test, name

    def once(self, mode="", environment=None):
        machine = self.check.machine
        report = machine.out / "logs" / f"{self.test.name}.{self.name.replace('/', '_')}{mode}.json"
        report.unlink(missing_ok=True)
        done = self.check.run(f"{self.test.name}.{self.name}{mode}",
                              [self.test, f"--gtest_filter={self.name}", f"--gtest_output=json:{report}"],
                              machine.case_limit, environment)  # fmt: skip
        result = verdict(done, report)
        report.unlink(missing_ok=True)
        if done.code is None and self.check.remaining_s() < 1:
            return {"skipped": "no time was left"}  # the part ran out of time, not the case
        return {**result, **({"output": (done.out + done.err)[-TAIL:]} if "error" in result else {})}

    def rerun_blocking(self, first):
        """After a failure, runs the case again, alone and with blocking launches, so that an error is
        reported where it occurs."""
        again = self.once(".blocking", {"CUDA_LAUNCH_BLOCKING": "1"}) if self.check.remaining_s() >= 1 else {"skipped": "no time was left"}
        return {**first, "with CUDA_LAUNCH_BLOCKING=1": again or {"passed": True}}


def cases_of(check, test, into):
    listing = check.run(f"{test.name}.list", [test, "--gtest_list_tests"], check.machine.case_limit)
    found = listed(listing.require_stdout())
    if not found:
        raise CheckFailed("--gtest_list_tests lists no case")
    into.update({f"{test.name}.{name}": Case(check, test, name) for name in found})
    return {"cases": len(found)}


def conformance(check, only=""):
    """`only`: a pattern of the names of cases; without it all run."""
    machine, cases = check.machine, {}
    for path in (machine.build / "gpu_tests.txt").read_text().split():
        test = machine.build / path
        check.run_item(f"{test.name}, its list", lambda: cases_of(check, test, cases))
    cases = {name: case for name, case in cases.items() if re.search(only, name)}
    at_once = 1 if machine.gpu is None else max(1, min(4, (os.cpu_count() or 1) // 4))
    failed = {}

    def first(name):
        check.run_item(name, cases[name].once)
        return name, check.report.items(check.part)[name]

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for name, result in pool.map(first, check.missing_first(cases)):
            if "error" in result:
                failed[name] = result
    for name, result in failed.items():  # after all cases have run once
        check.report.record(check.part, name, cases[name].rerun_blocking(result))
