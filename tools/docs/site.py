#!/usr/bin/env python3
"""The documentation as a site: README, docs/, the tables of bench/results and the reference of the API, in build/site.

Usage: site.py [--serve]     makes build/site, a folder of pages; --serve shows it at a local port and waits

mkdocs-material comes from the versions in requirements.txt, into build/docs-venv. The pages are copied to
build/site-source with small changes: links to files that are no page of the site become plain text, comments that tests
read are left out, and lists are indented as mkdocs wants them. A link to a page or heading that does not exist ends the
command.
"""
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import venv

import api_reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
VENV = ROOT / "build" / "docs-venv"
REQUIREMENTS = pathlib.Path(__file__).parent / "requirements.txt"

# The sections of the site; `docs` pages that none of them names follow in "More".
SECTIONS = {
    "Operators": ["docs/writing-operators.md", "docs/inference.md", "docs/gradients.md",
                  "docs/state.md", "docs/asynchronous-operators.md", "docs/debugging.md"],
    "Libraries": ["docs/operator-libraries.md", "docs/library-operators.md",
                  "docs/library-lifetime.md", "docs/hosts.md", "docs/c-host.md"],
    "Graphs": ["docs/graphs.md", "docs/command-line.md", "docs/memory-planning.md",
               "docs/partitioners.md", "docs/cluster.md"],
    "Python": ["docs/python.md"],
    "Backends": ["docs/backends.md", "docs/onednn.md", "docs/cuda.md"],
    "Profiler": ["docs/benchmarking.md", "docs/tuning.md", "docs/profiling.md", "docs/profile-tracks.md"],
    "Ported code": ["docs/from-mxnet.md", "docs/from-caffe2.md"],
    "Reference": ["docs/reference.md", "docs/operators.md"],
    "Project": ["docs/architecture.md", "docs/testing.md", "CONTRIBUTING.md", "CHANGELOG.md",
                "SECURITY.md"],
}
CONFIG = """site_name: opkit
site_description: A C++20 toolkit for operators
docs_dir: {source}
site_dir: {site}
use_directory_urls: false
theme:
  name: material
  font: false
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      primary: indigo
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      primary: indigo
  features: [navigation.indexes, navigation.top, toc.follow, search.suggest, content.code.copy]
plugins: [search]
extra_css: [site.css]
markdown_extensions:
  - tables
  - attr_list
  - md_in_html
  - pymdownx.highlight
  - pymdownx.superfences
  - toc:
      permalink: true
      toc_depth: 3
validation:
  links:
    anchors: warn
nav:
{nav}
"""


def pages():
    """The paths of the site's pages, but for those of the API."""
    return ["README.md", *(path for section in SECTIONS.values() for path in section
                           if not path.startswith("docs/")),
            *(path.relative_to(ROOT).as_posix() for folder in ("docs", "bench/results")
              for path in sorted((ROOT / folder).glob("*.md")))]


def site_text(path, text, known):
    """A page of the repository as a page of the site."""
    folder = pathlib.PurePosixPath(path).parent
    text = re.sub(r"^<!-- .*? -->\n", "", text, flags=re.M)

    def link(match):
        name, target, anchor = match[1], match[2], match[3] or ""
        full = posixpath.normpath(posixpath.join(folder, target))
        if full == "bench/results":
            target, full = target.rstrip("/") + "/README.md", "bench/results/README.md"
        return f"[{name}]({target}{anchor})" if full in known else name
    text = re.sub(r"(?<!!)\[([^\]\[]+)\]\(([\w./-]+)(#[\w-]+)?\)", link, text)
    lines, fenced, before = [], False, ""
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        item = re.match(r"( *)(?:[-*]|\d+\.) ", line)
        if not fenced and item:
            if not item[1] and before.strip() and not re.match(r"(?: *(?:[-*]|\d+\.) |  )", before):
                lines.append("")
            line = item[1] + line
        lines.append(line)
        before = line
    return "\n".join(lines)


def title(path):
    found = re.search(r"^# (.+)$", (SOURCE / path).read_text(), re.M)
    return found[1].replace('"', "'")


def navigation():
    def entry(path, indent="      "):
        return f'{indent}- "{title(path)}": {path}'
    lines = ["  - Home: README.md"]
    more = [path for path in pages() if path.startswith("docs/") and
            not any(path in section for section in SECTIONS.values())]
    for name, section in [*SECTIONS.items(), *([("More", more)] if more else [])]:
        lines += [f"  - {name}:", *map(entry, section)]
        if name == "Reference":
            lines.append("  - API:\n      - api/index.md")
            lines += [f'      - "{page}": api/{page}.md' for page in api_reference.PAGES]
    lines += ["  - Benchmarks:", *(entry(path) for path in pages()
                                   if path.startswith("bench/results/"))]
    return "\n".join(lines)


def copy_sources():
    shutil.rmtree(SOURCE, ignore_errors=True)
    known = {*pages(), *(f"api/{page}.md" for page in api_reference.PAGES)}
    for path in pages():
        target = SOURCE / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(site_text(path, (ROOT / path).read_text(), known))
    for picture in [*ROOT.glob("docs/*.png"), *ROOT.glob("docs/*.svg"),
                    *ROOT.glob("bench/results/*.svg")]:
        shutil.copy(picture, SOURCE / picture.relative_to(ROOT))
    (SOURCE / "site.css").write_text(".md-grid { max-width: 76rem; }\n")  # lines of code are 100 wide
    api_reference.write(ROOT, SOURCE / "api")


def mkdocs():
    """The program, after an installation of the packages in requirements.txt."""
    stamp = VENV / "installed.txt"
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        venv.create(VENV, with_pip=True, clear=True)
        subprocess.run([VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check",
                        "--only-binary", ":all:", "--requirement", REQUIREMENTS], check=True)
        stamp.write_text(REQUIREMENTS.read_text())
    return VENV / "bin" / "mkdocs"


def main():
    if sys.argv[1:] not in ([], ["--serve"]):
        sys.exit(__doc__)
    copy_sources()
    config = ROOT / "build" / "mkdocs.yml"
    config.write_text(CONFIG.format(source=SOURCE, site=SITE, nav=navigation()))
    command = ["serve"] if sys.argv[1:] else ["build", "--clean", "--quiet"]
    result = subprocess.run([mkdocs(), *command, "--strict", "--config-file", config],
                            env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"})
    if result.returncode:
        sys.exit(result.returncode)
    print(f"{SITE.relative_to(ROOT)}/index.html is ready")


if __name__ == "__main__":
    main()
