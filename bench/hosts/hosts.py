#!/usr/bin/env python3
r"""One operator called by tvm-ffi, ONNX Runtime, JAX, PyTorch, the Python package and C, beside each host's own operator.

usage: hosts.py --work FOLDER --json RESULT --peer-python PYTHON --jax-python PYTHON
                --package FOLDER --package-python PYTHON [--torch-python PYTHON]
                [--only HOST]... [--rounds N] [--seconds S] [--repeat N]

./dev bench hosts makes the Pythons and the package. This program compiles axpy.cc, by the command that an author uses,
and runs in_host.py once for each host and size in the Python that has the host. There all contenders of a host take
turns in one process. A figure is the median of the rounds, a ratio the median of the rounds' ratios, its spread their
middle half. Of --repeat runs, the result has the run with the smallest spread of the ratios. PyTorch is measured only if
the Python of --torch-python can import it.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(HERE.parent))
from record import head, write  # noqa: E402

HOSTS = {"tvm_ffi": "tvm-ffi", "onnxruntime": "ONNX Runtime", "jax": "JAX", "package": "Python package",
         "c_host": "opkit_host.h", "torch": "PyTorch"}
SMALL, LARGE = 3, 1_000_000


def compile_sources(work):
    """{option of in_host.py: file}."""
    work.mkdir(parents=True, exist_ok=True)
    include, made = f"-I{ROOT / 'include'}", {"library": work / "libaxpy.so", "host-loop": work / "libhost_loop.so"}
    subprocess.run(["g++", "-std=c++20", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", include,
                    HERE / "axpy.cc", "-o", made["library"]], check=True)
    subprocess.run(["gcc", "-std=c99", "-O2", "-shared", "-fPIC", include, HERE / "host_loop.c", "-o",
                    made["host-loop"]], check=True)
    return made


def environment(options, host, threads):
    """The variables of a host's process. `threads` 0 leaves the number to the host."""
    env = dict(os.environ)
    for name in ("OPKIT_NUM_THREADS", "OMP_NUM_THREADS"):
        env.pop(name, None)
    if threads:
        env.update(OPKIT_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
    if host == "package":
        env["PYTHONPATH"] = str(options.package)
    return env


def run(options, files, python, host, elements, threads):
    """What in_host.py prints."""
    command = [python, HERE / "in_host.py", host, "--elements", elements, "--threads", threads, "--rounds",
               options.rounds, "--seconds", options.seconds, "--work", options.work,
               *(part for name, path in files.items() for part in (f"--{name}", path))]
    if threads and host == "jax":  # its pool has a thread for each CPU
        command = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[-threads:])), *command]
    ran = subprocess.run([str(part) for part in command], env=environment(options, host, threads), text=True,
                         stdout=subprocess.PIPE)
    if ran.returncode != 0:
        raise RuntimeError(f"in_host.py {host} ended with {ran.returncode}")
    return json.loads(ran.stdout)


def widest(result):
    """The largest spread of a ratio, as a share of the ratio."""
    return max((high - low) / row["ratio"]["median"] for row in result["rows"]
               for low, high in [row["ratio"]["middle_half"]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("work", "json", "peer-python", "jax-python", "package", "package-python"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--torch-python", type=pathlib.Path, help="default: the peer's, which has none")
    parser.add_argument("--only", action="append", choices=HOSTS)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a slice")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    files = compile_sources(options.work)
    [files["host-library"]] = (options.package / "opkit" / "lib").glob("libopkit.so.*")
    pythons = {"tvm_ffi": options.peer_python, "onnxruntime": options.peer_python, "jax": options.jax_python,
               "package": options.package_python, "c_host": options.peer_python, "torch": options.torch_python or options.peer_python}

    rows, versions, not_measured, failures = [], {}, {}, []
    for host, name in HOSTS.items():
        if options.only and host not in options.only:
            continue
        if host == "torch" and platform.machine() != "x86_64":
            not_measured[name] = "not a processor of x86"
            continue
        for elements, threads in ((SMALL, 0), (LARGE, 1), (LARGE, 2)):
            try:
                results = [run(options, files, pythons[host], host, elements, threads) for _ in range(options.repeat)]
            except RuntimeError as failure:
                failures.append(str(failure))
                continue
            if "not_measured" in results[0]:
                not_measured[name] = results[0]["not_measured"]
                break
            result = min(results, key=widest)
            versions[name] = result["version"]
            for row in result["rows"]:
                rows.append({"host": name, "elements": elements, "threads": threads, **row})
                print(f"{name}, {row['call']}, {elements}, {threads or 'own'} threads: {row['ns']['median']:.0f} ns, "
                      f"{row['ratio']['median']:.3f} of {row['peer']}", flush=True)
    write(options.json, {
        "head": {**head(f"./dev bench hosts ({options.rounds} rounds of {options.seconds:g} s, the steadiest of "
                        f"{options.repeat} runs)"),
                 "hosts": ", ".join(f"{name} {version}" for name, version in versions.items())},
        "rows": rows, "not_measured": not_measured, "failures": failures})
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
