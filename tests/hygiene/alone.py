#!/usr/bin/env python3
"""Checks that every header and every .ipp of the toolkit includes all that it uses: each compiles by
itself, twice in one unit. They compile against the compiled runtime, in which a header has declarations
and its .ipp the definitions. Header-only they then compile in any order, because no header includes
itself by way of others (`cycles` of check.py).

A header and its .ipp are one unit. The .ipp includes its header, so that a missing include of the header
shows. Two umbrellas, the headers at the top of include/opkit, are one unit too, in either order.

Headers of backends/, interop/ and ops/ need third-party libraries. The units of such a folder are its
headers without their .ipp, and without headers that name a library that this machine lacks. The operators on
CUDA need nvcc: each has a unit of its own in src/backends/cuda, and one in tests/cuda_fake/emulated. An all.hpp
there only includes the others, which takes up to 20 s: it is in the unit of hygiene_all_of_folders, twice.

PRECOMPILED is a folder of precompiled headers, such as op/kernel.hpp.gch, each beside its header. A unit
begins with the largest of them that its header includes anyway, directly or by way of others. So the unit
gets nothing that it lacks, and most of the time to read headers is saved.

usage: alone.py PART/PARTS PRECOMPILED FOLDER,FOLDER,... COMPILER FLAGS...
           compiles each PARTS-th unit, from the PART-th (1) on; the folders are those of the three
           that are made here: ops,interop,backends/eigen
       alone.py --self-test COMPILER
"""
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
GLUE = ("backends", "interop", "ops")
BY_NVCC = re.compile(r"opkit/backends/cuda/(libraries/|ops/|operators\.hpp)")
OWN = re.compile(r'^#include "([^"]+)"', re.M)
OTHERS = re.compile(r"^ *# *include *<([^>]+)>", re.M)


def glue_headers(include, folders):
    """The headers of the folders, without each all.hpp."""
    for folder in folders:
        for path in sorted((include / "opkit" / folder).rglob("*.h*")):
            header = path.relative_to(include).as_posix()
            if not BY_NVCC.match(header) and path.name != "all.hpp":
                yield header


def units(include, folders=()):
    """Returns the units: lists of paths below `include`, the header first."""
    toolkit = include / "opkit"
    includes = {path.relative_to(include).as_posix(): OWN.findall(path.read_text())
                for path in sorted(toolkit.rglob("*"))
                if path.suffix in (".hpp", ".h", ".ipp")
                and path.relative_to(toolkit).parts[0] not in GLUE}
    definitions = {header: [path for path in paths
                            if path.endswith(".ipp") and header in includes.get(path, ())]
                   for header, paths in includes.items()}
    owned = {path for paths in definitions.values() for path in paths}
    return [[header, *paths] for header, paths in definitions.items() if header not in owned] + \
        [[header] for header in glue_headers(include, folders)]


def pairs(include):
    """The umbrellas, and opkit/op.hpp, two by two."""
    headers = [path.relative_to(include).as_posix() for path in sorted((include / "opkit").glob("*.hpp"))]
    umbrellas = [header for header in headers if header in ("opkit/opkit.hpp", "opkit/op.hpp")
                 or "opkit/opkit.hpp" in included(header, include)]
    return [list(pair) for pair in itertools.permutations(umbrellas, 2)]


def included(header, include):
    """The headers that it includes, directly or by way of others, with the runtime compiled."""
    found, left = set(), [header]
    while left:
        for path in OWN.findall((include / left.pop()).read_text()):
            if not path.endswith(".ipp") and path not in found and (include / path).exists():
                found.add(path)
                left.append(path)
    return found


def beginning(header, include, precompiled):
    """The line that includes a precompiled header: of those that the unit includes, the one that includes most."""
    ready = [path for path in included(header, include) if (precompiled / f"{path}.gch").exists()]
    most = max(ready, key=lambda path: (len(included(path, include)), path), default=None)
    return f'#include "{most}"\n' if most else ""


def problem(unit, include, precompiled, compiler):
    """The compiler's message about the unit, "" if there is none."""
    source = "".join(f'#include "{path}"\n' for path in unit * 2)
    if unit[0].split("/")[1] in ("backends", "interop"):
        for library in OTHERS.findall((include / unit[0]).read_text()):
            source = f"#if __has_include(<{library}>)\n{source}#endif\n"
    source = beginning(unit[0], include, precompiled) + source
    program, *flags = compiler
    if unit[0].split("/")[1] not in GLUE:  # which sees no other library
        flags = [flag for flag in flags if not flag.startswith("-isystem")]
    run = subprocess.run([program, f"-I{precompiled}", *flags, "-std=c++20", "-fsyntax-only",
                          f"-I{include}", "-DOPKIT_COMPILED", "-x", "c++", "-"], input=source,
                         capture_output=True, text=True)
    return (f"{' with '.join(unit)} does not compile alone:\n{run.stderr[:2000]}"
            if run.returncode else "")


def self_test(compiler):
    with_definitions = '#pragma once\nint a();\n#ifdef OPKIT_DEFINITIONS\n' \
                       '#include "opkit/impl/a.ipp"\n#endif\n'
    good = {"opkit/opkit.hpp": '#include "opkit/a.hpp"\n#undef OPKIT_HPP\n#define OPKIT_HPP\n',
            "opkit/op.hpp": "#pragma once\n", "opkit/base/c.hpp": "#pragma once\n",
            "opkit/a.hpp": with_definitions, "opkit/ops/glue.hpp": "no C++",
            "opkit/impl/a.ipp": '#pragma once\n#include "opkit/a.hpp"\nint b() { return a(); }\n',
            "opkit/base/ready.hpp": "#ifndef READY\n#define READY\nint ready();\n#endif\n",
            "opkit/base/uses.hpp": '#include "opkit/base/ready.hpp"\nint uses(int = ready());\n',
            "opkit/interop/fits.hpp": '#include "opkit/base/uses.hpp"\n',
            "opkit/interop/lacks.hpp": "#include <no/such/library.hpp>\n"}
    good["opkit/base/uses.hpp"] = "#pragma once\n" + good["opkit/base/uses.hpp"]
    bad = {"opkit/base/c.hpp": "int c = 1;",  # not twice
           "opkit/a.hpp": "Missing missing();" + with_definitions,
           "opkit/impl/a.ipp": good["opkit/impl/a.ipp"] + "int c() { return missing; }",
           "opkit/op.hpp": "#pragma once\n#ifdef OPKIT_HPP\nMissing missing;\n#endif\n",  # after it
           "opkit/base/uses.hpp": "#pragma once\nint uses(int = ready());\n",
           "opkit/interop/fits.hpp": good["opkit/interop/fits.hpp"] + "int fits = 1;"}
    # Without its header's line an .ipp is a unit of its own, where what it lacks shows.
    alone = {"opkit/impl/a.ipp": "#pragma once\nint b() { return a(); }\n"}
    for place, text in [("", ""), *bad.items(), *alone.items()]:
        with tempfile.TemporaryDirectory() as folder:
            include, precompiled = pathlib.Path(folder, "include"), pathlib.Path(folder, "ready")
            for path, content in {**good, **({place: text} if place else {})}.items():
                (include / path).parent.mkdir(parents=True, exist_ok=True)
                (include / path).write_text(content)
            ready = precompiled / "opkit/base/ready.hpp.gch"
            ready.parent.mkdir(parents=True)
            ready.with_suffix("").symlink_to(include / "opkit/base/ready.hpp")
            subprocess.run([*compiler, "-std=c++20", "-DOPKIT_COMPILED", "-x", "c++-header",
                            include / "opkit/base/ready.hpp", "-o", ready], check=True)
            if beginning("opkit/interop/fits.hpp", include, precompiled) != \
                    ('#include "opkit/base/ready.hpp"\n' if place != "opkit/base/uses.hpp" else ""):
                sys.exit("a unit does not begin with what it includes of the precompiled headers")
            found = [path for unit in units(include, ["interop"]) + pairs(include)
                     if problem(unit, include, precompiled, compiler) for path in unit]
        if (place and place not in found) or (not place and found):
            sys.exit(f"with {place or 'nothing wrong'}: found {found}")


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2:])
    part, parts = map(int, sys.argv[1].split("/"))
    precompiled, folders, compiler = pathlib.Path(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:]
    chosen = (units(INCLUDE, folders) + pairs(INCLUDE))[part - 1::parts]
    problems = [text for unit in chosen if (text := problem(unit, INCLUDE, precompiled, compiler))]
    print("\n".join(problems) or f"{len(chosen)} units compile alone")
    return bool(problems)


sys.exit(main())
