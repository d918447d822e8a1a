"""Makes the wheel of the Python package from a finished build, installs it into a fresh environment and
runs python/tests there. Runs in the environment that has the tools; nothing is downloaded.

  package_test.py --source DIR --build DIR --work DIR --cmake PROGRAM [--define NAME=VALUE]...
                  [--arrays MODULE=PYTHON]...

--arrays: a Python that has a library of arrays, such as jax, for the tests with its arrays.
"""
import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def run(*words, **options):
    print("+", *map(str, words), flush=True)
    subprocess.run([str(w) for w in words], check=True, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("source", "build", "work"):
        parser.add_argument("--" + name, type=Path, required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--define", action="append", default=[])
    parser.add_argument("--arrays", action="append", default=[])
    given = parser.parse_args()
    prefix, wheels, fresh = (given.work / name for name in ("prefix", "wheels", "fresh"))
    for folder in (prefix, wheels, fresh):
        shutil.rmtree(folder, ignore_errors=True)

    run(given.cmake, "--install", given.build, "--prefix", prefix, stdout=subprocess.DEVNULL)
    defines = [f"OPKIT_PREFIX={prefix}", *given.define]
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
        "--disable-pip-version-check", "-w", wheels, f"-Cbuild-dir={given.work / 'objects'}",
        "-Ccmake.build-type=None", *(f"-Ccmake.define.{d}" for d in defines), given.source)

    venv.create(fresh, with_pip=False)
    python = fresh / "bin" / "python"
    site = Path(subprocess.check_output(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        text=True).strip())
    # NumPy and pytest come from the environment of the tools, and libraries of arrays from others with
    # the same NumPy. No environment has opkit.
    folders, arrays = [sysconfig.get_path("purelib")], []
    for name, other in (a.split("=", 1) for a in given.arrays):
        arrays.append(name)
        folders.append(subprocess.check_output(
            [other, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            text=True).strip())
    (site / "tools.pth").write_text("\n".join(folders) + "\n")
    [wheel] = wheels.glob("opkit-*.whl")
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check",
        wheel)
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", given.source / "python" / "tests",
        cwd=given.work, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1",
                             "OPKIT_BUILD_CACHE": str(given.work / "cache"),
                             "OPKIT_TEST_ARRAYS": ",".join(arrays),
                             "OPKIT_TEST_LIBRARIES": str(given.build / "examples" / "library"),
                             "OPKIT_TEST_SOURCE": str(given.source)})


main()
