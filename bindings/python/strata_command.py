#!python
"""The command `strata` of a wheel: runs the program that is in the package."""

import importlib.util
import os
import sys

# The package is found without importing it, which would take longer than all the rest.
package = importlib.util.find_spec("strata").submodule_search_locations[0]
program = os.path.join(package, "bin", "strata")
os.execv(program, [program, *sys.argv[1:]])
