"""Calls the package that `opkit export` writes in PyTorch: python_side_test.py FOLDER.

FOLDER has the package `generated` of tests/cli/libraries/exports.cc.
"""

import sys
import unittest

import torch

sys.path.insert(0, sys.argv[1])
import generated.torch as ops


class PythonSide(unittest.TestCase):
    def same(self, found, expected):
        self.assertEqual(found.tolist(), expected)

    def setUp(self):
        self.x, self.y = torch.arange(3.0), torch.ones(3)

    def test_calls(self):
        x, y = self.x, self.y
        self.same(ops.Axpy(x, y), [1, 2, 3])
        self.same(ops.Axpy(y=y, x=x, alpha=2), [1, 3, 5])
        self.same(ops.Axpy(x.double(), y.double(), alpha=None), [1, 2, 3])
        self.same(ops.Blend(x, None, y, lambda_=1.0, weights=[2.0], negate=True, mode="twice"),
                  [1, -3, -7])
        self.same(ops.AddAll(x, x, y), [1, 3, 5])
        self.same(ops.Positives(x), [1, 2])
        found, kept = ops.KeepPositive(x - 1, torch.tensor([5], dtype=torch.int32))
        self.same(found, [0, 0, 8])
        self.same(kept, [0, 0, 1])

    def test_errors(self):
        with self.assertRaisesRegex(RuntimeError, "Axpy"):
            ops.Axpy(self.x, torch.ones(4))
        with self.assertRaisesRegex(TypeError, "alpah"):
            ops.Axpy(self.x, self.y, alpah=2)
        self.assertFalse(hasattr(ops, "Total"))

    def test_gradients(self):
        x, y = self.x.requires_grad_(), self.y.requires_grad_()
        (ops.Axpy(x, y, alpha=3.0) ** 2).sum().backward()
        self.same(x.grad, [6, 24, 42])
        self.same(y.grad, [2, 8, 14])
        x.grad = None
        ops.AddAll(x, y, x).sum().backward()
        self.same(x.grad, [2, 2, 2])
        x.grad = None
        ops.KeepPositive(x - 1, torch.tensor([5], dtype=torch.int32))[0].sum().backward()
        self.same(x.grad, [0, 0, 3])

    def test_shapes(self):
        meta = torch.empty(2, 3, device="meta")
        self.assertEqual(ops.Axpy(meta, meta).shape, (2, 3))
        self.assertEqual(ops.Blend(meta, lambda_=1.0).shape, (2, 3))
        self.assertEqual(ops.AddAll(meta, meta).shape, (2, 3))
        found, kept = ops.KeepPositive(meta, torch.empty(1, dtype=torch.int32, device="meta"))
        self.assertEqual((found.shape, kept.dtype), ((2, 3), torch.uint8))
        with self.assertRaisesRegex(Exception, "Axpy"):
            ops.Axpy(meta, torch.empty(4, device="meta"))

    def test_compile(self):
        traced = []

        def backend(graph, inputs):
            traced.append(1)
            return graph

        @torch.compile(backend=backend, fullgraph=True, dynamic=True)
        def twice(x, y):
            return ops.Axpy(ops.Axpy(x, y), y, alpha=2.0)
        for size in (3, 4, 5):
            x = torch.arange(float(size))
            self.same(twice(x, torch.ones(size)), (2 * x + 3).tolist())
        self.assertEqual(len(traced), 1)

    def test_opcheck(self):
        x, y = torch.arange(3.0, requires_grad=True), torch.ones(3)
        named = torch.ops.opkit_test
        for op, args, attributes in (
                (named.Axpy, (x, y), {"alpha": 2.0}),
                (named.Axpy, (y.expand(2, 3).t(), torch.ones(3, 2)), {}),
                (named.Axpy_grad, (y, y, x.detach(), y), {"alpha": 2.0}),
                (named.Blend, (y, None, y), {"lambda_": 1.0, "weights": [2.0]}),
                (named.AddAll, ([x, y],), {}),
                (named.KeepPositive, (x, torch.tensor([5], dtype=torch.int32)), {}),
                (named.Positives, (y,), {})):
            with self.subTest(op=str(op)):
                found = torch.library.opcheck(op.default, args, attributes)
                self.assertEqual(set(found.values()), {"SUCCESS"}, found)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
