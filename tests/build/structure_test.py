#!/usr/bin/env python3
"""Tests the check `comments` of structure.py with an invented tree: it must name each comment that is a fragment, and
no other."""
import pathlib
import tempfile
import unittest

import structure

HEADER = """#pragma once
/// Of what this rank has of it.
Shape shape() const;
/// The shape of the part of a tensor that this rank has, by rows
/// of the whole tensor.
Shape part() const;
int n = 0;  ///< with all ranks
const char* url = "a // of b";
"""
SCRIPT = """# Those that are left are removed.
# Of these, none is needed again.
left = []  # the names of files
"""


class FragmentsTest(unittest.TestCase):
    def test_comments_that_begin_as_fragments_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "part.h").write_text(HEADER)
            (root / "clean.py").write_text(SCRIPT)
            self.assertEqual([problem.split(": a comment")[0] for problem in structure.fragments(root)],
                             ["clean.py:1", "part.h:2", "part.h:7"])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
