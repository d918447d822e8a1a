#!/usr/bin/env python3
"""Runs the Python programs of docs/hosts.md on the library that the page shows.

  hosts_page_test.py PAGE LIBRARY SECTION...   with the library of examples/library/exported.cc

The python fences of a section are one program. It runs in a folder with the library as libmyops.so.
Its lines `print(…)  # TEXT` must print TEXT. docs_test.py compares the page's C++ with the source.
$OPKIT_PAGE_PYTHON runs the programs, else the Python of this test.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PAGE, LIBRARY, *SECTIONS = sys.argv[1:]
# The sections that some test runs; ./dev test export/torch runs that of PyTorch.
TESTED = ["tvm-ffi", "ONNX Runtime", "JAX and XLA", "PyTorch"]


def programs():
    """The programs of the page, by the heading of their section."""
    found = {}
    text = pathlib.Path(PAGE).read_text()
    for heading, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        if code := "".join(re.findall(r"^```python\n(.*?)^```", body, re.M | re.S)):
            found[heading] = code
    return found


class Page(unittest.TestCase):
    def test_each_program_is_run_by_a_test(self):
        self.assertEqual(list(programs()), TESTED)

    def test_programs_print_what_the_page_says(self):
        self.assertTrue(SECTIONS)
        for section in SECTIONS:
            with self.subTest(section), tempfile.TemporaryDirectory() as folder:
                code = programs()[section]
                expected = re.findall(r"^\s*print\(.*\)  # (.+)$", code, re.M)
                self.assertTrue(expected, "the program shows no result")
                (pathlib.Path(folder) / "libmyops.so").symlink_to(pathlib.Path(LIBRARY).resolve())
                python = os.environ.get("OPKIT_PAGE_PYTHON", sys.executable)
                run = subprocess.run([python, "-c", code], cwd=folder, text=True,
                                     capture_output=True, timeout=7200)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stdout.splitlines(), expected)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
