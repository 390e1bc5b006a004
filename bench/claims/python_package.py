"""The parts that the claims of the Python package share: its environment in the build that is measured, and programs that need
the peers' Python ($CLAIMS_PEERS: see interleaved.py)."""
import os
import subprocess

import claim
import interleaved

PACKAGE = claim.ROOT / "bindings" / "python"


def use():
    """Sets the variables with which the peers' Python imports strata from this tree and this build."""
    os.environ |= {"STRATA_LIBRARY": claim.need("capi/libstrata.so"), "PYTHONPATH": str(PACKAGE / "src"),
                   "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore", "DS_ACCELERATOR": "cpu"}  # fmt: skip


def run(program, *arguments, **options):
    """Runs a program with the peers' Python. Raises Absent if that, or a package the program needs, is missing."""
    command = [interleaved.PYTHON, str(program), *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, **options)
    except OSError as error:
        raise interleaved.Absent(f"{interleaved.PYTHON}: {error}") from None
    if done.returncode == 77:
        raise interleaved.Absent(((done.stdout + done.stderr).strip().splitlines() or ["the program was skipped"])[-1])
    return done
