"""opkit.Graph, Plan, Executor, ONNX models, pictures, profiles, and the files of the package."""
import ctypes
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

import opkit

X = np.array([[-1, 2, 3]], np.float32)


def make_graph():
    return (opkit.Graph().add_input("x", "float32", ("N", 3))
            .add_constant("w", np.eye(3, dtype=np.float32) * 2)
            .add_node("MatMul", ["x", "w"], "h", name="product")
            .add_node("LeakyRelu", "h", "y", alpha=0.5).add_output("y"))


def test_a_graph_runs_for_every_shape():
    executor = opkit.Executor(make_graph().compile(threads=2))
    assert executor.run({"x": X})["y"].tolist() == [[-1, 4, 6]]
    two = executor.run({"x": np.vstack([X, X])})
    assert list(two) == ["y"] and two["y"].shape == (2, 3)
    kept = two["y"].copy()
    executor.run({"x": -np.vstack([X, X])})
    assert np.array_equal(two["y"], kept)  # a result belongs to the caller


def test_the_parts_of_a_graph():
    graph = make_graph()
    assert graph.inputs == [("x", "float32", ("N", 3))] and graph.outputs == ["y"]
    assert graph.nodes[1] == {"op": "LeakyRelu", "name": "", "inputs": ["h"], "outputs": ["y"],
                              "attributes": {"alpha": 0.5}}
    assert str(graph).splitlines()[0] == "Graph of 2 nodes"


def test_an_input_with_a_default_may_be_left_out(tmp_path):
    graph = opkit.Graph().add_input("x", "float32", (2,))
    graph.add_input("b", "float32", (2,), default=np.array([10, 20], np.float32))
    graph.add_node("Add", ["x", "b"], "y").add_output("y").save_onnx(str(tmp_path / "m.onnx"))
    assert list(graph.defaults) == ["b"] and graph.defaults["b"].tolist() == [10, 20]
    x, b = np.array([1, 2], np.float32), np.array([5, 6], np.float32)
    again = opkit.load_onnx(tmp_path / "m.onnx")
    executor = opkit.Executor(again.compile())
    assert executor.run({"x": x})["y"].tolist() == [11, 22]
    assert executor.run({"x": x, "b": b})["y"].tolist() == [6, 8]
    assert executor.run({"x": x})["y"].tolist() == [11, 22]
    fixed = opkit.load_onnx(tmp_path / "m.onnx", fix_defaults=True)
    assert [name for name, *_ in fixed.inputs] == ["x"]


def test_the_columns_of_a_zipmap(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(os.environ["OPKIT_TEST_SOURCE"]) / "tests" / "cli"))
    from onnx_file import FLOAT, model, node, value_info
    path = tmp_path / "zip.onnx"
    path.write_bytes(model([node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", lists=[("classlabels_int64s", [7, 9])])],
                           [value_info("x", FLOAT, [1, 2])], [value_info("maps", FLOAT, [1, 2])], domains=["ai.onnx.ml"]))
    assert opkit.load_onnx(path).outputs == ["maps"]
    out = opkit.Executor(opkit.load_onnx(path, zipmap_columns=True).compile()).run({"x": X[:, :2]})
    assert {name: y.tolist() for name, y in out.items()} == {"maps.7": [-1], "maps.9": [2]}


def test_denormal_numbers_are_zeros_if_asked():
    graph = opkit.Graph().add_input("x", "float32", (1,)).add_node("Add", ["x", "x"], "y")
    graph.add_output("y")
    x = np.array([1e-39], np.float32)
    for flush in (False, True):
        executor = opkit.Executor(graph.compile(flush_denormals=flush))
        assert (executor.run({"x": x})["y"][0] == 0) == flush


def test_onnx_models_are_written_and_read(tmp_path):
    path = tmp_path / "model.onnx"
    make_graph().save_onnx(str(path))
    again = opkit.load_onnx(path)
    assert again.inputs == make_graph().inputs
    assert opkit.Executor(again.compile()).run({"x": X})["y"].tolist() == [[-1, 4, 6]]


def test_a_tuned_plan_keeps_its_times(tmp_path):
    graph = opkit.Graph().add_input("x", "float32", (1, 3)).add_node("Relu", "x", "y")
    graph.add_output("y")
    cache = tmp_path / "times.json"
    plan = graph.compile(threads=1, tuned=str(cache))
    assert opkit.Executor(plan).run({"x": X})["y"].tolist() == [[0, 2, 3]]
    assert cache.exists()


@pytest.mark.parametrize("wrong, error, text", [
    (lambda g, e: e.run({"z": X}), LookupError, "'z'"),
    (lambda g, e: e.run({}), ValueError, "x"),
    (lambda g, e: e.run({"x": X.astype(np.float64)}), TypeError, "float64"),
    (lambda g, e: e.run({"x": X[:, :2]}), ValueError, "x"),
    (lambda g, e: g.add_input("x"), opkit.Error, "'x'"),
    (lambda g, e: g.add_input("n", "float99"), TypeError, "float99"),
    (lambda g, e: g.add_node("Nothing", "y", "z").compile(), LookupError, "Nothing"),
    (lambda g, e: make_graph().compile(threads=-1), ValueError, "threads"),
    (lambda g, e: opkit.load_onnx("no_such_file.onnx"), opkit.Error, "no_such_file")])
def test_errors(wrong, error, text):
    graph = make_graph()
    with pytest.raises(error, match=text):
        wrong(graph, opkit.Executor(graph.compile()))


def test_pictures_are_svg():
    executor = opkit.Executor(make_graph().compile(threads=1))
    executor.run({"x": X})
    from opkit import _draw
    for picture in (make_graph()._repr_svg_(), executor.plan._repr_svg_(),
                    _draw.rows_svg(make_graph())):
        assert xml.etree.ElementTree.fromstring(picture.encode()).tag.endswith("svg")
    assert "LeakyRelu" in _draw.rows_svg(make_graph())


def test_a_profile_is_a_table_a_page_and_files(tmp_path):
    executor = opkit.Executor(make_graph().compile(threads=1))
    with opkit.profile(shapes=True, memory=True) as report:
        executor.run({"x": X})
    assert "MatMul" in str(report)
    assert {row["node"] for row in report.rows(by_node=True)} >= {"product"}
    page = report._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "MatMul" in page
    for name in ("report.html", "trace.json", "trace.pftrace"):
        assert report.save(tmp_path / name) == str(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0
    with pytest.raises(RuntimeError, match="no recording"):
        opkit.profile().rows()


def test_the_package_has_headers_cmake_files_and_the_program():
    assert os.path.exists(os.path.join(opkit.get_include(), "opkit", "op.hpp"))
    assert os.path.exists(os.path.join(opkit.get_cmake_dir(), "opkitConfig.cmake"))
    listed = subprocess.run([sys.executable, "-m", "opkit", "ops", "Relu"], capture_output=True,
                            text=True, timeout=60, check=True)
    assert "Relu" in listed.stdout
    version = subprocess.run([os.path.join(os.path.dirname(sys.executable), "opkit"), "--version"],
                             capture_output=True, text=True, timeout=60, check=True)
    assert version.stdout.split() == ["opkit", opkit.__version__]
    folder = os.path.dirname(opkit.__file__)
    assert {"py.typed", "__init__.pyi"} <= set(os.listdir(folder))
    library = os.path.join(os.environ["OPKIT_TEST_LIBRARIES"], "libgemm.so")
    listed = subprocess.run([sys.executable, "-m", "opkit", "lib", library], capture_output=True,
                            text=True, timeout=60, check=True)
    assert "my_gemm" in listed.stdout


def test_the_package_has_the_library_for_programs_in_c():
    folder = Path(opkit.__file__).parent / "lib"
    [library] = folder.glob("libopkit.so.*")
    host = ctypes.CDLL(str(library))
    host.opkit_host_version.restype = ctypes.c_char_p
    assert host.opkit_host_version().decode() == opkit.__version__
    assert (folder / "libopkit.so").read_text() == f"INPUT({library.name})\n"


def test_the_process_ends_without_complaints():
    program = ("import opkit, numpy as np\n"
               "@opkit.op\n"
               "def twice(x): return 2 * x\n"
               "g = opkit.Graph().add_input('x', 'float32', (2,)).add_node('twice', 'x', 'y')\n"
               "e = opkit.Executor(g.add_output('y').compile())\n"
               "y = e.run({'x': np.ones(2, np.float32)})['y']\n")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                           timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
