#!/usr/bin/env python3
"""Compares the bytes that OpenMPI's monitoring component counts with the counters of the ranks.

    monitoring.py FOLDER MPIRUN ARGUMENT...      the command runs `mpi_rank count_bytes`

Each rank prints what its group has counted and what the transport sends besides. The difference between the
sum of both and OpenMPI's count of point-to-point messages must be 0 in each direction, for each rank."""
import pathlib
import re
import shutil
import subprocess
import sys


def monitored(folder):
    """{(from, to): bytes}; external messages only, which are those with the tags of a user."""
    moved = {}
    for path in folder.glob("bytes.*.prof"):
        for line in path.read_text().splitlines():
            if found := re.match(r"E\t(\d+)\t(\d+)\t(\d+) bytes", line):
                moved[int(found[1]), int(found[2])] = int(found[3])
    return moved


def main():
    folder = pathlib.Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = {"pml_monitoring_enable": "2", "pml_monitoring_enable_output": "3", "pml_monitoring_filename": f"{folder}/bytes"}
    command = [sys.argv[2], *[word for name, value in options.items() for word in ("--mca", name, value)], *sys.argv[3:]]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout
    moved = monitored(folder)
    if not moved:
        print("skipped: this MPI has no monitoring component")
        return 0
    wrong = 0
    lines = re.findall(r"rank (\d+) sent (\d+) received (\d+) control (\d+) (\d+)", out)
    for rank, sent, received, *control_bytes in (map(int, line) for line in lines):
        for what, counted, control, seen in (
            ("sent", sent, control_bytes[0], sum(n for (source, _), n in moved.items() if source == rank)),
            ("received", received, control_bytes[1], sum(n for (_, target), n in moved.items() if target == rank)),
        ):
            difference = seen - counted - control
            wrong += difference != 0
            print(f"rank {rank} {what}: {counted} counted + {control} control, {seen} monitored, difference {difference}")
    print(f"{len(lines)} ranks, {wrong} differences")
    return 0 if lines and wrong == 0 else 1


sys.exit(main())
