#!/usr/bin/env python3
"""Every header of the toolkit compiles by itself, twice in one unit, and so does every .ipp: what each
needs it includes. Against the compiled runtime, where a header is declarations and an .ipp the
definitions of one. Header-only they then compile in any order, since no header with its definitions
includes, by whatever way, another one that includes it (`cycles` of check.py).

A header and its .ipp are one unit: the .ipp includes its header, so that nothing hides behind it.

usage: alone.py PART/PARTS COMPILER FLAGS...  compiles each PARTS-th unit, from the PART-th (1) on
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
OWN = re.compile(r'^#include "([^"]+)"', re.M)


def units(include):
    """Each a list of paths below `include`, the header first."""
    toolkit = include / "opkit"
    includes = {path.relative_to(include).as_posix(): OWN.findall(path.read_text())
                for path in sorted(toolkit.rglob("*"))
                if path.suffix in (".hpp", ".h", ".ipp")
                and path.relative_to(toolkit).parts[0] not in GLUE}
    definitions = {header: [path for path in paths
                            if path.endswith(".ipp") and header in includes.get(path, ())]
                   for header, paths in includes.items()}
    owned = {path for paths in definitions.values() for path in paths}
    return [[header, *paths] for header, paths in definitions.items() if header not in owned]


def problem(unit, include, compiler):
    """What the compiler says of it, "" for nothing."""
    source = "".join(f'#include "{path}"\n' for path in unit * 2)
    run = subprocess.run([*compiler, "-std=c++20", "-fsyntax-only", f"-I{include}",
                          "-DOPKIT_COMPILED", "-x", "c++", "-"], input=source,
                         capture_output=True, text=True)
    return (f"{' with '.join(unit)} does not compile alone:\n{run.stderr[:2000]}"
            if run.returncode else "")


def self_test(compiler):
    with_definitions = '#pragma once\nint a();\n#ifdef OPKIT_DEFINITIONS\n' \
                       '#include "opkit/impl/a.ipp"\n#endif\n'
    good = {"opkit/opkit.hpp": '#include "opkit/a.hpp"\n', "opkit/base/c.hpp": "#pragma once\n",
            "opkit/a.hpp": with_definitions, "opkit/ops/glue.hpp": "no C++",
            "opkit/impl/a.ipp": '#pragma once\n#include "opkit/a.hpp"\nint b() { return a(); }\n'}
    bad = {"opkit/base/c.hpp": "int c = 1;",  # not twice
           "opkit/a.hpp": "Missing missing();" + with_definitions,
           "opkit/impl/a.ipp": good["opkit/impl/a.ipp"] + "int c() { return missing; }"}
    # Without its header's line an .ipp is a unit of its own, where what it lacks shows.
    alone = {"opkit/impl/a.ipp": "#pragma once\nint b() { return a(); }\n"}
    for place, text in [("", ""), *bad.items(), *alone.items()]:
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder)
            for path, content in {**good, **({place: text} if place else {})}.items():
                (include / path).parent.mkdir(parents=True, exist_ok=True)
                (include / path).write_text(content)
            found = [path for unit in units(include) if problem(unit, include, compiler)
                     for path in unit]
        if (place and place not in found) or (not place and found):
            sys.exit(f"with {place or 'nothing wrong'}: found {found}")


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2:])
    part, parts = map(int, sys.argv[1].split("/"))
    chosen = units(INCLUDE)[part - 1::parts]
    problems = [text for unit in chosen if (text := problem(unit, INCLUDE, sys.argv[2:]))]
    print("\n".join(problems) or f"{len(chosen)} units compile alone")
    return bool(problems)


sys.exit(main())
