"""A random case: the random draws, and the model while it is built."""
import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

OPSETS = (7, 26)
FLOATS = ["float32", "float32", "float32", "float64", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16,
         "bfloat16": ml_dtypes.bfloat16, "bool": np.bool_, **{name: np.dtype(name) for name in INTS}}
PROTO = {np.dtype(t): helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in TYPES.values()}


class Unsuited(Exception):
    """These draws make no model: the operator is not in the opset, or the like."""


class Draw:
    """Random numbers, shapes and tensors of one case."""

    def __init__(self, seed, index):
        self.r = np.random.Generator(np.random.PCG64([seed, index]))
        self.huge = True  # with the largest numbers, of which sums overflow

    def int(self, least, most):
        return int(self.r.integers(least, most + 1))

    def chance(self, p):
        return bool(self.r.random() < p)

    def choice(self, values):
        return values[self.int(0, len(values) - 1)]

    def shape(self, least=0, most=6, extent=5, empty=0.05):
        rank = self.int(least, max(least, min(most, self.choice([2, 3, 4, 6]))))
        shape = [0 if self.chance(empty) else self.int(1, extent if rank < 5 else 3)
                 for _ in range(rank)]
        if 0 < rank < 5 and self.chance(0.1):  # whole vectors and their tails
            shape[self.int(0, rank - 1)] = self.int(6, 80)
        return shape

    def values(self, shape, dtype, special=0.0, low=-4, high=4):
        """Elements of a type; some of them NaN, infinite, denormal, or the type's limits."""
        dtype = np.dtype(TYPES.get(dtype, dtype))
        if dtype == np.bool_:
            return self.r.random(shape) < 0.5
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            out = self.r.integers(max(low * 2, info.min), high * 2 + 1, shape).astype(dtype)
            extremes = [info.min, info.max, 0] if self.huge else [0]
        else:
            out = self.r.uniform(low, high, shape).astype(dtype)
            if self.chance(0.2):
                out = np.round(out).astype(dtype)  # ties
            tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
            most = float(ml_dtypes.finfo(dtype).max)
            extremes = [np.nan, np.inf, -np.inf, 3 * tiny, -tiny, 0.0, -0.0]
            extremes += [most, -most] if self.huge else []
        out = np.asarray(out)
        if self.chance(special) and out.size:
            flat = out.reshape(-1)
            for _ in range(self.int(1, 3)):
                flat[self.int(0, flat.size - 1)] = np.asarray(self.choice(extremes)).astype(dtype)
        return out

    def axis(self, rank):
        return self.int(-rank, rank - 1)

    def axes(self, rank, least=0):
        count = self.int(min(least, rank), rank)
        axes = [int(a) for a in self.r.permutation(rank)[:count]]
        return [a - rank if self.chance(0.3) else a for a in axes]

    def broadcast(self, shape):
        """A shape that broadcasts with one."""
        cut = shape[self.int(0, len(shape)):] if self.chance(0.5) else list(shape)
        return [1 if self.chance(0.3) else extent for extent in cut]


class Case:
    """A model while it is built. `kind` says how its outputs are compared: "exact", "close" or, where
    sums cancel, "sum", with float32's precision at most, "single"; "graph" where errors grow from one to the next; "unit"
    where a quantised number may be rounded to its neighbour; "coarse" where the peer rounds floats to 8 bits."""

    def __init__(self, draw, opset, kind="close"):
        self.d, self.opset, self.kind = draw, opset, kind
        self.nodes, self.inputs, self.constants, self.outputs = [], {}, {}, []
        self.spoiled = False
        self.domains = {}  # versions of domains other than ONNX's own

    def add(self, value, constant=0.3):
        """A value that a node reads: an input of the model or, more rarely, a constant."""
        name = f"x{len(self.inputs) + len(self.constants)}"
        (self.constants if self.d.chance(constant) else self.inputs)[name] = np.asarray(value)
        return name

    def ints(self, values):
        return self.add(np.asarray(values, np.int64).reshape(np.shape(values)), constant=0.5)

    def spoil(self):
        """Changes the shape or the numbers of one value, so that the model is mostly wrong."""
        name = self.d.choice([*self.inputs, *self.constants])
        values = self.inputs if name in self.inputs else self.constants
        value = values[name]
        if value.dtype == np.int64 and value.ndim < 2 and value.size and self.d.chance(0.6):
            value = value.copy()
            value.reshape(-1)[self.d.int(0, value.size - 1)] ^= self.d.choice([-9, -3, -1, 1, 2, 7])
        else:
            shape = list(value.shape)
            axis = self.d.int(0, len(shape))
            if axis == len(shape) or self.d.chance(0.2):
                shape.insert(axis, self.d.int(1, 2))
            elif self.d.chance(0.3):
                del shape[axis]
            else:
                shape[axis] = max(0, shape[axis] + self.d.choice([-1, 1, 2]))
            value = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
        values[name] = value
        self.spoiled = True

    def node(self, op, inputs, outputs=1, **attributes):
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        attributes = {key: value for key, value in attributes.items() if value is not None and value != []}
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def finish(self, outputs, types):
        self.outputs = [(name, PROTO[np.dtype(TYPES.get(t, t))]) for name, t in zip(outputs, types)]
        return self

    def model(self):
        def declared(name, value):
            shape = [extent if self.d.chance(0.7) else f"{name}_{axis}"
                     for axis, extent in enumerate(value.shape)]
            return helper.make_tensor_value_info(name, PROTO[value.dtype], shape)

        graph = helper.make_graph(
            self.nodes, "random", [declared(*item) for item in self.inputs.items()],
            [helper.make_tensor_value_info(name, dtype, None) for name, dtype in self.outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()])
        return helper.make_model(graph, ir_version=8,
                                 opset_imports=[
                                     helper.make_opsetid(*item) for item in {"": self.opset, **self.domains}.items()])
