#!/usr/bin/env python3
"""Checks and measures the backend "cuda" on this machine's NVIDIA GPU, without network.

usage: gpu.py [--minutes M] [--out FOLDER] | gpu.py --pack [--dlpack FOLDER]

Builds the programs of the preset "gpu", runs the tests that need a device side by side, then the
benchmarks one after the other. Each stage has a limit of time, and a failed stage does not stop the
later ones. Writes build/bench/cuda*.json and bench/results/cuda*.md; --out also copies the JSON and
the log of all stages to a folder, from which `bench/summarize.py FOLDER/*.json` makes the tables
anew elsewhere. Exits with 1 if a stage failed.

--pack writes what nvcc, CMake and this repository lack to build/gpu-pack: headers, the node corpus,
the models, and the programs if `./dev build gpu` has configured build/gpu, which is then brought up
to date. A machine without the packages gets that folder beside the source.
"""
import argparse
import concurrent.futures
import hashlib
import io
import json
import lzma
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "data"))
import fetch  # noqa: E402
import record  # noqa: E402

BUILD = ROOT / "build" / "gpu"
PACK = ROOT / "build" / "gpu-pack"
UNPACKED = ROOT / "build" / "gpu-unpacked"
MOST_BYTES = 45 << 20
TOOLKIT = pathlib.Path("/usr/local/cuda")

# Each program by its target, below build/gpu.
PROGRAMS = {
    "backends_cuda_test": "tests/backends_cuda_test",
    "cuda_device_conformance_test": "tests/cuda_device/cuda_device_conformance_test",
    "cuda_device_models_test": "tests/cuda_device/cuda_device_models_test",
    "cuda_device_cases_test": "tests/cuda_device/cuda_device_cases_test",
    "cuda_bench": "bench/cuda/cuda_bench",
    "cuda_operators_bench": "bench/cuda/cuda_operators_bench",
    "cuda_models_bench": "bench/cuda/cuda_models_bench",
}
LIBRARY = "tests/libopkit_cuda_library.so"  # which backends_cuda_test loads
# The cases of cuda_device_models_test that need a package of data/wheels.json.
CASES_OF = {"magika": "magika*", "rapidocr_onnxruntime": "the model of rapidocr*",
            "silero_vad": "silero*", "onnx": "light models with weights*"}
# The node tests whose kernels share memory between threads.
RACES = ["test_*softmax*", "test_reduce_*", "test_*normalization*", "test_top_k*", "test_cum*"]


# --- packing

def files_below(folder, wanted=lambda path: True):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and wanted(path)]


def packages():
    """{the place in the prefix: the file} of the headers and libraries that the programs need."""
    usr, out = pathlib.Path("/usr"), {}
    lib = usr / "lib" / f"{platform.machine()}-linux-gnu"
    chosen = [usr / "include/doctest/doctest.h", *files_below(usr / "include/protozero"),
              *files_below(usr / "include/eigen3/Eigen"), *files_below(usr / "share/eigen3/cmake"),
              *files_below(usr / "include/benchmark"), *lib.glob("libbenchmark*"),
              *files_below(lib / "cmake/benchmark")]
    for path in chosen:
        out[path.relative_to(usr).as_posix()] = path
    return out


def data_folder():
    return pathlib.Path(os.environ.get("OPKIT_DATA_DIR", ROOT / "build" / "data"))


def wheels():
    return json.loads((ROOT / "data" / "wheels.json").read_text())


def fingerprint():
    """Of all that the programs are made from."""
    digest = hashlib.sha256()
    for top in ("CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src", "tests", "bench/cuda",
                "examples/library"):
        path = ROOT / top
        for file in [path] if path.is_file() else files_below(path, lambda p: "__pycache__" not in p.parts):
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def archive(files):
    """A compressed archive of {name: file}, as bytes."""
    out = io.BytesIO()
    # The programs share most of their code, so the dictionary has room for several of them.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]
    with lzma.open(out, "wb", filters=filters) as compressed, tarfile.open(fileobj=compressed, mode="w|") as tar:
        for name, path in sorted(files.items()):
            tar.add(path, arcname=name, recursive=False)
    return out.getvalue()


def build_command():
    """Lines of a shell that build the programs in build/gpu, once it is configured."""
    # cuda_device_cases_test is only there if tests/cuda_fake/operators has such cases.
    return ("ninja -C build/gpu build.ninja\n"
            f"targets=$(ninja -C build/gpu -t targets all | grep -oE '^({'|'.join(PROGRAMS)}): ' | tr -d ':\\n')\n"
            f"cmake --build build/gpu -j {os.environ.get('JOBS', os.cpu_count())} --target $targets -- -k 0")


def built_programs():
    """{the place below build/gpu: the file} of the programs, or None unless they are of these sources."""
    stamp = BUILD / "fingerprint"
    if not stamp.exists() or stamp.read_text() != fingerprint():
        return None
    names = [*PROGRAMS.values(), LIBRARY, "fingerprint"]
    return {name: BUILD / name for name in names if (BUILD / name).exists()}


def programs_to_pack():
    """The programs, brought up to date, or the reason why there are none."""
    if not (BUILD / "CMakeCache.txt").exists():
        return "build/gpu is not configured (./dev build gpu)"
    before = fingerprint()
    if subprocess.run(["bash", "-ec", build_command()], cwd=ROOT).returncode != 0:
        return "they do not build"
    (BUILD / "fingerprint").write_text(before)
    programs = built_programs()
    if programs is None:
        return "the sources changed meanwhile"
    if shutil.which("strip"):
        for path in programs.values():
            if path.name != "fingerprint":
                subprocess.run(["strip", path], stderr=subprocess.DEVNULL)  # scripts of tests are no programs
    return programs


def pack(dlpack):
    items = {"packages": packages()}
    if dlpack:
        items["packages"]["include/dlpack/dlpack.h"] = pathlib.Path(dlpack) / "dlpack" / "dlpack.h"
    for name in ("onnx", "magika", "silero_vad", "rapidocr_onnxruntime"):
        folder = data_folder() / f"{name}-{wheels()[name]['version']}"
        items[name] = {f"data/{path.relative_to(data_folder())}": path for path in files_below(folder)}
    left_out = {}
    programs = programs_to_pack()
    if isinstance(programs, dict):
        items["programs"] = programs
    else:
        left_out["programs"] = f"{programs}, so the other machine compiles them"
    shutil.rmtree(PACK, ignore_errors=True)
    PACK.mkdir(parents=True)
    used = 0
    for name, files in items.items():
        content = archive(files)
        if used + len(content) > MOST_BYTES:
            left_out[name] = f"its {len(content) / 2**20:.1f} MiB do not fit in {MOST_BYTES >> 20} MiB"
            continue
        used += len(content)
        (PACK / f"{name}.tar.xz").write_bytes(content)
        print(f"{name}: {len(files)} files, {len(content) / 2**20:.1f} MiB")
    facts = {"commit": record.first_line("git", "describe", "--always", "--dirty= and changes"),
             "left_out": left_out}
    (PACK / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    for name, why in left_out.items():
        print(f"{name} is left out: {why}")
    print(f"build/gpu-pack has {used / 2**20:.1f} MiB")


def unpack():
    """Unpacks build/gpu-pack; returns its facts, or {} if there is none."""
    if not (PACK / "facts.json").exists():
        return {}
    for path in sorted(PACK.glob("*.tar.xz")):
        into = BUILD if path.name == "programs.tar.xz" else UNPACKED
        if path.name == "programs.tar.xz" and built_programs() is not None:
            continue  # those of an earlier run here
        into.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path) as tar:
            tar.extractall(into)
    return json.loads((PACK / "facts.json").read_text())


# --- stages

class Stage:
    """A command with a limit of time, and its log in build/gpu-logs."""

    def __init__(self, name, command, seconds, environment=None, not_run=None):
        self.name, self.seconds, self.not_run = name, seconds, not_run
        self.command = [str(word) for word in command]
        self.environment = {**os.environ, **(environment or {})}
        self.result, self.took, self.said = "not run", 0, not_run or ""

    @property
    def log(self):
        return ROOT / "build" / "gpu-logs" / (re.sub(r"\W+", "_", self.name) + ".log")

    def run(self, deadline):
        limit = min(self.seconds, deadline - time.monotonic())
        if self.not_run:
            return
        if limit < 1:
            self.said = "no time was left"
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        with open(self.log, "w") as log:
            log.write(" ".join(self.command) + "\n")
            log.flush()
            try:
                process = subprocess.Popen(self.command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL, env=self.environment,
                                           start_new_session=True)
            except OSError as error:
                self.result, self.said = "failed", str(error)
                return
            try:
                code = process.wait(limit)
                self.result = "passed" if code == 0 else "failed"
                self.said = "" if code == 0 else f"exit status {code}: "
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self.result, self.said = "failed", f"stopped after {limit:.0f} s: "
        self.took = time.monotonic() - begin
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()[1:]]
        lines = [line for line in lines if line and "Status: SUCCESS" not in line]
        summary = [line for line in lines if line.startswith(("[doctest] test cases", "========= ERROR SUMMARY",
                                                              "========= RACECHECK SUMMARY"))]
        if any(line.endswith(("skipped: no CUDA device", "not measured: no CUDA device")) for line in lines):
            self.result, self.said = "failed", "found no device: "  # but nvidia-smi has one
        self.said += (summary or lines or [""])[-1].lstrip("=[] ").replace("doctest] ", "")[:160]
        print(f"{self.name}: {self.result} in {self.took:.0f} s {self.said}", flush=True)


def device():
    """{name, driver, capability} of the first GPU, or None."""
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap",
                                "--format=csv,noheader"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line for line in asked.stdout.splitlines() if line.count(",") == 2]
    if asked.returncode != 0 or not lines:
        return None
    name, driver, capability = (word.strip() for word in lines[0].split(","))
    return {"name": name, "driver": driver, "capability": capability, "count": len(lines)}


def data_of(facts):
    """(the folder of the data, the packages of it that are there)"""
    for folder in (data_folder(), UNPACKED / "data"):
        found = [name for name in CASES_OF
                 if fetch.is_fetched(wheels()[name], folder / f"{name}-{wheels()[name]['version']}")]
        if found:
            return folder, found
    return data_folder(), []


def find_program(name):
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{TOOLKIT}/bin:{TOOLKIT}/compute-sanitizer")
    return found


def build_stage(gpu, data):
    nvcc = find_program("nvcc")
    script = ["set -e", " ".join([
        "cmake --preset gpu -Wno-dev", f"-DCMAKE_CUDA_COMPILER={nvcc}",
        f"-DCMAKE_CUDA_ARCHITECTURES={gpu['capability'].replace('.', '')}-real",
        "-DOPKIT_OPERATORS_COMPILE_OPTIONS=-march=native", f"-DOPKIT_DATA_DIR={data}",
        *([f"-DCMAKE_PREFIX_PATH={UNPACKED}", f"-DEigen3_DIR={UNPACKED}/share/eigen3/cmake",
           f"-Dbenchmark_DIR={UNPACKED}/lib/{platform.machine()}-linux-gnu/cmake/benchmark",
           f"-DOPKIT_DLPACK_INCLUDE_DIR={UNPACKED}/include"] if (UNPACKED / "include").exists() else [])]),
        build_command()]
    return Stage("build", ["bash", "-c", "\n".join(script)], 220,
                 not_run=None if nvcc else "there is no nvcc on the PATH or in /usr/local/cuda")


def program_stage(name, target, arguments, seconds, environment, before=(), missing=None):
    path = BUILD / PROGRAMS[target]
    if not missing and not path.exists():
        missing = f"{target} is not built"
    return Stage(name, [*before, path, *arguments], seconds, environment, missing)


def check_stages(environment, found, facts):
    tools = find_program("compute-sanitizer")
    without = None if tools else "there is no compute-sanitizer"
    no_corpus = None if "onnx" in found else "the corpus is not there"
    no_models = None if found else "no model is there"
    quiet = ["--test-suite-exclude=outside sanitizer"]

    def sanitizer(tool):
        return [tools or "compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
    cases = "--test-case=" + ",".join(CASES_OF[name] for name in found)
    stages = [
        program_stage("tests of the backend", "backends_cuda_test", [], 90, environment),
        program_stage("corpus", "cuda_device_conformance_test", [], 150, environment, missing=no_corpus),
        program_stage("models", "cuda_device_models_test", [cases], 150, environment, missing=no_models),
        program_stage("memcheck of the backend", "backends_cuda_test", quiet, 120, environment,
                      sanitizer("memcheck"), without),
        program_stage("racecheck of the backend", "backends_cuda_test", quiet, 120, environment,
                      sanitizer("racecheck"), without),
        program_stage("memcheck of the corpus", "cuda_device_conformance_test", [], 150, environment,
                      sanitizer("memcheck"), without or no_corpus),
        program_stage("racecheck of the corpus", "cuda_device_conformance_test", RACES, 150, environment,
                      sanitizer("racecheck"), without or no_corpus),
    ]
    if (BUILD / PROGRAMS["cuda_device_cases_test"]).exists():
        stages += [program_stage("cases of operators", "cuda_device_cases_test", [], 90, environment),
                   program_stage("memcheck of these cases", "cuda_device_cases_test", [], 120,
                                 environment, sanitizer("memcheck"), without)]
    for name in CASES_OF:
        if name not in found:
            why = facts.get("left_out", {}).get(name, "its data is not there")
            stages.append(Stage(f"data of {name}", [], 0, not_run=why))
    return stages


def mended(text):
    """The JSON of a benchmark that was stopped, with the rows that it has written."""
    try:
        return json.loads(text)
    except ValueError:
        end = text.rfind("\n    }")
        return json.loads(text[:end] + "\n    }\n  ]\n}") if end >= 0 else None


def benchmark(target, name, seconds, arguments, head, environment, deadline):
    out = ROOT / "build" / "bench" / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    arguments = ["--benchmark_repetitions=3", *arguments]
    stage = program_stage(f"benchmark {name}", target,
                          [*arguments, "--benchmark_report_aggregates_only=true", f"--benchmark_out={out}",
                           "--benchmark_out_format=json"], seconds, environment)
    stage.run(deadline)
    report = mended(out.read_text()) if out.exists() else None
    if report is None or not report.get("benchmarks"):
        out.unlink(missing_ok=True)
        return stage
    record.write(out, {"head": {**head, "command": " ".join([target, *arguments])}, **report})
    return stage


def head_of(gpu, facts):
    head = record.head("./dev gpu")
    head["machine"] = (f"one {gpu['name']} (driver {gpu['driver']}), {head['machine']}"
                       .replace(" cores of ", " virtual cores of "))
    nvcc = find_program("nvcc")
    version = re.search(r"release ([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True,
                                                            text=True).stdout) if nvcc else None
    head["compiler"] = f"nvcc {version[1] if version else 'unknown'}, {head['compiler']}"
    if head["commit"] == "unknown":
        head["commit"] = facts.get("commit", "unknown")
    return head


def run(minutes, out):
    gpu = device()
    if gpu is None:
        print("no CUDA device: nvidia-smi lists none, so nothing was run")
        return 0
    begin = time.monotonic()
    deadline = begin + 60 * minutes
    shutil.rmtree(ROOT / "build" / "gpu-logs", ignore_errors=True)
    facts = unpack()
    data, found = data_of(facts)
    head = head_of(gpu, facts)
    print(f"{head['machine']}; data of {', '.join(found) or 'nothing'} in {data}", flush=True)
    libraries = [UNPACKED / "lib" / f"{platform.machine()}-linux-gnu", TOOLKIT / "lib64",
                 *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {"OPKIT_DATA_DIR": str(data), "LD_LIBRARY_PATH": ":".join(map(str, libraries))}

    stages = []
    if built_programs() is None or gpu["capability"] != "9.0":
        for place in PROGRAMS.values():  # of other sources
            (BUILD / place).unlink(missing_ok=True)
        stages.append(build_stage(gpu, data))
        stages[0].run(deadline)
        if stages[0].result == "passed":
            (BUILD / "fingerprint").write_text(fingerprint())
    else:
        stages.append(Stage("build", [], 0, not_run="build/gpu has the programs of these sources"))
    # The checks run side by side, the benchmarks alone, for at least a third of the time.
    checks = check_stages(environment, found, facts)
    checks_end = max(time.monotonic(), deadline - 60 * minutes / 3)
    with concurrent.futures.ThreadPoolExecutor(len(checks)) as pool:
        list(pool.map(lambda stage: stage.run(checks_end), checks))
    stages += checks
    for target, name, seconds, arguments in [
            ("cuda_bench", "cuda", 60, ["--benchmark_min_time=0.05"]),
            ("cuda_operators_bench", "cuda_operators", 120, ["--benchmark_min_time=0.03"]),
            ("cuda_models_bench", "cuda_models", 120, ["--benchmark_min_time=0.1"])]:
        stages.append(benchmark(target, name, seconds, arguments, head, environment, deadline))

    checked = ROOT / "build" / "bench" / "cuda_checks.json"
    record.write(checked, {"head": {**head, "command": f"./dev gpu --minutes {minutes}"}, "stages": [
        {"name": stage.name, "result": stage.result, "seconds": round(stage.took, 1), "said": stage.said}
        for stage in stages]})
    results = [path for path in (checked, *(ROOT / "build" / "bench" / f"{name}.json"
                                            for name in ("cuda", "cuda_operators", "cuda_models")))
               if path.exists()]
    if out:
        pathlib.Path(out).mkdir(parents=True, exist_ok=True)
        for path in results:
            shutil.copy(path, out)
        logs = (stage.log for stage in stages if stage.log.exists())
        (pathlib.Path(out) / "log.txt").write_text(
            "\n\n".join(f"=== {log.stem}\n{log.read_text(errors='replace')[-2_000_000:]}" for log in logs))
    subprocess.run([sys.executable, ROOT / "bench" / "summarize.py", *results], check=False)
    failed = [stage.name for stage in stages if stage.result == "failed"]
    passed = sum(stage.result == "passed" for stage in stages)
    print(f"{passed} stages passed, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}, "
          f"{len(stages) - passed - len(failed)} not run, in {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=int, default=8)
    parser.add_argument("--out")
    parser.add_argument("--pack", action="store_true")
    parser.add_argument("--dlpack")
    options = parser.parse_args()
    if options.pack:
        return pack(options.dlpack)
    return run(options.minutes, options.out)


if __name__ == "__main__":
    sys.exit(main())
