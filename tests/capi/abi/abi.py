#!/usr/bin/env python3
"""Compares strata.h with reference.abi, what it was when that was written: it may only grow, by functions, values of
enumerations and fields at the ends of structs. Exits 77 if abidiff is absent (Debian: abigail-tools).

  abi.py check|update|selftest HEADER CC FOLDER

selftest checks headers that have changed.

The release has no debug information, and that of C++ depends on the compiler. So a library in C is compiled that has
a pointer to each function and a variable of the type of each field; the lengths of arrays tell where fields are and
what values of enumerations are. abidiff accepts a struct that has grown at its end (additions.abignore), and a
variable that was added. When strata.h has grown for a release, the target update_abi_reference writes the reference
anew."""
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE / "reference.abi"


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def fields_of(body):
    """The names in "int64_t a, b; const char* const* c;"."""
    names = []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        first, *rest = declaration.split(",")
        names += [re.search(r"(\w+)$", first)[1], *(re.search(r"(\w+)$", r.strip())[1] for r in rest)]
    return names


def source_of(header):
    text = without_comments(header.read_text())
    lines = ["#include <stddef.h>", "#include <strata.h>"]
    functions = re.findall(r"^[\w* ]*?\b(strata_\w+)\(", text, flags=re.M)
    structs = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.S)
    values = re.findall(r"\b(STRATA_\w+) = \d+", text)
    if len(functions) < 20 or len(structs) < 5 or len(values) < 20:
        sys.exit(f"{header}: {len(functions)} functions, {len(structs)} structs and {len(values)} values were found, which are too few")
    lines += [f"__typeof__({name})* {name}_;" for name in functions]
    for struct, body in structs:
        for field in fields_of(body):
            at = f"{struct}__{field}"
            lines += [f"__typeof__((({struct}*)0)->{field}) {at};", f"char {at}__offset[offsetof({struct}, {field}) + 1];"]
    lines += [f"char {name}_[{name} + 1];" for name in values]
    return "\n".join(lines) + "\n"


def run(*command):
    """The output of a command if it fails, else nothing."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}" if done.returncode != 0 else ""


def build(header, compiler, folder):
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / "abi.c", folder / "libabi.so"
    source.write_text(source_of(header))
    # The reference must not depend on where this is.
    if problem := run(compiler, "-std=gnu11", "-g", "-gdwarf-4", f"-fdebug-prefix-map={folder}/=", "-O0", "-fPIC", "-shared",
                      "-nostdlib", f"-I{header.parent}", source, "-o", library):  # fmt: skip
        sys.exit(problem)
    return library


def check(header, compiler, folder):
    return run("abidiff", "--no-architecture", "--no-added-syms", "--no-show-locs", "--suppressions", HERE / "additions.abignore",
               REFERENCE, build(header, compiler, folder))  # fmt: skip


GROWN = {
    "a field at the end": ("int64_t n_chunks, chunk_elems;", "int64_t n_chunks, chunk_elems, more;"),
    "a function": ("uint32_t strata_abi_version(void);", "uint32_t strata_abi_version(void);\nint strata_more(int x);"),
    "a value": ("STRATA_SGD = 5", "STRATA_SGD = 5, STRATA_NEW = 6"),
}
CHANGED = {
    "a field in the middle": ("int64_t n_params;", "int64_t n_params, more;"),
    "the size of a field": ("int32_t nesterov;", "int64_t nesterov;"),
    "the type of a field": ("const char* const* nvme_dirs;", "const int* nvme_dirs;"),
    "a field removed": ("uint64_t rounding_seed;", ""),
    "a function removed": ("uint32_t strata_abi_version(void);", ""),
    "a parameter": ("strata_session session, double* norm)", "strata_session session, float* norm)"),
    "a value": ("STRATA_LION = 2", "STRATA_LION = 9"),
}


def selftest(header, compiler, folder):
    problems = []
    changed = folder / "changed" / "strata.h"
    changed.parent.mkdir(parents=True, exist_ok=True)
    for edits, accepted in ((GROWN, True), (CHANGED, False)):
        for name, (before, after) in edits.items():
            text = header.read_text()
            if before not in text:
                sys.exit(f"{header} has no '{before}'")
            changed.write_text(text.replace(before, after, 1))
            said = check(changed, compiler, folder / "changed")
            if (said == "") != accepted:
                problems.append(f"{name}: {'refused: ' + said if accepted else 'accepted'}")
    return "\n".join(problems)


def main():
    mode, header, compiler, folder = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
    if not (shutil.which("abidiff") and shutil.which("abidw")):
        print("abidiff and abidw are absent (Debian: abigail-tools)")
        sys.exit(77)
    if mode == "update":
        sys.exit(run("abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-architecture", "--no-elf-needed",
                     "--no-parameter-names", "--out-file", REFERENCE, build(header, compiler, folder)) or 0)  # fmt: skip
    sys.exit({"check": check, "selftest": selftest}[mode](header, compiler, folder) or 0)


main()
