"""Runs tests of the Python package where there is no torch; each must pass or be skipped: without_torch_test.py TEST.py..."""

import os
import pathlib
import subprocess
import sys

hidden = pathlib.Path(__file__).with_name("without_torch")
environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(hidden), os.environ["PYTHONPATH"]])}
failed = 0
for test in sys.argv[1:]:
    run = subprocess.run([sys.executable, test], env=environment, capture_output=True, text=True)
    if run.returncode not in (0, 77):
        failed += 1
        print(f"{test} exits with {run.returncode}:\n{run.stderr}")
sys.exit(failed != 0)
