#!/usr/bin/env python3
"""The installed command-line program: program_test.py PREFIX [unittest's arguments]."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/cli"), str(ROOT / "tools/opkit")]
import manual  # noqa: E402
from onnx_file import FLOAT, model, node, value_info  # noqa: E402

prefix = None


def output(*command, cwd=None):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True, timeout=60, cwd=cwd).stdout


class Program(unittest.TestCase):
    def setUp(self):
        self.program = prefix / "bin/opkit"
        self.manual = prefix / "share/man/man1/opkit.1"
        self.completion = prefix / "share/bash-completion/completions/opkit"

    def commands(self):
        """The names that the program's help lists, and those that their help lists."""
        return [" ".join(command.name) for command in manual.read_commands(self.program)][1:]

    def complete(self, *words):
        """What Tab offers after these words."""
        script = ('source "$1"; shift; COMP_WORDS=(opkit "$@"); COMP_CWORD=$#; _opkit; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return output("bash", "-c", script, "bash", self.completion, *words).split()

    def test_runs_a_model(self):
        self.assertRegex(output(self.program, "--version"), r"\Aopkit \d+\.\d+\.\d+\n\Z")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.onnx"
            path.write_bytes(model([node("Neg", ["x"], ["y"])], [value_info("x", FLOAT, [2])],
                                   [value_info("y", FLOAT, [2])]))
            self.assertRegex(output(self.program, "inspect", path), r"(?m)^nodes\b(.|\n)*\bNeg\b")
            self.assertIn("float32[2]", output(self.program, "run", path, "--random"))

    def test_the_manual_page_has_every_command_and_option(self):
        page = self.manual.read_text()
        self.assertLess({"run", "bench", "inspect", "plan", "ops", "lib", "check", "trace", "trace diff",
                         "partition", "compare"}, {*self.commands(), ""})
        for command in manual.read_commands(self.program)[1:]:
            self.assertIn(f"\n.SS opkit {' '.join(command.name)}\n", page)
            for option in command.option_names():
                if option not in ("-h", "--help"):
                    self.assertRegex(page, rf"(?m)^\.B (.*,)?{re.escape(option.replace('-', chr(92) + '-'))}\b")
        self.assertIn("\n.SH EXIT CODES\n", page)
        if shutil.which("groff"):
            run = subprocess.run(["groff", "-man", "-ww", "-Tutf8", self.manual], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_the_same_help_gives_the_same_files(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, ROOT / "tools/opkit/manual.py", self.program, "--man", "a", "--completion",
                            "b"], cwd=folder, check=True)
            self.assertEqual((pathlib.Path(folder) / "a").read_text(), self.manual.read_text())
            self.assertEqual((pathlib.Path(folder) / "b").read_text(), self.completion.read_text())

    def test_completes_commands_and_options(self):
        top = [name for name in self.commands() if " " not in name]
        self.assertEqual([word for word in self.complete("") if word[0] != "-"], top)
        self.assertEqual(self.complete("ins"), ["inspect"])
        self.assertEqual(self.complete("trace", "d"), ["diff"])
        self.assertEqual(self.complete("run", "model.onnx", "--dump", "dir", "--rep"), ["--repeat", "--report"])
        self.assertEqual(self.complete("trace", "diff", "--by"), ["--by-node"])
        self.assertEqual(self.complete("run", "mod"), [])  # bash offers files


if __name__ == "__main__":
    prefix = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
