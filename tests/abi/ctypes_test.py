#!/usr/bin/env python3
"""The interface in C, called by ctypes, and the symbols of libopkit.so.

  ctypes_test.py LIBOPKIT LIBRARY HEADER   with the library of examples/library/plain_c.c
"""
import ctypes
import json
import re
import subprocess
import sys
import threading
import unittest
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, \
    c_uint64, c_void_p, cast, pointer
from pathlib import Path

LIBOPKIT, LIBRARY, HEADER = sys.argv[1:4]
del sys.argv[1:4]


class Tensor(Structure):
    """DLTensor, of floats in memory of its own."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]

    @classmethod
    def of(cls, shape, values):
        elements = (ctypes.c_float * len(values))(*values)
        extents = (c_int64 * len(shape))(*shape)
        tensor = cls(cast(elements, c_void_p), 1, 0, len(shape), 2, 32, 1, extents, None, 0)
        tensor.kept = elements, extents
        return tensor

    def values(self):
        count = 1
        for axis in range(self.ndim):
            count *= self.shape[axis]
        return list(cast(self.data, POINTER(ctypes.c_float))[:count])


class Managed(Structure):
    """DLManagedTensorVersioned."""


DELETER = ctypes.CFUNCTYPE(None, POINTER(Managed))
Managed._fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager_ctx", c_void_p),
                    ("deleter", DELETER), ("flags", c_uint64), ("tensor", Tensor)]

opkit = ctypes.CDLL(LIBOPKIT)
opkit.opkit_host_error.restype = opkit.opkit_host_version.restype = c_char_p
opkit.opkit_host_free_text.argtypes = [c_void_p]
opkit.opkit_host_make.argtypes = [c_char_p, c_uint64, c_char_p, c_char_p, POINTER(c_void_p)]
for run in (opkit.opkit_host_run, opkit.opkit_host_run_plan):
    run.argtypes = [c_void_p, c_uint64, c_void_p, c_uint64, c_void_p, POINTER(POINTER(Managed))]
opkit.opkit_host_parse_graph.argtypes = [c_char_p, c_uint64, c_char_p, POINTER(c_void_p)]
opkit.opkit_host_compile.argtypes = [c_void_p, c_char_p, POINTER(c_void_p)]
for function in (opkit.opkit_host_free_operator, opkit.opkit_host_free_graph, opkit.opkit_host_free_plan,
                 opkit.opkit_host_unload):
    function.argtypes = [c_void_p]


def check(status):
    if status:
        raise RuntimeError(opkit.opkit_host_error().decode())


def run(function, handle, *inputs):
    """Runs with one output, which the run makes."""
    pointers = (POINTER(Tensor) * len(inputs))(*(pointer(x) for x in inputs))
    made = POINTER(Managed)()
    check(function(handle, len(inputs), pointers, 1, None, byref(made)))
    result = made.contents.tensor.values()
    made.contents.deleter(made)
    return result


class CTypes(unittest.TestCase):
    def make(self, op, inputs, attributes=None):
        handle = c_void_p()
        check(opkit.opkit_host_make(op, inputs, attributes and json.dumps(attributes).encode(), None,
                                    byref(handle)))
        self.addCleanup(opkit.opkit_host_free_operator, handle)
        return handle

    def test_exports_the_functions_of_the_header_alone(self):
        out = subprocess.run(["nm", "-D", "--defined-only", LIBOPKIT], check=True, capture_output=True,
                             text=True).stdout
        declared = re.findall(r"\b(opkit_host_\w+)\(", re.sub(r"/\*.*?\*/", "", Path(HEADER).read_text(),
                                                             flags=re.DOTALL))
        self.assertEqual(sorted(line.split()[-1] for line in out.splitlines()), sorted(declared))

    def test_runs_an_operator_of_a_library(self):
        library = c_void_p()
        check(opkit.opkit_host_load(LIBRARY.encode(), None, byref(library)))
        text = c_void_p()
        check(opkit.opkit_host_operators(library, byref(text)))
        operators = json.loads(ctypes.string_at(text))
        opkit.opkit_host_free_text(text)
        self.assertEqual([op["name"] for op in operators], ["c_scale"])
        scale = c_void_p()
        check(opkit.opkit_host_make(b"c_scale", 1, b'{"scale": 2.5}', None, byref(scale)))
        self.assertEqual(run(opkit.opkit_host_run, scale, Tensor.of([2], [1, 2])), [2.5, 5])
        opkit.opkit_host_free_operator(scale)
        check(opkit.opkit_host_unload(library))

    def test_lists_every_operator_with_valid_json(self):
        text = c_void_p()
        check(opkit.opkit_host_operators(None, byref(text)))
        operators = {op["name"]: op for op in json.loads(ctypes.string_at(text))}
        opkit.opkit_host_free_text(text)
        self.assertGreater(len(operators), 50)
        self.assertEqual(operators["Elu"]["attributes"][0]["default"], 1.0)
        self.assertEqual(operators["Concat"]["num_inputs"], [1, None])
        self.assertEqual(operators["Relu"]["inputs"][0]["name"], "X")

    def test_tells_what_is_wrong(self):
        x = Tensor.of([2], [1, 2])
        with self.assertRaisesRegex(RuntimeError, "did you mean 'alpha'"):
            self.make(b"Elu", 1, {"alhpa": 1})
        with self.assertRaisesRegex(RuntimeError, "expected 2 inputs, found 1"):
            run(opkit.opkit_host_run, self.make(b"Add", 2), x)

    def test_is_called_by_several_threads_at_once(self):
        """ctypes releases Python's lock during a call. Each thread has its own results and errors."""
        add, x = self.make(b"Add", 2), Tensor.of([1000], [1] * 1000)
        right = []

        def calls(number):
            y, wrong = Tensor.of([1000], [number] * 1000), Tensor.of([number + 2], [0] * (number + 2))
            for _ in range(50):
                right.append(run(opkit.opkit_host_run, add, x, y) == [number + 1] * 1000)
                try:
                    run(opkit.opkit_host_run, add, x, wrong)
                    right.append(False)
                except RuntimeError as error:
                    right.append(f"[{number + 2}]" in str(error))

        threads = [threading.Thread(target=calls, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(right, [True] * 400)

    def run_relu(self, content):
        graph, plan = c_void_p(), c_void_p()
        check(opkit.opkit_host_parse_graph(content, len(content), None, byref(graph)))
        check(opkit.opkit_host_compile(graph, None, byref(plan)))
        opkit.opkit_host_free_graph(graph)
        self.assertEqual(run(opkit.opkit_host_run_plan, plan, Tensor.of([3], [-1, 0, 2])), [0, 0, 2])
        opkit.opkit_host_free_plan(plan)

    def test_runs_a_graph_in_json(self):
        self.run_relu(json.dumps({
            "format": "opkit graph", "version": 1,
            "inputs": [{"name": "x", "dtype": "float32", "shape": ["N"]}],
            "nodes": [{"type": "Relu", "inputs": ["x"], "outputs": ["y"]}], "outputs": ["y"]}).encode())

    def test_runs_an_onnx_model(self):
        """The bytes of a ModelProto of one node, by the numbers of the fields in onnx.proto."""
        def number(field, value):
            return bytes([field << 3, value])

        def data(field, content):
            return bytes([field << 3 | 2, len(content)]) + content

        shape = data(1, number(1, 3))
        info = data(2, data(1, number(1, 1) + data(2, shape)))
        node = data(1, b"x") + data(2, b"y") + data(4, b"Relu")
        graph = data(1, node) + data(2, b"g") + data(11, data(1, b"x") + info) + data(12, data(1, b"y") + info)
        self.run_relu(number(1, 8) + data(7, graph) + data(8, number(2, 21)))


if __name__ == "__main__":
    unittest.main()
