"""Resident memory beside a loop whose optimizer keeps nothing, and of workers that were forked."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from packages import need

need("torch")

MIB = 1 << 20
LOOP = pathlib.Path(__file__).with_name("memory_loop.py")


def loop(kind, *arguments, **keywords):
    """The output of memory_loop.py in a process of its own. Freed tensors go back to the system at once: what malloc
    keeps of them differs from run to run."""
    environment = {
        **os.environ,
        "MEMORY_LOOP": json.dumps(keywords),
        "PYTHONWARNINGS": "ignore",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [sys.executable, str(LOOP), kind, *map(str, arguments)], capture_output=True, text=True, env=environment
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


class MemoryTest(unittest.TestCase):
    def test_resident_memory_is_at_most_that_without_states_and_the_plan(self):
        without = loop("sgd")
        self.assertGreater(loop("torch")["peak"], without["peak"] + 7 * without["params"])  # moments can be seen
        with tempfile.TemporaryDirectory() as folder:
            cases = {"RAM": dict(placement="pinned"), "NVMe": dict(placement="nvme", nvme=folder, pinned="1GiB"),
                     "RAM and NVMe": dict(nvme=folder, pinned="128MiB")}  # fmt: skip
            for name, where in cases.items():
                found = loop("strata", **where)
                more = found["peak"] - without["peak"]
                print(
                    f"{name}: {more / MIB:.0f} MiB more than without states, {found['planned'] / MIB:.0f} MiB planned"
                )
                self.assertLessEqual(more, found["planned"] + 64 * MIB, name)
                if name != "RAM":
                    self.assertLess(found["planned"], 8 * found["params"], name)

    def test_workers_of_a_data_loader_have_no_copies_of_the_states(self):
        without = loop("sgd", 4)["of_workers"]
        self.assertGreater(without, 0)
        self.assertGreater(loop("torch", 4)["of_workers"], without + 16 * MIB)  # copies can be seen
        found = loop("strata", 4, placement="pinned")["of_workers"]
        print(f"a worker has {without / MIB:.1f} MiB, and {found / MIB:.1f} MiB with strata")
        self.assertLessEqual(found, without + 16 * MIB)


if __name__ == "__main__":
    unittest.main()
