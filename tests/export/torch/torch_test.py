"""Calls exported operators in PyTorch: torch_test.py LIBRARY, in a Python with torch."""

import sys
import unittest

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

torch.ops.load_library(sys.argv[1])
OPS = torch.ops.tests


def axpy_gradient(ctx, gradient):
    return gradient * ctx.alpha, gradient, None


def keep_alpha(ctx, inputs, output):
    ctx.alpha = inputs[2]


torch.library.register_fake("tests::Axpy", lambda x, y, alpha=1.0: x.new_empty(x.shape))
torch.library.register_autograd("tests::Axpy", axpy_gradient, setup_context=keep_alpha)
torch.library.register_fake(
    "tests::PartialSums", lambda inputs: [inputs[0].new_empty(inputs[0].shape) for _ in inputs])
torch.library.register_fake(
    "tests::Count", lambda size: torch.empty(size, dtype=torch.int64))


@torch.library.register_fake("tests::Positive")
def positive_fake(x):
    count = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(count), x.new_empty((), dtype=torch.int64)


class Torch(unittest.TestCase):
    def same(self, found, expected, dtype=None):
        expected = torch.tensor(expected, dtype=dtype or found.dtype)
        self.assertEqual((found.dtype, found.device.type), (expected.dtype, "cpu"))
        self.assertTrue(torch.equal(found, expected), f"{found} is not {expected}")

    def refused(self, call, *texts):
        with self.assertRaises(RuntimeError) as caught:
            call()
        self.assertIs(type(caught.exception), RuntimeError)
        for text in texts:
            self.assertIn(text, str(caught.exception))

    def test_schemas(self):
        for op, schema in {
            "Axpy": "(Tensor x, Tensor y, float alpha=1.) -> Tensor",
            "ScaleShift": "(Tensor x, Tensor? scale=None, Tensor? shift=None) -> Tensor",
            "PartialSums": "(Tensor[] inputs) -> Tensor[]",
            "Positive": "(Tensor x) -> (Tensor, Tensor)",
            "Count": "(int size) -> Tensor",
        }.items():
            self.assertEqual(str(getattr(OPS, op).default._schema), f"tests::{op}{schema}")

    def test_dtypes(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8,
                      torch.int8, torch.int16, torch.int32, torch.int64):
            x, y = torch.arange(3).to(dtype), torch.ones(3, dtype=dtype)
            self.same(OPS.Axpy(x, y, 2.0), [1, 3, 5], dtype)
        self.same(OPS.Not(torch.tensor([True, False])), [False, True], torch.bool)

    def test_defaults_and_keywords(self):
        x, y = torch.arange(3.0), torch.ones(3)
        self.same(OPS.Axpy(x, y), [1, 2, 3])
        self.same(OPS.Axpy(y=y, alpha=3.0, x=x), [1, 4, 7])
        self.same(OPS.Axpy(x, y, 2), [1, 3, 5])

    def test_shapes(self):
        for shape in ((), (0,), (2, 0, 3), (2, 1, 3)):
            x = torch.ones(shape)
            found = OPS.Axpy(x, x)
            self.assertTrue(torch.equal(found, x + x))
            self.assertTrue(found.is_contiguous())

    def test_strides(self):
        x = torch.arange(6.0)
        self.same(OPS.Axpy(x[::2], torch.ones(3)), [1, 3, 5])
        matrix = x.reshape(2, 3)
        self.same(OPS.Axpy(matrix.t(), torch.zeros(3, 2)), [[0, 3], [1, 4], [2, 5]])
        self.same(OPS.Axpy(torch.ones(1).expand(3), torch.zeros(3)), [1, 1, 1])
        self.same(OPS.Axpy(x[2:5], x[1:4]), [3, 5, 7])
        self.same(OPS.Axpy(matrix[:, 1], matrix[1, :2]), [4, 8])

    def test_inputs_left_out(self):
        x, two, ten = torch.arange(3.0), torch.full((3,), 2.0), torch.full((3,), 10.0)
        self.same(OPS.ScaleShift(x), [0, 1, 2])
        self.same(OPS.ScaleShift(x, two), [0, 2, 4])
        self.same(OPS.ScaleShift(x, None, ten), [10, 11, 12])
        self.same(OPS.ScaleShift(x, shift=ten), [10, 11, 12])
        self.same(OPS.ScaleShift(x, two, ten), [10, 12, 14])

    def test_inputs_and_outputs_of_any_number(self):
        for count in (1, 2, 5):
            sums = OPS.PartialSums([torch.arange(3.0)] * count)
            self.assertEqual(len(sums), count)
            for i, one in enumerate(sums):
                self.same(one, [0, i + 1, 2 * (i + 1)])
        with self.assertRaisesRegex(NotImplementedError, "empty list of Tensors"):
            OPS.PartialSums([])

    def test_outputs_of_unknown_shape(self):
        values, count = OPS.Positive(torch.tensor([1.0, -1.0, 3.0]))
        self.same(values, [1, 3])
        self.same(count, 2, torch.int64)

    def test_attributes(self):
        def text(*args, **attributes):
            return bytes(OPS.Describe(torch.zeros(1), *args, **attributes).tolist()).decode()
        self.assertEqual(text(5), '5 0.1 true say "a\\b" [1, -2] [0.5, 1e+30] 1 [a] 0')
        self.assertEqual(
            text(i=-1, f=2.5, b=False, s="four", is_=[3], fs=[], bs=[True, False],
                 ss=["é", ""], t=torch.arange(4.0)[::2]),
            "-1 2.5 false four [3] [] 2 [é, ] 2")

    def test_no_inputs(self):
        self.same(OPS.Count(3), [0, 1, 2], torch.int64)

    def test_loops_run_on_threads_of_torch(self):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        self.same(OPS.Threads(torch.zeros(1000)), [1])
        torch.set_num_threads(before)
        x = torch.arange(100_000.0)
        self.assertTrue(torch.equal(OPS.Axpy(x, x), 2 * x))

    def test_errors(self):
        x, y = torch.arange(3.0), torch.ones(3)
        self.refused(lambda: OPS.Axpy(x, y, 2e9), "alpha is 2e+09", "Axpy")
        self.refused(lambda: OPS.Axpy(x, torch.ones(4)), "input 1 'y' of Axpy", "float32[4]")
        self.refused(lambda: OPS.Axpy(x, y.double()),
                     "input 1 of Axpy (x, y) -> (z) is float64[3], expected dtype float32\n",
                     "input 1 'y': float64[3] on cpu")
        self.refused(lambda: OPS.Axpy(x.to(torch.complex64), y.to(torch.complex64)), "complex64")
        self.refused(lambda: OPS.Axpy(x.to(torch.float8_e5m2), y.to(torch.float8_e5m2)),
                     "torch's scalar type", "is not a dtype of opkit")
        self.refused(lambda: OPS.Axpy(x), "missing value for argument 'y'")
        self.refused(lambda: OPS.Axpy(x, y, alpah=2.0), "alpah")
        self.refused(lambda: OPS.Increment(x), "Increment must run in place")

    def test_state_is_refused(self):
        with self.assertRaises(AttributeError):
            OPS.RunningSum

    def test_gradient(self):
        x, y = torch.arange(3.0, requires_grad=True), torch.ones(3, requires_grad=True)
        OPS.Axpy(x, y, 2.0).sum().backward()
        self.same(x.grad, [2, 2, 2])
        self.same(y.grad, [1, 1, 1])

    def test_fake_tensors(self):
        with FakeTensorMode():
            x = torch.empty(2, 3)
            self.assertEqual(OPS.Axpy(x, x).shape, (2, 3))
            self.assertEqual([one.shape for one in OPS.PartialSums([x, x])], [(2, 3)] * 2)
            self.assertEqual(OPS.Count(4).shape, (4,))
        self.assertEqual(OPS.Axpy(torch.empty(2, device="meta"), torch.empty(2, device="meta")).shape,
                         (2,))

    def test_opcheck(self):
        x, y = torch.arange(3.0, requires_grad=True), torch.ones(3)
        for op, args in ((OPS.Axpy, (x, y, 2.0)), (OPS.Axpy, (y.expand(2, 3).t(), torch.ones(3, 2))),
                         (OPS.PartialSums, ([y, y],)), (OPS.Count, (3,)), (OPS.Positive, (y,))):
            found = torch.library.opcheck(op.default, args)
            self.assertEqual(set(found.values()), {"SUCCESS"}, found)

    def test_compile(self):
        @torch.compile(backend="aot_eager", fullgraph=True)
        def twice(x, y):
            return OPS.Axpy(OPS.Axpy(x, y, 2.0), y)
        self.same(twice(torch.arange(3.0), torch.ones(3)), [2, 4, 6])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
