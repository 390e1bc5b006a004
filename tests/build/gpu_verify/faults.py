"""Runs scripts/gpu_verify on a build with injected faults and checks what its JSON still contains. Runs on
the host; needs no GPU.

  faults.py PACKAGE STRATA INJECTED_FAULTS WORK
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

PACKAGE, STRATA, CASES, WORK = (pathlib.Path(path) for path in sys.argv[1:5])

# A fake machine_rates. Its parts print a row, a row before a hang, null, an error, nothing or a null row;
# others crash.
RATES_SCRIPT = """#!/bin/sh
case "$2" in
  peak) echo '{{"machine": {{"cpu": "planted"}}}}'; echo '{{"part": "peak", "row": {{"rate": {{"gflop_per_s": 50}}}}}}' ;;
  link) echo '{{"part": "link", "row": {{"copy_bytes": 1048576}}}}'; printf '{{"part": "li'; while :; do sleep 1; done ;;
  dram) echo null ;;
  matrix) echo '{{"part": "matrix", "error": "planted"}}'; exit 1 ;;
  attention_mma) exit 0 ;;
  attention_wgmma) echo '{{"part": "attention_wgmma", "row": null}}' ;;
  *) kill -SEGV $$ ;;
esac
"""
# A fake strata: scenarios never end, verify fails, bench prints null; everything else is the real strata.
STRATA_SCRIPT = """#!/bin/sh
case "$1 $3" in
  "train "*/scenario)
    for a; do shift; [ "$a" != train.steps=8 ] || a=train.steps=1000000000; set -- "$@" "$a"; done
    exec {strata} "$@" ;;
  "verify "*) echo 'planted: not the same bits' >&2; exit 1 ;;
  "bench "*) echo null ;;
  *) exec {strata} "$@" ;;
esac
"""


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def verify(out, *options, cases=CASES):
    build = WORK / "build"
    shutil.rmtree(build, ignore_errors=True)
    executable(build / "cli/strata", STRATA_SCRIPT.format(strata=STRATA))
    for program in ("machine_rates", "kernel_rates"):
        executable(build / "bench" / program, RATES_SCRIPT.format())
    (build / "gpu_tests.txt").write_text("injected_faults\nmissing_test\n")
    os.symlink(cases, build / "injected_faults")
    done = subprocess.run([sys.executable, PACKAGE, "--build", build, "--out", out, "--quick", "--case-limit", "5", *options],
                          capture_output=True, text=True, cwd=PACKAGE.parents[1])  # fmt: skip
    return done, json.loads((out / "gpu_verify.json").read_text())


class Faults(unittest.TestCase):
    def setUp(self):
        self.out = WORK / self.id().split(".")[-1]
        shutil.rmtree(self.out, ignore_errors=True)

    def test_each_case_is_judged_by_itself(self):
        done, report = verify(self.out, "--parts", "conformance")
        items = report["parts"]["conformance"]["items"]
        self.assertEqual(done.returncode, 1, done.stderr)
        for case in ("zero", "one"):
            self.assertEqual(set(items[f"injected_faults.Values/InjectedFaultTest.Passes/{case}"]), {"seconds"})
        self.assertIn("there is no GPU here", items["injected_faults.InjectedFault.IsSkipped"]["skipped"])
        self.assertIn("SIGABRT", items["injected_faults.InjectedFault.Aborts"]["error"])
        self.assertIn("SIGABRT", items["injected_faults.InjectedFault.Aborts"]["with CUDA_LAUNCH_BLOCKING=1"]["error"])
        hung = items["injected_faults.InjectedFault.Hangs"]
        self.assertIn("timed out after 5 s", hung["error"])
        self.assertIn("about to hang", hung["output"])
        self.assertIn("about to hang", hung["with CUDA_LAUNCH_BLOCKING=1"]["output"])
        failed = items["injected_faults.InjectedFault.FailsUnlessLaunchesBlock"]
        self.assertIn("no launch was waited for", failed["output"])
        self.assertEqual(failed["with CUDA_LAUNCH_BLOCKING=1"], {"passed": True})
        self.assertIn("No such file", items["missing_test, its list"]["error"])
        logs = self.out / "logs/conformance"
        for end in ("", ".blocking"):
            self.assertIn("about to hang", (logs / f"injected_faults.InjectedFault.Hangs{end}.out").read_text())

    def test_rates_that_hang_or_print_null_do_not_affect_others(self):
        done, report = verify(self.out, "--parts", "rates,profile,peers")
        self.assertEqual(done.returncode, 1, done.stderr)
        rates = report["parts"]["rates"]["items"]
        self.assertEqual(rates["peak"]["rows"], [{"rate": {"gflop_per_s": 50}}])
        self.assertNotIn("error", rates["peak"])
        self.assertEqual(rates["link"]["rows"], [{"copy_bytes": 1048576}])
        for part, why in (("link", "printed no JSON"), ("dram", "printed null"), ("matrix", "planted"), ("attention_mma", "printed no row"),
                          ("attention_wgmma", "null"), ("attention_cudnn", "SIGSEGV")):  # fmt: skip
            self.assertIn(why, rates[part]["error"])
        self.assertIn("printed null", report["parts"]["profile"]["items"]["machine"]["error"])
        self.assertIn("peers", report["parts"])

    def test_a_scenario_that_is_cut_off_keeps_its_steps_and_later_runs_add_to_it(self):
        done, report = verify(self.out, "--parts", "scenarios", "--scenarios", "all in HBM", "--run-limit", "25")
        (name,) = (name for name in report["parts"]["scenarios"]["items"] if "all in HBM" in name)
        cut = report["parts"]["scenarios"]["items"][name]
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}{cut}")
        self.assertIn("at 25 s", cut["cut_off"])
        self.assertGreater(cut["steps"], 3)
        self.assertEqual(len(cut["seconds_of_steps"]), cut["steps"])
        self.assertGreater(cut["tokens_per_s"], 0)
        done, report = verify(self.out, "--parts", "placements")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not the same bits", report["parts"]["placements"]["items"]["verify"]["error"])
        self.assertEqual(report["parts"]["scenarios"]["items"][name], cut)
        # Without time nothing is measured, and no earlier result is lost.
        done, report = verify(self.out, "--parts", "scenarios", "--scenarios", "all in HBM", "--minutes", "0")
        self.assertEqual(report["parts"]["scenarios"]["items"][name], cut)


    # A program of the second part hangs, and the time ends in the third.
    def test_a_quarter_that_is_cut_off_keeps_what_it_has(self):
        begin = time.monotonic()
        done, report = verify(self.out, "--quarter", "--minutes", "0.4")
        self.assertLess(time.monotonic() - begin, 24 + 15)
        self.assertEqual(done.returncode, 1, done.stderr)
        parts = report["parts"]
        self.assertEqual(list(parts), ["facts", "rates", "conformance", "kernels", "profile", "in HBM", "offloaded", "6.5B", "1.2B"])
        self.assertGreater(parts["facts"]["items"]["machine"]["ram_bytes"], 0)
        self.assertEqual(parts["rates"]["items"]["peak"]["rows"], [{"rate": {"gflop_per_s": 50}}])
        self.assertEqual(parts["rates"]["items"]["link"]["rows"], [{"copy_bytes": 1048576}])
        self.assertIn("printed no JSON", parts["rates"]["items"]["link"]["error"])
        self.assertEqual(set(parts["conformance"]["items"]["injected_faults.Values/InjectedFaultTest.Passes/zero"]), {"seconds"})
        for late in ("6.5B", "1.2B"):
            self.assertTrue(all(item["skipped"] == "no time was left" for item in parts[late]["items"].values()), parts[late])

    def test_a_part_of_a_quarter_has_its_seconds_and_what_earlier_ones_leave(self):
        done, report = verify(self.out, "--quarter", "--parts", "facts,kernels,profile")
        self.assertEqual(done.returncode, 1, done.stderr)
        kernels = report["parts"]["kernels"]["items"]
        self.assertEqual(set(kernels), {"attention", "elementwise", "heads", "gemms", "updates"})
        self.assertTrue(all("SIGSEGV" in one["error"] for one in kernels.values()))
        self.assertIn("printed null", report["parts"]["profile"]["items"]["machine"]["error"])
        done, _ = verify(self.out, "--quarter", "--parts", "losses")
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown part losses", done.stderr)


class Moved(unittest.TestCase):
    """Checks the bytes that a step moved against where the plan has the states."""

    def check(self, placement, homes, **moved):
        sys.path.insert(0, str(PACKAGE))
        import scenarios

        empty = {"device": 0, "pinned": 0, "nvme": 0}
        plan = {"homes": {payload: {**empty, **homes.get(payload, {})} for payload in ("param", "master", "m", "v", "accum", "grad")}}
        lanes = {"h2d": 0, "d2h": 0, "nvme_read": 0, "nvme_write": 0}
        scenarios.moved_as_planned(placement, plan, [{"moved_bytes": {**lanes, **moved}}])

    def refused(self, why, *arguments, **moved):
        with self.assertRaises(Exception) as raised:
            self.check(*arguments, **moved)
        self.assertEqual(type(raised.exception).__name__, "CheckFailed")
        self.assertIn(why, str(raised.exception))

    def test_states_on_nvme_are_read_and_written(self):
        homes = {"m": {"nvme": 1000}, "v": {"nvme": 1000}}
        self.check("states on NVMe", homes, nvme_read=2000, nvme_write=2000)
        self.refused("0 bytes of nvme_read", "states on NVMe", homes, nvme_write=2000)
        self.refused("0 bytes of nvme_write", "three tiers", homes, nvme_read=2000)

    def test_moves_must_match_the_placement(self):
        self.refused("nothing is at home on NVMe", "states in RAM", {"m": {"pinned": 1000}}, nvme_read=1)
        self.refused("parameters are at home in RAM", "states in RAM", {"param": {"pinned": 1000}}, h2d=10)
        self.refused("all in HBM", "all in HBM", {"param": {"device": 1000}}, h2d=11)
        self.check("all in HBM", {"param": {"device": 1000}}, h2d=10)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[5:]])
