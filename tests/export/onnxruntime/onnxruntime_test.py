"""Runs the operators of a library in ONNX Runtime: onnxruntime_test.py LIBRARY."""

import ctypes
import sys
import threading
import unittest

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

LIBRARY = sys.argv.pop(1)
TYPES = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32, "int64": TensorProto.INT64, "bfloat16": TensorProto.BFLOAT16,
}


def model(op, inputs, attributes=None, outputs=1, extents=("N",), dtype=TensorProto.FLOAT):
    """Serializes a model of one node. An empty name in `inputs` leaves an input out."""
    node = helper.make_node(op, inputs, [f"y{i}" for i in range(outputs)], domain="tests",
                            **(attributes or {}))
    graph = helper.make_graph(
        [node], "graph",
        [helper.make_tensor_value_info(name, dtype, extents) for name in inputs if name],
        [helper.make_tensor_value_info(name, dtype, None) for name in node.output])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tests", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def session(serialized, threads=0):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(LIBRARY)
    return onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])


X = np.array([0, 1, 2], np.float32)
ONE = np.ones(3, np.float32)


class OnnxRuntimeTest(unittest.TestCase):
    def test_a_program_reads_the_domain(self):
        domain = ctypes.CDLL(LIBRARY).opkit_export_domain_name
        domain.restype = ctypes.c_char_p
        self.assertEqual(domain(), b"tests")

    def test_attributes_are_given_defaulted_and_converted(self):
        for attributes, alpha in (({"alpha": 2.0}, 2), ({"alpha": 3}, 3), ({}, 1)):
            run = session(model("Axpy", ["x", "y"], attributes))
            np.testing.assert_array_equal(run.run(None, {"x": X, "y": ONE})[0], alpha * X + 1)

    def test_each_dtype_has_its_kernel(self):
        for name, number in TYPES.items():
            run = session(model("Axpy", ["x", "y"], {"alpha": 2.0}, dtype=number))
            self.assertEqual(run.get_outputs()[0].type, run.get_inputs()[0].type)
            if name == "bfloat16":
                values = [
                    onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                        x.astype(ml_dtypes.bfloat16).view(np.uint16), number) for x in (X, ONE)]
                got = run.run_with_ort_values(None, {"x": values[0], "y": values[1]})[0]
                self.assertEqual(got.element_type(), number)
                continue
            got = run.run(None, {"x": X.astype(name), "y": ONE.astype(name)})[0]
            self.assertEqual(got.dtype, name)
            np.testing.assert_array_equal(got.astype(np.float32), [1, 3, 5])

    def test_an_error_has_the_whole_text_and_a_code(self):
        invalid = onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument
        with self.assertRaisesRegex(invalid, "input 1 'y' of .*Axpy.* has shape .*4.* must have that"):
            session(model("Axpy", ["x", "y"], extents=None)).run(
                None, {"x": X, "y": np.ones(4, np.float32)})
        with self.assertRaisesRegex(invalid, "alpha is -1; expected 0 or more"):
            session(model("Axpy", ["x", "y"], {"alpha": -1.0})).run(None, {"x": X, "y": ONE})
        with self.assertRaisesRegex(Exception, "Axpy"):
            session(model("Axpy", ["x", "y"], dtype=TensorProto.UINT8))

    def test_wrong_attributes_fail_when_the_session_is_made(self):
        for op, attributes, text in (
                ("Axpy", {"alpha": "much"}, "'alpha'"), ("Attributes", {}, "'size'"),
                ("Attributes", {"size": 1, "mode": "thrice"}, "thrice"),
                ("Attributes", {"size": 1, "flag": 2}, "'flag'")):
            with self.assertRaisesRegex(Exception, text):
                session(model(op, ["x", "y"] if op == "Axpy" else [], attributes))

    def test_attributes_of_every_type_reach_operator_and_inference(self):
        table = onnx.numpy_helper.from_array(np.array([10, 20], np.float32))
        run = session(model("Attributes", [], {
            "size": 2, "flag": 1, "scale": 0.5, "floats": [0.25, 0.25], "ints": [3, 4],
            "mode": "twice", "table": table}))
        self.assertEqual(run.get_outputs()[0].shape, [2])
        np.testing.assert_array_equal(run.run(None, {})[0], [52, 52])

    def test_shapes_have_the_symbols_of_the_inputs_and_made_up_ones(self):
        self.assertEqual(session(model("Axpy", ["x", "y"])).get_outputs()[0].shape, ["N"])
        self.assertEqual(
            session(model("Axpy", ["x", "y"], extents=(2, 3))).get_outputs()[0].shape, [2, 3])
        run = session(model("Positive", ["x"]))
        self.assertRegex(run.get_outputs()[0].shape[0], "^opkit_extent_")
        self.assertEqual(run.run(None, {"x": X})[0].tolist(), [1, 2])
        self.assertEqual(run.run(None, {"x": -X})[0].tolist(), [])

    def test_optional_inputs_are_left_out_at_the_end_or_in_the_middle(self):
        feeds = {"x": X, "a": np.full(3, 2, np.float32), "b": np.full(3, 5, np.float32)}
        for inputs, expected in ((["x"], X), (["x", "a"], 2 * X), (["x", "", "b"], X + 5),
                                 (["x", "a", "b"], 2 * X + 5), (["x", "", ""], X)):
            got = session(model("ScaleShift", inputs)).run(
                None, {name: feeds[name] for name in inputs if name})[0]
            np.testing.assert_array_equal(got, expected, err_msg=str(inputs))

    def test_variadic_inputs_and_outputs(self):
        for count in (1, 2, 5):
            for dtype, number in ((np.float32, TensorProto.FLOAT), (np.int64, TensorProto.INT64)):
                names = [f"x{i}" for i in range(count)]
                run = session(model("Swap", names, outputs=count, dtype=number))
                got = run.run(None, {name: np.array([i], dtype) for i, name in enumerate(names)})
                self.assertEqual([int(x[0]) for x in got], list(range(count))[::-1])

    def test_a_state_belongs_to_a_node_of_a_session(self):
        run = session(model("RunningSum", ["x"]))
        for factor in (1, 2, 3):
            np.testing.assert_array_equal(run.run(None, {"x": X})[0], factor * X)
        np.testing.assert_array_equal(session(model("RunningSum", ["x"])).run(None, {"x": X})[0], X)

    def test_several_threads_run_one_session(self):
        run = session(model("Axpy", ["x", "y"], {"alpha": 2.0}))
        total = session(model("RunningSum", ["x"]))
        wrong = []

        def work():
            for _ in range(200):
                total.run(None, {"x": ONE})
                if not np.array_equal(run.run(None, {"x": X, "y": ONE})[0], 2 * X + 1):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(total.run(None, {"x": ONE})[0].tolist(), [801] * 3)

    def test_large_loops_on_the_threads_of_the_session(self):
        x = np.arange(1 << 20, dtype=np.float32)
        for threads in (1, 4):
            got = session(model("Axpy", ["x", "y"], {"alpha": 2.0}), threads).run(
                None, {"x": x, "y": x})[0]
            np.testing.assert_array_equal(got, 3 * x)


if __name__ == "__main__":
    unittest.main()
