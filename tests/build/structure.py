#!/usr/bin/env python3
"""Checks the structure of the source tree: no folder has more than 25 files, no source files include each
other in a circle (a header and its source count as one), no replaced word (old_words.txt) is used, and no
comment begins as a fragment of a sentence does: with a preposition, or with "those".

    structure.py ROOT [folders] [circles] [words] [comments]"""
import pathlib
import re
import sys

MAX_FILES = 25
EXEMPT = {"bench/claims"}  # one command per claim, found by its name
SKIPPED = {".git", "build", "runs", "__pycache__", ".cache"}
SOURCES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
TEXTS = SOURCES | {".md", ".py", ".sh", ".txt", ".cmake", ".toml", ".in", ""}
COMMENTED = TEXTS - {".md", ".txt"} | {".c"}
FRAGMENT = re.compile(r"(that of|those|of|by|with)\b", re.IGNORECASE)


def files(root):
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and not any(part in SKIPPED for part in parts) and not path.is_symlink():
            yield path


def crowded_folders(root):
    count = {}
    for path in files(root):
        if path.suffix != ".pyc" and "corpus" not in path.parts:
            count[path.parent] = count.get(path.parent, 0) + 1
    return [f"{folder.relative_to(root)}: {n} files; a folder may have at most {MAX_FILES}"
            for folder, n in sorted(count.items()) if n > MAX_FILES and str(folder.relative_to(root)) not in EXEMPT]  # fmt: skip


def includes(root):
    """{unit: units it includes}. A unit is a header with its sources, or a source without a header. A source's
    header has the name of the source and stands next to it, or is the first file that the source includes."""
    sources = [path for path in files(root) if path.suffix in SOURCES]
    known = set(sources)
    by_suffix = {}
    for path in sources:
        parts = path.relative_to(root).parts
        for n in range(1, len(parts) + 1):
            by_suffix.setdefault("/".join(parts[-n:]), []).append(path)

    def find(name, path):
        top = path.relative_to(root).parts[0]
        for nearest in (path.parent / name, root / top / "src" / name):
            if nearest in known:
                return nearest
        found = [p for p in by_suffix.get(name, []) if p.relative_to(root).parts[0] == top or name.startswith("strata/")]
        return found[0] if len(found) == 1 else None

    found_by = {}
    for path in sources:
        names = re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', path.read_text(), re.MULTILINE)
        found_by[path] = [find(name, path) for name in names]

    def module(path):
        return path.relative_to(root).parts[0]

    def unit(path):
        first = found_by[path][0] if found_by[path] else None
        if path.with_suffix(".h") in known:
            path = path.with_suffix(".h")
        elif path.suffix != ".h" and first is not None and first.stem == path.stem and module(first) == module(path):
            path = first
        return str(path.relative_to(root).with_suffix(""))

    graph = {}
    for path, included in found_by.items():
        for other in included:
            if other is not None and unit(other) != unit(path):
                graph.setdefault(unit(path), set()).add(unit(other))
    return graph


def circles(root):
    """Strongly connected components of more than one unit (Tarjan 1972)."""
    graph, index, low, stack, found = includes(root), {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(component) > 1:
                found.append("include each other in a circle: " + ", ".join(sorted(component)))

    sys.setrecursionlimit(10000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def old_words(root):
    listed = pathlib.Path(__file__).with_name("old_words.txt")
    words = [line.split("#")[0].strip() for line in listed.read_text().splitlines()]
    pattern = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(re.escape(word) for word in words if word) + r")(?![A-Za-z0-9_])")
    problems = []
    for path in files(root):
        if path.suffix not in TEXTS or path.name in ("CHANGELOG.md", listed.name, "train_schema.cpp", "train_config_test.cpp", "LICENSE") or "data" in path.parts:
            continue
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        problems += [f"{path.relative_to(root)}:{number}: '{word}' was replaced: see {listed.name}"
                     for number, line in enumerate(lines, 1) for word in pattern.findall(line)]  # fmt: skip
    return problems


def comment_blocks(path):
    """(line, text) of the first comment of each block: comments on consecutive lines, at one column, with one marker."""
    marker = r"//[/<]*|/\*" if path.suffix in SOURCES | {".c"} else "#"
    comment = re.compile(rf"(?<!\S)({marker})(?!\S)\s*(.*)")
    before = None
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = comment.search(line)
        code = line[: found.start()] if found else ""
        place = (found[1], len(code)) if found and code.count('"') % 2 == 0 else None  # else it is in a string
        if place and (code.strip() or place != before):
            yield number, found[2]
        before = place


def fragments(root):
    problems = []
    for path in files(root):
        name = path.relative_to(root)
        if path.suffix not in COMMENTED and path.name != "CMakeLists.txt" or str(name.parent) in EXEMPT or "corpus" in name.parts:
            continue
        problems += [f"{name}:{number}: a comment is a sentence: it cannot begin with '{FRAGMENT.match(text)[0]}': {text}"
                     for number, text in comment_blocks(path) if FRAGMENT.match(text)]  # fmt: skip
    return problems


CHECKS = {"folders": crowded_folders, "circles": circles, "words": old_words, "comments": fragments}


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems = [problem for name in sys.argv[2:] or CHECKS for problem in CHECKS[name](root)]
    print("\n".join(problems[:60]) or "the structure is correct")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
