#!/usr/bin/env python3
"""Writes single_include/opkit: one header for each umbrella of include/opkit. Each holds the
umbrella of its name (op.hpp: plugin/author.hpp) and every header that it reaches, each once, in
include order, guards and comments kept, then their definitions. The results depend on the headers alone: no
date, no hash.

  amalgamate.py                   regenerates the single headers
  amalgamate.py --check           compares them with the committed ones; exits 1 with a short diff
  amalgamate.py --forwarding DIR  fills DIR/opkit so that, with DIR first on the include path, every
                                  header that a single header contains is the smallest such one
"""
import argparse
import difflib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
OUTPUT = ROOT / "single_include" / "opkit"
# The single headers and what each holds, the smallest first. op.hpp is last, as its macros make a
# unit one of a library.
UMBRELLAS = ("opkit", "functions", "profile", "graph", "partition", "plugin", "all")
SINGLE = {**{f"{name}.hpp": f"opkit/{name}.hpp" for name in UMBRELLAS},
          "op.hpp": "opkit/plugin/author.hpp"}

DIRECTIVE = re.compile(r'^[ \t]*#[ \t]*(if|ifdef|ifndef|endif|include)\b[ \t]*([<"][^>"]+[>"])?')
DEFINITIONS = re.compile(r'#ifdef OPKIT_DEFINITIONS\n((?:#include "[^"]+"\n)+)#endif\n')

BANNER = """\
// opkit in one file, generated from include/opkit by single_include/amalgamate.py: change the
// headers, not this file. It holds {umbrella} and all that it includes; another single
// header, or a header of the same checkout, may be included beside it, in any order. Declarations
// come first, then the definitions, which a program that defines OPKIT_COMPILED leaves to the one
// unit that defines OPKIT_IMPLEMENTATION.
#ifndef {guard}
#define {guard}

{std}
{body}
#ifdef OPKIT_DEFINITIONS
{definitions_std}
{definitions}
#endif  // OPKIT_DEFINITIONS

#endif  // {guard}
"""


class Amalgamation:
    def __init__(self, umbrella, guard):
        self.umbrella, self.guard = umbrella, guard
        self.conditional_ones = set()  # what stands under a condition of its includer's
        self.visited = []  # in order of completion, which is the order in the file
        self.started = set()
        self.std = set()  # unconditional <...> includes, hoisted to the top
        self.sections = []
        self.definitions = []  # (.ipp, the condition that its header stands under) in that order
        self.add(umbrella)
        self.declarations, self.sections = self.sections, []
        self.declared, declared_std = set(self.visited), self.std
        self.std = set()
        while self.definitions:  # what a definition includes may bring definitions of its own
            # Those under a condition last: what they include stands under it too.
            self.definitions.sort(key=lambda one: one[1] is not None)
            name, condition = self.definitions.pop(0)
            if name in self.started:
                continue
            if condition:
                self.started |= present(condition)
            self.add(name, condition)
        self.definitions_std = self.std - declared_std
        self.std = declared_std

    def add(self, header, condition=None):
        self.started.add(header)
        lines = []
        depth = 0  # 1 inside the guard, 2 and more inside a conditional of the header's own
        conditions = []
        text = (INCLUDE / header).read_text()
        for line in DEFINITIONS.sub("", text).splitlines():
            match = DIRECTIVE.match(line)
            kind, target = match.groups() if match else (None, None)
            if kind in ("if", "ifdef", "ifndef"):
                depth += 1
                conditions.append(line)
            elif kind == "endif":
                depth -= 1
                conditions.pop()
            if kind != "include" or not target:
                lines.append(line)
            elif target.startswith("<"):
                if depth > 1:
                    lines.append(line)
                else:
                    self.std.add(target)
            elif depth <= 1:
                if target[1:-1] not in self.started:
                    self.add(target[1:-1], condition)
            elif depth > 2:
                raise SystemExit(f"{header} includes {target} under two conditions: one alone goes "
                                 "with it to its definitions")
            elif target[1:-1] not in self.visited:
                lines += self.conditional(header, target[1:-1], conditions[-1])
        for block in DEFINITIONS.findall(text):
            self.definitions += [(name, condition) for name in re.findall('"(.*)"', block)]
        if condition:
            self.conditional_ones.add(header)
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        if condition:
            text = f"{condition}\n{text}\n#endif"
        self.sections.append(f"// ---- {header}\n{text}\n")
        self.visited.append(header)

    def conditional(self, header, target, condition):
        """The lines of a header that is included under an #if: nothing may depend on it."""
        before = list(self.visited)
        self.conditional_ones.add(target)
        started, self.started = self.started, self.started | present(condition)
        known = len(self.definitions)
        self.add(target)
        self.definitions[known:] = [(name, condition) for name, _ in self.definitions[known:]]
        self.started = started | {target}
        if len(self.visited) != len(before) + 1:
            raise SystemExit(f"{header} includes {target} under a condition: include what {target} "
                             "needs without one, before it, or others will lack it")
        return self.sections.pop().splitlines()

    def text(self):
        std, definitions_std = ("".join(f"#include {name}\n" for name in sorted(names))
                                for names in (self.std, self.definitions_std))
        return BANNER.format(umbrella=self.umbrella, guard=self.guard, std=std,
                             body="\n".join(self.declarations),
                             definitions_std=definitions_std,
                             definitions="\n".join(self.sections))


def reach(header):
    """The includes of a header under any condition."""
    seen, todo = {header}, [header]
    while todo:
        path, depth = INCLUDE / todo.pop(), 0
        for line in path.read_text().splitlines() if path.exists() else ():
            match = DIRECTIVE.match(line)
            kind, target = match.groups() if match else (None, None)
            depth += (kind in ("if", "ifdef", "ifndef")) - (kind == "endif")
            if kind == "include" and target and target[0] == '"' and depth <= 1:
                todo += {target[1:-1]} - seen
                seen.add(target[1:-1])
    return seen


def present(condition):
    """What is there wherever a condition on guards holds: a library's unit may include an umbrella
    and op.hpp, and what is included for both finds the headers of both."""
    guards = [] if condition.startswith("#ifndef") else re.findall(r"\bOPKIT_\w+_HPP_\b", condition)
    headers = (path.relative_to(INCLUDE).as_posix() for path in (INCLUDE / "opkit").rglob("*.hpp"))
    return set().union(*(reach(header) for header in headers if guard_of(header) in guards))


def guard_of(header):
    return re.sub(r"\W", "_", header).upper() + "_"


def amalgamate(name):
    return Amalgamation(SINGLE[name], f"OPKIT_SINGLE_INCLUDE_{guard_of(name)}")


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_forwarding(folder, outputs):
    """`outputs`: the single headers, each with the headers that it holds; the first one counts.
    C headers and headers outside of them are copied: what they include is found in the same folder
    again, since every name in it is "opkit/..."."""
    expected = set()
    for path in sorted([*(INCLUDE / "opkit").rglob("*.h*"), *(INCLUDE / "opkit").rglob("*.ipp")]):
        header = path.relative_to(INCLUDE).as_posix()
        holders = [output for output, held in outputs.items()
                   if header in held and not header.endswith(".h")]
        expected.add(folder / header)
        write_if_changed(folder / header,
                         f'#include "{holders[0]}"\n' if holders else path.read_text())
    present = {p for p in (folder / "opkit").rglob("*") if p.is_file()}
    for stale in present - expected:
        stale.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed files")
    parser.add_argument("--forwarding", metavar="DIR", type=Path, help="write forwarding headers")
    options = parser.parse_args()
    results = {OUTPUT / name: amalgamate(name) for name in SINGLE}
    texts = {output: result.text() for output, result in results.items()}
    for output, text in texts.items() if options.check else ():
        committed = output.read_text() if output.exists() else ""
        if committed != text:
            diff = list(difflib.unified_diff(committed.splitlines(), text.splitlines(), "committed",
                                             "generated", lineterm="", n=1))
            print("\n".join(diff[:30]))
            sys.exit(f"{output.relative_to(ROOT)} is stale ({len(diff)} lines of diff): run "
                     "single_include/amalgamate.py and commit the result")
    if options.forwarding:
        write_forwarding(options.forwarding.resolve(),
                         {output: set(result.visited) - result.conditional_ones
                          for output, result in results.items()})
    elif not options.check:
        for output, text in texts.items():
            write_if_changed(output, text)


if __name__ == "__main__":
    main()
