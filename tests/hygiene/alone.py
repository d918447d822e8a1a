#!/usr/bin/env python3
"""Every header of the toolkit compiles by itself, twice in one unit, and so does every .ipp: what each
needs it includes. Against the compiled runtime, where a header is declarations and an .ipp the
definitions of one. Header-only they then compile in any order, since no header with its definitions
includes, by whatever way, another one that includes it (`cycles` of check.py).

usage: alone.py PART/PARTS COMPILER FLAGS...  compiles each PARTS-th file, from the PART-th (1) on
       alone.py --self-test COMPILER

Headers of backends/, interop/ and ops/ need the libraries that they are made with: hygiene_twice_*.
"""
import pathlib
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
GLUE = ("backends", "interop", "ops")


def files(include):
    """Their paths below `include`."""
    toolkit = include / "opkit"
    return sorted(path.relative_to(include).as_posix() for path in toolkit.rglob("*")
                  if path.suffix in (".hpp", ".h", ".ipp")
                  and path.relative_to(toolkit).parts[0] not in GLUE)


def problem(path, include, compiler):
    """What the compiler says of it, "" for nothing."""
    run = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", f"-I{include}",
                          "-DOPKIT_COMPILED", "-x", "c++", "-"], input=f'#include "{path}"\n' * 2,
                         capture_output=True, text=True)
    return f"{path} does not compile alone:\n{run.stderr[:2000]}" if run.returncode else ""


def self_test(compiler):
    good = {"opkit/opkit.hpp": '#include "opkit/a.hpp"\n', "opkit/base/c.hpp": "#pragma once\n",
            "opkit/a.hpp": "#pragma once\nint a();\n", "opkit/ops/glue.hpp": "no C++"}
    bad = {"opkit/base/c.hpp": "int c = 1;",  # not twice
           "opkit/a.hpp": "#pragma once\nMissing a();",
           "opkit/impl/a.ipp": "int a() { return missing; }"}
    for place, text in [("", ""), *bad.items()]:
        with tempfile.TemporaryDirectory() as folder:
            for path, content in {**good, **({place: text} if place else {})}.items():
                (pathlib.Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (pathlib.Path(folder) / path).write_text(content)
            found = [path for path in files(pathlib.Path(folder)) if problem(path, folder, compiler)]
        if (place and place not in found) or (not place and found):
            sys.exit(f"with {place or 'nothing wrong'}: found {found}")


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2:])
    part, parts = map(int, sys.argv[1].split("/"))
    chosen = files(INCLUDE)[part - 1::parts]
    problems = [text for path in chosen if (text := problem(path, INCLUDE, sys.argv[2:]))]
    print("\n".join(problems) or f"{len(chosen)} files compile alone")
    return bool(problems)


sys.exit(main())
