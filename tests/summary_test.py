#!/usr/bin/env python3
"""Tests summary.py: the counts, and the causes of a failed run."""
import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock
from xml.sax.saxutils import escape, quoteattr

import summary


def totals(passed, failed, skipped=0):
    return (f"[doctest] test cases: {passed + failed} | {passed} passed | {failed} failed | "
            f"{skipped} skipped\n")


def said(case, text):
    return f"TEST CASE:  {case}\n\n/x/y_test.cpp:3: MESSAGE: {text}\n\n"


class Summary(unittest.TestCase):
    def run_on(self, *entries, failures=(), options=()):
        """The exit status and the printed lines for ctest entries (name, status, output)."""
        xml = "".join(f'<testcase name={quoteattr(name)} status="{status}">'
                      f"<system-out>{escape(output)}</system-out></testcase>"
                      for name, status, output in entries)
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "junit.xml"
            report.write_text(f"<testsuite>{xml}</testsuite>")
            printed = io.StringIO()
            allowed = ["slow: path: needs: an hour"]
            with contextlib.redirect_stdout(printed), \
                    mock.patch.object(summary, "allowed_skips", return_value=allowed):
                status = summary.main([*options, *(f"--failed={f}" for f in failures), str(report)])
        return status, printed.getvalue().splitlines()

    def check(self, closing, status, *entries, **more):
        found, lines = self.run_on(*entries, **more)
        self.assertEqual(lines[-1], closing)
        self.assertEqual(found, status)
        return "\n".join(lines)

    def test_doctest_programs_count_as_their_cases_and_other_entries_as_one(self):
        self.check("6 passed, 0 failed", 0,
                   ("base_test", "run", totals(5, 0)), ("example", "run", "fine\n"))

    def test_failures_fail_the_run(self):
        self.check("5 passed, 3 failed", 1,
                   ("base_test", "fail", totals(5, 2)), ("example", "fail", ""))

    def test_a_program_that_dies_without_totals_is_one_failure(self):
        self.check("0 passed, 1 failed", 1, ("base_test", "fail", "Segmentation fault\n"))

    def test_a_sanitizer_s_exit_status_fails_though_every_case_passed(self):
        self.check("3 passed, 1 failed", 1, ("base_test", "fail", totals(3, 0)))

    def test_no_device_and_listed_skips_are_allowed(self):
        output = said("gpu", "skipped: no CUDA device") + said("slow: path", "skipped: an hour")
        text = self.check("1 passed, 0 failed", 0, ("base_test", "run", output + totals(3, 0)))
        self.assertIn("\n2 skipped\n", text)
        text = self.check("1 passed, 0 failed", 0,
                          ("gpu", "run", "skipped: no CUDA device\n"), ("example", "run", ""))
        self.assertIn("\n1 skipped\n", text)

    def test_any_other_skip_fails(self):
        text = self.check("1 passed, 1 failed", 1,
                          ("base_test", "run", said("lazy", "skipped: later") + totals(2, 0)))
        self.assertIn("base_test: lazy: skipped (later), but tests/skips.txt", text)
        self.check("0 passed, 1 failed", 1, ("tool", "run", "skipped: no tool\n"))

    def test_decorated_disabled_and_unrun_tests_fail(self):
        self.check("2 passed, 1 failed", 1, ("base_test", "run", totals(2, 0, skipped=1)))
        self.check("0 passed, 1 failed", 1, ("base_test", "disabled", ""))
        self.check("0 passed, 1 failed", 1, ("base_test", "notrun", ""))

    def test_cases_that_an_emulator_cannot_run_count_as_skipped(self):
        output = "TEST CASE:  slow: path\nskipped: in an emulator, no fork\n"
        text = self.check("2 passed, 0 failed", 0,
                          ("base_test", "run", output + totals(2, 0, skipped=1)))
        self.assertIn("base_test: slow: path: in an emulator, no fork\n1 skipped\n", text)
        self.check("2 passed, 1 failed", 1,
                   ("base_test", "run", output + totals(2, 0, skipped=2)))
        self.check("2 passed, 0 failed", 0,
                   ("base_test", "run", output + totals(2, 0, skipped=7)), options=["--filtered"])

    def test_cases_after_a_crash_fail_as_what_they_are(self):
        crash = "ERROR: test case CRASHED: SIGSEGV\n" + totals(2, 1, skipped=4)
        lines = self.check("2 passed, 5 failed", 1, ("base_test", "fail", crash))
        self.assertIn("4 cases did not run, after the crash of one", lines)
        self.assertNotIn("decorator", lines)

    def test_cases_outside_the_chosen_folder_do_not_count(self):
        self.check("2 passed, 0 failed", 0, ("base_test", "run", totals(2, 0, skipped=7)),
                   options=["--filtered"])
        self.check("0 passed, 1 failed", 1, ("base_test", "run", totals(0, 0, skipped=7)),
                   options=["--filtered"])

    def test_a_run_of_nothing_fails(self):
        self.check("0 passed, 1 failed", 1, ("base_test", "run", totals(0, 0)))
        self.check("0 passed, 1 failed", 1, ("gpu", "run", "skipped: no CUDA device\n"))
        _, lines = self.run_on()
        self.assertIn("no test was run", "\n".join(lines))

    def test_what_failed_before_ctest_counts(self):
        self.check("1 passed, 1 failed", 1, ("base_test", "run", totals(1, 0)),
                   failures=["asan: does not build"])


if __name__ == "__main__":
    unittest.main()
