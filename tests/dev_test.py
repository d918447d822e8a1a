"""Tests the messages of ./dev for commands that it cannot run, before it compiles anything, and the commands
that install packages."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
import unittest

DEV = pathlib.Path(__file__).resolve().parents[1] / "dev"


class Mistakes(unittest.TestCase):
    def says(self, arguments, *sentences, cwd=None):
        run = subprocess.run([DEV, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stdout, "")
        self.assertRegex(run.stderr, r"\Adev: [^\n]+\n\Z")
        for sentence in sentences:
            self.assertIn(sentence, run.stderr)

    def test_commands(self):
        self.says(["dmeo"], "there is no command 'dmeo'; did you mean 'demo'? (demo test ")
        self.says(["zzz"], "there is no command 'zzz' (demo test ")

    def test_what_to_test(self):
        self.says(["test", "bsae"], "there is no folder tests/bsae; did you mean 'base'? (", "op ops")
        self.says(["test", "graph/memroy"], "tests/graph/memroy; did you mean 'graph/memory'? (")
        self.says(["test", "backend"], "tests/backend; did you mean 'backends'? (")
        self.says(["test", "arm6"], "tests/arm6; did you mean 'arm64'? (")
        self.says(["test", "--al"], "test has no option '--al'; did you mean '--all'?")
        self.says(["test", "base", "core"], "test takes one folder, not 'base core'")

    def test_presets(self):
        self.says(["build", "gc"], "there is no preset 'gc'; did you mean 'gcc'? (gcc clang ")
        self.says(["build", "arm"], "there is no preset 'arm'; did you mean 'arm64'? (gcc ", " arm64 ")
        self.says(["cli", "x"], "cli takes --without-onednn, not 'x'")
        self.says(["cli", "--without-onednn", "x"], "cli takes --without-onednn, not 'x'")
        self.says(["docs-site", "x"], "docs-site takes --serve, not 'x'")

    def test_stress_and_fuzz_targets(self):
        self.says(["stress", "--minutes", "x"], "stress takes --minutes NUMBER, not 'x'")
        self.says(["stress", "5"], "stress takes --minutes M and --seed S, not '5'")
        self.says(["fuzz", "npi"], "no fuzz target's name contains 'npi'; did you mean 'npy'? (")
        self.says(["fuzz", "a", "b"], "fuzz takes one name, not 'a b'")

    def test_benchmarks(self):
        self.says(["bench", "dynamik"], "no benchmark's name contains 'dynamik'; did you mean "
                  "'dynamic'? (cluster/one_process ", "graph/executor",
                  "models models_eigen half operators tuning compile_time all_reduce namespaces)")
        self.says(["bench", "a", "b"], "bench takes one filter, not 'a b'")
        self.says(["bench", "--without-onednn", "dynamik"], "no benchmark's name contains 'dynamik'")

    def test_what_is_done_on_a_gpu(self):
        self.says(["gpu", "--pak"], "gpu takes --pack, --minutes M and --out FOLDER, not '--pak'")
        self.says(["gpu", "--minutes", "x"], "gpu takes --minutes NUMBER, not 'x'")
        self.says(["gpu", "--out"], "gpu takes --out FOLDER")
        self.says(["gpu", "--pack", "--out", "a"], "gpu --pack takes no other option")

    def test_what_the_demo_looks_at(self):
        with tempfile.TemporaryDirectory() as folder:
            self.says(["demo", "pics"], "there is no folder 'pics'", cwd=folder)
            (pathlib.Path(folder) / "pics").mkdir()  # the caller gives paths relative to its folder
            self.says(["demo", "pics", "pics/a.png"], "there is no file 'pics/a.png'", cwd=folder)
        self.says(["demo", "a", "b", "c"], "demo takes a folder and a picture, not 'a b c'")

    def test_what_is_set_up(self):
        self.says(["setup", "clii"], "setup takes a command, not 'clii'; did you mean 'cli'? (demo test cli ")
        self.says(["setup", "build", "gc"], "there is no preset 'gc'; did you mean 'gcc'? (gcc clang ")
        self.says(["setup", "cli", "x"], "cli takes --without-onednn, not 'x'")


class Packages(unittest.TestCase):
    """A machine with a shell and no compiler. Its apt-get writes down its arguments."""
    CLI = ["g++", "cmake", "ninja-build", "nlohmann-json3-dev", "libcli11-dev"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for program in ("bash", "cat", "dirname", "env", "find", "grep", "mkdir", "nproc", "realpath", "sed",
                        "sort", "uniq"):
            (self.folder / program).symlink_to(shutil.which(program))
        self.program("uname", "echo Linux x86_64")
        self.program("sudo", 'shift; [ "$1" = true ] || exec "$@"')
        self.program("apt-cache", "exit 1")
        self.program("apt-get", f'echo "$@" >> "{self.folder}/asked"; [ "$1" != install ] || exit "$APT_STATUS"')

    def program(self, name, text):
        (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / name).chmod(0o755)

    def dev(self, *arguments, installs=True):
        """Runs it; returns the words of the line by which it asked apt-get to install, or []."""
        environment = {**os.environ, "PATH": str(self.folder), "APT_STATUS": "0" if installs else "1"}
        self.ran = subprocess.run([DEV, *arguments], capture_output=True, text=True, timeout=60, env=environment)
        asked = self.folder / "asked"
        lines = asked.read_text().splitlines() if asked.exists() else []
        return next((line.split() for line in lines if line.startswith("install ")), [])

    def test_most_commands_name_what_to_run_and_install_nothing(self):
        for arguments in (["cli"], ["build", "asan"], ["bench", "dynamic"], ["differential"], ["stress"],
                          ["fuzz", "npy"], ["gpu", "--pack"], ["format"], ["tidy"], ["docs"], ["docs-site"],
                          ["single-include"]):
            with self.subTest(arguments):
                self.assertEqual(self.dev(*arguments), [])
                self.assertFalse((self.folder / "asked").exists())
                self.assertEqual((self.ran.returncode, self.ran.stdout), (1, ""))
                self.assertRegex(self.ran.stderr, rf"\Adev: {arguments[0]} needs packages that are not installed "
                                 rf"\([^\n]+\): run \./dev setup {' '.join(arguments)}\n\Z")
        self.dev("cli")
        self.assertIn(f"({' '.join(self.CLI)} python3 python3-pip)", self.ran.stderr)
        self.dev("cli", "--without-onednn")
        self.assertIn(f"({' '.join(self.CLI)})", self.ran.stderr)

    def test_setup_prints_and_installs_what_a_command_needs(self):
        words = self.dev("setup", "cli")
        self.assertEqual(words[-7:], [*self.CLI, "python3", "python3-pip"])
        self.assertEqual((self.ran.returncode, self.ran.stderr), (0, ""))
        self.assertIn("installing g++ cmake ninja-build nlohmann-json3-dev libcli11-dev", self.ran.stdout)
        self.assertNotIn("compiling", self.ran.stdout)

    def test_setup_without_a_command_is_for_test(self):
        self.assertIn("doctest-dev", self.dev("setup"))
        self.assertEqual(self.ran.returncode, 0)

    def test_a_report_is_tested_with_node_and_profiles_too(self):
        for folder in ("report", "profile"):
            self.assertIn("nodejs", self.dev("setup", "test", folder))
            (self.folder / "asked").unlink()
        self.assertNotIn("nodejs", self.dev("setup", "test", "base"))

    def test_demo_and_test_install_themselves(self):
        for arguments in (["demo"], ["test"], ["test", "base"]):
            with self.subTest(arguments):
                self.assertIn("cmake", self.dev(*arguments, installs=False))
                self.assertEqual(self.ran.returncode, 1)
                self.assertIn("dev: apt-get could not install", self.ran.stderr)
                (self.folder / "asked").unlink()

    def test_without_apt_setup_names_the_packages(self):
        (self.folder / "apt-get").unlink()
        self.dev("setup", "cli")
        self.assertEqual(self.ran.returncode, 1)
        self.assertIn("sudo apt-get install g++ cmake", self.ran.stderr)


class Gpu(unittest.TestCase):
    """./dev gpu in a copy of the scripts, on a machine whose nvidia-smi, nvcc, cmake, ninja and compute-sanitizer are
    scripts. "Building" makes the programs of $PROGRAMS in build/gpu."""
    CONFORMANCE, CASES = "tests/cuda_device/cuda_device_conformance_test", "tests/cuda_device/cuda_device_cases_test"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.root = self.folder / "copy"
        root = DEV.parent
        for name in ("tools/dev", "bench/results", "bench/engine", "bench/graph", "data"):
            shutil.copytree(root / name, self.root / name)
        for path in [DEV, root / "README.md", *(root / "bench").glob("*.py")]:
            shutil.copy(path, self.root / path.relative_to(root))
        for name in ("src", "include", "tests", "cmake", "bench/cuda", "examples/library"):
            (self.root / name).mkdir(parents=True)
        for name in ("CMakeLists.txt", "CMakePresets.json"):
            shutil.copy(root / name, self.root)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.asked = self.folder / "asked"
        self.script("nvidia-smi", "echo NVIDIA Fake, 1.2, 9.0")
        self.script("nvcc", "echo release 13.0")
        self.script("cmake", f'echo "cmake $@" >> {self.asked}; [ $1 != --build ] || exec python3 {self.folder}/make.py')
        self.script("ninja", "printf 'cuda_bench: phony\\nbackends_cuda_test: phony\\nother: phony\\n'")
        self.script("compute-sanitizer", f'echo "$@" >> {self.asked}; echo ========= ERROR SUMMARY: 0 errors')
        (self.folder / "make.py").write_text(textwrap.dedent(f"""
            import json, pathlib, sys
            for name, text in json.load(open({str(self.folder / 'programs')!r})).items():
                path = pathlib.Path("build/gpu", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("#!/bin/sh\\n" + text)
                path.chmod(0o755)
            """))
        self.programs({"tests/backends_cuda_test": "echo '[doctest] test cases: 3 | 3 passed'",
                       "bench/cuda/cuda_bench": self.benchmark([("Run", 2.0), ("LaunchAndWait", 1.0)])})

    def script(self, name, text):
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def programs(self, programs):
        (self.folder / "programs").write_text(json.dumps(programs))

    def benchmark(self, rows):
        report = json.dumps({"benchmarks": [{"run_name": name, "real_time": us, "time_unit": "us",
                                             "aggregate_name": "median"} for name, us in rows]})
        return f"for a; do case $a in --benchmark_out=*) echo '{report}' > ${{a#--benchmark_out=}};; esac; done"

    def gpu(self, *arguments, code=0, **environment):
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}",
                       "OPKIT_DATA_DIR": str(self.folder / "data"), **environment}
        ran = subprocess.run([self.root / "dev", "gpu", *arguments], capture_output=True, text=True, timeout=300,
                             env=environment)
        self.assertEqual(ran.returncode, code, f"{ran.stdout}\n{ran.stderr}")
        return ran.stdout

    def stages(self):
        checks = json.loads((self.root / "build/bench/cuda_checks.json").read_text())["stages"]
        return {stage["name"]: (stage["result"], stage["said"]) for stage in checks}

    def test_without_a_device_it_says_so_in_one_line(self):
        for fails in ("exit 9", "echo 'No devices were found'", "exit 0"):
            self.script("nvidia-smi", fails)
            self.assertEqual(self.gpu(), "no CUDA device: nvidia-smi lists none, so nothing was run\n")
        self.assertFalse((self.root / "build").exists())

    def test_builds_checks_and_measures(self):
        out = self.gpu("--out", str(self.folder / "out"))
        asked = self.asked.read_text()
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=90-real", asked)
        self.assertIn("--target cuda_bench backends_cuda_test -- -k 0", asked)
        self.assertRegex(asked, r"--tool racecheck --error-exitcode 9 \S+backends_cuda_test --test-suite-exclude=outside")
        stages = self.stages()
        self.assertEqual(stages["build"][0], "passed")
        self.assertEqual(stages["tests of the backend"], ("passed", "test cases: 3 | 3 passed"))
        self.assertEqual(stages["memcheck of the backend"], ("passed", "ERROR SUMMARY: 0 errors"))
        self.assertEqual(stages["corpus"], ("not run", "the corpus is not there"))
        self.assertEqual(stages["data of magika"], ("not run", "its data is not there"))
        self.assertEqual(stages["benchmark cuda_operators"], ("not run", "cuda_operators_bench is not built"))
        self.assertRegex(out, r"\n5 stages passed, 0 failed, \d+ not run, in \d+ s\n\Z")
        table = (self.root / "bench/results/cuda.md").read_text()
        self.assertIn("one NVIDIA Fake (driver 1.2), ", table)
        self.assertRegex(table, r"\| Run +\| 2.00 us \| +\| LaunchAndWait|\| Run +\| 2.00 us \| LaunchAndWait")
        self.assertIn("| corpus", (self.root / "bench/results/cuda_checks.md").read_text())
        self.assertEqual({path.name for path in (self.folder / "out").iterdir()},
                         {"cuda.json", "cuda_checks.json", "log.txt"})
        self.assertIn("3 passed", (self.folder / "out/log.txt").read_text())

    def test_takes_the_programs_that_are_there(self):
        self.gpu()
        self.asked.unlink()
        self.gpu()
        self.assertNotIn("cmake", self.asked.read_text())
        self.assertEqual(self.stages()["build"], ("not run", "build/gpu has the programs of these sources"))
        (self.root / "src/new.cpp").write_text("")
        self.gpu()
        self.assertIn("cmake --preset gpu", self.asked.read_text())

    def test_a_stage_that_fails_stops_no_other(self):
        self.programs({"tests/backends_cuda_test": "echo 'one is wrong'; exit 3",
                       self.CASES: "kill -9 $$", "bench/cuda/cuda_models_bench": "echo 'not measured: no CUDA device'",
                       "bench/cuda/cuda_bench": self.benchmark([("Run", 2.0)]) + "; exit 1"})
        out = self.gpu(code=1)
        stages = self.stages()
        self.assertEqual(stages["tests of the backend"], ("failed", "exit status 3: one is wrong"))
        self.assertEqual(stages["cases of operators"], ("failed", "exit status -9: "))
        self.assertEqual(stages["memcheck of these cases"][0], "passed")
        self.assertEqual(stages["benchmark cuda"][0], "failed")
        self.assertEqual(stages["benchmark cuda_models"],
                         ("failed", "found no device: not measured: no CUDA device"))
        self.assertIn("4 failed: tests of the backend, cases of operators, benchmark cuda, benchmark cuda_models", out)
        self.assertTrue((self.root / "build/bench/cuda.json").exists())  # what it has measured
        (self.root / "src/new.cpp").write_text("")
        self.script("cmake", "echo it does not build; exit 1")
        self.gpu(code=1)
        self.assertEqual(self.stages()["build"], ("failed", "exit status 1: it does not build"))
        self.assertEqual(self.stages()["tests of the backend"], ("not run", "backends_cuda_test is not built"))

    def test_a_stage_ends_at_its_limit(self):
        gpu = self.module()
        stage = gpu.Stage("long", ["sh", "-c", "echo first; sleep 600"], 1)
        stage.run(time.monotonic() + 600)
        self.assertEqual((stage.result, stage.said), ("failed", "stopped after 1 s: first"))
        stage = gpu.Stage("late", ["true"], 1)
        stage.run(time.monotonic() - 1)
        self.assertEqual((stage.result, stage.said), ("not run", "no time was left"))

    def test_a_benchmark_that_was_stopped_keeps_its_rows(self):
        gpu = self.module()
        text = json.dumps({"context": {}, "benchmarks": [{"name": "a"}, {"name": "b"}]}, indent=2)
        cut = text[:text.index('"b"')]
        self.assertEqual(gpu.mended(text)["benchmarks"], [{"name": "a"}, {"name": "b"}])
        self.assertEqual(gpu.mended(cut)["benchmarks"], [{"name": "a"}])
        self.assertIsNone(gpu.mended("{"))

    def module(self):
        """gpu.py of the copy."""
        for name in ("fetch", "record"):  # those of another test's copy
            sys.modules.pop(name, None)
        spec = importlib.util.spec_from_file_location("gpu_of_copy", self.root / "tools/dev/gpu.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def write_data(self):
        wheels = json.loads((self.root / "data/wheels.json").read_text())
        for name in ("onnx", "magika", "silero_vad", "rapidocr_onnxruntime"):
            folder = self.folder / "data" / f"{name}-{wheels[name]['version']}"
            folder.mkdir(parents=True)
            (folder / "model.onnx").write_bytes(name.encode())
            (folder / ".fetched").write_text("\n".join([wheels[name]["sha256"], *wheels[name]["files"], ""]))

    def test_packs_what_the_machine_lacks(self):
        self.write_data()
        out = self.gpu("--pack")
        self.assertIn("programs is left out: build/gpu is not configured (./dev build gpu), so the other machine "
                      "compiles them\n", out)
        pack = self.root / "build/gpu-pack"
        self.assertEqual({path.name for path in pack.iterdir()},
                         {"facts.json", *(f"{name}.tar.xz" for name in ("packages", "onnx", "magika", "silero_vad",
                                                                        "rapidocr_onnxruntime"))})
        self.assertLess(sum(path.stat().st_size for path in pack.iterdir()), 45 << 20)
        with tarfile.open(pack / "packages.tar.xz") as tar:
            names = tar.getnames()
        for name in ("include/doctest/doctest.h", "include/protozero/pbf_reader.hpp", "include/eigen3/Eigen/Core",
                     "include/benchmark/benchmark.h"):
            self.assertIn(name, names)
        # The other machine has neither packages nor data.
        shutil.rmtree(self.folder / "data")
        self.programs({self.CONFORMANCE: "cat $OPKIT_DATA_DIR/onnx-*/model.onnx"})
        self.gpu()
        self.assertEqual(self.stages()["corpus"], ("passed", "onnx"))
        self.assertIn(f"-DCMAKE_PREFIX_PATH={self.root}/build/gpu-unpacked", self.asked.read_text())
        self.assertTrue((self.root / "build/gpu-unpacked/include/doctest/doctest.h").exists())

    def test_packs_programs_too(self):
        self.write_data()
        (self.root / "build/gpu").mkdir(parents=True)
        (self.root / "build/gpu/CMakeCache.txt").write_text("")
        self.gpu("--pack")
        shutil.rmtree(self.root / "build/gpu")
        self.asked.unlink()
        self.gpu()
        self.assertNotIn("cmake", self.asked.read_text())
        self.assertEqual(self.stages()["tests of the backend"], ("passed", "test cases: 3 | 3 passed"))

    def test_names_what_does_not_fit(self):
        self.write_data()
        gpu = self.module()
        gpu.MOST_BYTES, gpu.packages = 800, lambda: {}
        os.environ["OPKIT_DATA_DIR"] = str(self.folder / "data")
        self.addCleanup(os.environ.pop, "OPKIT_DATA_DIR")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            gpu.pack(None)
        self.assertRegex(out.getvalue(), r"rapidocr_onnxruntime is left out: its 0\.0 MiB do not fit in 0 MiB\n")
        shutil.rmtree(self.folder / "data")
        self.gpu()
        self.assertEqual(self.stages()["data of rapidocr_onnxruntime"],
                         ("not run", "its 0.0 MiB do not fit in 0 MiB"))


class Onednn(unittest.TestCase):
    """./dev cli in a copy of the scripts, on a machine with every package. It has oneDNN only if $INSTALLED is 1. Its
    cmake writes down its arguments and finds oneDNN there or in the folder that it is given. Its python3 fetches
    wheels, or fails."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(DEV, self.folder)
        shutil.copytree(DEV.parent / "tools" / "dev", self.folder / "tools" / "dev")
        for name, text in {
                "uname": "echo Linux x86_64", "ninja": "", "g++": '[ $INSTALLED = 1 ] || ! grep -q DNNL_VERSION_MAJOR',
                "ccache": "", "python3": f'echo "$@" >> "{self.folder}/fetched"; [ $CAN_FETCH = 1 ] || [ $2 = pip ]',
                "cmake": f'echo "$@" >> "{self.folder}/configured"\n'
                         'uses="-- opkit: opkit::onednn uses dnnl"; case "$INSTALLED $*" in '
                         '*dnnl=ON*) ;; *DATA_DIR=/*) echo "$uses 3.2.0 (wheel)";; 1*) echo "$uses 3.9.1";; esac',
        }.items():
            (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / name).chmod(0o755)

    def cli(self, *arguments, can_fetch="1", installed="0"):
        """Runs ./dev cli; returns cmake's arguments and its own output."""
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "CAN_FETCH": can_fetch,
                       "INSTALLED": installed}
        ran = subprocess.run([self.folder / "dev", "cli", *arguments], capture_output=True, text=True, timeout=60,
                             env=environment)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return (self.folder / "configured").read_text(), ran.stdout

    def test_takes_the_wheel(self):
        configured, said = self.cli()
        self.assertRegex(configured, r"-DOPKIT_ONEDNN_DATA_DIR=/\S+ -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=OFF")
        self.assertIn("\nwith oneDNN 3.2.0 (wheel)\n", said)

    def test_takes_an_installed_one_first(self):
        configured, said = self.cli(installed="1")
        self.assertFalse((self.folder / "fetched").exists())
        self.assertIn("-DOPKIT_ONEDNN_DATA_DIR= -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=OFF", configured)
        self.assertIn("\nwith oneDNN 3.9.1 (installed)\n", said)

    def test_goes_on_without_a_wheel(self):
        configured, said = self.cli(can_fetch="0")
        self.assertIn("onednn_cpu_gomp", (self.folder / "fetched").read_text())
        self.assertIn("-DOPKIT_ONEDNN_DATA_DIR= -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=OFF", configured)
        self.assertIn("\nwithout oneDNN: version 3 is not installed, and its wheel could not be had\n", said)

    def test_leaves_it_out_if_asked(self):
        configured, said = self.cli("--without-onednn", installed="1")
        self.assertFalse((self.folder / "fetched").exists())
        self.assertIn("-DOPKIT_ONEDNN_DATA_DIR= -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON", configured)
        self.assertIn("\nwithout oneDNN, as asked\n", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
