#!/usr/bin/env python3
"""Calls the operators of a shared object by tvm-ffi, with NumPy arrays.

usage: tvm_ffi_test.py LIBRARY

The Python needs apache-tvm-ffi and NumPy. LIBRARY is made of operators.cc.
"""
import json
import sys
import threading
import unittest

import numpy as np
import tvm_ffi

OPS = None


def returned(tensor):
    return np.from_dlpack(tensor)


def array(*values, dtype=np.float32):
    return np.array(values, dtype)


class Call(unittest.TestCase):
    def setUp(self):
        self.x, self.y = array(0, 1, 2), array(1, 1, 1)

    def fails(self, kind, words, function, *args):
        with self.assertRaises(kind) as raised:
            function(*args)
        self.assertIs(type(raised.exception), kind)
        self.assertIn(words, str(raised.exception))

    def test_an_array_is_written_to(self):
        z = np.zeros(3, np.float32)
        self.assertIsNone(OPS.Axpy(self.x, self.y, 2.0, z))
        self.assertEqual(z.tolist(), [1, 3, 5])
        OPS.Axpy(self.x, self.y, z)  # the default of alpha
        self.assertEqual(z.tolist(), [1, 2, 3])

    def test_a_new_tensor_is_returned(self):
        z = returned(OPS.Axpy(self.x, self.y, 3))  # an integer for a float
        self.assertEqual(z.tolist(), [1, 4, 7])
        del self.x, self.y  # the result has memory of its own
        self.assertEqual(z.tolist(), [1, 4, 7])

    def test_calls_with_other_attributes_shapes_and_dtypes(self):
        for alpha in range(40):  # more than stay ready
            for n in (1, 3):
                for dtype in (np.float32, np.float64):
                    x, y = np.arange(n, dtype=dtype), np.ones(n, dtype)
                    z = returned(OPS.Axpy(x, y, float(alpha)))
                    self.assertEqual(z.dtype, dtype)
                    self.assertEqual(z.tolist(), (alpha * x + y).tolist())

    def test_strides(self):
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        z = np.zeros((3, 8), np.float32)
        want = 2 * x.T[:, ::-1] + x.T
        OPS.Axpy(np.ascontiguousarray(x.T[:, ::-1]), x.T, 2.0, z[:, ::2].T)
        self.assertEqual(z[:, ::2].T.tolist(), want.tolist())
        self.assertEqual(z[:, 1::2].tolist(), np.zeros((3, 4)).tolist())

    def test_in_place(self):
        OPS.Axpy(self.x, self.y, 2.0, self.y)
        self.assertEqual(self.y.tolist(), [1, 3, 5])
        x = array(0, 1, 2)
        OPS.Axpy(x, array(1, 1, 1), 2.0, x)  # the schema does not allow this pair: it is copied
        self.assertEqual(x.tolist(), [1, 3, 5])
        memory = array(1, 2, 3, 4)
        OPS.Axpy(memory[:3], memory[:3].copy(), 1.0, memory[1:])
        self.assertEqual(memory.tolist(), [1, 2, 4, 6])

    def test_an_output_that_does_not_fit_is_not_written_to(self):
        for z, kind, words in ((np.zeros(4, np.float32), ValueError, "is given as float32[4], but the result is float32[3]"),
                               (np.zeros(2, np.float32), ValueError, "is given as float32[2]"),
                               (np.zeros((3, 1), np.float32), ValueError, "is given as float32[3, 1]"),
                               (np.zeros(3, np.float64), TypeError, "is given as float64[3]")):
            self.fails(kind, words, OPS.Axpy, self.x, self.y, 2.0, z)
            self.assertFalse(z.any())

    def test_errors(self):
        self.fails(ValueError, "Axpy", OPS.Axpy, self.x)
        self.fails(ValueError, "has 1 attributes", OPS.Axpy, self.x, self.y, 1.0, 2.0)
        self.fails(ValueError, "1 outputs, but 2", OPS.Axpy, self.x, self.y, 1.0, self.x, self.y)
        self.fails(ValueError, "alpha", OPS.Axpy, self.x, self.y, "much")
        self.fails(TypeError, "is no tensor", OPS.Axpy, 1.0, self.y)
        self.fails(ValueError, "alpha is", OPS.Axpy, self.x, self.y, 2e9)
        with self.assertRaises((ValueError, TypeError)):
            OPS.Axpy(self.x, array(1, 1, 1, dtype=np.float64))
        self.fails(ValueError, "Axpy", OPS.Axpy, self.x, array(1, 1))
        self.assertEqual(returned(OPS.Axpy(self.x, self.y)).tolist(), [1, 2, 3])  # still works

    def test_state_needs_a_function_of_its_own(self):
        self.fails(RuntimeError, "RunningSum_create()", OPS.RunningSum, self.x)
        total, other = OPS.RunningSum_create(), OPS.RunningSum_create()
        sums = [returned(total(self.x)).tolist() for _ in range(3)]
        self.assertEqual(sums, [[0, 1, 2], [0, 2, 4], [0, 3, 6]])
        self.assertEqual(returned(other(self.x)).tolist(), [0, 1, 2])
        self.fails(ValueError, "is no tensor", total, self.x, 1.0)
        self.fails(ValueError, "which all need the same inputs", total, self.x, self.y)
        self.assertEqual(returned(total(self.x)).tolist(), [0, 4, 8])

    def test_a_function_with_attributes(self):
        double = OPS.Axpy_create(2.0)
        self.assertEqual(returned(double(self.x, self.y)).tolist(), [1, 3, 5])
        z = np.zeros(3, np.float32)
        double(self.x, self.y, z)
        self.assertEqual(z.tolist(), [1, 3, 5])
        self.fails(ValueError, "alpha", OPS.Axpy_create, "much")

    def test_optional_inputs(self):
        x, two = array(0, 1, 2), array(2, 2, 2)
        self.assertEqual(returned(OPS.ScaleShift(x)).tolist(), [0, 1, 2])
        self.assertEqual(returned(OPS.ScaleShift(x, two)).tolist(), [0, 2, 4])
        self.assertEqual(returned(OPS.ScaleShift(x, None, two)).tolist(), [2, 3, 4])
        self.assertEqual(returned(OPS.ScaleShift(x, two, two)).tolist(), [2, 4, 6])
        function = OPS.ScaleShift_create()
        self.assertEqual(returned(function(x)).tolist(), [0, 1, 2])
        self.assertEqual(returned(function(x, two)).tolist(), [0, 2, 4])

    def test_inputs_of_any_number(self):
        for n in (1, 2, 5):
            self.assertEqual(returned(OPS.AddAll([self.x] * n)).tolist(), (n * self.x).tolist())
        self.assertEqual(returned(OPS.AddAll(self.x, self.y)).tolist(), [1, 2, 3])
        z = np.zeros(3, np.float32)
        OPS.AddAll([self.x, self.y], z)
        self.assertEqual(z.tolist(), [1, 2, 3])
        self.fails(TypeError, "has an element that is no tensor", OPS.AddAll, [self.x, 1.0])

    def test_attributes_of_every_kind(self):
        def text(*attributes):
            return bytes(returned(OPS.Describe(self.x, *attributes)).tolist()).decode()
        self.assertEqual(text(), "7 0.5 false name [1, 2] [0.5] [true] [a]")
        self.assertEqual(text(8, 1, True, "a longer name", [3], [1, 2.5], [False], ["b", "a string of many letters"]),
                         "8 1 true a longer name [3] [1, 2.5] [false] [b, a string of many letters]")
        self.assertEqual(text(None, None, 1, "x", [], []), "7 0.5 true x [] [] [true] [a]")
        self.assertEqual(text(8), "8 0.5 false name [1, 2] [0.5] [true] [a]")  # another key
        self.fails(TypeError, "several types", OPS.Describe, self.x, 1, 1.0, True, "", [1, "a"])

    def test_an_attribute_that_is_a_tensor(self):
        z = np.zeros(3, np.float32)
        for value in (2, 3):  # such a call keeps no operator
            OPS.Fill(self.x, array(value), z)
            self.assertEqual(z.tolist(), [value] * 3)
            self.assertEqual(returned(OPS.Fill(self.x, array(value))).tolist(), [value] * 3)

    def test_several_outputs(self):
        low, high = (returned(t) for t in OPS.MinMax(array(3, 1, 2)))
        self.assertEqual((low.tolist(), high.tolist()), ([1], [3]))

    def test_doc_and_metadata(self):
        self.assertIn("z = alpha * x + y", OPS.get_function_doc("Axpy"))
        facts = OPS.get_function_metadata("Axpy")
        self.assertEqual(facts["arg_names"], ["x", "y", "alpha"])
        self.assertEqual(facts["arg_defaults"], [1.0])
        self.assertEqual([a["type"] for a in json.loads(facts["type_schema"])["args"]],
                         ["ffi.Tensor", "ffi.Tensor", "ffi.Tensor", "float"])

    def test_threads(self):
        wrong = []

        def calls(alpha):
            for _ in range(200):
                if returned(OPS.Axpy(self.x, self.y, alpha)).tolist() != [1, 1 + alpha, 1 + 2 * alpha]:
                    wrong.append(alpha)
        threads = [threading.Thread(target=calls, args=(float(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    OPS = tvm_ffi.load_module(sys.argv.pop(1))
    unittest.main()
