#!/usr/bin/env python3
"""One file is a library of opkit and serves other hosts, all in one process.

  hosts_test.py LIBRARY LIBOPKIT HOST...   with the library of libraries/gemm.cc

HOST is tvm_ffi, onnxruntime or jax: a package of this Python.
"""
import ctypes
import json
import sys
import unittest
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, \
    c_void_p, pointer

import numpy as np

LIBRARY, LIBOPKIT, *HOSTS = sys.argv[1:]
A = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([[1, 0], [0, 1], [1, 1]], np.float32)


class TvmFfi:
    def __init__(self):
        import tvm_ffi
        self.module = tvm_ffi.load_module(LIBRARY)

    def run(self, op, a, b, **attributes):
        return np.from_dlpack(getattr(self.module, op)(a, b, *attributes.values()))


class OnnxRuntime:
    def run(self, op, a, b, **attributes):
        import onnxruntime
        from onnx import TensorProto, helper
        node = helper.make_node(op, ["a", "b"], ["c"], domain="mine", **attributes)
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "abc"]
        graph = helper.make_graph([node], "graph", values[:2], values[2:])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.register_custom_ops_library(LIBRARY)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        return session.run(None, {"a": a, "b": b})[0]


class Jax:
    def __init__(self):
        import jax
        self.jax = jax
        library = ctypes.CDLL(LIBRARY)
        for op in ("my_gemm", "my_doubled_gemm"):
            handler = jax.ffi.pycapsule(getattr(library, "opkit_xla_" + op))
            jax.ffi.register_ffi_target(op, {"instantiate": handler, "execute": handler},
                                        platform="cpu")

    def run(self, op, a, b, **attributes):
        out = self.jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), np.float32)
        values = {name: np.float32(value) for name, value in attributes.items()}
        return np.asarray(self.jax.ffi.ffi_call(op, out)(a, b, **values))


class Tensor(Structure):
    """DLTensor."""
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]

    def __init__(self, array):
        super().__init__(array.ctypes.data, 1, 0, array.ndim, 2, 32, 1,
                         (c_int64 * array.ndim)(*array.shape), None, 0)


class Opkit:
    """The library in libopkit.so, by ctypes."""

    def __init__(self):
        self.c = ctypes.CDLL(LIBOPKIT)
        self.c.opkit_host_error.restype = c_char_p
        self.c.opkit_host_run.argtypes = [c_void_p, c_uint64, c_void_p, c_uint64, c_void_p, c_void_p]
        for function in (self.c.opkit_host_unload, self.c.opkit_host_free_operator,
                         self.c.opkit_host_free_text):
            function.argtypes = [c_void_p]
        self.library = c_void_p()
        self.check(self.c.opkit_host_load(LIBRARY.encode(), None, byref(self.library)))

    def check(self, status):
        if status:
            raise RuntimeError(self.c.opkit_host_error().decode())

    def operators(self):
        text = c_void_p()
        self.check(self.c.opkit_host_operators(self.library, byref(text)))
        names = [op["name"] for op in json.loads(ctypes.string_at(text))]
        self.c.opkit_host_free_text(text)
        return names

    def run(self, op, a, b, **attributes):
        handle, c = c_void_p(), np.zeros((a.shape[0], b.shape[1]), np.float32)
        tensors = [pointer(Tensor(array)) for array in (a, b, c)]
        self.check(self.c.opkit_host_make(op.encode(), c_uint64(2), json.dumps(attributes).encode(),
                                          None, byref(handle)))
        try:
            self.check(self.c.opkit_host_run(handle, 2, (POINTER(Tensor) * 2)(*tensors[:2]), 1,
                                             (POINTER(Tensor) * 1)(tensors[2]), None))
        finally:
            self.c.opkit_host_free_operator(handle)
        return c

    def unload(self):
        self.check(self.c.opkit_host_unload(self.library))


CLASSES = {"tvm_ffi": TvmFfi, "onnxruntime": OnnxRuntime, "jax": Jax}


class OneFile(unittest.TestCase):
    def check_host(self, host):
        self.assertEqual(host.run("my_gemm", A, B, alpha=2.0).tolist(), (2 * A @ B).tolist())
        self.assertEqual(host.run("my_doubled_gemm", A, B).tolist(), (2 * A @ B).tolist())
        with self.assertRaises(Exception) as raised:
            host.run("my_gemm", A, A)
        self.assertIn("my_gemm", str(raised.exception))
        self.assertIn("cannot multiply [2, 3] by [2, 3]", str(raised.exception))
        if isinstance(host, TvmFfi):
            self.check_tvm_ffi(host.module)

    def check_tvm_ffi(self, module):
        self.assertEqual(np.from_dlpack(module.state_gemm_create()(A, B)).tolist(), (A @ B).tolist())
        self.assertIn("keeps state", str(self.failure(lambda: module.state_gemm(A, B))))
        text = str(self.failure(lambda: module.my_gem(A, B)))
        self.assertIn("operator 'my_gem' is exported, but this shared object registers no operator",
                      text)
        self.assertIn("did you mean 'my_gemm'?", text)
        self.assertIn("'my_doubled_gemm'", text)

    def failure(self, call):
        with self.assertRaises(Exception) as raised:
            call()
        return raised.exception

    def test_hosts_take_turns(self):
        hosts = [CLASSES[name]() for name in HOSTS]
        self.assertTrue(hosts)

        def check(when):
            for host in hosts:
                with self.subTest(when, host=type(host).__name__):
                    self.check_host(host)

        check("before opkit loads the file")
        for _ in range(2):
            opkit = Opkit()
            self.assertEqual(sorted(opkit.operators()),
                             ["my_doubled_gemm", "my_fast_gemm", "my_gemm", "state_gemm"])
            self.check_host(opkit)
            check("while opkit has the file")
            opkit.unload()
            check("after opkit has unloaded the file")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
