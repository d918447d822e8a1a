#!/usr/bin/env python3
"""Tests README and docs/: their C++ is in the examples or compiles, their commands run, their links lead somewhere.

usage: docs_test.py ROOT. A comment above each fence of C or C++ says how it is checked:
  <!-- FILE -->                    the file has this text word for word
  <!-- compile: statements -->     it compiles in a function, after all.hpp, `using namespace opkit`
  <!-- compile: declarations -->   it compiles in a namespace, likewise
  <!-- compile: library -->        it compiles as a unit of a library, after op.hpp
Its #include lines stand before all of the unit's code.
The commands of a fence under `<!-- run -->` run in a copy of the needed folders and must exit with 0.
They compile at -O0 to save time. Commands that compile the runtime in a unit of its own run first. The
first header-only program compiles by its own line. The others would compile the same runtime again:
they link such a unit of the same folder of headers, if there is one. Commands with nvcc run where this
machine has it.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1]).resolve()
cxx = os.environ.get("CXX", "g++")
failed = []
checked = 0
INCLUDES = ["opkit/all.hpp", "opkit/op/check.hpp"]
unit = [f"#include <{header}>" for header in INCLUDES] + ["using namespace opkit;"]
library_unit = ["#include <opkit/op.hpp>", "#include <algorithm>", "#include <thread>",
                "using namespace opkit;"]
include = re.compile(r"^#include .*$", re.M)
fence = re.compile(r"(?:<!-- ([^\n]+?) -->\n)?```(\w*)\n(.*?)```", re.S)
header_only = re.compile(
    r"^(?:g\+\+|nvcc) (?!.*(?: -c | -shared | -DOPKIT_COMPILED )).* -I(\S+) \S+\.(?:cpp|cu)(?= -o )", re.M)
runs = []
if "CUDACXX" in os.environ:  # the nvcc that ./dev has found
    os.environ["PATH"] += os.pathsep + str(pathlib.Path(os.environ["CUDACXX"]).parent)


def anchors(target):
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", target.read_text(), flags=re.S), re.M)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
for page in pages:
    name = page.relative_to(root).as_posix()
    text = page.read_text()
    for what, language, code in fence.findall(text):
        if language in ("c", "cpp") and not what:
            failed.append(f"{name}: this code stands under no comment that says how it is checked:\n"
                          f"{code}")
        if not what:
            continue
        checked += 1
        if what == "run":
            if not code.startswith("nvcc ") or shutil.which("nvcc"):
                runs.append((name, code))
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
    for path, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
        checked += 1
        target = page.parent / path if path else page
        if not target.exists():
            failed.append(f"{name} links to {path}, which does not exist")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            failed.append(f"{name} links to {path}#{anchor}, but no heading there has that anchor")


def link_runtime(line):
    """A header-only line as one that links the runtime, if its folder of headers has one by now."""
    runtime = pathlib.Path(f"{line[1]}.o").absolute()
    return f"{line[0]} -DOPKIT_COMPILED {runtime}" if runtime.exists() else line[0]


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    literal = next((code for _, code in runs if header_only.search(code)), None)
    for name, code in sorted(runs, key=lambda run: " -c opkit.cpp" not in run[1]):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            for copied in ("examples", "include", "single_include"):
                shutil.copytree(root / copied, pathlib.Path(place) / copied)
            lines = code if code == literal else header_only.sub(link_runtime, code)
            if subprocess.run(["sh", "-ec", lines.replace("-O2", "-O0")], cwd=place).returncode:
                failed.append(f"{name}: this command fails:\n{code}")
            for headers in re.findall(r" -I(\S+) -c opkit\.cpp", code):
                runtime = pathlib.Path(place, "opkit.o")
                if runtime.exists():
                    shutil.copy(runtime, f"{headers}.o")
    os.chdir(root)
for lines in (unit, library_unit):
    run = subprocess.run([cxx, "-std=c++20", "-fsyntax-only", "-DOPKIT_COMPILED", f"-I{root}/include",
                          "-x", "c++", "-"], input="\n".join(lines), text=True, capture_output=True)
    if run.returncode:
        failed.append("code of the pages does not compile:\n" + run.stderr[:3000])
if checked < 5:
    failed.append(f"only {checked} fences and links found: has the pages' form changed?")
print("\n".join(failed) or f"{checked} fences and links of {len(pages)} pages are right")
sys.exit(bool(failed))
