#!/usr/bin/env python3
"""Checks the pages of docs/ that repeat what sources say: docs/python.md is written from docstrings, and
docs/c-interface.md names every function of strata.h and shows the program of examples/c_session, and the tests that
docs/differences.md names exist.

    documentation.py ROOT"""
import pathlib
import re
import subprocess
import sys


def c_interface_problems(root):
    page = (root / "docs/c-interface.md").read_text()
    header = re.sub(r"/\*.*?\*/", "", (root / "capi/include/strata.h").read_text(), flags=re.DOTALL)
    functions = set(re.findall(r"\b(strata_\w+)\(", header))
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    named = {name for line in rows for name in re.findall(r"`(strata_\w+)`", line) if name != "strata_settings"}
    problems = [f"docs/c-interface.md does not name {name}()" for name in sorted(functions - named)]
    problems += [f"docs/c-interface.md names {name}(), which strata.h lacks" for name in sorted(named - functions)]
    if (root / "examples/c_session/c_session.c").read_text() not in page:
        problems.append("docs/c-interface.md: the program is not examples/c_session/c_session.c as it is now")
    return problems


def python_problems(root):
    done = subprocess.run([sys.executable, root / "scripts/python_reference.py", "--check", root / "docs/python.md"],
                          capture_output=True, text=True)  # fmt: skip
    return [done.stderr.strip()] if done.returncode else []


def differences_problems(root):
    named = set(re.findall(r"`(\w+Test)\.(\w+)`", (root / "docs/differences.md").read_text()))
    sources = "\n".join(path.read_text() for path in (root / "tests").rglob("*_test.cpp"))
    there = set(re.findall(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", sources))
    return [f"docs/differences.md names {suite}.{name}, which is no test" for suite, name in sorted(named - there)]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems = c_interface_problems(root) + python_problems(root) + differences_problems(root)
    print("\n".join(problems) or "the pages say what the sources say")
    sys.exit(1 if problems else 0)


main()
