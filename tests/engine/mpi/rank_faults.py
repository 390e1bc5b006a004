#!/usr/bin/env python3
"""Runs rank_faults: one of three ranks fails, and the others must say what has become of it and end.

    rank_faults.py PROGRAM MPIRUN FAULT [RANK [STEP]]

It is checked that every other rank names the failed one and the cause, how long that takes, the exit code, and
that no process, swap file or shared memory is left."""
import glob
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 3
HOST = r"on host [^,]*, "
LAST = r"in step %s, micro-batch \d+"
# The ranks that have not failed must say this. %d is the number of the failed rank, %s the step.
LOST = r"lost_peer: .*rank %d of 3 has left the group: " + HOST
SAME = r"invalid: ranks do not have the same "
EXPECTED = {
    "none": r"ends: ok",
    "kill": LOST + r"its process \d+ has ended without a word, .*it was last " + LAST,
    "exit": LOST + r"its process \d+ has ended without a word, .*it was last " + LAST,
    "stop": LOST + r"nothing has been heard of it for .*it was last " + LAST,
    "hang": LOST + r"it has been in step %s, micro-batch \d+, the batch source for [\d.]+ s without coming back",
    "error": LOST + r"io_error: the batches are on a disk that is gone; it was in step %s, micro-batch \d+",
    "memory": LOST + r"out_of_memory: no memory for a batch; it was in step %s, micro-batch \d+",
    "disk": LOST + r"no_space: .*; it was in step %s",
    "nan": r"diverged: .*the loss of micro-batch \d+ is not finite, which rank %d computes",
    "layout": SAME + r"layout of chunks: line \d+ is .* on rank 0 .* on rank %d of 3 on host",
    "settings": SAME + r"settings: line 2 is \"clip = 1\" on rank 0 .* and \"clip = 7\" on rank %d of 3 on host",
    "collectives": SAME + r"collectives: line \d+ is \"gather chunk .* on rank 0 .* on rank %d of 3 on host",
    "isa": SAME + r"instruction set: line 1 is .* on rank 0 .* and \"sse42\" on rank %d of 3 on host",
}


def segments(text):
    """The files through which the ranks of a run share memory, by what it has printed."""
    job = re.search(r"^job (\d+)$", text, re.MULTILINE)
    return glob.glob(f"/dev/shm/vader_segment.*.{int(job[1]):x}.*") if job else []


def processes_of(session):
    """The processes of the session that mpirun was the first of; Open MPI gives each rank a process group of its own."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(status.parent.name))
    return found


def left_behind(session, folder, text):
    """Files in the folder, shared memory and processes. mpirun does not wait for a rank that it has killed, so
    processes have a few seconds to be gone."""
    last = time.monotonic() + 5
    while (processes := processes_of(session)) and time.monotonic() < last:
        time.sleep(0.05)
    return [*(str(path) for path in pathlib.Path(folder).rglob("*") if path.is_file()), *segments(text), *(f"process {process}" for process in processes)]


class Outcome:
    """The output of one run, line by line, with the seconds since it began."""

    def __init__(self, lines, code, session):
        self.lines, self.code, self.session = lines, code, session

    def first(self, pattern):
        """Seconds until the first line that the pattern is found in; None if there is none."""
        return next((at for at, line in self.lines if re.search(pattern, line)), None)

    def text(self):
        return "".join(line for _, line in self.lines)


def end_session(session):
    for process in processes_of(session):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def start(command, timeout):
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    killer = threading.Timer(timeout, lambda: end_session(process.pid))
    killer.start()
    lines = [(time.monotonic() - begin, line) for line in process.stdout]
    process.wait()
    hangs = not killer.is_alive()
    killer.cancel()
    return Outcome(lines, None if hangs else process.returncode, process.pid)


def run(program, mpirun, fault, rank=1, step=3, timeout=60):
    """Returns (problems, seconds from the fault until all others have named the rank, output)."""
    # A folder of its own for Open MPI's files: of two mpiruns that share one, either may remove what the other needs.
    with tempfile.TemporaryDirectory(prefix="strata-ranks-") as folder, tempfile.TemporaryDirectory(prefix="ompi-") as of_mpi:
        outcome = start([mpirun, "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
                         "--mca", "orte_tmpdir_base", of_mpi, "-np", str(RANKS), program, fault, str(rank), str(step), folder], timeout)  # fmt: skip
        problems = [] if outcome.code is not None else [f"it hangs for {timeout} s"]
        want = EXPECTED[fault].replace("%d", str(rank)).replace("%s", str(step))
        others = [other for other in range(RANKS) if other != rank or fault in ("none", "nan")]
        problems += [f"rank {other} does not say {want!r}" for other in others if outcome.first(rf"rank {other} ends: .*{want}|rank {other} {want}") is None]
        if fault in ("stop", "hang") and outcome.first(rf"rank \d warns: rank {rank} of 3 {HOST[:-2]}: ") is None:
            problems.append(f"nobody warns of rank {rank}")
        if (outcome.code == 0) != (fault == "none"):
            problems.append(f"mpirun ends with {outcome.code}")
        problems += [f"left behind: {name}" for name in left_behind(outcome.session, folder, outcome.text())]
        end_session(outcome.session)
        named = [outcome.first(rf"rank {other} (warns|ends): .*rank {rank} of 3|rank {other} ends: ") or timeout for other in others]
        return problems, max(named) - (outcome.first("the fault is due") or 0), outcome.text()


def main():
    program, mpirun, fault = sys.argv[1:4]
    problems, seconds, out = run(program, mpirun, fault, *map(int, sys.argv[4:6]))
    print(out, f"{fault}: named after {seconds:.1f} s", *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
