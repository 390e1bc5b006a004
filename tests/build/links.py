#!/usr/bin/env python3
"""Checks that every relative link in the Markdown files of the tree names a file that exists, and every #anchor a
heading of that file; and that the navigation of the documentation's site has every page of docs/.

    links.py ROOT"""
import pathlib
import re
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/docs_site"))
import markdown_links  # noqa: E402

SKIPPED = {".git", "build", "runs", "__pycache__", ".cache", "node_modules"}


def pages(root):
    for path in sorted(root.rglob("*.md")):
        if not any(part in SKIPPED for part in path.relative_to(root).parts):
            yield path


def problem_with(root, page, target, texts):
    """The error in a link, or None."""
    path, _, anchor = target.partition("#")
    path = urllib.parse.unquote(path)
    if path.startswith("/"):
        return "the path begins at the root of a site; name it from this page"
    found = page if not path else (page.parent / path).resolve()
    if root != found and root not in found.parents:
        return "the file is outside of the tree"
    if not found.exists():
        return f"there is no {found.relative_to(root)}"
    if not anchor:
        return None
    if found.suffix != ".md":
        return f"{found.relative_to(root)} is not a page with headings"
    if found not in texts:
        texts[found] = markdown_links.anchors(found.read_text())
    if urllib.parse.unquote(anchor) not in texts[found]:
        return f"{found.relative_to(root)} has no heading #{anchor}"
    return None


def broken_links(root):
    texts, problems, count = {}, [], 0
    for page in pages(root):
        text = page.read_text()
        for link in markdown_links.links(text):
            if markdown_links.is_external(link.target):
                continue
            count += 1
            problem = problem_with(root, page, link.target, texts)
            if problem is not None:
                line = text.count("\n", 0, link.begin) + 1
                problems.append(f"{page.relative_to(root)}:{line}: {link.target}: {problem}")
    return problems, count


def missing_pages(root):
    """Pages of docs/ that the navigation of the site lacks, and the other way round."""
    config = root / "mkdocs.yml"
    if not config.exists():
        return []
    navigation = config.read_text().partition("\nnav:")[2]
    named = {name for name in re.findall(r"[\w./-]+\.md\b", navigation) if not name.startswith("source/")}
    there = {str(path.relative_to(root / "docs")) for path in (root / "docs").rglob("*.md")}
    return [f"mkdocs.yml: nav has no {name}" for name in sorted(there - named)] + [
        f"mkdocs.yml: nav names {name}, which docs/ does not have" for name in sorted(named - there)
    ]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems, count = broken_links(root)
    problems += missing_pages(root)
    print("\n".join(problems[:60]) or f"{count} relative links name what is there")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
