#!/usr/bin/env python3
"""The README and docs/ say what is true: their C++ is in the examples or compiles, their commands run.

usage: docs_test.py ROOT. Each fence of C++ stands under a comment that says how it is checked:
  <!-- FILE -->                    it stands in that file word for word
  <!-- compile: statements -->     it compiles in a function, after opkit.hpp, `using namespace opkit`
  <!-- compile: declarations -->   it compiles in a namespace, likewise
  <!-- compile: library -->        it compiles as a unit of a library, after op.hpp
Its #include lines stand before all of the unit's code.
A fence of another language under `<!-- run -->` must exit with 0, run in a copy of what it needs.
Links to files must lead somewhere.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
cxx = os.environ.get("CXX", "g++")
failed = []
checked = 0
INCLUDES = ["opkit/opkit.hpp", "opkit/op/check.hpp"]
unit = [f"#include <{header}>" for header in INCLUDES] + ["using namespace opkit;"]
library_unit = ["#include <opkit/op.hpp>", "#include <algorithm>", "#include <thread>",
                "using namespace opkit;"]
include = re.compile(r"^#include .*$", re.M)
fence = re.compile(r"(?:<!-- (.+?) -->\n)?```(\w*)\n(.*?)```", re.S)
pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
for page in pages:
    name = page.relative_to(root).as_posix()
    text = page.read_text()
    for what, language, code in fence.findall(text):
        if language == "cpp" and not what:
            failed.append(f"{name}: this C++ stands under no comment that says how it is checked:\n"
                          f"{code}")
        if not what:
            continue
        checked += 1
        if what == "run":
            with tempfile.TemporaryDirectory() as folder:
                for copied in ("examples", "include", "single_include"):
                    shutil.copytree(root / copied, pathlib.Path(folder) / copied)
                quick = code.replace("-O2", "-O0")  # what the compiler optimises is not tested here
                if subprocess.run(["sh", "-ec", quick], cwd=folder).returncode != 0:
                    failed.append(f"{name}: this command fails:\n{code}")
        elif what.startswith("compile: "):
            into = library_unit if what.endswith("library") else unit
            number = len(into)
            line = text[:text.index(code)].count("\n") + 1
            into[1:1] = include.findall(code)
            code = include.sub("", code)
            opens = f"void Snippet{number}() {{" if what.endswith("statements") else \
                f"namespace snippet_{number} {{"
            into += [opens, f'#line {line} "{name}"', code, "}"]
        elif code not in (root / what).read_text():
            failed.append(f"{name} shows code that is not in {what}:\n{code}")
    for path in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", text):
        checked += 1
        if not (page.parent / path).exists():
            failed.append(f"{name} links to {path}, which does not exist")
for lines in (unit, library_unit):
    run = subprocess.run([cxx, "-std=c++20", "-fsyntax-only", "-DOPKIT_COMPILED", f"-I{root}/include",
                          "-x", "c++", "-"], input="\n".join(lines), text=True, capture_output=True)
    if run.returncode:
        failed.append("code of the pages does not compile:\n" + run.stderr[:3000])
if checked < 5:
    failed.append(f"only {checked} fences and links found: has the pages' form changed?")
print("\n".join(failed) or f"{checked} fences and links of {len(pages)} pages are right")
sys.exit(bool(failed))
