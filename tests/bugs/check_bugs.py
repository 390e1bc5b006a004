#!/usr/bin/env python3
"""Plants the bugs of bugs.toml, one at a time, and checks that the tests named there fail.

    check_bugs.py [--only NAME,...] [--jobs N] TREE BUILD   builds a copy of TREE in BUILD with all bugs, runs the tests
    check_bugs.py --list TREE                               checks that every snippet is in TREE, once

All bugs are in one build: the environment variable PLANTED_BUG chooses the one that a process has. The sources in
BUILD/tree and the programs in BUILD/build are used again by the next call, which compiles what has changed."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

try:
    import tomllib
except ImportError:
    sys.exit("skipped: tomllib is absent; it comes with Python 3.11")

HEADER = """\
#ifndef STRATA_PLANTED_BUG_H
#define STRATA_PLANTED_BUG_H

#include <cstdlib>
#include <cstring>

namespace strata_bugs {
[[maybe_unused]] static inline bool is_planted(const char* name) noexcept {
  const char* const planted = std::getenv("PLANTED_BUG");
  return planted != nullptr && std::strcmp(planted, name) == 0;
}
}  // namespace strata_bugs

#define STRATA_BUG(name)                                          \\
  ([]() noexcept {                                                \\
    static const bool is_here = ::strata_bugs::is_planted(name);  \\
    return is_here;                                               \\
  }())

#endif
"""
FIELDS = {"name", "module", "what", "find", "replace", "tests"}
NO_PRODUCT = {"bench", "build", "docs", "examples", "models", "runs", "scripts", "tests"}
SOURCES = {".h", ".hpp", ".cpp", ".py"}
# Tests start the command with these variables alone.
STARTER, GIVEN = pathlib.Path("tests/support/program.cpp"), '{"PATH", "HOME", "TMPDIR"'


def read_bugs():
    path = pathlib.Path(__file__).with_name("bugs.toml")
    bugs = tomllib.loads(path.read_text())["bug"]
    problems, names = [], set()
    for bug in bugs:
        name = bug.get("name", "?")
        if set(bug) != FIELDS:
            problems.append(f"{name}: it has {sorted(bug)}; it must have {sorted(FIELDS)}")
        elif f'STRATA_BUG("{name}")' not in bug["replace"]:
            problems.append(f"{name}: its replacement does not ask for it")
        if name in names:
            problems.append(f"{name}: the name is taken by another bug")
        names.add(name)
    if problems:
        sys.exit("\n".join(problems))
    return bugs


def product_sources(tree):
    """{path in the tree: text} of what is not a test of it."""
    texts = {}
    for top in sorted(tree.iterdir()):
        if not top.is_dir() or top.name in NO_PRODUCT or top.name.startswith("."):
            continue
        for path in sorted(top.rglob("*")):
            place = path.relative_to(tree)
            if path.suffix in SOURCES and path.is_file() and "tests" not in place.parts:
                texts[place] = path.read_text()
    return texts


def places_of(bugs, texts):
    """({name of a bug: path}, problems)"""
    places, problems = {}, []
    for bug in bugs:
        found = [path for path, text in texts.items() for _ in range(text.count(bug["find"]))]
        if len(found) == 1:
            places[bug["name"]] = found[0]
        else:
            where = ": " + ", ".join(map(str, found)) if found else ""
            problems.append(f"{bug['name']}: its snippet occurs {len(found)} times{where}")
    return places, problems


def planted(bugs, places, texts, header):
    """{path: text} of the sources that have bugs, which include `header`."""
    changed = {}
    for bug in bugs:
        path = places[bug["name"]]
        replace = bug["replace"]
        if path.suffix == ".py":
            asks = r'(__import__("os").environ.get("PLANTED_BUG") == \1)'
            replace = re.sub(r'STRATA_BUG\(("[^"]+")\)', asks, replace)
        before = changed.get(path, texts[path] if path.suffix == ".py" else f'#include "{header}"\n{texts[path]}')
        if before.count(bug["find"]) != 1:
            sys.exit(f"{bug['name']}: another bug is in its place")
        changed[path] = before.replace(bug["find"], replace)
    return changed


def starter_with_bug(tree):
    """The source by which tests start programs, with the variable that chooses a bug; None: it is another one now."""
    text = (tree / STARTER).read_text() if (tree / STARTER).exists() else ""
    return text.replace(GIVEN, GIVEN + ', "PLANTED_BUG"') if text.count(GIVEN) == 1 else None


def write_if_other(path, data):
    """Keeps the time of a file that has not changed, so that nothing is compiled for it."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def copy_tree(tree, into, changed):
    listed = subprocess.run(["git", "-C", tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            stdout=subprocess.PIPE, check=True).stdout.decode()  # fmt: skip
    names = {pathlib.Path(name) for name in listed.split("\0") if name and (tree / name).is_file()}
    for name in sorted(names):
        data = changed[name].encode() if name in changed else (tree / name).read_bytes()
        write_if_other(into / name, data)
        (into / name).chmod((tree / name).stat().st_mode)
    for path in list(into.rglob("*")):
        if path.is_file() and path.relative_to(into) not in names:
            path.unlink()


def build(source, binary, jobs):
    configure = ["cmake", "--preset", "release", "-B", str(binary), "-DSTRATA_WITH_CUDA=OFF", "-DSTRATA_WITH_NCCL=OFF",
                 "-DSTRATA_BUILD_BENCH=OFF"]  # fmt: skip
    subprocess.run(configure, cwd=source, check=True)
    subprocess.run(["cmake", "--build", str(binary), "--parallel", str(jobs)], check=True)


def expression_of(suites):
    """The ctest expression of suites, which are a part of the name of an entry, or of those of their cases."""
    return rf"[./]({suites})([./]|$)"


def entries(binary, suites):
    command = ["ctest", "-N", "-R", expression_of(suites)]
    shown = subprocess.run(command, cwd=binary, stdout=subprocess.PIPE, text=True, check=True)
    return re.findall(r"^\s*Test\s+#\d+: (.*)$", shown.stdout, re.MULTILINE)


def run_tests(binary, suites, jobs, log, bug=None):
    """(whether all pass, seconds, the first that fails)"""
    environment = {**os.environ, "PLANTED_BUG": bug or ""}
    command = ["ctest", "-R", expression_of(suites), "--output-on-failure", "--no-tests=error", "-j", str(jobs)]
    if bug is not None:
        command.append("--stop-on-failure")
    begin = time.monotonic()
    with log.open("w") as out:
        status = subprocess.run(command, cwd=binary, env=environment, stdout=out, stderr=subprocess.STDOUT).returncode
    text = log.read_text(errors="replace")
    failed = re.findall(r"^\s*\d+ - (.+) \([^()]*\)", text, re.MULTILINE)
    if status != 0 and not failed:
        sys.exit(f"{log}: ctest has failed, and no test")
    return status == 0, time.monotonic() - begin, failed[0] if failed else ""


def check(bugs, binary, jobs):
    logs = binary.parent / "logs"
    logs.mkdir(exist_ok=True)
    suites = sorted({suite for bug in bugs for suite in bug["tests"].split("|")})
    absent = [suite for suite in suites if not entries(binary, suite)]
    if absent:
        sys.exit(f"there is no test of {', '.join(absent)}")
    passes, seconds, failed = run_tests(binary, "|".join(suites), jobs, logs / "no-bug.log")
    print(f"without a bug: {'all pass' if passes else failed + ' fails'}, {seconds:.0f} s", flush=True)
    if not passes:
        return False
    missed = []
    width = max(len(bug["name"]) for bug in bugs)
    for bug in bugs:
        passes, seconds, failed = run_tests(binary, bug["tests"], jobs, logs / f"{bug['name']}.log", bug["name"])
        if passes:
            missed.append(bug["name"])
        found = "MISSED" if passes else failed
        print(f"{bug['name']:{width}}  {bug['module']:15}  {seconds:4.0f} s  {found}", flush=True)
    print(f"{len(bugs) - len(missed)} of {len(bugs)} bugs are found" + "".join(f"\nmissed: {name}" for name in missed))
    return not missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="check the snippets alone")
    parser.add_argument("--only", help="names of bugs whose tests are run, separated by commas")
    parser.add_argument("--built", action="store_true", help="run what is in BUILD, without looking at TREE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    given = parser.parse_args()
    bugs, tree = read_bugs(), given.tree.resolve()
    wanted = given.only.split(",") if given.only else [bug["name"] for bug in bugs]
    if unknown := set(wanted) - {bug["name"] for bug in bugs}:
        sys.exit(f"no bug is named {', '.join(sorted(unknown))}")
    chosen = [bug for bug in bugs if bug["name"] in wanted]
    if not given.built:
        texts = product_sources(tree)
        places, problems = places_of(bugs, texts)
        if given.list:
            width = max(len(bug["name"]) for bug in bugs)
            print("\n".join(f"{name:{width}}  {path}" for name, path in places.items()))
        starter = starter_with_bug(tree)
        if starter is None:
            problems.append(f"{STARTER} does not have {GIVEN} once: programs would not know of the bug")
        if problems:
            sys.exit("\n".join(problems))
    if given.list:
        return
    if given.build is None:
        parser.error("BUILD is missing")
    folder = given.build.resolve()
    header, binary = folder / "planted_bug.h", folder / "build"
    if not given.built:
        write_if_other(header, HEADER.encode())
        copy_tree(tree, folder / "tree", {**planted(bugs, places, texts, header), STARTER: starter})
        build(folder / "tree", binary, given.jobs)
    sys.exit(0 if check(chosen, binary, given.jobs) else 1)


if __name__ == "__main__":
    main()
