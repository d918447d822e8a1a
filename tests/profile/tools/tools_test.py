#!/usr/bin/env python3
"""Tests programs that tools watch: tools_test.py PROGRAM NVTX_TOOL ITT_TOOL. PROGRAM is what
perfetto/trace_program.cpp is compiled to; it runs in the emulator that OPKIT_TEST_EMULATOR names, if
any. The tools' libraries write down the calls that they receive."""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

program = tools = None


def watched(folder, **libraries):
    """The program's stderr, in an environment that names these libraries."""
    emulator = os.environ.get("OPKIT_TEST_EMULATOR", "").split()
    run = subprocess.run([*emulator, program, folder],
                         env={**os.environ, "OPKIT_TEST_RANGES": folder, **libraries},
                         capture_output=True, text=True, check=True, timeout=60)
    return run.stderr


class Tools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def names(self, tool):
        lines = (pathlib.Path(self.folder) / tool).read_bytes().split(b"\n")
        self.assertEqual(sum(line.startswith(b"+") for line in lines),
                         sum(line == b"-" for line in lines))
        return collections.Counter(line[1:].decode(errors="replace") for line in lines
                                   if line.startswith(b"+"))

    def test_both_are_told_the_spans_that_a_trace_has(self):
        self.assertEqual(watched(self.folder, NVTX_INJECTION64_PATH=tools[0],
                                 INTEL_LIBITTNOTIFY64=tools[1]), "")
        names = self.names("nvtx")
        self.assertEqual(names, self.names("itt"))
        self.assertEqual([names[name] for name in ("Executor::Run", "Increment", "MyOp", "MyOp::load",
                                                   "MyOp::Inner::Increment", "Custom::Throws",
                                                   "outer", "inner")],
                         [3, 6, 3, 3, 3, 3, 1000, 2000])

    def test_a_tool_that_cannot_be_loaded_is_told_and_nothing_else_changes(self):
        said = watched(self.folder, NVTX_INJECTION64_PATH="/nowhere/tool.so")
        self.assertRegex(said, "^opkit: NVTX_INJECTION64_PATH: .*/nowhere/tool.so.*\n$")
        self.assertTrue((pathlib.Path(self.folder) / "trace.json").exists())


if __name__ == "__main__":
    program, tools = sys.argv[1], sys.argv[2:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
