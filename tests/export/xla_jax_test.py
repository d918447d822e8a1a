"""Calls exported operators from JAX: xla_jax_test.py LIBRARY, in a Python with jax."""

import ctypes
import sys
import threading
import unittest

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
LIBRARY = ctypes.CDLL(sys.argv.pop(1))


def capsule(symbol):
    """A capsule with the address of a variable of the library."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(ctypes.c_int64.in_dll(LIBRARY, symbol)), None, None)


def register(op):
    handler = jax.ffi.pycapsule(getattr(LIBRARY, "opkit_xla_" + op))
    jax.ffi.register_ffi_target(op, {"instantiate": handler, "execute": handler}, platform="cpu")


for op in ("XlaAxpy", "XlaMixed"):
    register(op)
jax.ffi.register_ffi_target(
    "plain", jax.ffi.pycapsule(LIBRARY.opkit_xla_XlaAxpy), platform="cpu")
jax.ffi.register_ffi_target(
    "later", jax.ffi.pycapsule(LIBRARY.opkit_xla_later_XlaAxpy), platform="cpu")
jax.ffi.register_ffi_target(
    "no_state", jax.ffi.pycapsule(LIBRARY.opkit_xla_XlaRunningSum), platform="cpu")
jax.ffi.register_ffi_type("XlaRunningSum", {
    "type_id": capsule("opkit_xla_type_id_XlaRunningSum"),
    "type_info": capsule("opkit_xla_type_info_XlaRunningSum")}, platform="cpu")
register("XlaRunningSum")


def call(target, *args, shape=None, dtype=None, **attributes):
    """Calls a target in a compiled program; the result is by default like the first argument."""
    def program(*args):
        result = jax.ShapeDtypeStruct(args[0].shape if shape is None else shape,
                                      dtype or args[0].dtype)
        return jax.ffi.ffi_call(target, result, vmap_method="broadcast_all")(*args, **attributes)
    return program


def run(target, *args, **options):
    return np.asarray(jax.jit(call(target, *args, **options))(*args))


class Jax(unittest.TestCase):
    def refused(self, kind, *texts):
        test = self

        class Refused:
            def __enter__(self):
                pass

            def __exit__(self, _, error, __):
                test.assertIsNotNone(error, "no error")
                for text in (kind, *texts):
                    test.assertIn(text, str(error))
                return True
        return Refused()

    def test_values(self):
        x, y = jnp.arange(3.0, dtype=jnp.float32), jnp.ones(3, jnp.float32)
        for target in ("XlaAxpy", "plain", "later"):
            np.testing.assert_array_equal(run(target, x, y), [1, 2, 3])
            for alpha in (np.float32(2), np.float64(2), 2):
                np.testing.assert_array_equal(run(target, x, y, alpha=alpha), [1, 3, 5])
        np.testing.assert_array_equal(
            jax.vmap(call("plain", alpha=np.float32(2)))(jnp.ones((2, 3)), jnp.ones((2, 3))),
            np.full((2, 3), 3.0))

    def test_dtypes(self):
        for dtype in (jnp.float64, jnp.float16, jnp.bfloat16, jnp.int32, jnp.int8):
            result = run("XlaAxpy", jnp.arange(3).astype(dtype), jnp.ones(3, dtype),
                         alpha=np.float32(2))
            self.assertEqual(result.dtype, dtype)
            np.testing.assert_array_equal(result.astype(np.float32), [1, 3, 5])

    def test_large_on_threads_of_xla(self):
        x = jnp.arange(1_000_000, dtype=jnp.float32)
        for target in ("plain", "later"):
            np.testing.assert_array_equal(run(target, x, x), 2 * np.asarray(x))

    def test_attributes(self):
        x = jnp.full((1,), 3, jnp.float32)
        np.testing.assert_array_equal(
            run("XlaMixed", x, shape=(8,), dtype=jnp.float64, flag=True, count=7, text="four",
                ints=np.array([1, 2, 3]), floats=np.array([0.5, 0.25], np.float32),
                flags=np.array([1, 0, 1]), names={"0": "a", "1": "bc"}),
            [3, 1, 7, 4, 123, 0.75, 5, 12])

    def test_inputs_left_out(self):
        x, scale, bias = (jnp.full((1,), v, jnp.float32) for v in (3, 2, 10))
        for args, present, expected in (((x, scale), None, 6), ((x, scale, bias), None, 16),
                                        ((x, bias), [1, 0, 1], 13)):
            more = {} if present is None else {"opkit_inputs": np.array(present)}
            result = run("XlaMixed", *args, shape=(8,), dtype=jnp.float64, **more)
            self.assertEqual(result[0], expected)

    def test_errors(self):
        x, y = jnp.arange(3.0, dtype=jnp.float32), jnp.ones(3, jnp.float32)
        for target in ("plain", "later"):
            with self.refused("OUT_OF_RANGE", "alpha is 2e+09"):
                run(target, x, y, alpha=np.float32(2e9))
            with self.refused("INVALID_ARGUMENT", "XlaAxpy"):
                run(target, x, jnp.ones(4, jnp.float32))
            with self.refused("INVALID_ARGUMENT", "output 0 'z' of XlaAxpy is given as float32[4]"):
                run(target, x, y, shape=(4,))
            with self.refused("INVALID_ARGUMENT", "float64"):
                run(target, x, y, dtype=jnp.float64)
        with self.refused("alpah", "did you mean 'alpha'"):
            run("XlaAxpy", x, y, alpah=np.float32(2))
        with self.refused("UNIMPLEMENTED", "element type"):
            run("XlaAxpy", x.astype(jnp.float8_e5m2), y.astype(jnp.float8_e5m2))
        with self.refused("FAILED_PRECONDITION", "keeps state", '"instantiate"'):
            run("no_state", x)

    def test_state_belongs_to_a_program(self):
        x = jnp.arange(3.0, dtype=jnp.float32)
        one, two = (jax.jit(call("XlaRunningSum")) for _ in range(2))
        for k in range(1, 4):
            np.testing.assert_array_equal(one(x), k * np.asarray(x))
        np.testing.assert_array_equal(two(x), x)

    def test_threads_of_the_caller(self):
        x = jnp.arange(5000, dtype=jnp.float32)
        program, wrong = jax.jit(call("plain")), []

        def work():
            for _ in range(50):
                if not np.array_equal(program(x, x), 2 * np.asarray(x)):
                    wrong.append(1)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
