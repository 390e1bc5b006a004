"""fio's rate of reading and writing at once, with which steps whose states are on NVMe are compared."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

SECONDS = 2
GRID = [("1M", 8), ("1M", 16), ("4M", 8), ("4M", 16)]  # block sizes and depths


def is_here():
    return shutil.which("fio") is not None


class File:
    """A file of `mib` MiB in `folder` that fio works on, through io_uring with O_DIRECT, with one job per direction,
    at the best block size and depth of GRID. A context; removed at its end."""

    def __init__(self, folder, mib):
        self.path, self.mib = pathlib.Path(folder) / f"claim-{os.getpid()}.fio", mib

    def __enter__(self):
        try:
            lay = ["--name=lay", f"--filename={self.path}", f"--size={self.mib}m", "--rw=write", "--bs=4M", "--direct=1"]
            subprocess.run(["fio", *lay], check=True, capture_output=True)
            self.block, self.depth = max(GRID, key=lambda point: self._rate(*point))
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise
        return self

    def __exit__(self, *_):
        self.path.unlink(missing_ok=True)

    def rate(self):
        """GB/s of reading one half of the file while writing the other, both together."""
        return self._rate(self.block, self.depth)

    def _rate(self, block, depth):
        half = self.mib // 2
        options = {"filename": self.path, "bs": block, "iodepth": depth, "ioengine": "io_uring", "direct": 1,
                   "time_based": 1, "fixedbufs": 1, "registerfiles": 1, "runtime": SECONDS, "output-format": "json"}  # fmt: skip
        command = ["fio"] + [f"--{name}={value}" for name, value in options.items()]
        for rw, offset in (("write", 0), ("read", half)):
            command += [f"--name={rw}", f"--rw={rw}", f"--offset={offset}m", f"--size={half}m"]
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
        jobs = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
        return sum(job[job["jobname"]]["io_bytes"] / job[job["jobname"]]["runtime"] for job in jobs) * 1e-6
