"""The context of a part of the verification: the build, the machine, the part's time, and the report."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import traceback

import processes
from processes import CheckFailed
from report import NO_TIME


class Machine:
    """A build, the output folder, and the GPU if there is one."""

    def __init__(self, options):
        self.build = pathlib.Path(options.build).resolve()
        self.out = pathlib.Path(options.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.quick, self.case_limit, self.run_limit = options.quick, options.case_limit, options.run_limit
        self.scenarios = options.scenarios.split(",") if options.scenarios else []
        self.strata = self.build / "cli/strata"
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(self.search_paths())}
        self.gpu = self.find_gpu() if self.sees_gpu() else None
        self.backend = "cuda" if self.gpu else "host"

    def search_paths(self):
        """Library folders: those of a packed build, and all that may have cuBLASLt or cuDNN, which are loaded
        by name."""
        places = [self.build / "lib", "/usr/local/cuda/lib64"]
        places += [pathlib.Path(folder) / "nvidia" / part / "lib" for folder in sys.path for part in ("cu13", "cublas", "cudnn")]
        found = [str(place) for place in places if pathlib.Path(place).is_dir()]
        return found + [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path]

    def sees_gpu(self):
        """Whether the build has CUDA and finds a GPU. If strata cannot report it: whether there is
        nvidia-smi."""
        try:
            done = processes.run([self.strata, "doctor", "--json"], 60, self.out / "logs/doctor", self.environment)
            return any(check["name"] == "cuda" and check["health"] == "ok" for check in json.loads(done.out)["checks"])
        except (CheckFailed, ValueError, KeyError, TypeError):
            return shutil.which("nvidia-smi") is not None

    @staticmethod
    def find_gpu():
        query = "name,driver_version,memory.total,clocks.max.sm,power.limit"
        try:
            done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
            line = done.stdout.strip().split("\n")[0]
            if done.returncode == 0 and line:
                return dict(zip(query.split(","), line.split(", ")))
        except (OSError, subprocess.TimeoutExpired):
            pass
        return {"name": "a GPU that nvidia-smi does not describe"}

    def ram_bytes(self):
        """The RAM that is available now, within the cgroup's limit."""
        available = int(re.search(r"MemAvailable:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
        try:
            limit = int(pathlib.Path("/sys/fs/cgroup/memory.max").read_text())
            used = int(pathlib.Path("/sys/fs/cgroup/memory.current").read_text())
            return min(available, limit - used)
        except (OSError, ValueError):
            return available


class Check:
    """One part and its deadline."""

    def __init__(self, part, machine, report, deadline):
        self.part, self.machine, self.report, self.deadline = part, machine, report, deadline

    def remaining_s(self):
        return max(0.0, self.deadline - time.monotonic())

    def run(self, log, command, limit=600.0, environment=None):
        """As processes.run(), within the part's remaining time."""
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", log)
        return processes.run(command, min(limit, self.remaining_s()), self.machine.out / "logs" / self.part / name,
                             {**self.machine.environment, **(environment or {})})  # fmt: skip

    def skip(self, item, why):
        self.report.record(self.part, item, {"skipped": why})

    def run_item(self, name, work):
        """Records what `work` returns, or how it failed. Returns whether there was time to run it."""
        if self.remaining_s() < 1:
            self.skip(name, NO_TIME)
            return False
        begin = time.monotonic()
        try:
            result = work()
            if not isinstance(result, dict):
                raise CheckFailed(f"expected a dict as result, got {result!r}")
        except CheckFailed as failure:
            result = {"error": str(failure)}
        except Exception:  # e.g. unexpected output of a program; other items go on
            result = {"error": traceback.format_exc()[-processes.TAIL :]}
        self.report.record(self.part, name, {**result, "seconds": round(time.monotonic() - begin, 1)})
        return True

    def missing_first(self, names):
        """Sorts items: first those without a result from an earlier run into the same file, then failed ones,
        then the rest."""
        known = self.report.items(self.part)

        def rank(name):
            return 2 if name in known and "error" not in known[name] and known[name].get("skipped") != NO_TIME else name in known

        return sorted(names, key=rank)


def folder_removed(folder):
    shutil.rmtree(folder, ignore_errors=True)
    return folder
