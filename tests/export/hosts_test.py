#!/usr/bin/env python3
"""One file is a library of opkit and serves other hosts, all in one process.

  hosts_test.py LIBRARY LIBOPKIT FAKE_TORCH HOST...   with the library of libraries/gemm.cc

FAKE_TORCH is made of libraries/fake_torch.cc. HOST is tvm_ffi, onnxruntime or jax: a package of this
Python.
"""
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from ctypes import POINTER, Structure, byref, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, \
    c_void_p, pointer

sys.path.pop(0)  # else a host that looks for PyTorch finds the folder torch beside this file
import numpy as np

LIBRARY, LIBOPKIT, FAKE_TORCH, *HOSTS = sys.argv[1:]
A = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([[1, 0], [0, 1], [1, 1]], np.float32)


class TvmFfi:
    def __init__(self, path):
        import tvm_ffi
        self.module = tvm_ffi.load_module(path)

    def run(self, op, a, b, **attributes):
        return np.from_dlpack(getattr(self.module, op)(a, b, *attributes.values()))


class OnnxRuntime:
    def __init__(self, path):
        self.path = path

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
        options.register_custom_ops_library(self.path)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        return session.run(None, {"a": a, "b": b})[0]


class Jax:
    def __init__(self, path):
        import jax
        self.jax, self.path = jax, path
        library = ctypes.CDLL(path)
        for op in ("my_gemm", "my_doubled_gemm"):
            handler = jax.ffi.pycapsule(getattr(library, "opkit_xla_" + op))
            jax.ffi.register_ffi_target(path + op, {"instantiate": handler, "execute": handler},
                                        platform="cpu")

    def run(self, op, a, b, **attributes):
        out = self.jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), np.float32)
        values = {name: np.float32(value) for name, value in attributes.items()}
        return np.asarray(self.jax.ffi.ffi_call(self.path + op, out)(a, b, **values))


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

    def __init__(self, path):
        self.c = ctypes.CDLL(LIBOPKIT)
        self.c.opkit_host_error.restype = c_char_p
        self.c.opkit_host_run.argtypes = [c_void_p, c_uint64, c_void_p, c_uint64, c_void_p, c_void_p]
        for function in (self.c.opkit_host_unload, self.c.opkit_host_free_operator,
                         self.c.opkit_host_free_text):
            function.argtypes = [c_void_p]
        self.library = c_void_p()
        self.check(self.c.opkit_host_load(path.encode(), None, byref(self.library)))

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


# Loads the file with opkit into a process that has loaded PyTorch. Prints the schemas that PyTorch
# gets, and opkit's error.
LOAD_INTO_TORCH = """
import ctypes, sys
torch, opkit = map(ctypes.CDLL, sys.argv[1:3])
torch.fake_torch_schemas.restype = opkit.opkit_host_error.restype = ctypes.c_char_p
library = ctypes.c_void_p()
opkit.opkit_host_load(sys.argv[3].encode(), None, ctypes.byref(library))
print(torch.fake_torch_schemas().decode() + opkit.opkit_host_error().decode())
"""
OPERATORS = ["my_doubled", "my_doubled_gemm", "my_fast_gemm", "my_gemm", "state_gemm"]
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
        self.assertEqual(np.from_dlpack(module.my_doubled(A)).tolist(), (2 * A).tolist())
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

    def check_all(self, hosts, when):
        self.assertTrue(hosts)
        for host in hosts:
            with self.subTest(when, host=type(host).__name__):
                self.check_host(host)

    def check_opkit(self, opkit):
        self.assertEqual(sorted(opkit.operators()), OPERATORS)
        self.check_host(opkit)

    def test_opkit_loads_a_file_that_hosts_have(self):
        hosts = [CLASSES[name](LIBRARY) for name in HOSTS]
        self.check_all(hosts, "before opkit loads the file")
        for _ in range(2):
            opkit = Opkit(LIBRARY)
            self.check_opkit(opkit)
            self.check_all(hosts, "while opkit has the file")
            opkit.unload()
            self.check_all(hosts, "after opkit has unloaded the file")

    def test_hosts_load_a_file_that_opkit_has(self):
        with tempfile.TemporaryDirectory() as folder:  # a file that no test has loaded
            path = shutil.copy(LIBRARY, folder + "/libfirst.so")
            opkit = Opkit(path)
            hosts = [CLASSES[name](path) for name in HOSTS]
            self.check_all(hosts, "while opkit has the file")
            self.check_opkit(opkit)
            opkit.unload()
            self.check_all(hosts, "after opkit has unloaded the file")
            opkit = Opkit(path)
            self.check_opkit(opkit)
            self.check_all(hosts, "after opkit has loaded the file again")
            opkit.unload()

    def test_torch_gets_the_operators_when_opkit_loads_the_file(self):
        run = subprocess.run(
            [sys.executable, "-c", LOAD_INTO_TORCH, FAKE_TORCH, LIBOPKIT, LIBRARY], check=True,
            capture_output=True, text=True)
        *schemas, error = run.stdout.splitlines()
        self.assertEqual(error, "")
        self.assertEqual(sorted(schemas),
                         ["mine::my_doubled_gemm(Tensor a, Tensor b) -> Tensor",
                          "mine::my_gemm(Tensor a, Tensor b, float alpha=1.) -> Tensor"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
