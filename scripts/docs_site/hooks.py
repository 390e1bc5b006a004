"""Hooks of mkdocs (see mkdocs.yml): what pages of docs/ link to elsewhere in the repository becomes a part of the site,
below source/: other pages as they are, sources and folders as pages of their own. So the sources in docs/ have the
links that a code host needs, and the site has no link that leaves it."""

import os
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import markdown_links  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = {".c": "c", ".h": "cpp", ".hpp": "cpp", ".cpp": "cpp", ".cu": "cpp", ".py": "python", ".sh": "sh",
             ".toml": "toml", ".json": "json", ".cmake": "cmake", ".sbatch": "sh", ".Dockerfile": "docker"}  # fmt: skip
PICTURES = {".svg", ".png"}
MAX_SOURCE_BYTES = 200_000

_uri_of = {}  # path in the repository: path in the site's sources
_path_of = {}  # the other way round


def resolve(path, target):
    """The path in the repository that a link on the page `path` names, and its anchor."""
    name, _, anchor = target.partition("#")
    if not name:
        return path, anchor
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    readme = posixpath.join(found, "README.md")
    return (readme if (ROOT / readme).is_file() else found), anchor


def site_uri(path):
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    full = ROOT / path
    if full.is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if full.suffix in PICTURES or full.suffix == ".md" else f"source/{path}.md"


def folder_text(path):
    rows = []
    for entry in sorted((ROOT / path).iterdir()):
        if entry.is_file() and not entry.name.startswith("."):
            rows.append(f"- [{entry.name}]({entry.name})")
    return f"# {path}\n\n" + "\n".join(rows) + "\n"


def source_text(path):
    full = ROOT / path
    size = full.stat().st_size
    if size > MAX_SOURCE_BYTES:
        return f"# {path}\n\nThis file has {size} bytes; it is in the repository.\n"
    fence = "~" * 8
    return f"# {path}\n\n{fence}{LANGUAGES.get(full.suffix, 'text')}\n{full.read_text()}\n{fence}\n"


def text_of(path):
    """The text of the site's page for a file or folder of the repository."""
    full = ROOT / path
    if full.is_dir():
        return folder_text(path)
    return full.read_text() if full.suffix == ".md" else source_text(path)


def linked_from(path):
    """Where the links of a page lead. Only of Markdown: a source has none."""
    if not path.endswith(".md") and not (ROOT / path).is_dir():
        return []
    at = f"{path}/" if (ROOT / path).is_dir() else path
    return [resolve(at, link.target)[0] for link in markdown_links.links(text_of(path))
            if not markdown_links.is_external(link.target)]  # fmt: skip


def navigated(navigation):
    """The pages below source/ that the navigation names."""
    for entry in navigation if isinstance(navigation, list) else [navigation]:
        if isinstance(entry, dict):
            for value in entry.values():
                yield from navigated(value)
        elif isinstance(entry, str) and entry.startswith("source/"):
            yield entry.removeprefix("source/")


def on_files(files, config):
    _uri_of.clear()
    waiting = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")] + list(navigated(config.nav))
    while waiting:
        path = waiting.pop()
        if path in _uri_of or not (ROOT / path).exists():
            continue
        _uri_of[path] = site_uri(path)
        if not path.startswith("docs/"):
            if (ROOT / path).suffix in PICTURES:
                files.append(File.generated(config, _uri_of[path], abs_src_path=os.fspath(ROOT / path)))
                continue
            # Search finds the pages of docs/ first, and no sources.
            search = "boost: 0.2" if path.endswith(".md") else "exclude: true"
            files.append(File.generated(config, _uri_of[path], content=f"---\nsearch:\n  {search}\n---\n{text_of(path)}"))
        waiting += linked_from(path)
    _path_of.clear()
    _path_of.update({uri: path for path, uri in _uri_of.items()})
    return files


def with_empty_lines(markdown):
    """The text with empty lines around code and before lists that follow a paragraph at once, which code hosts tell
    apart and Python-Markdown takes as more of the paragraph."""
    lines, seen = markdown.split("\n"), markdown_links.without_code(markdown).split("\n")
    out, in_list, in_code = [], False, False
    for i, line in enumerate(lines):
        is_fence = line.startswith("```") and not seen[i].strip()
        is_item = re.match(r"[ ]{0,3}([-*]|1\.) ", seen[i]) is not None and not in_list
        if (is_item or (is_fence and not in_code)) and out and out[-1].strip():
            out.append("")
        out.append(line)
        in_list = is_item or (in_list and bool(line.strip()))
        if is_fence:
            in_code = not in_code
            if not in_code:
                out.append("")
    return "\n".join(out)


def on_page_markdown(markdown, page, config, files):
    """The same text with links to where the site has their targets."""
    path = _path_of[page.file.src_uri]
    at = f"{path}/" if (ROOT / path).is_dir() else path
    out, end = [], 0
    for link in markdown_links.links(markdown):
        if markdown_links.is_external(link.target) or link.target.startswith("#"):
            continue
        target, anchor = resolve(at, link.target)
        uri = _uri_of.get(target) or (site_uri(target) if (ROOT / target).exists() else None)
        if uri is None:
            continue  # mkdocs reports it
        relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        out += [markdown[end : link.begin], relative + (f"#{anchor}" if anchor else "")]
        end = link.end
    return with_empty_lines("".join(out) + markdown[end:])
