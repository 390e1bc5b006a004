"""Which packages a test needs."""

import importlib.util
import sys


def need(*packages):
    """Ends the test as skipped, exit code 77, if this Python lacks one of the packages."""
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        print(f"{sys.executable} has no {', '.join(absent)}; bench/peers/setup_peers.sh installs them")
        sys.exit(77)
