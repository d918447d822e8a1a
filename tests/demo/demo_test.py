#!/usr/bin/env python3
"""Runs the demo on missing, unusual and unreadable files: demo_test.py PROGRAM DATA_FOLDER."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

program = data = None


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "files").mkdir()

    def demo(self, out="out", path=None, more=(), code=0):
        """Runs it on the folder `files`; returns what it wrote."""
        environment = {**os.environ, "PATH": path or os.environ["PATH"]}
        run = subprocess.run([program, "--data", data, "--out", out, *more, "files"], cwd=self.folder,
                             env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, code, f"{run.stdout}\n{run.stderr}")
        return run.stdout + run.stderr

    def test_without_files_large_enough_for_the_model(self):
        for name in (None, "tiny"):
            if name:
                (self.folder / "files" / name).write_text("a")
            with self.subTest(name):
                out = self.demo()
                self.assertIn("identifier: not needed", out)
                self.assertIn("reader_memory.svg", out)

    def test_of_many_files_the_first_and_a_summary(self):
        for number in range(30):
            (self.folder / "files" / f"{number:02}").write_text("a")
        out = self.demo()
        self.assertRegex(out, r"(?m)^19  .*\nand 10 more\n\n30 ")
        self.assertNotRegex(out, r"(?m)^20  ")

    def test_an_operator_out_of_a_library(self):
        out = self.demo()
        self.assertRegex(out, r"(?m)^2 of \d+ run a kernel of libhard_sigmoid\.so, loaded at run "
                         r"time, the first is node \d+:\n  HardSigmoid ")
        out = self.demo(more=["--library", "absent.so"], code=1)
        self.assertIn("demo: expected 'absent.so' to be a shared object, but it does not exist", out)

    def test_links_that_lead_nowhere(self):
        files = self.folder / "files"
        for link, target in (("loop", "loop"), ("a", "b"), ("b", "a"), ("dangling", "absent")):
            (files / link).symlink_to(target)
        (files / "page.md").write_text("# A page\n\nwith a few words in it.\n")
        self.assertRegex(self.demo(), r"(?m)^page\.md  ")

    def test_a_folder_whose_name_the_shell_would_read(self):
        """With a `dot` that only copies: the demo draws into the folder and runs nothing else."""
        tools = self.folder / "tools"
        tools.mkdir()
        dot = tools / "dot"
        dot.write_text('#!/bin/sh\ncat > "${2#-o}"\n')
        dot.chmod(0o755)
        out = "it's $(touch ran); touch ran"
        self.demo(out, f"{tools}:{os.environ['PATH']}")
        drawn = (self.folder / out / "reader_graph.svg").read_text()
        self.assertTrue(drawn.startswith("digraph"), drawn[:80])
        self.assertFalse((self.folder / "ran").exists())


if __name__ == "__main__":
    data = os.path.abspath(sys.argv.pop(2))
    program = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
