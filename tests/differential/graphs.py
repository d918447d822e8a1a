"""Random graphs of several operators: shared values, arithmetic on shapes, broadcasting, If."""
import numpy as np
from onnx import helper

import cases


class Value:
    """A name and what is known of it. `size` bounds the magnitude of the elements; they are `exact`
    where no rounding can differ, so that steps and comparisons of them cannot."""

    def __init__(self, name, dtype, shape, size=4.0, exact=True):
        self.name, self.dtype, self.shape, self.size, self.exact = name, dtype, list(shape), size, exact


class GraphMaker:
    MOST = 30.0  # larger values go through Tanh

    def __init__(self, draw):
        self.d = draw
        draw.huge = False
        self.c = cases.Case(draw, draw.int(13, cases.OPSETS[1]), "graph")
        self.values = []
        self.type = draw.choice(["float32", "float32", "float32", "float64"])

    def make(self):
        for _ in range(self.d.int(1, 3)):
            self.input(self.d.shape(1, 4, 4, 0.02))
        steps = [getattr(self, name) for name in dir(self) if name.startswith("do_")]
        for _ in range(self.d.int(2, 14)):
            try:
                self.d.choice(steps)()
            except cases.Unsuited:
                pass
        made = [v for v in self.values if v.name.startswith("y")]
        if not made:
            self.unary("Tanh", self.pick())
            made = self.values[-1:]
        read = {name for node in self.c.nodes for name in node.input}
        kept = [v for v in made if v.name not in read or self.d.chance(0.15)]
        return self.c.finish([v.name for v in kept], [v.dtype for v in kept])

    def input(self, shape, dtype=None, constant=0.25):
        value = self.d.values(shape, dtype or self.type)
        self.values.append(Value(self.c.add(value, constant), dtype or self.type, shape))
        return self.values[-1]

    def pick(self, accept=lambda v: True, dtype=None):
        """A value, more likely one of the last."""
        found = [v for v in self.values if v.dtype == (dtype or self.type) and accept(v)]
        if not found:
            raise cases.Unsuited
        return found[max(self.d.int(0, len(found) - 1), self.d.int(0, len(found) - 1))]

    def node(self, op, inputs, shapes, size=None, exact=None, dtype=None, **attributes):
        """Adds a node of one output for each of `shapes`."""
        values = [v for v in inputs if isinstance(v, Value)]
        names = self.c.node(op, [getattr(v, "name", v) for v in inputs], len(shapes), **attributes)
        size = max([v.size for v in values], default=1) if size is None else size
        exact = all(v.exact for v in values) if exact is None else exact
        self.values += [Value(n, dtype or self.type, s, size, exact) for n, s in zip(names, shapes)]
        last = self.values[-1]
        if last.dtype == self.type and last.size > self.MOST:
            return self.unary("Tanh", last)
        return last

    def unary(self, op, x):
        bounds = {"Tanh": 1, "Sigmoid": 1, "Softplus": x.size + 1, "Exp": 1e9}
        return self.node(op, [x], [x.shape], size=bounds.get(op, x.size),
                         exact=x.exact and op in ("Relu", "Neg", "Abs", "Floor"))

    def ints(self, values):
        return self.c.ints(values)

    def shape_value(self, x):
        return self.node("Shape", [x], [[len(x.shape)]], size=1, exact=True, dtype="int64").name

    # -- steps

    def do_unary(self):
        op = self.d.choice(["Tanh", "Sigmoid", "Relu", "Neg", "Abs", "Softplus"])
        self.unary(op, self.pick())

    def do_step(self):
        self.unary("Floor", self.pick(lambda v: v.exact))

    def do_binary(self):
        x = self.pick()
        fits = lambda v: len(np.broadcast_shapes(x.shape, v.shape)) >= 0
        def may(v):
            try:
                return fits(v)
            except ValueError:
                return False
        y = self.pick(may) if self.d.chance(0.7) else self.input(self.d.broadcast(x.shape))
        op = self.d.choice(["Add", "Sub", "Mul", "Max", "Min"])
        size = {"Mul": x.size * y.size, "Max": None, "Min": None}.get(op, x.size + y.size)
        exact = None if op in ("Max", "Min") else False
        self.node(op, [x, y], [list(np.broadcast_shapes(x.shape, y.shape))], size, exact)

    do_binary_too = do_binary

    def do_where(self):
        x = self.pick(lambda v: v.exact)
        bound = self.input([], constant=1)
        cond = self.node(self.d.choice(["Greater", "Less"]), [x, bound], [x.shape], dtype="bool")
        y = self.pick(lambda v: v.shape == x.shape)
        self.node("Where", [cond, y, self.input([])], [x.shape])

    def do_matmul(self):
        x = self.pick(lambda v: len(v.shape) >= 2)
        n = self.d.int(1, 4)
        w = self.input([x.shape[-1], n], constant=0.7)
        self.node("MatMul", [x, w], [[*x.shape[:-1], n]], size=4 * x.size * x.shape[-1], exact=False)

    def do_conv(self):
        x = self.pick(lambda v: len(v.shape) == 4 and min(v.shape) > 0)
        outs, k = self.d.int(1, 4), self.d.int(1, 3)
        w = self.input([outs, x.shape[1], k, k], constant=0.7)
        self.node("Conv", [x, w], [[x.shape[0], outs, x.shape[2] + 1, x.shape[3] + 1]], 1e9, False,
                  pads=[k // 2, k // 2, k - k // 2, k - k // 2])

    def do_pool(self):
        x = self.pick(lambda v: len(v.shape) == 4 and min(v.shape[1:]) > 0)
        op = self.d.choice(["MaxPool", "AveragePool", "GlobalAveragePool"])
        if op == "GlobalAveragePool":
            return self.node(op, [x], [[*x.shape[:2], 1, 1]], exact=False)
        self.node(op, [x], [[*x.shape[:2], *(e // 2 + 1 if e % 2 == 0 else e // 2 + 1 for e in x.shape[2:])]],
                  exact=op == "MaxPool" and x.exact, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]
                  ) if all(e % 2 == 0 for e in x.shape[2:]) else None

    def do_softmax(self):
        x = self.pick(lambda v: v.shape)
        self.node("Softmax", [x], [x.shape], size=1, exact=False, axis=self.d.axis(len(x.shape)))

    def do_reduce(self):
        x = self.pick(lambda v: v.shape and 0 not in v.shape)
        axis = self.d.axis(len(x.shape))
        keep = self.d.int(0, 1)
        op = self.d.choice(["ReduceSum", "ReduceMean", "ReduceMax"])
        shape = list(x.shape)
        shape[axis:axis + 1 or None] = [1] if keep else []
        old = self.c.opset < 18 and op != "ReduceSum"
        self.node(op, [x] if old else [x, self.ints([axis])], [shape], exact=op == "ReduceMax" and x.exact,
                  size=x.size * x.shape[axis], keepdims=keep, axes=[axis] if old else None)

    def do_transpose(self):
        x = self.pick(lambda v: len(v.shape) > 1)
        perm = [int(a) for a in self.d.r.permutation(len(x.shape))]
        self.node("Transpose", [x], [[x.shape[a] for a in perm]], perm=perm)

    def do_reshape(self):
        x = self.pick(lambda v: v.shape and 0 not in v.shape)
        rest = int(np.prod(x.shape[1:]))
        if self.d.chance(0.5):  # to [first extent, -1], as exporters write it
            first = self.node("Gather", [self.shape_value(x), self.ints([0])], [[1]], 1, True, "int64")
            wanted = self.node("Concat", [first, self.ints([-1])], [[2]], 1, True, "int64", axis=0)
            return self.node("Reshape", [x, wanted], [[x.shape[0], rest]])
        self.node("Reshape", [x, self.ints([-1, 1, x.shape[-1]])],
                  [[int(np.prod(x.shape[:-1])), 1, x.shape[-1]]])

    def do_flatten(self):
        x = self.pick(lambda v: v.shape)
        axis = self.d.int(0, len(x.shape))
        self.node("Flatten", [x], [[int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))]], axis=axis)

    def do_unsqueeze(self):
        x = self.pick(lambda v: len(v.shape) < 5)
        axis = self.d.int(0, len(x.shape))
        self.node("Unsqueeze", [x, self.ints([axis])], [[*x.shape[:axis], 1, *x.shape[axis:]]])

    def do_squeeze(self):
        x = self.pick(lambda v: 1 in v.shape)
        axis = x.shape.index(1)
        self.node("Squeeze", [x, self.ints([axis])], [x.shape[:axis] + x.shape[axis + 1:]])

    def do_concat(self):
        x = self.pick(lambda v: v.shape)
        axis = self.d.int(0, len(x.shape) - 1)
        y = self.pick(lambda v: len(v.shape) == len(x.shape) and
                      all(i == axis or a == b for i, (a, b) in enumerate(zip(x.shape, v.shape))))
        shape = list(x.shape)
        shape[axis] += y.shape[axis]
        if np.prod(shape) > 3000:
            raise cases.Unsuited
        self.node("Concat", [x, y], [shape], axis=axis)

    def do_split(self):
        x = self.pick(lambda v: v.shape and v.shape[-1] > 1)
        first = self.d.int(1, x.shape[-1] - 1)
        self.node("Split", [x, self.ints([first, x.shape[-1] - first])],
                  [[*x.shape[:-1], first], [*x.shape[:-1], x.shape[-1] - first]], axis=-1)

    def do_slice(self):
        x = self.pick(lambda v: v.shape and v.shape[0] > 1)
        start = self.d.int(0, x.shape[0] - 1)
        back = self.d.chance(0.3)
        shape = [start + 1 if back else x.shape[0] - start, *x.shape[1:]]
        lists = [[start], [-(1 << 31) if back else (1 << 31) - 1], [0], [-1 if back else 1]]
        self.node("Slice", [x, *map(self.ints, lists)], [shape])

    def do_gather(self):
        x = self.pick(lambda v: v.shape and v.shape[-1] > 0)
        indices = self.d.r.integers(-x.shape[-1], x.shape[-1], self.d.shape(0, 2, 3, 0))
        self.node("Gather", [x, self.ints(indices)], [[*x.shape[:-1], *indices.shape]], axis=-1)

    def do_expand(self):
        x = self.pick()
        y = self.pick(lambda v: len(v.shape) >= len(x.shape) and np.prod(v.shape) < 500)
        try:
            shape = list(np.broadcast_shapes(x.shape, y.shape))
        except ValueError:
            raise cases.Unsuited from None
        self.node("Expand", [x, self.shape_value(y)], [shape])

    def do_fill(self):
        x = self.pick()
        zeros = self.node("ConstantOfShape", [self.shape_value(x)], [x.shape], 1, True, "float32")
        self.node("Cast", [zeros], [x.shape], 1, True, to=int(cases.PROTO[np.dtype(self.type)]))

    def do_pad(self):
        x = self.pick(lambda v: v.shape and np.prod(v.shape) < 500)
        pads = [self.d.int(0, 1) for _ in range(2 * len(x.shape))]
        rank = len(x.shape)
        self.node("Pad", [x, self.ints(pads)], [[e + pads[i] + pads[i + rank] for i, e in enumerate(x.shape)]])

    def do_if(self):
        x = self.pick(lambda v: v.shape)
        y = self.pick(lambda v: v.shape == x.shape)
        taken = self.d.chance(0.5)
        if self.d.chance(0.5):
            cond = self.c.add(np.asarray(taken))
        else:  # a value of a shape, which a plan knows
            size = self.node("Size", [x], [[]], 1, True, "int64")
            limit = int(np.prod(x.shape)) + (-1 if taken else 1)
            cond = self.node("Greater", [size, self.ints(limit)], [[]], 1, True, "bool")
        results, graphs = [], {}
        for branch in ("then_branch", "else_branch"):
            double = self.d.chance(0.3)
            inner = f"{branch}{len(self.c.nodes)}"
            nodes = [helper.make_node(self.d.choice(["Add", "Mul", "Max"]), [x.name, y.name], [inner])]
            nodes.append(helper.make_node("Concat", [inner, x.name], [inner + "o"], axis=0) if double else
                         helper.make_node("Tanh", [inner], [inner + "o"]))
            results.append([x.shape[0] * (2 if double else 1), *x.shape[1:]])
            out = helper.make_tensor_value_info(inner + "o", cases.PROTO[np.dtype(self.type)], None)
            graphs[branch] = helper.make_graph(nodes, branch, [], [out])
        self.node("If", [cond], [results[0 if taken else 1]], size=max(x.size * y.size, x.size + y.size),
                  exact=False, **graphs)


def graph_case(draw):
    return GraphMaker(draw).make()
