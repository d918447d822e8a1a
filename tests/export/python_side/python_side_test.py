#!/usr/bin/env python3
"""Calls the package that `opkit export` writes: python_side_test.py PROGRAM LIBRARY HOST.

LIBRARY is made of tests/cli/libraries/exports.cc. HOST is numpy, which needs apache-tvm-ffi, or jax.
"""
import importlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

PROGRAM, LIBRARY, HOST = sys.argv[1:4]
del sys.argv[1:4]
FOLDER = tempfile.TemporaryDirectory()
PACKAGE = pathlib.Path(FOLDER.name, "generated")
subprocess.run([PROGRAM, "export", LIBRARY, "--python", PACKAGE, "--elementwise", "Scale"],
               check=True, timeout=120)
sys.path.insert(0, FOLDER.name)
sys.dont_write_bytecode = True


class NumPy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ops = importlib.import_module("generated")

    def setUp(self):
        self.x, self.y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)

    def test_keywords_and_defaults(self):
        ops = self.ops
        self.assertEqual(ops.Axpy(self.x, self.y).tolist(), [1, 2, 3])
        z = ops.Axpy(y=self.y, x=self.x, alpha=2)
        self.assertIsInstance(z, np.ndarray)
        self.assertEqual(z.tolist(), [1, 3, 5])
        self.assertEqual(ops.Axpy(self.x, self.y, alpha=None).tolist(), [1, 2, 3])
        out = np.zeros(3, np.float32)
        self.assertIs(ops.Axpy(self.x, self.y, alpha=3.0, out=out), out)
        self.assertEqual(out.tolist(), [1, 4, 7])
        with self.assertRaisesRegex(TypeError, "alpah"):
            ops.Axpy(self.x, self.y, alpah=2)
        with self.assertRaisesRegex(ValueError, "Axpy"):
            ops.Axpy(self.x, np.ones(4, np.float32))

    def test_attributes_and_inputs_that_are_left_out(self):
        ops, x, two = self.ops, self.x, np.full(3, 2, np.float32)
        self.assertEqual(ops.Blend(x, lambda_=1.0).tolist(), [0, 1, 2])
        self.assertEqual(ops.Blend(x, None, two, lambda_=1.0).tolist(), [2, 3, 4])
        self.assertEqual(ops.Blend(x, two, lambda_=0.5, negate=True, mode="twice",
                                   weights=[2.0, 3]).tolist(), [0, -12, -24])
        with self.assertRaisesRegex(TypeError, "lambda_"):
            ops.Blend(x)

    def test_other_forms_of_operators(self):
        ops, x = self.ops, self.x
        self.assertEqual(ops.AddAll(x, x, self.y).tolist(), [1, 3, 5])
        y, kept = ops.KeepPositive(x, np.array([5], np.int32))
        self.assertEqual((y.tolist(), kept.tolist()), ([0, 8, 11], [0, 1, 1]))
        self.assertEqual(ops.Positives(x).tolist(), [1, 2])
        total = ops.Total_create()
        self.assertEqual([total(x).tolist() for _ in range(2)], [[0, 1, 2], [0, 2, 4]])
        self.assertFalse(hasattr(ops, "Total"))

    def test_help(self):
        doc = self.ops.Axpy.__doc__
        self.assertTrue(doc.startswith('z = alpha * x + y, "quoted" and a \\ too\n'))
        self.assertIn("x: float32, float64", doc)
        self.assertIn("alpha: float, default 1.0", doc)

    def test_stubs_are_python(self):
        stubs = sorted(PACKAGE.glob("*.pyi"))
        self.assertEqual([s.stem for s in stubs], ["__init__", "jax", "torch"])
        for stub in stubs:
            compile(stub.read_text(), stub, "exec")
        self.assertIn("def Axpy(x: _Array, y: _Array, *, alpha: _Optional[float] = ..., "
                      "out: _Optional[_Array] = ...) -> _Array: ...", stubs[0].read_text())
        compile((PACKAGE / "torch.py").read_text(), "torch.py", "exec")
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_the_gradient_is_an_operator(self):
        from generated import _library
        one = np.ones(3, np.float32)
        dx, dy = _library.call("Axpy_grad", (one, self.x, self.x, self.y), (3.0,))
        self.assertEqual((dx.tolist(), dy.tolist()), ([3, 3, 3], [1, 1, 1]))
        with self.assertRaisesRegex(ValueError, "shape"):
            _library.call("Axpy_grad", (one, self.x, np.ones(4, np.float32), self.y), ())
        with self.assertRaisesRegex((LookupError, RuntimeError), "Blend has no gradient"):
            _library.call("Blend_grad", (one, one, one), ())


class Jax(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ops = importlib.import_module("generated.jax")
        cls.jax = importlib.import_module("jax")
        cls.x, cls.y = np.arange(1, 4, dtype=np.float32), np.ones(3, np.float32)

    def equal(self, found, expected):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))

    def test_calls(self):
        ops, x, y = self.ops, self.x, self.y
        self.equal(ops.Axpy(x, y), x + y)
        self.equal(self.jax.jit(lambda x: ops.Axpy(x, y, alpha=2))(x), 2 * x + y)
        self.equal(ops.Blend(x, None, y, lambda_=1.0, weights=[2.0], negate=True, mode="twice"),
                   -4 * x + y)
        self.equal(ops.AddAll(x, x, y), 2 * x + y)
        found, kept = ops.KeepPositive(x - 2, np.array([5], np.int32))
        self.equal(found, [0, 0, 8])
        self.equal(kept, [0, 0, 1])
        total = self.jax.jit(lambda x: ops.Total(x))
        self.equal([total(x), total(x)], [x, 2 * x])

    def test_errors_come_before_the_run(self):
        with self.assertRaisesRegex(ValueError, "Axpy"):
            self.ops.Axpy(self.x, np.ones(4, np.float32))
        with self.assertRaisesRegex(TypeError, "int32"):
            self.ops.Axpy(np.arange(3, dtype=np.int32), self.y)
        with self.assertRaisesRegex(NotImplementedError, "do not decide the results of Positives"):
            self.ops.Positives(self.x)

    def test_gradients(self):
        ops, grad = self.ops, self.jax.grad
        x, y = self.x, self.y
        loss = lambda x, y: (ops.Axpy(x, y, alpha=3.0) ** 2).sum()
        expected = 6 * (3 * x + y)
        self.equal(grad(loss)(x, y), expected)
        self.equal(self.jax.jit(grad(loss, argnums=1))(x, y), expected / 3)
        rows = np.stack([x, y])
        self.equal(self.jax.vmap(grad(loss), (0, None))(rows, y), 6 * (3 * rows + y))
        index = np.array([5], np.int32)
        self.equal(grad(lambda x: ops.KeepPositive(x, index)[0] @ y)(x - 2), [0, 0, 3])
        self.equal(grad(lambda x: ops.AddAll(x, x, x).sum())(x), [3, 3, 3])
        with self.assertRaisesRegex(ValueError, "differentiated"):
            grad(lambda x: ops.Blend(x, lambda_=1.0).sum())(x)

    def test_vmap(self):
        rows = np.arange(6, dtype=np.float32).reshape(2, 3)
        for op in (self.ops.Scale, lambda x, alpha: self.ops.Axpy(x, self.y, alpha=alpha) - self.y):
            self.equal(self.jax.vmap(lambda x: op(x, alpha=2.0))(rows), 2 * rows)
        text = str(self.jax.make_jaxpr(self.jax.vmap(self.ops.Scale))(rows))
        self.assertNotIn("scan", text)  # all rows in one call
        text = str(self.jax.make_jaxpr(self.jax.vmap(lambda x: self.ops.Axpy(x, self.y)))(rows))
        self.assertIn("scan", text)


if __name__ == "__main__":
    unittest.main(defaultTest={"numpy": "NumPy", "jax": "Jax"}[HOST])
