#!/usr/bin/env python3
"""Tests how conformance_test reads its list. usage: self_test.py CONFORMANCE_TEST"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop()
CASE = "test_image_decoder_decode_bmp_rgb"  # its operator is not built


class List(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.list = pathlib.Path(folder.name) / "skipped.txt"

    def run_with(self, text, *arguments):
        self.list.write_text(text)
        result = subprocess.run([PROGRAM, f"--list={self.list}", *arguments], text=True,
                                capture_output=True)
        return result.returncode, result.stdout

    def test_runs_what_is_built(self):
        code, output = self.run_with("", "test_relu", "test_add")
        self.assertEqual(code, 0, output)
        self.assertIn("2 cases: 2 pass on reference,", output)

    def test_fails_where_a_listed_case_passes(self):
        code, output = self.run_with("test_relu: operator not built: Relu\n", "test_relu")
        self.assertEqual(code, 1)
        self.assertIn("FAILED: test_relu: passes, but is listed as skipped (operator not built: "
                      "Relu)", output)

    def test_fails_where_a_case_cannot_run_and_is_not_listed(self):
        code, output = self.run_with("", CASE)
        self.assertEqual(code, 1)
        self.assertIn(f"FAILED: {CASE}: cannot run (operator not built: ImageDecoder) "
                      "and is not listed", output)

    def test_fails_where_the_reason_is_another(self):
        code, output = self.run_with(f"{CASE}: type not built: string\n",
                                     CASE)
        self.assertEqual(code, 1)
        self.assertIn("is listed as 'type not built: string', but the reason is 'operator not "
                      "built: ImageDecoder'", output)

    def test_accepts_a_case_that_is_listed_with_its_reason(self):
        code, output = self.run_with(f"{CASE}: operator not built: ImageDecoder\n",
                                     CASE)
        self.assertEqual(code, 0, output)
        self.assertIn("1 skipped (operator not built 1), 0 failures", output)

    def test_updates_the_list_for_the_cases_that_it_looked_at(self):
        code, output = self.run_with("test_a_case: kept\ntest_relu: wrong\n", "test_relu",
                                     CASE, "--update")
        self.assertEqual(code, 0, output)
        lines = [line for line in self.list.read_text().splitlines() if line[0] != "#"]
        self.assertEqual(lines, ["test_a_case: kept",
                                 f"{CASE}: operator not built: ImageDecoder"])

    def test_refuses_lines_that_it_cannot_read_and_unknown_options(self):
        code, output = self.run_with("test_relu\n", "test_relu")
        self.assertEqual(code, 1)
        self.assertIn("has the line 'test_relu', expected 'case: reason'", output)
        self.assertEqual(self.run_with("", "--filter")[0], 1)
        self.assertEqual(self.run_with("", "test_no_such_case")[0], 1)


if __name__ == "__main__":
    unittest.main()
