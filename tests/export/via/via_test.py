#!/usr/bin/env python3
"""Runs `opkit check --via` with the hosts of this Python: via_test.py PROGRAM LIBRARY HOST...

LIBRARY is made of operators.cc. The Python needs the hosts: apache-tvm-ffi and NumPy, onnxruntime, jax.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LIBRARY, *HOSTS = sys.argv[1:]

# What the hosts have no form for, in this library's cases.
REASONS = [
    ("numpy", "DLPack of NumPy arrays has no bfloat16"),
    ("numpy", "tvm-ffi has no complex numbers"),
    ("ort", "ONNX Runtime calls no custom operator on complex64"),
    ("ort", "ONNX Runtime itself refuses dtypes that the operator does not list"),
]


class Via(unittest.TestCase):
    def check(self, *arguments, code=0, **environment):
        run = subprocess.run([PROGRAM, "check", LIBRARY, *arguments], capture_output=True, text=True,
                             env={**os.environ, "PYTHON": sys.executable, **environment}, timeout=250)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout

    def row(self, out, host):
        """The numbers of cases: all, equal, wrong, not carried."""
        return [int(n) for n in re.search(rf"(?m)^{host} .*?((?: +\d+){{4}}) +[\d.-]+ +[\d.-]+ +[\d.-]+$",
                                          out)[1].split()]

    def test_all_results_are_equal(self):
        out = self.check("--via", ",".join(HOSTS))
        self.assertNotIn("not checked", out)
        for host in HOSTS:
            cases, equal, wrong, not_carried = self.row(out, host)
            self.assertEqual(wrong, 0)
            self.assertEqual(cases, equal + not_carried)
            self.assertGreater(equal, 120, out)
        reasons = re.findall(r"(?m)^not carried: (\w+): .*: (.*)$", out)
        expected = [reason for reason in REASONS if reason[0] in HOSTS]
        self.assertEqual(reasons, expected)

    def test_another_result_is_wrong_in_every_host(self):
        # The variable is set in the Python alone.
        out = self.check("--via", ",".join(HOSTS), "--op", "ViaBroken", "--shape", "2x3", code=1,
                         PYTHON=self.python("OPKIT_TEST_BROKEN_HOST=sum"))
        for host in HOSTS:
            self.assertRegex(out, rf"wrong: {host}: ViaBroken\(float32\[2, 3\]\): output 0 has .* "
                             r"instead of .* at \[0, 0\]")

    def test_a_crash_in_a_host_is_the_result_of_its_case(self):
        out = self.check("--via", HOSTS[0], "--op", "ViaBroken", "--shape", "7", code=1,
                         PYTHON=self.python("OPKIT_TEST_BROKEN_HOST=crash"))
        self.assertRegex(out, rf"wrong: {HOSTS[0]}: ViaBroken\(float32\[7\]\): the host crashes: signal 6")

    def python(self, setting):
        path = os.path.join(self.folder.name, "python")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n{setting} exec "{sys.executable}" "$@"\n')
        os.chmod(path, 0o755)
        return path

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
