#!/usr/bin/env python3
"""Tests links.py with invented trees: it must name each link that is broken, and no other."""
import pathlib
import tempfile
import unittest

import links


class LinksTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name).resolve()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self):
        return links.broken_links(self.root)[0]

    def test_links_to_what_is_there_are_accepted(self):
        self.write("src/file.h", "")
        self.write("docs/a.md", "# A\n## Two words\n[file](../src/file.h) [folder](../src) [self](#two-words)\n"
                                "[b](b.md#1-a--b-c_d) [web](https://example.org/x.md#y) ![p](<b.md>)\n")  # fmt: skip
        self.write("docs/b.md", "# 1. A & B `c_d`\n[a]( a.md)\n[a](a.md \"title\")\n[r]\n\n[r]: a.md#a\n")
        self.assertEqual(self.problems(), [])

    def test_a_file_that_is_missing_is_named_with_its_line(self):
        self.write("docs/a.md", "# A\n\nsee [b](sub/b.md)\n")
        self.assertEqual(self.problems(), ["docs/a.md:3: sub/b.md: there is no docs/sub/b.md"])

    def test_a_heading_that_is_missing_is_named(self):
        self.write("a.md", "# A\n[b](b.md#there) [b](b.md#not-there) [c](c.txt#x)\n")
        self.write("b.md", "# There\n```sh\n# not there\n```\n")
        self.write("c.txt", "")
        self.assertEqual(self.problems(), ["a.md:2: b.md#not-there: b.md has no heading #not-there",
                                           "a.md:2: c.txt#x: c.txt is not a page with headings"])  # fmt: skip

    def test_paths_that_depend_on_a_server_are_refused(self):
        self.write("a.md", "[x](/docs/b.md)\n[y](../../b.md)\n<img src=\"gone.svg\">\n")
        self.assertEqual([problem.split(": ")[2][:12] for problem in self.problems()],
                         ["the path beg", "the file is ", "there is no "])  # fmt: skip

    def test_code_and_comments_have_no_links(self):
        self.write("a.md", "`[x](gone)`\n```\n[x](gone)\n```\n<!-- [x](gone)\n[x](gone) -->\n~~~\n[x](gone)\n```\n~~~\n"
                           "a list:\n- ``[`x`](gone)``\n")  # fmt: skip
        self.assertEqual(self.problems(), [])

    def test_a_heading_that_occurs_again_has_a_number(self):
        self.write("a.md", "# A\n## B\n## B\n[1](#b) [2](#b-1) [3](#b-2)\n")
        self.assertEqual(self.problems(), ["a.md:4: #b-2: a.md has no heading #b-2"])

    def test_pages_that_the_navigation_lacks_are_named(self):
        self.write("docs/a.md", "# A\n")
        self.write("docs/b.md", "# B\n")
        self.write("mkdocs.yml", "site_name: x\nnav:\n  - A: a.md\n  - C: c.md\n  - S: source/CHANGELOG.md\n")
        self.assertEqual(links.missing_pages(self.root),
                         ["mkdocs.yml: nav has no b.md", "mkdocs.yml: nav names c.md, which docs/ does not have"])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
