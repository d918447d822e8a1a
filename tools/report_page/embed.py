#!/usr/bin/env python3
"""Writes include/opkit/report/impl/page/: the files of this folder as C++ constants, from which a
program writes reports. page.html names the style sheet and the scripts in their order; each
becomes a part of the page, in place of the element that names it.

  embed.py            writes the constants anew
  embed.py --check    compares them with the committed ones; exits 1 and names those that differ
"""
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
OUTPUT = "opkit/report/impl/page"  # under include/
DATA = '<script type="application/json" id="data">'  # a program writes the profile behind it
NAMED = re.compile(r'<link rel="stylesheet" href="([\w.]+)">\n|<script src="([\w.]+)"></script>\n')

TEXT = """\
// Generated from tools/report_page/{source} by embed.py there: change that file.
// clang-format off
#ifndef {guard}
#define {guard}

{includes}

namespace opkit {{ inline namespace OPKIT_INLINE_NAMESPACE {{ namespace detail {{

{body}
}}}}}}  // namespace opkit::detail

#endif  // {guard}
"""


def header(source, file, body, includes='#include "opkit/config.hpp"'):
    guard = re.sub(r"\W", "_", f"{OUTPUT}/{file}").upper() + "_"
    return TEXT.format(source=source, guard=guard, includes=includes, body=body)


def constant(name, text):
    assert ')page"' not in text, name
    return f'inline constexpr char {name}[] = R"page({text})page";\n'


def part_of(name, files):
    """Adds the file that holds one style sheet or script, and returns its constant."""
    element = "style" if name.endswith(".css") else "script"
    file = name.replace(".", "_") + ".ipp"
    part = "kPage" + "".join(word.capitalize() for word in name.split("."))
    text = f"<{element}>\n{(FOLDER / name).read_text()}</{element}>\n"
    files[file] = header(name, file, constant(part, text))
    return part


def generate():
    """The text of each generated file by its name."""
    files, parts, body = {}, {"BeforeData": [], "AfterData": []}, ""
    before, after = (FOLDER / "page.html").read_text().split(DATA)
    for place, html in (("BeforeData", before + DATA), ("AfterData", after)):
        end = 0
        for match in [*NAMED.finditer(html), None]:
            between = html[end:match.start() if match else None]
            if between:
                parts[place].append(f"kPage{place}{len(parts[place])}")
                body += constant(parts[place][-1], between)
            if match:
                parts[place].append(part_of(match.group(1) or match.group(2), files))
                end = match.end()
    for place, names in parts.items():
        lines = "".join(f"    {name},\n" for name in names)
        body += f"inline constexpr std::string_view kPage{place}[] = {{\n{lines}}};\n"
    includes = ["opkit/config.hpp", *(f"{OUTPUT}/{file}" for file in sorted(files))]
    includes = "".join(f'\n#include "{name}"' for name in includes)
    files["page.ipp"] = header("page.html", "page.ipp", body, f"#include <string_view>\n{includes}")
    return files


def main():
    folder = ROOT / "include" / OUTPUT
    files = generate()
    if "--check" in sys.argv[1:]:
        there = {path.name: path.read_text() for path in folder.glob("*")}
        stale = sorted(name for name in {*files, *there} if files.get(name) != there.get(name))
        for name in stale:
            print(f"include/{OUTPUT}/{name} is not what tools/report_page/embed.py writes; run it")
        return 1 if stale else 0
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
