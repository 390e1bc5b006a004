#!/usr/bin/env python3
"""Checks the pages of docs/ that repeat what sources say: docs/python.md is written from docstrings, and
docs/c-interface.md names every function of strata.h and shows the program of examples/c_session, and the tests that
docs/differences.md names exist. The pages of docs/guide name every configuration key, and what lists the optimizers,
the decoder families or the objectives by hand has all of them.

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


def key_problems(root):
    keys = re.findall(r"^\| `(\w+)\.(\w+)` \|", (root / "docs/configuration.md").read_text(), re.MULTILINE)
    guide = "\n".join(path.read_text() for path in sorted((root / "docs/guide").glob("*.md")))
    return [f"no page of docs/guide names {section}.{name}" for section, name in keys
            if not re.search(rf"\b{section}\.{name}\b|`{name}[`=]", guide)]  # fmt: skip


# Sources, the expression of a name in a row of their tables, and the files that have the names, too.
TABLES = [
    ("cpuopt/include/strata/cpuopt/math/rules.h", r'\.name = "(\w+)"', [
        "docs/guide/train.md", "bench/peers/optimizer_ulps.py"]),
    ("model/src/family/families.cpp", r'\{\.name = "(\w+)", \.change', [
        "docs/guide/models.md", "tests/oracle/families.py"]),
    ("config/src/fill/objectives.cpp", r'\.name = "(\w+)"', ["docs/guide/align.md"]),
]  # fmt: skip


def list_problems(root):
    problems = []
    for source, row, files in TABLES:
        names = sorted(set(re.findall(row, (root / source).read_text(), re.MULTILINE)))
        problems += [] if names else [f"{source} has no names; are they written otherwise now?"]
        for file in files:
            there = set(re.findall(r'["`](\w+)["`]', (root / file).read_text()))
            problems += [f"{file} lacks {name} of {source}" for name in names if name not in there]
    return problems


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    checks = [c_interface_problems, python_problems, differences_problems, key_problems, list_problems]
    problems = [problem for check in checks for problem in check(root)]
    print("\n".join(problems) or "the pages say what the sources say")
    sys.exit(1 if problems else 0)


main()
