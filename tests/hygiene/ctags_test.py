#!/usr/bin/env python3
"""Editors' indexes see the headers: Universal Ctags, without options for this project, finds every class and
enumeration of include/opkit, and the functions below. Exits 77 where it is not installed."""
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from check import without_comments

INCLUDE = Path(__file__).resolve().parents[2] / "include"
TYPE = re.compile(r"^[ \t]*(?:template\s*<[^;{}]*>\s*)?(class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s*)?"
                  r"(?:OPKIT_\w+\s+)?(?:\w+::)*(\w+)(?=[^;(){}=]*\{)", re.MULTILINE)
DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*", re.MULTILINE)


def tags(files):
    """The (name, kind) of each tag by file."""
    found = {str(file): set() for file in files}
    run = subprocess.run(["ctags", "--options=NONE", "-x", "--_xformat=%N\t%K\t%F", "--c++-kinds=csgfp",
                          "--language-force=C++", "-L", "-"], input="\n".join(found), text=True,
                         capture_output=True, check=True)
    for line in run.stdout.splitlines():
        name, kind, file = line.split("\t")
        found[file].add((name, kind))
    return found


class Ctags(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = [f for f in sorted(INCLUDE.rglob("*")) if f.suffix in (".hpp", ".ipp")]
        cls.tags = tags(cls.files)

    def test_it_finds_the_types_that_the_headers_define(self):
        missing = []
        for file in self.files:
            code = DIRECTIVE.sub("", without_comments(file.read_text(), strings=False))
            for kind, name in TYPE.findall(code):
                if (name, kind.split()[0]) not in self.tags[str(file)]:
                    missing.append(f"{file.relative_to(INCLUDE)}: {kind} {name}")
        self.assertEqual(missing, [])

    def test_it_finds_what_a_program_names_first(self):
        for header, name, kind in [("graph/graph.hpp", "Graph", "class"),
                                   ("graph/executor.hpp", "Executor", "class"),
                                   ("graph/plan.hpp", "Plan", "class"),
                                   ("graph/plan.hpp", "Compile", "prototype"),
                                   ("core/tensor.hpp", "Tensor", "class"),
                                   ("op/operator_base.hpp", "OperatorBase", "class"),
                                   ("op/invoke.hpp", "Invoke", "prototype")]:
            self.assertIn((name, kind), self.tags[str(INCLUDE / "opkit" / header)])


if __name__ == "__main__":
    version = shutil.which("ctags") and subprocess.run(["ctags", "--version"], capture_output=True,
                                                       text=True).stdout
    if "Universal Ctags" not in (version or ""):
        print("skipped: no Universal Ctags")
        sys.exit(77)
    unittest.main()
