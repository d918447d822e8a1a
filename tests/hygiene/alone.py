#!/usr/bin/env python3
"""Every header of the toolkit compiles by itself, twice in one unit, and so does every .ipp: what each
needs it includes. Against the compiled runtime, where a header is declarations and an .ipp the
definitions of one; those that opkit.hpp names compile header-only too, both together.

usage: alone.py PART/PARTS COMPILER FLAGS...  compiles each PARTS-th file, from the PART-th (1) on
       alone.py --self-test COMPILER

Headers of backends/, interop/ and ops/ need the libraries that they are made with: hygiene_twice_*.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
GLUE = ("backends", "interop", "ops")
MODES = {"compiled": ["-DOPKIT_COMPILED"], "header-only": []}


def files(include):
    """(path below `include`, mode) of each."""
    toolkit = include / "opkit"
    own = sorted(path.relative_to(include).as_posix() for path in toolkit.rglob("*")
                 if path.suffix in (".hpp", ".h", ".ipp")
                 and path.relative_to(toolkit).parts[0] not in GLUE)
    umbrella = (toolkit / "opkit.hpp").read_text()
    named = ["opkit/opkit.hpp", *re.findall(r'^#include "(opkit/[^"]+)"', umbrella, re.M)]
    return [(path, "compiled") for path in own] + [(path, "header-only") for path in named]


def problem(path, mode, include, compiler):
    """What the compiler says of it, "" for nothing."""
    run = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", f"-I{include}", *MODES[mode],
                          "-x", "c++", "-"], input=f'#include "{path}"\n' * 2,
                         capture_output=True, text=True)
    return f"{path} does not compile alone, {mode}:\n{run.stderr[:2000]}" if run.returncode else ""


def self_test(compiler):
    good = {"opkit/opkit.hpp": '#include "opkit/a.hpp"\n', "opkit/base/c.hpp": "#pragma once\n",
            "opkit/a.hpp": "#pragma once\nint a();\n#ifndef OPKIT_COMPILED\nint b();\n#endif\n",
            "opkit/ops/glue.hpp": "no C++"}
    bad = {"opkit/base/c.hpp": ("int c = 1;", "compiled"),  # not twice
           "opkit/a.hpp": ("#ifndef OPKIT_COMPILED\nMissing a();\n#endif", "header-only"),
           "opkit/impl/a.ipp": ("int a() { return missing; }", "compiled")}
    for place, (text, mode) in [("", ("", "")), *bad.items()]:
        with tempfile.TemporaryDirectory() as folder:
            for path, content in {**good, **({place: text} if place else {})}.items():
                (pathlib.Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (pathlib.Path(folder) / path).write_text(content)
            found = [(path, of) for path, of in files(pathlib.Path(folder))
                     if problem(path, of, folder, compiler)]
        expected = [(place, mode)] if place else []
        if not set(expected) <= set(found) or (not place and found):
            sys.exit(f"with {place or 'nothing wrong'}: found {found}, expected {expected}")


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2:])
    part, parts = map(int, sys.argv[1].split("/"))
    chosen = files(INCLUDE)[part - 1::parts]
    problems = [text for path, mode in chosen if (text := problem(path, mode, INCLUDE, sys.argv[2:]))]
    print("\n".join(problems) or f"{len(chosen)} files compile alone")
    return bool(problems)


sys.exit(main())
