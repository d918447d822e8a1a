"""Random models of one operator, for each of opkit's, in the forms of opsets 7 to 26."""
import numpy as np
import onnx
from onnx import helper, numpy_helper

from cases import FLOATS, INTS, OPSETS, PROTO, TYPES, Case, Unsuited


def allowed(op, opset, which, candidates):
    """Returns those types that a constraint of the operator's schema allows; by default that of input 0."""
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        raise Unsuited from None
    if schema.deprecated:
        raise Unsuited
    formal = schema.inputs[which]
    types = {t[7:-1].replace("float)", "float32)") for t in formal.types}
    names = {"float": "float32", "double": "float64"}
    types = {names.get(t, t) for t in types}
    found = [t for t in candidates if t in types]
    if not found:
        raise Unsuited
    return found


class Maker:
    """Makes the case of one operator; each method below makes one family."""

    def __init__(self, op, draw, opset):
        self.op, self.d, self.opset = op, draw, opset
        self.c = Case(draw, opset)

    def dtype(self, candidates=FLOATS, which=0):
        return self.d.choice(allowed(self.op, self.opset, which, candidates))

    def values(self, shape, dtype, special=0.3, constant=0.3, **rest):
        return self.c.add(self.d.values(shape, dtype, special, **rest), constant)

    def done(self, inputs, types, outputs=1, kind=None, **attributes):
        self.c.kind = kind or self.c.kind
        return self.c.finish(self.c.node(self.op, inputs, outputs, **attributes), types)

    def maybe(self, value, p=0.5):
        return value if self.d.chance(p) else None

    # -- elementwise

    def unary(self, low=-4, high=4, special=0.4, kind=None, **attributes):
        t = self.dtype(FLOATS + INTS + ["bool"])
        attributes = {k: self.maybe(self.d.r.uniform(*v), 0.6) for k, v in attributes.items()}
        x = self.values(self.d.shape(), t, special, low=low, high=high)
        return self.done([x], [t], kind=kind, **attributes)

    def predicate(self):
        t = self.dtype(FLOATS + INTS + ["bool"])
        return self.operands(t, "bool")

    def operands(self, t, result, special=0.4, **rest):
        shape = self.d.shape()
        shapes = [shape, self.d.broadcast(shape)]
        a, b = self.d.r.permutation(2)
        x, y = (self.values(shapes[i], t, special, **rest) for i in (a, b))
        return self.done([x, y], [result])

    def arithmetic(self):
        t = self.dtype(FLOATS + INTS)
        if self.op in ("Div", "Mod") and t in INTS:
            return self.nonzero_divisor(t, fmod=self.maybe(self.d.int(0, 1)))
        if self.op == "Mod":
            return self.nonzero_divisor(t, fmod=1)
        return self.operands(t, t)

    def nonzero_divisor(self, t, fmod):
        shape = self.d.shape()
        y = self.d.values(self.d.broadcast(shape), t, low=-3, high=3)
        y = np.where(y == 0, np.asarray(3).astype(y.dtype), y)
        x = self.values(shape, t, 0 if self.op == "Mod" or t[0] != "u" else 0.3)
        return self.done([x, self.c.add(y)], [t], fmod=fmod if self.op == "Mod" else None)

    def celu(self):
        t = self.dtype(FLOATS)
        x = self.values(self.d.shape(), t, 0.4)
        return self.done([x], [t], kind="sum", alpha=self.maybe(self.d.r.uniform(0.5, 2), 0.6))

    def gelu(self):
        t = self.dtype(FLOATS)
        approximate = self.maybe(self.d.choice(["none", "tanh"]))
        return self.done([self.values(self.d.shape(), t, 0)], [t], kind="single", approximate=approximate)

    def test_of_floats(self):
        t = self.dtype(FLOATS)
        ends = ("detect_negative", "detect_positive") if self.op == "IsInf" else ()
        return self.done([self.values(self.d.shape(), t, 0.4)], ["bool"], kind="exact",
                         **{end: self.maybe(self.d.int(0, 1)) for end in ends})

    def bits(self):
        t = self.dtype(INTS)
        if self.op == "BitwiseNot":
            return self.done([self.values(self.d.shape(), t)], [t], kind="exact")
        return self.operands(t, t)

    def bit_shift(self):
        t = self.dtype(INTS)
        shape = self.d.shape()
        return self.done([self.values(shape, t), self.values(self.d.broadcast(shape), t, 0, low=0, high=7)],
                         [t], kind="exact", direction=self.d.choice(["LEFT", "RIGHT"]))

    def bit_cast(self):
        groups = [["float32", "int32", "uint32"], ["float64", "int64", "uint64"], ["int8", "uint8"],
                  ["float16", "int16", "uint16"]]
        t = self.dtype(FLOATS + INTS)
        group = next((g for g in groups if t in g), [t])
        to = self.d.choice(group)
        return self.done([self.values(self.d.shape(), t, 0)], [to], kind="exact",
                         to=int(PROTO[np.dtype(TYPES[to])]))

    def pow(self):
        t = self.dtype(["float32", "float64", "float16", "int32", "int64"])
        shape = self.d.shape()
        if t in INTS:
            return self.done([self.values(shape, t, 0, low=-2, high=2),
                              self.values(self.d.broadcast(shape), t, 0, low=0, high=2)], [t])
        exponents = self.d.values(self.d.broadcast(shape), t, 0.2, low=-2, high=3)
        if self.d.chance(0.5):
            exponents = np.round(exponents)
        return self.done([self.values(shape, t), self.c.add(exponents)], [t])

    def prelu(self):
        t = self.dtype(FLOATS)
        shape = self.d.shape()
        return self.done([self.values(shape, t),
                          self.values(self.d.broadcast(shape), t)], [t])

    def where(self):
        t = self.dtype(FLOATS + INTS + ["bool"], 1)
        shape = self.d.shape()
        inputs = [self.values(self.d.broadcast(shape), k) for k in ("bool", t, t)]
        return self.done(inputs, [t], kind="exact")

    def variadic(self):
        self.d.huge = self.op in ("Max", "Min")
        t = self.dtype(FLOATS + INTS)
        shape = self.d.shape()
        return self.done([self.values(self.d.broadcast(shape), t, 0.3)
                          for _ in range(self.d.int(1, 4))], [t], kind=None if self.d.huge else "sum")

    def clip(self):
        t = self.dtype(FLOATS + INTS)
        x = self.values(self.d.shape(), t)
        low, high = sorted(self.d.values([2], t, low=-2, high=3).tolist())
        if self.opset < 11:
            return self.done([x], [t], min=self.maybe(float(low)), max=self.maybe(float(high)))
        bounds = [self.c.add(np.asarray(v, TYPES[t])) if self.d.chance(0.7) else ""
                  for v in (low, high)]
        return self.done([x, *bounds], [t])

    def small_types(self):
        """The numbers of the types of 8 and 4 bits that NumPy does not have."""
        if self.opset < 19:
            raise Unsuited
        proto = onnx.TensorProto
        float8 = [proto.FLOAT8E4M3FN, proto.FLOAT8E4M3FNUZ, proto.FLOAT8E5M2, proto.FLOAT8E5M2FNUZ]
        return float8 + [proto.INT4, proto.UINT4] * 2 * (self.opset >= 21)

    def small_cast(self):
        """There and back, because the outputs of a model are arrays of NumPy."""
        to = self.d.choice(self.small_types())
        is_float = to <= onnx.TensorProto.FLOAT8E5M2FNUZ
        t, shape = self.d.choice(["float32", "float16"]), self.d.shape()
        if is_float:
            x = self.values(shape, t, 0.3, low=-300, high=300)
        else:  # whole numbers: ONNX Runtime rounds others to the nearest one
            x = self.c.add(np.round(self.d.values(shape, t, low=0 if to == onnx.TensorProto.UINT4 else -8, high=7)))
        small = self.c.node("Cast", [x], to=to, saturate=self.maybe(self.d.int(0, 1)) if is_float else None)
        return self.c.finish(self.c.node("Cast", small, to=onnx.TensorProto.FLOAT), ["float32"])

    def cast(self):
        if self.op == "Cast" and self.opset >= 19 and self.d.chance(0.3):
            return self.small_cast()
        everything = FLOATS + INTS + ["bool"]
        t = self.dtype(everything)
        to = self.d.choice(allowed(self.op, self.opset, 0, everything))
        low, high = (0, 4) if to[0] == "u" else (-4, 4)  # others are undefined
        x = self.values(self.d.shape(), t, 0.3 if to in FLOATS + ["bool"] else 0, low=low, high=high)
        if self.op == "CastLike":
            return self.done([x, self.values(self.d.shape(), to, 0)], [to])
        return self.done([x], [to], to=int(PROTO[np.dtype(TYPES[to])]))

    # -- reductions

    def reduce(self):
        self.d.huge = self.op in ("ReduceMax", "ReduceMin")
        t = self.dtype(FLOATS + ["int32", "int64", "int8", "uint8", "uint32", "bool"])
        if self.op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
            t = self.dtype()  # the standard does not define the rounding of integers
        shape = self.d.shape(0, empty=0 if self.op == "ReduceMean" and t in INTS else 0.05)
        rank = len(shape)
        kind = None if self.d.huge else "sum"
        low, high = -2, 2
        if self.op == "ReduceLogSum":  # where elements cancel, the sum's logarithm has no right digits
            low, high = self.d.choice([(0, 2), (0, 2), (-2, 0)])
        x = self.values(shape, t, 0.25, low=low, high=high)
        axes = self.d.axes(rank) if self.d.chance(0.7) else None
        keep = self.maybe(self.d.int(0, 1))
        if self.opset < (13 if self.op == "ReduceSum" else 18):
            return self.done([x], [t], kind=kind, axes=axes or None, keepdims=keep)
        axes = "" if axes is None else self.c.ints(axes)
        return self.done([x, axes], [t], kind=kind, keepdims=keep,
                         noop_with_empty_axes=self.maybe(self.d.int(0, 1)))

    def arg(self):
        t = self.dtype(FLOATS + INTS)
        shape = self.d.shape(1, empty=0)
        last = self.maybe(self.d.int(0, 1)) if self.opset >= 12 else None
        return self.done([self.values(shape, t, 0.1)], ["int64"], axis=self.maybe(self.d.axis(len(shape))),
                         keepdims=self.maybe(self.d.int(0, 1)), select_last_index=last)

    def softmax(self):
        self.d.huge = False
        hard = self.op == "Hardmax"
        # ONNX Runtime has Hardmax of float32 alone, and the reference evaluator that of opset 13.
        t = self.dtype(["float32"] if hard and self.opset < 13 else FLOATS)
        shape = self.d.shape(1)
        return self.done([self.values(shape, t, 0 if hard else 0.2)], [t], kind="sum",
                         axis=self.maybe(self.d.axis(len(shape))))

    def loss(self):
        self.d.huge = False
        t = self.dtype(["float32", "float64", "float16"])
        shape = self.d.shape(2, 4, empty=0)
        labels = self.d.r.integers(0, shape[1], [shape[0], *shape[2:]])
        ignored = self.maybe(self.d.int(0, shape[1] - 1), 0.3)
        inputs = [self.values(shape, t, 0), self.c.add(labels.astype(self.d.choice(["int32", "int64"])))]
        if self.d.chance(0.5):
            inputs.append(self.values([shape[1]], t, 0, low=0.5, high=2))
        return self.done(inputs, [t], kind="sum", ignore_index=ignored,
                         reduction=self.maybe(self.d.choice(["none", "sum", "mean"])))

    def row_norm(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64", "float16"])
        shape = self.d.shape(1, empty=0)
        axis = self.d.axis(len(shape))
        x = self.values(shape, t, 0)
        if self.op == "LpNormalization":
            return self.done([x], [t], kind="sum", axis=axis, p=self.maybe(self.d.int(1, 2)))
        scale = self.values(self.d.broadcast(shape[axis % len(shape):]), t, 0)
        return self.done([x, scale], [t], kind="sum", axis=axis, epsilon=self.maybe(self.d.r.uniform(1e-3, 0.1)))

    def attention(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64"])
        batch, kv, size, v_size, steps, past = (self.d.int(1, 3) for _ in range(6))
        heads, queries = kv * self.d.int(1, 2), self.d.int(1, 4)
        flat, cached, causal = self.d.chance(0.4), self.d.chance(0.3), self.maybe(self.d.int(0, 1))

        def rows(count, length, extent):
            shape = [batch, length, count * extent] if flat else [batch, count, length, extent]
            return self.values(shape, t, 0, low=-2, high=2)
        inputs = [rows(heads, queries, size), rows(kv, steps, size), rows(kv, steps, v_size), ""]
        total = steps + (past if cached else 0)
        if self.d.chance(0.5):
            inputs[3] = self.values([self.d.choice([1, batch]), 1, queries, total], t, 0)
        if cached:
            inputs += [self.values([batch, kv, past, e], t, 0) for e in (size, v_size)]
        outputs = self.d.choice([1, 3, 4]) if cached else 1
        counts = {"q_num_heads": heads, "kv_num_heads": kv} if flat else {}
        return self.done(inputs, [t] * outputs, outputs, kind="single", is_causal=causal,
                         scale=self.maybe(self.d.r.uniform(0.1, 1)), softcap=self.maybe(self.d.r.uniform(0.5, 3)),
                         qk_matmul_output_mode=self.d.int(0, 3) if outputs == 4 else None, **counts)

    def rotary_embedding(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float16"])
        batch, heads, steps, pairs, stays = (self.d.int(1, 3) for _ in range(5))
        some, flat, known = self.d.chance(0.3), self.d.chance(0.5), self.d.chance(0.5)
        size = 2 * pairs + (2 * stays if some else 0)
        x = self.values([batch, steps, heads * size] if flat else [batch, heads, steps, size], t, 0)
        positions = self.d.int(1, 5)
        shape = [positions, pairs] if known else [batch, steps, pairs]
        inputs = [x, *(self.values(shape, t, 0, low=-1, high=1) for _ in range(2))]
        if known:
            inputs.append(self.c.add(self.d.r.integers(0, positions, [batch, steps]).astype(np.int64)))
        return self.done(inputs, [t], kind="sum", interleaved=self.maybe(self.d.int(0, 1)),
                         num_heads=heads if flat else None, rotary_embedding_dim=2 * pairs if some else None)

    def grid_sample(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64"])
        spatial = self.d.int(2, 3) if self.opset >= 20 else 2
        image, out = ([self.d.int(1, 5) for _ in range(spatial)] for _ in range(2))
        batch = self.d.int(1, 2)
        modes = ["linear", "nearest"] if self.opset >= 20 else ["bilinear", "nearest"]
        if spatial == 2:
            modes.append("cubic" if self.opset >= 20 else "bicubic")
        grid = self.values([batch, *out, spatial], "float32", 0, low=-1.5, high=1.5)
        return self.done([self.values([batch, self.d.int(1, 2), *image], t, 0), grid], [t], kind="single",
                         mode=self.maybe(self.d.choice(modes)), align_corners=self.maybe(self.d.int(0, 1)),
                         padding_mode=self.maybe(self.d.choice(["zeros", "border", "reflection"])))

    def non_max_suppression(self):
        allowed(self.op, self.opset, 0, ["float32"])
        batch, classes, count = self.d.int(1, 2), self.d.int(1, 3), self.d.int(1, 8)
        corners = self.d.r.uniform(0, 1, [batch, count, 4]).astype(np.float32)
        scores = self.d.r.permutation(batch * classes * count).reshape(batch, classes, count).astype(np.float32)
        inputs = [self.c.add(corners), self.c.add(scores), self.c.add(np.asarray([self.d.int(0, 9)], np.int64)),
                  self.c.add(np.asarray([self.d.r.uniform(0, 1)], np.float32))]
        if self.d.chance(0.5):
            inputs.append(self.c.add(np.asarray([self.d.r.uniform(0, count)], np.float32)))
        return self.done(inputs, ["int64"], kind="exact", center_point_box=self.maybe(self.d.int(0, 1)))

    def affine_grid(self):
        t = self.dtype(["float32"])
        spatial, batch = self.d.int(2, 3), self.d.int(1, 2)
        size = [batch, self.d.int(1, 2), *(self.d.int(2, 4) for _ in range(spatial))]
        theta = self.values([batch, spatial, spatial + 1], t, 0)
        return self.done([theta, self.c.ints(size)], [t], kind="sum", align_corners=self.maybe(self.d.int(0, 1)))

    def tensor_scatter(self):
        t, shape, x = self.moved(self.d.shape(2, 4, empty=0))
        axis = self.d.int(1, len(shape) - 1)
        steps = self.d.int(1, shape[axis])
        mode = self.maybe(self.d.choice(["linear", "circular"]))
        starts = self.d.r.integers(0, 9 if mode == "circular" else shape[axis] - steps + 1, [shape[0]])
        inputs = [x, self.values([steps if i == axis else e for i, e in enumerate(shape)], t, 0.2)]
        if self.d.chance(0.7):
            inputs.append(self.c.add(starts.astype(np.int64)))
        return self.done(inputs, [t], kind="exact", mode=mode, axis=axis - self.d.choice([0, len(shape)]))

    def center_crop_pad(self):
        t, shape, x = self.moved(self.d.shape(1, 4, empty=0))
        axes = None
        if self.d.chance(0.5):
            axes = [int(a) for a in self.d.r.permutation(len(shape))[:self.d.int(1, len(shape))]]
        sizes = [self.d.int(1, 6) for _ in (axes or shape)]
        return self.done([x, self.c.ints(sizes)], [t], kind="exact", axes=axes)

    def dft(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64"])
        half, inverse = self.d.chance(0.4), self.d.int(0, 1)
        parts = 1 + inverse if half else self.d.int(1, 2)
        shape = [self.d.int(1, 12) for _ in range(self.d.int(2 if self.opset < 20 else 1, 4))]
        axis = self.d.int(-len(shape), len(shape) - 1)
        if half and inverse and shape[axis] == 1:
            shape[axis] = 2  # of one frequency the default length would be 0
        axis -= axis < 0  # the axis of the parts comes last
        inputs = [self.values([*shape, parts], t, 0)]
        inputs.append(self.c.ints(self.d.int(1, 20)) if self.d.chance(0.5) else "")
        given = self.d.chance(0.8)
        if given and self.opset >= 20:
            inputs.append(self.c.ints(axis))
        return self.done(inputs, [t], kind="single", axis=axis if given and self.opset < 20 else None,
                         inverse=inverse, onesided=int(half))

    def stft(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64"])
        half, length = self.d.int(0, 1), self.d.int(1, 12)
        steps = length + self.d.int(0, 20)
        x = self.values([self.d.int(1, 3), steps, 1 if half else self.d.int(1, 2)], t, 0)
        window = self.values([length], t, 0) if self.d.chance(0.6) else ""
        inputs = [x, self.c.ints(self.d.int(1, 6)), window]
        if not window or self.d.chance(0.3):
            inputs.append(self.c.ints(length))
        return self.done(inputs, [t], kind="single", onesided=half)

    def linear_attention(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float16"])
        batch, steps, heads, size, v_size = (self.d.int(1, 3) for _ in range(5))
        queries = heads * self.d.int(1, 2)
        rule = self.d.choice(["linear", "gated", "delta", "gated_delta"])

        def rows(extent, low=-1, high=1):
            return self.values([batch, steps, extent], t, 0, low=low, high=high)
        past = self.values([batch, heads, size, v_size], t, 0) if self.d.chance(0.5) else ""
        inputs = [rows(queries * size), rows(heads * size), rows(heads * v_size), past,
                  rows(heads * self.d.choice([1, size]), -2, 0) if "gated" in rule else "",
                  rows(self.d.choice([1, heads]), 0, 1) if "delta" in rule else ""]
        return self.done(inputs, [t, t], 2, kind="single", q_num_heads=queries, kv_num_heads=heads,
                         update_rule=rule, scale=self.maybe(self.d.r.uniform(0.1, 1)))

    def causal_conv(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float16"])
        batch, channels, steps, size = (self.d.int(1, 5) for _ in range(4))
        inputs = [self.values([batch, channels, steps], t, 0), self.values([channels, 1, size], t, 0),
                  self.values([channels], t, 0) if self.d.chance(0.5) else "",
                  self.values([batch, channels, size - 1], t, 0) if self.d.chance(0.5) else ""]
        return self.done(inputs, [t, t], 2, kind="sum",
                         activation=self.maybe(self.d.choice(["none", "silu", "swish"])))

    def window_function(self):
        allowed(self.op, self.opset, 0, ["int64"])
        t = self.d.choice(["float32", "float64"])
        return self.done([self.c.ints(self.d.int(2, 9))], [t], kind="single", periodic=self.maybe(self.d.int(0, 1)),
                         output_datatype=int(PROTO[np.dtype(TYPES[t])]))

    def mel_weight_matrix(self):
        allowed(self.op, self.opset, 0, ["int64"])
        rate = self.d.int(8, 48) * 1000
        low, high = sorted(self.d.r.uniform(0, rate / 2, 2))
        numbers = [np.asarray(n, np.int64) for n in (self.d.int(1, 20), self.d.int(4, 400), rate)]
        numbers += [np.asarray(n, np.float32) for n in (low, high)]
        return self.done([self.c.add(n, 0.5) for n in numbers], ["float32"], kind="single",
                         output_datatype=self.maybe(1))

    def mean_variance(self):
        self.d.huge = False
        t = self.dtype(["float32"])
        shape = self.d.shape(2, 4, empty=0)
        axes = self.d.axes(len(shape), 1)
        if len(shape) == 4 and self.d.chance(0.5):
            axes = None
        return self.done([self.values(shape, t, 0)], [t], kind="single", axes=axes)

    def det(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64"])
        n = self.d.int(1, 6)
        return self.done([self.values([*self.d.shape(0, 2, 3), n, n], t, 0, low=-2, high=2)], [t], kind="single")

    def col2im(self):
        self.d.huge = False
        if self.opset < 18:
            raise Unsuited
        spatial = self.d.int(1, 2)
        block = [self.d.int(1, 3) for _ in range(spatial)]
        image, attributes = self.window(spatial, block)
        image = [max(extent, 1) for extent in image]
        del attributes["auto_pad"]
        blocks = 1
        for i, extent in enumerate(image):
            reach = (block[i] - 1) * (attributes["dilations"] or [1] * spatial)[i] + 1
            pads = attributes["pads"] or [0] * 2 * spatial
            blocks *= (extent + pads[i] + pads[i + spatial] - reach) // (attributes["strides"] or [1] * spatial)[i] + 1
        t = self.dtype(["float32", "float32", "float64", "float16"])
        x = self.values([self.d.int(1, 2), self.d.int(1, 3) * int(np.prod(block)), blocks], t, 0)
        return self.done([x, self.c.ints(image), self.c.ints(block)], [t], kind="sum", **attributes)

    def deform_conv(self):
        self.d.huge = False
        if self.opset < 19:
            raise Unsuited
        t = self.dtype(["float32"])
        kernel = [self.d.int(1, 3) for _ in range(2)]
        image, attributes = self.window(2, kernel)
        del attributes["auto_pad"]
        group, offset_group, ins = self.d.int(1, 2), self.d.int(1, 2), self.d.int(1, 2)
        channels, batch = group * offset_group * ins, self.d.int(1, 2)
        image, out = [max(extent, 1) for extent in image], []
        for i, extent in enumerate(image):
            reach = (kernel[i] - 1) * (attributes["dilations"] or [1, 1])[i] + 1
            pads = attributes["pads"] or [0] * 4
            out.append((extent + pads[i] + pads[i + 2] - reach) // (attributes["strides"] or [1, 1])[i] + 1)
        size, outs = int(np.prod(kernel)) * offset_group, group * self.d.int(1, 2)
        inputs = [self.values([batch, channels, *image], t, 0), self.values([outs, channels // group, *kernel], t, 0),
                  self.values([batch, 2 * size, *out], t, 0, low=-2, high=2)]
        if self.d.chance(0.6):
            inputs += [self.values([outs], t, 0), self.values([batch, size, *out], t, 0)][:self.d.int(1, 2)]
        return self.done(inputs, [t], kind="single", group=group, offset_group=offset_group,
                         kernel_shape=self.maybe(kernel), **attributes)

    def max_unpool(self):
        self.d.huge = False
        if self.opset < 9:
            raise Unsuited
        t = self.dtype(["float32"])
        spatial = self.d.int(1, 3)
        kernel, strides, image = ([self.d.int(1, 3) for _ in range(spatial)] for _ in range(3))
        pads = [self.d.int(0, (k - 1) // 2) for _ in range(2) for k in kernel]
        pooled = [(e - 1) * s + k - pads[i] - pads[i + spatial]
                  for i, (e, s, k) in enumerate(zip(image, strides, kernel))]
        shape = [self.d.int(1, 2), self.d.int(1, 2), *image]
        count = int(np.prod([*shape[:2], *pooled]))
        if min(pooled) < 1 or count < np.prod(shape):
            raise Unsuited
        where = self.d.r.permutation(count)[:int(np.prod(shape))].reshape(shape)
        inputs = [self.values(shape, t, 0), self.c.add(where.astype(np.int64))]
        if self.d.chance(0.4):
            inputs.append(self.c.ints([*shape[:2], *(e + self.d.int(0, 2) for e in pooled)]))
        return self.done(inputs, [t], kind="exact", kernel_shape=kernel, strides=strides, pads=self.maybe(pads, 1 if any(pads) else 0.3))

    def regions(self):
        """Boxes [x, y, x, y] in an image of these extents, and a little outside."""
        count = self.d.int(1, 4)
        batch, height, width = self.d.int(1, 3), self.d.int(2, 9), self.d.int(2, 9)
        begin = self.d.r.uniform(-1, 5, [count, 2])
        boxes = np.concatenate([begin, begin + self.d.r.uniform(0, 6, [count, 2])], 1).astype(np.float32)
        image = self.d.r.integers(0, batch, [count])
        return self.values([batch, self.d.int(1, 2), height, width], "float32", 0), boxes, image

    def roi_align(self):
        allowed(self.op, self.opset, 0, ["float32"])
        x, boxes, image = self.regions()
        more = {}
        if self.opset >= 16:
            more = {"coordinate_transformation_mode": self.maybe(self.d.choice(["half_pixel", "output_half_pixel"]))}
        return self.done([x, self.c.add(boxes), self.c.add(image)], ["float32"], kind="single",
                         mode=self.maybe(self.d.choice(["avg", "max"])), output_height=self.maybe(self.d.int(1, 3)),
                         output_width=self.maybe(self.d.int(1, 3)), sampling_ratio=self.maybe(self.d.int(0, 3)),
                         spatial_scale=self.maybe(self.d.choice([0.5, 1.0, 2.0])), **more)

    def max_roi_pool(self):
        allowed(self.op, self.opset, 0, ["float32"])
        x, boxes, image = self.regions()
        boxes = np.concatenate([image[:, None], boxes], 1).astype(np.float32)
        return self.done([x, self.c.add(boxes)], ["float32"], kind="exact",
                         pooled_shape=[self.d.int(1, 3), self.d.int(1, 3)],
                         spatial_scale=self.maybe(self.d.choice([0.5, 1.0, 2.0])))

    def group_norm(self):
        self.d.huge = False
        t = self.dtype(["float32"])
        groups = self.d.int(1, 3)
        channels = groups * self.d.int(1, 3)
        x = self.values([self.d.int(1, 2), channels, *self.d.shape(1, 2, empty=0)], t, 0)
        factors = channels
        if self.d.chance(0.4):  # the older form
            self.c.opset, factors = self.d.int(18, 20), groups
        scale, bias = (self.values([factors], t, 0) for _ in range(2))
        return self.done([x, scale, bias], [t], kind="single", num_groups=groups, epsilon=0.1)

    def topk(self):
        t = self.dtype(FLOATS + INTS)
        shape = self.d.shape(1)
        axis = self.d.axis(len(shape))
        k = self.d.int(0, shape[axis])
        x = self.d.values(shape, t, 0.1)
        if x.size:  # all different: peers order ties in their own ways
            x = self.d.r.permutation(x.size).reshape(shape).astype(x.dtype)
        if self.opset < 10:
            return self.done([self.c.add(x)], [t, "int64"], 2, axis=axis, k=k, kind="exact")
        more = {}
        if self.opset >= 11:
            more = {"largest": self.maybe(self.d.int(0, 1)), "sorted": self.maybe(1)}
        return self.done([self.c.add(x), self.c.ints([k])], [t, "int64"], 2, axis=axis,
                         kind="exact", **more)

    # -- matrix products, windows and layers

    def matrix(self):
        return (self.d.int(0 if self.d.chance(0.05) else 1, 70 if self.d.chance(0.15) else 7)
                for _ in range(3))

    def matmul(self):
        self.d.huge = False
        t = self.dtype(FLOATS + ["int32", "int64", "uint32"])
        m, k, n = self.matrix()
        batch = self.d.shape(0, 3, 3) if m * n < 500 else []
        a, b = [*batch, m, k], [*self.d.broadcast(batch), k, n]
        if self.d.chance(0.2):
            a = [k]
        if self.d.chance(0.2):
            b = [k]
        return self.done([self.values(a, t, 0.1), self.values(b, t, 0.1)], [t], kind="sum")

    def gemm(self):
        self.d.huge = False
        t = self.dtype(FLOATS + ["int32", "int64"])
        m, k, n = self.matrix()
        a, b = self.d.int(0, 1), self.d.int(0, 1)
        inputs = [self.values([k, m] if a else [m, k], t, 0.1),
                  self.values([n, k] if b else [k, n], t, 0.1)]
        if self.opset < 11 or self.d.chance(0.7):
            inputs.append(self.values(self.d.broadcast([m, n]), t, 0.1))
        factor = (lambda: self.maybe(float(self.d.int(-2, 3)))) if t in INTS else (
            lambda: self.maybe(self.d.r.uniform(-2, 2)))
        return self.done(inputs, [t], kind="sum", transA=a, transB=b, alpha=factor(), beta=factor())

    # -- quantised tensors

    def scale(self, shape, dtype="float32"):
        return self.c.add(np.abs(self.d.values(shape, dtype, low=0.02, high=0.3)) + TYPES[dtype](0.01), 0.5)

    def quantization(self):
        self.d.huge = False
        narrow = ["int8", "uint8"] + ["int16", "uint16"] * (self.opset >= 21)
        to_integers = self.op == "QuantizeLinear"
        wide = self.dtype(["float32", "float16"], 0 if to_integers else 1)
        t = self.d.choice(narrow if to_integers else narrow + ["int32"])
        shape, axis, block = self.d.shape(1, 4), None, None
        scales = []
        if self.opset >= 13 and self.d.chance(0.7):
            at = self.d.axis(len(shape))
            axis, scales = at, [shape[at]]
            if self.opset >= 21 and 0 not in shape and self.d.chance(0.5):
                block = self.d.int(1, 4)
                scales = list(shape)
                scales[at] = -(-shape[at] // block)
        if self.opset >= 21 and self.d.chance(0.3):  # both, by way of a type that NumPy does not have
            x, scale = self.values(shape, "float32", 0), self.scale(scales, "float32")
            rest = {"axis": axis, "block_size": block}
            small = self.c.node("QuantizeLinear", [x, scale], output_dtype=self.d.choice(self.small_types()),
                                **rest)
            return self.c.finish(self.c.node("DequantizeLinear", [*small, scale], **rest), ["float32"])
        if to_integers and self.opset >= 19 and self.d.chance(0.2):  # a scale of integers
            x = self.values(shape, "int32", 0, low=-500, high=500)
            inputs = [x, self.values(scales, "int32", 0, low=1, high=4)]
        else:
            x = self.values(shape, wide if to_integers else t, 0)
            inputs = [x, self.scale(scales, wide)]
        if t != "int32" and (self.d.chance(0.7) or (to_integers and t != "uint8")):
            inputs.append(self.values(scales, t, 0))
        return self.done(inputs, [t if to_integers else wide], kind="unit" if to_integers else "single",
                         axis=axis, block_size=block)

    def dynamic_quantization(self):
        if self.opset < 11:
            raise Unsuited
        self.d.huge = False
        x = self.values(self.d.shape(1, empty=0), "float32", 0)
        return self.done([x], ["uint8", "float32", "uint8"], outputs=3, kind="unit")

    def integer_matmul(self):
        self.d.huge = False
        if self.opset < 10:
            raise Unsuited
        (m, k, n), batch = self.matrix(), self.d.shape(0, 2, 3)
        t, u = self.d.choice(["int8", "uint8"]), self.d.choice(["int8", "uint8"])
        a = self.values([*batch, m, k], t, 0, low=-60, high=60)
        b = self.values([k, n] if self.d.chance(0.5) else [*batch, k, n], u, 0, low=-60, high=60)
        # One for each row, in the form of N dimensions: of one dimension, the reference subtracts it
        # from columns.
        a_lines = [m, 1] if not batch and self.d.chance(0.3) else []
        b_lines = [n] if not batch and self.d.chance(0.3) else []
        zeros = [self.values(a_lines, t, 0), self.values(b_lines, u, 0)]
        if self.op == "MatMulInteger":
            return self.done([a, b, *zeros][:self.d.int(2, 4)], ["int32"])
        y = self.d.choice(["int8", "uint8"])
        return self.done([a, self.scale(a_lines), zeros[0], b, self.scale(b_lines), zeros[1],
                          self.scale([]), self.values([], y, 0)], [y], kind="unit")

    def integer_conv(self):
        self.d.huge = False
        if self.opset < 10:
            raise Unsuited
        spatial = self.d.int(1, 2)
        kernel = [self.d.int(1, 4) for _ in range(spatial)]
        image, attributes = self.window(spatial, kernel)
        group, ins, outs = self.d.choice([1, 1, 2, 3]), self.d.int(1, 4), self.d.int(1, 4)
        t, u = self.d.choice([("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
        x = self.values([self.d.int(1, 2), ins * group, *image], t, 0, low=-60, high=60)
        w = self.values([outs * group, ins, *kernel], u, 0, low=-60, high=60)
        channels = [outs * group] if self.d.chance(0.4) else []
        zeros = [self.values([], t, 0), self.values(channels, u, 0)]
        attributes.update(group=group, kernel_shape=self.maybe(kernel))
        if self.op == "ConvInteger":
            return self.done([x, w, *zeros][:self.d.int(2, 4)], ["int32"], **attributes)
        inputs = [x, self.scale([]), zeros[0], w, self.scale(channels), zeros[1], self.scale([]),
                  self.values([], t, 0)]
        if self.d.chance(0.5):
            inputs.append(self.values([outs * group], "int32", 0, low=-900, high=900))
        return self.done(inputs, [t], kind="unit", **attributes)

    def window(self, spatial, kernel, ceil=None):
        """Attributes of windows, and extents of an image that they fit in."""
        pads = strides = dilations = auto = None
        if self.d.chance(0.6):
            strides = [self.d.int(1, 3) for _ in range(spatial)]
        if self.d.chance(0.4):
            dilations = [self.d.int(1, 3) for _ in range(spatial)]
        if self.d.chance(0.3):
            auto = self.d.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
            if auto[:4] == "SAME" and strides:  # else pads are negative: the peers differ
                strides = [min(s, k) for s, k in zip(strides, kernel)]
        if auto in (None, "NOTSET") and self.d.chance(0.7):
            pads = [self.d.int(0, max(0, kernel[i % spatial] - 1)) for i in range(2 * spatial)]
        image = []
        for i, extent in enumerate(kernel):
            reach = (extent - 1) * (dilations[i] if dilations else 1) + 1
            around = pads[i] + pads[i + spatial] if pads else 0
            past = strides[i] - 1 if ceil and strides and auto in (None, "NOTSET") else 0
            least = 0 if self.d.chance(0.02) else 1
            most = 40 if spatial < 3 and self.d.chance(0.15) else 6
            image.append(max(self.d.int(least, most), reach - around - past))
        return image, {"pads": pads, "strides": strides, "dilations": dilations, "auto_pad": auto}

    def pool(self):
        self.d.huge = False
        # Onnx's reference evaluator leaves NaN out of a norm, and differs from ONNX Runtime in ceil_mode.
        # ONNX Runtime has the norm of float32 alone.
        t = self.dtype(["float32"] if self.op == "LpPool" else FLOATS + ["int8", "uint8"])
        spatial = self.d.int(1, 3)
        kernel = [self.d.int(1, 4) for _ in range(spatial)]
        ceil = self.maybe(self.d.int(0, 1)) if self.opset >= (18 if self.op == "LpPool" else 10) else None
        image, attributes = self.window(spatial, kernel, ceil)
        attributes["ceil_mode"] = ceil
        if self.op == "AveragePool":
            if self.opset < 19:
                attributes["dilations"] = None
            attributes["count_include_pad"] = self.maybe(self.d.int(0, 1))
        elif self.opset < (18 if self.op == "LpPool" else 10):
            attributes["dilations"] = None
        if self.op == "LpPool":
            attributes["p"] = self.maybe(self.d.int(1, 3))
        x = self.values([self.d.int(1, 2), self.d.int(1, 3), *image], t, 0 if self.op == "LpPool" else 0.15)
        outputs = 1
        if self.op == "MaxPool" and self.opset >= 8 and self.d.chance(0.3):
            outputs = 2
            attributes["storage_order"] = self.maybe(self.d.int(0, 1))
        kind = None if self.op == "MaxPool" else "sum"
        return self.done([x], [t, "int64"][:outputs], outputs, kind, kernel_shape=kernel, **attributes)

    def global_pool(self):
        self.d.huge = False
        t = self.dtype()
        shape = [self.d.int(1, 2), self.d.int(1, 3), *self.d.shape(1, 3, 6, 0)]
        return self.done([self.values(shape, t, 0.1)], [t], kind="sum")

    def conv(self):
        self.d.huge = False
        t = self.dtype()
        spatial = self.d.int(1, 3)
        kernel = [self.d.int(1, 4) for _ in range(spatial)]
        image, attributes = self.window(spatial, kernel)
        group = self.d.choice([1, 1, 2, 3])
        ins, outs = (self.d.int(1, 20 if self.d.chance(0.15) else 4) for _ in range(2))
        transposed = self.op == "ConvTranspose"
        weights = [ins * group, outs, *kernel] if transposed else [outs * group, ins, *kernel]
        if transposed:
            image = [self.d.int(1, 5) for _ in kernel]
            strides = attributes["strides"] or [1] * spatial
            dilations = attributes["dilations"] or [1] * spatial
            if self.d.chance(0.3):
                attributes["output_padding"] = [self.d.int(0, max(s, k) - 1)
                                                for s, k in zip(strides, dilations)]
            if self.d.chance(0.2):
                attributes["output_shape"] = [self.d.int(e, e * s + 3) for e, s in zip(image, strides)]
        inputs = [self.values([self.d.int(1, 2), ins * group, *image], t, 0.05),
                  self.values(weights, t, 0, 0.6)]
        if self.d.chance(0.5):
            inputs.append(self.values([outs * group], t, 0))
        return self.done(inputs, [t], kind="sum", group=self.maybe(group, 1 if group > 1 else 0.3),
                         kernel_shape=self.maybe(kernel), **attributes)

    def batch_norm(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64", "float16"])
        shape = self.d.shape(2, 5, 5)
        parts = [self.values([shape[1]], t, 0, low=0.5, high=2) for _ in range(4)]
        return self.done([self.values(shape, t, 0.2), *parts], [t], kind="sum",
                         epsilon=self.maybe(self.d.r.uniform(1e-5, 0.1)))

    def instance_norm(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64", "float16"])
        shape = self.d.shape(3, 5, 5)
        parts = [self.values([shape[1]], t, 0) for _ in range(2)]
        return self.done([self.values(shape, t, 0.05), *parts], [t], kind="sum",
                         epsilon=self.d.r.uniform(1e-2, 0.2))

    def layer_norm(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64", "float16"])
        shape = self.d.shape(1, 5, 5)
        axis = self.d.axis(len(shape))
        tail = shape[axis:]
        inputs = [self.values(shape, t, 0.05), self.values(tail, t, 0)]
        if self.d.chance(0.6):
            inputs.append(self.values(tail, t, 0))
        return self.done(inputs, [t], kind="sum", axis=axis,
                         epsilon=self.d.r.uniform(1e-2, 0.2))

    def lrn(self):
        self.d.huge = False
        t = self.dtype()
        shape = self.d.shape(4, 4, 6)  # the peers take only images
        return self.done([self.values(shape, t, 0)], [t], kind="single", size=self.d.choice([1, 3, 5]),
                         alpha=self.maybe(self.d.r.uniform(0, 1)),
                         beta=self.maybe(self.d.r.uniform(0, 1)), bias=self.maybe(self.d.r.uniform(0.5, 2)))

    def dropout(self):
        t = self.dtype()
        return self.done([self.values(self.d.shape(), t)], [t], kind="exact")

    def recurrent(self):
        self.d.huge = False
        t = self.dtype(["float32", "float32", "float64", "float16"])
        gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[self.op]
        steps, batch, size, hidden = (self.d.int(1, 24 if self.d.chance(0.1) else 4) for _ in range(4))
        direction = self.d.choice(["forward", "forward", "reverse", "bidirectional"])
        ways = 2 if direction == "bidirectional" else 1
        layout = self.d.int(0, 1) if self.opset >= 14 and self.d.chance(0.3) else None
        swap = (lambda s: [s[1], s[0], *s[2:]]) if layout else (lambda s: s)

        def tensor(shape, p, most=1.0):
            return self.values(shape, t, 0, low=-most, high=most) if self.d.chance(p) else ""

        calm = min(1, 2 / hidden ** 0.5)  # larger weights of many states make each step's rounding errors grow
        inputs = [tensor(swap([steps, batch, size]), 1), tensor([ways, gates * hidden, size], 1),
                  tensor([ways, gates * hidden, hidden], 1, calm), tensor([ways, 2 * gates * hidden], 0.6), "",
                  tensor(swap([ways, batch, hidden]), 0.4)]
        if self.d.chance(0.4):
            inputs[4] = self.c.add(self.d.r.integers(1, steps + 1, [batch]).astype(np.int32))
        if self.op == "LSTM":
            inputs += [tensor(swap([ways, batch, hidden]), 0.4), tensor([ways, 3 * hidden], 0.3)]
        more = {"GRU": {"linear_before_reset": self.maybe(self.d.int(0, 1))},
                "LSTM": {"input_forget": self.maybe(0)}}.get(self.op, {})
        count = 3 if self.op == "LSTM" else 2
        return self.done(inputs, [t] * count, count, "graph", hidden_size=hidden, direction=direction,
                         layout=layout, clip=self.maybe(self.d.r.uniform(0.5, 2), 0.2), **more)

    # -- data movement

    def moved(self, shape=None, least=0, **rest):
        t = self.dtype(FLOATS + INTS + ["bool"])
        shape = self.d.shape(least) if shape is None else shape
        return t, shape, self.values(shape, t, **rest)

    def identity(self):
        t, _, x = self.moved()
        return self.done([x], ["int64" if self.op in ("Shape", "Size") else t], kind="exact")

    def shape_of(self):
        _, shape, x = self.moved()
        ends = {}
        if self.opset >= 15 and self.op == "Shape":
            rank = len(shape)
            ends = {k: self.maybe(self.d.int(-rank - 1, rank + 1)) for k in ("start", "end")}
        return self.done([x], ["int64"], kind="exact", **ends)

    def transpose(self):
        t, shape, x = self.moved()
        perm = self.maybe([int(a) for a in self.d.r.permutation(len(shape))], 0.8)
        return self.done([x], [t], kind="exact", perm=perm)

    def flatten(self):
        t, shape, x = self.moved(least=1)
        low = -len(shape) if self.opset >= 11 else 0
        return self.done([x], [t], kind="exact", axis=self.maybe(self.d.int(low, len(shape))))

    def concat(self):
        t = self.dtype(FLOATS + INTS + ["bool"])
        shape = self.d.shape(1)
        axis = self.d.axis(len(shape)) if self.opset >= 11 else self.d.int(0, len(shape) - 1)
        inputs = []
        for _ in range(self.d.int(1, 4)):
            part = list(shape)
            part[axis] = self.d.int(0, 4)
            inputs.append(self.values(part, t))
        return self.done(inputs, [t], kind="exact", axis=axis)

    def split(self):
        t, shape, x = self.moved(least=1)
        axis = self.d.axis(len(shape)) if self.opset >= 11 else self.d.int(0, len(shape) - 1)
        extent, parts = shape[axis], self.d.int(1, 4)
        cuts = sorted(self.d.int(0, extent) for _ in range(parts - 1))
        sizes = [int(b - a) for a, b in zip([0, *cuts], [*cuts, extent])]
        even = extent % parts == 0
        if self.opset < 13:
            return self.done([x], [t] * parts, parts, "exact", axis=axis, split=self.maybe(sizes, 0.7 if even else 1))
        if self.d.chance(0.7) or (self.opset < 18 and not even):
            return self.done([x, self.c.ints(sizes)], [t] * parts, parts, "exact", axis=axis)
        if (parts - 1) * -(-extent // parts) > extent:
            raise Unsuited
        count = parts if self.opset >= 18 else None
        return self.done([x], [t] * parts, parts, "exact", axis=axis, num_outputs=count)

    def slice(self):
        t, shape, x = self.moved(least=1)
        axes = self.d.axes(len(shape), 1)
        far = [-(1 << 62), (1 << 62), (1 << 31) - 1, -(1 << 31)]

        def place(axis):
            return self.d.choice(far) if self.d.chance(0.1) else self.d.int(-shape[axis] - 2, shape[axis] + 2)

        starts, ends = [place(a) for a in axes], [place(a) for a in axes]
        if self.opset < 10:
            axes = [a % len(shape) for a in axes]
            return self.done([x], [t], kind="exact", starts=starts, ends=ends, axes=axes)
        steps = [self.d.choice([1, 1, 2, 3, -1, -1, -2]) for _ in axes]
        if axes == list(range(len(axes))) and self.d.chance(0.5):
            return self.done([x, self.c.ints(starts), self.c.ints(ends)], [t], kind="exact")
        inputs = [x, *(self.c.ints(v) for v in (starts, ends, axes))]
        return self.done(inputs + ([self.c.ints(steps)] if self.d.chance(0.6) else []), [t], kind="exact")

    def squeeze(self):
        shape = [1 if self.d.chance(0.5) else e for e in self.d.shape()]
        t, _, x = self.moved(shape)
        axes = [i for i, e in enumerate(shape) if e == 1 and self.d.chance(0.7)]
        axes = [a - len(shape) if self.opset >= 11 and self.d.chance(0.3) else a for a in axes]
        if not axes or self.d.chance(0.3):
            return self.done([x], [t], kind="exact")
        if self.opset < 13:
            return self.done([x], [t], kind="exact", axes=axes)
        return self.done([x, self.c.ints(axes)], [t], kind="exact")

    def unsqueeze(self):
        t, shape, x = self.moved(self.d.shape(0, 4))
        added = self.d.int(1, 2)
        rank = len(shape) + added
        axes = [int(a) for a in self.d.r.permutation(rank)[:added]]
        axes = [a - rank if self.opset >= 11 and self.d.chance(0.3) else a for a in axes]
        if self.opset < 13:
            return self.done([x], [t], kind="exact", axes=axes)
        return self.done([x, self.c.ints(axes)], [t], kind="exact")

    def reshape(self):
        t, shape, x = self.moved()
        count = int(np.prod(shape, dtype=np.int64))
        wanted, left = [], count
        while left > 1 and self.d.chance(0.8):
            factor = self.d.choice([f for f in range(1, left + 1) if left % f == 0])
            wanted.append(factor)
            left //= factor
        if left != 1:
            wanted.append(left)
        self.d.r.shuffle(wanted)
        wanted = [int(w) for w in wanted]
        for i, extent in enumerate(wanted):
            if i < len(shape) and shape[i] == extent and self.d.chance(0.3):
                wanted[i] = 0
        if wanted and count and self.d.chance(0.4):
            wanted[self.d.int(0, len(wanted) - 1)] = -1
        zero = self.maybe(self.d.int(0, 1), 0.3) if self.opset >= 14 else None
        return self.done([x, self.c.ints(wanted)], [t], kind="exact", allowzero=zero)

    def expand(self):
        shape = self.d.shape()
        t, _, x = self.moved(self.d.broadcast(shape))
        wanted = self.d.broadcast(shape) if self.d.chance(0.5) else shape
        return self.done([x, self.c.ints(wanted)], [t], kind="exact")

    def tile(self):
        t, shape, x = self.moved(self.d.shape(1, 4))
        return self.done([x, self.c.ints([self.d.int(0 if self.d.chance(0.1) else 1, 3) for _ in shape])],
                         [t], kind="exact")

    def pad(self):
        t, shape, x = self.moved(self.d.shape(1, 4))
        rank = len(shape)
        modes = ["constant", "constant", "reflect", "edge"] + (["wrap"] if self.opset >= 19 else [])
        mode = self.d.choice(modes)
        axes = None
        if self.opset >= 18 and self.d.chance(0.3):
            axes = self.d.axes(rank, 1)
        over = axes if axes is not None else range(rank)
        least = -1 if mode == "constant" and self.d.chance(0.2) else 0
        pads = [self.d.int(least, max(0, shape[a] - 1) if mode == "reflect" else 3)
                for _ in range(2) for a in over]
        value = self.d.values([], t, 0.1)
        if self.opset < 11:
            more = {} if self.d.chance(0.5) else {"value": float(value)}
            return self.done([x], [t], kind="exact", mode=self.maybe(mode, 0.9), pads=pads, **more)
        fill = self.c.add(value) if self.d.chance(0.5) else ""
        return self.done([x, self.c.ints(pads), fill, "" if axes is None else self.c.ints(axes)], [t],
                         kind="exact", mode=mode)

    def gather(self):
        t, shape, x = self.moved(self.d.shape(1, empty=0.02))
        axis = self.d.axis(len(shape))
        wanted = list(shape) if self.op == "GatherElements" else self.d.shape(0, 3)
        if self.op == "GatherElements":
            wanted = [self.d.int(0 if self.d.chance(0.05) else min(1, e), e) for e in shape]
            wanted[axis] = self.d.int(0, 5)
        low = -shape[axis] if self.opset >= 11 else 0
        if not shape[axis]:
            wanted[0:1] = [0]
        indices = self.d.r.integers(low, max(shape[axis], low + 1), wanted)
        kind = self.d.choice(["int32", "int64"])
        return self.done([x, self.c.add(indices.astype(kind))], [t], kind="exact", axis=axis)

    def scatter_nd(self):
        t, shape, x = self.moved(self.d.shape(1, 4, empty=0.02), special=0.2)
        depth, count = self.d.int(1, len(shape)), self.d.shape(0, 2, 3)
        if 0 in shape:
            raise Unsuited
        reduction = self.maybe(self.d.choice(["none", "add", "mul", "max", "min"][:5 if self.opset >= 18
                                             else 3])) if self.opset >= 16 else None
        cells = self.d.r.integers(0, shape[:depth], [*count, depth])
        if reduction in (None, "none"):  # two updates of one place are undefined
            flat = cells.reshape(-1, depth)
            _, first = np.unique(flat, axis=0, return_index=True)
            cells, count = flat[np.sort(first)], [len(first)]
        cells = np.where(self.d.r.random(cells.shape) < 0.2, cells - shape[:depth], cells)
        updates = self.values([*count, *shape[depth:]], t, 0.2)
        return self.done([x, self.c.add(cells.astype(np.int64)), updates], [t], reduction=reduction)

    def scatter_elements(self):
        t, shape, x = self.moved(self.d.shape(1, 4, empty=0), special=0.2)
        axis = self.d.axis(len(shape))
        reductions = ["none", "add", "mul", "max", "min"][:5 if self.opset >= 18 else 3]
        reduction = self.maybe(self.d.choice(reductions)) if self.opset >= 16 else None
        wanted = [self.d.int(1, e) for e in shape]
        # Two updates of one place are undefined without a reduction, so each row is a permutation.
        rows = self.d.r.random([shape[axis] if i == axis % len(shape) else e for i, e in enumerate(wanted)])
        indices = np.argsort(rows, axis=axis)
        indices = np.take(indices, range(wanted[axis]), axis=axis)
        kind = self.d.choice(["int32", "int64"])
        return self.done([x, self.c.add(indices.astype(kind)), self.values(list(indices.shape), t, 0.2)], [t],
                         axis=axis, reduction=reduction)

    def gather_nd(self):
        t, shape, x = self.moved(self.d.shape(1, 4, empty=0))
        batch = self.d.int(0, len(shape) - 1) if self.opset >= 12 else 0
        depth = self.d.int(1, len(shape) - batch)
        count = [*shape[:batch], *self.d.shape(0, 2, 3), depth]
        cells = self.d.r.integers(0, shape[batch:batch + depth], count)
        more = {"batch_dims": batch} if self.opset >= 12 else {}
        return self.done([x, self.c.add(cells.astype(np.int64))], [t], kind="exact", **more)

    def compress(self):
        t, shape, x = self.moved(self.d.shape(1, empty=0))
        axis = self.maybe(self.d.axis(len(shape)) if self.opset >= 11 else self.d.int(0, len(shape) - 1))
        extent = int(np.prod(shape)) if axis is None else shape[axis]
        kept = self.d.r.random(self.d.int(1, extent)) < 0.5
        return self.done([x, self.c.add(kept)], [t], kind="exact", axis=axis)

    def unique(self):
        t = self.dtype(["float32", "float64", "int64", "int8"])
        shape = self.d.shape(1, 3, 4)
        x = np.round(self.d.values(shape, t, 0, low=-1, high=1)) + np.zeros(1, TYPES[t])  # no -0
        axis = self.maybe(self.d.axis(len(shape)))
        if axis is not None and 0 in shape:
            raise Unsuited
        return self.done([self.c.add(x)], [t, "int64", "int64", "int64"], 4, "exact", axis=axis,
                         sorted=self.maybe(self.d.int(0, 1)))

    def reverse_sequence(self):
        t, shape, x = self.moved(self.d.shape(2, 4, empty=0))
        batch = self.d.int(0, 1)
        lengths = self.d.r.integers(1, shape[1 - batch] + 1, [shape[batch]])
        return self.done([x, self.c.add(lengths.astype(np.int64))], [t], kind="exact",
                         batch_axis=batch, time_axis=1 - batch)

    def depth_space(self):
        n, c, h, w, b = (self.d.int(1, 3) for _ in range(5))
        deep = self.op == "DepthToSpace"
        t, _, x = self.moved([n, c * b * b, h, w] if deep else [n, c, h * b, w * b])
        mode = self.maybe(self.d.choice(["DCR", "CRD"])) if deep and self.opset >= 11 else None
        return self.done([x], [t], kind="exact", blocksize=b, mode=mode)

    def cumulative(self):
        self.d.huge = False
        t = self.dtype(["float32", "float64", "float16", "int32", "int64"])
        shape = self.d.shape(1)
        axis = self.c.add(np.asarray(self.d.axis(len(shape)), self.d.choice(["int32", "int64"])))
        return self.done([self.values(shape, t, 0.1, low=-2, high=2), axis], [t], kind="sum",
                         exclusive=self.maybe(self.d.int(0, 1)), reverse=self.maybe(self.d.int(0, 1)))

    def einsum(self):
        self.d.huge = False
        t = self.dtype(["float32", "float64", "int32", "int64"])
        sizes = {letter: self.d.int(1, 4) for letter in "ijkl"}
        terms = ["".join(self.d.r.permutation(list("ijkl"))[:self.d.int(1, 3)]) for _ in range(self.d.int(1, 3))]
        letters = sorted(set("".join(terms)))
        output = "".join(self.d.r.permutation(letters)[:self.d.int(0, len(letters))])
        equation = ",".join(terms) + ("->" + output if self.d.chance(0.8) else "")
        return self.done([self.values([sizes[x] for x in term], t, 0) for term in terms], [t], kind="sum",
                         equation=equation)

    def eye_like(self):
        t, _, x = self.moved([self.d.int(1, 5), self.d.int(1, 5)])
        to = self.maybe(self.d.choice(["float32", "float64", "int32", "int64"]))
        dtype = {} if to is None else {"dtype": int(PROTO[np.dtype(TYPES[to])])}
        return self.done([x], [to or t], kind="exact", k=self.maybe(self.d.int(-3, 3)), **dtype)

    def one_hot(self):
        t = self.dtype(FLOATS + INTS + ["bool"], 2)
        kind, depth_kind = self.dtype(["int64", "int32", "float32", "int8"]), self.dtype(["int64", "int32", "float32"], 1)
        shape = self.d.shape(1, 4)
        depth = self.d.int(1, 5)
        indices = self.d.r.integers(-depth, depth + 1, shape).astype(TYPES[kind])
        depth = np.asarray(depth if self.d.chance(0.5) else [depth], TYPES[depth_kind])
        return self.done([self.c.add(indices), self.c.add(depth), self.values([2], t, 0)], [t],
                         kind="exact", axis=self.maybe(self.d.axis(len(shape) + 1)))

    def range(self):
        t = self.dtype(["float32", "float64", "int16", "int32", "int64"])
        step = self.d.choice([1, 2, -1, 3] if t in INTS else [0.5, 1.25, -0.75, 0.1])
        start, limit = self.d.int(-5, 5), self.d.int(-9, 9)
        return self.done([self.c.add(np.asarray(v, TYPES[t])) for v in (start, limit, step)], [t],
                         kind="sum")

    def constant(self):
        t = self.dtype_of_output()
        value = self.d.values(self.d.shape(), t, 0.3)
        form = self.d.int(0, 4) if self.opset >= 12 else 0
        if form == 1:
            return self.done([], ["int64"], kind="exact", value_int=7)
        if form == 2:
            return self.done([], ["int64"], kind="exact", value_ints=[self.d.int(-9, 9) for _ in range(self.d.int(1, 4))])
        if form == 3:
            return self.done([], ["float32"], kind="exact", value_float=0.3)
        return self.done([], [t], kind="exact", value=numpy_helper.from_array(value, "v"))

    def dtype_of_output(self):
        return self.d.choice(["float32", "float64", "float16", *INTS, "bool"])

    def constant_of_shape(self):
        allowed(self.op, self.opset, 0, ["int64"])
        t = self.dtype_of_output()
        shape = self.c.ints(np.asarray(self.d.shape(), np.int64))
        if self.d.chance(0.2):
            return self.done([shape], ["float32"], kind="exact")
        value = numpy_helper.from_array(self.d.values([1], t, 0.2), "v")
        return self.done([shape], [t], kind="exact", value=value)

    def non_zero(self):
        t, _, x = self.moved(least=1)
        return self.done([x], ["int64"], kind="exact")

    def trilu(self):
        t, shape, x = self.moved(self.d.shape(2))
        k = self.c.ints(self.d.int(-6, 6)) if self.d.chance(0.6) else ""
        return self.done([x, k], [t], kind="exact", upper=self.maybe(self.d.int(0, 1)))

    def resize(self):
        self.d.huge = False
        mode = self.d.choice(["nearest", "linear", "cubic"] if self.opset >= 11 else ["nearest", "linear"])
        if self.opset < 10:
            self.op = "Upsample"
        t = self.dtype(["float32", "float32", "float64", "float16"] +
                       (["uint8", "int8", "int32"] if mode == "nearest" else []))
        shape = self.d.shape(1, 4, 6, 0)
        if self.d.chance(0.5):
            shape = [1, self.d.int(1, 2), *shape[:2]][:max(3, len(shape))]
        rank = len(shape)
        sizes = [e if (mode != "nearest" and i < rank - 2) or self.d.chance(0.3) else self.d.int(1, 9)
                 for i, e in enumerate(shape)]
        scales = np.asarray([s / e for s, e in zip(sizes, shape)], np.float32)
        if self.d.chance(0.4):
            scales = np.where(scales == 1, 1, np.round(scales * 4) / 4 + 0.25).astype(np.float32)
        x = self.values(shape, t, 0)
        if self.opset < 10:
            scales = np.maximum(scales, 1)
        if self.opset < 9:
            return self.done([x], [t], kind="single", mode=mode, scales=scales.tolist())
        if self.opset < 11:
            return self.done([x, self.c.add(scales, 0.6)], [t], kind="single", mode=mode)
        kinds = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
        if self.opset >= 19:
            kinds.append("half_pixel_symmetric")
        more = {"coordinate_transformation_mode": self.maybe(self.d.choice(kinds), 0.7)}
        if mode == "nearest":
            more["nearest_mode"] = self.maybe(
                self.d.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
        if mode == "cubic":
            more["cubic_coeff_a"] = self.maybe(-0.5, 0.3)
            more["exclude_outside"] = self.maybe(self.d.int(0, 1), 0.3)
        if self.opset >= 18 and mode != "nearest":
            more["antialias"] = self.maybe(self.d.int(0, 1), 0.3)
        region = self.c.add(np.zeros(0, np.float32), 1) if self.opset < 13 else ""
        by_scales = self.d.chance(0.5)
        empty = self.c.add(np.zeros(0, np.float32), 1) if self.opset < 13 and not by_scales else ""
        inputs = [x, region, self.c.add(scales, 0.6) if by_scales else empty,
                  "" if by_scales else self.c.ints(sizes)]
        return self.done(inputs, [t], kind="single", mode=None if mode == "nearest" else mode, **more)

    # -- values that are no tensors of numbers: made of numbers and turned to numbers again

    def since(self, opset):
        if self.opset < opset:
            raise Unsuited

    def sequence(self):
        self.since(11)
        t = self.d.choice(["float32", "int64", "bool"])
        x, y, z = (self.values(self.d.shape(), t, 0) for _ in range(3))
        s, = self.c.node("SequenceConstruct", [x, y])
        if self.op == "SequenceEmpty":
            s, = self.c.node("SequenceEmpty", [], dtype=int(PROTO[np.dtype(TYPES[t])]))
            s, = self.c.node("SequenceInsert", [s, x])
            s, = self.c.node("SequenceInsert", [s, y])
        if self.op in ("SequenceInsert", "SequenceLength"):
            s, = self.c.node("SequenceInsert", [s, z, self.maybe(self.c.ints(self.d.int(-2, 2))) or ""])
        if self.op == "SequenceErase":
            s, = self.c.node("SequenceErase", [s, self.maybe(self.c.ints(self.d.int(-2, 1))) or ""])
            return self.c.finish(self.c.node("SequenceAt", [s, self.c.ints(0)]), [t])
        if self.op == "SequenceLength":
            return self.c.finish(self.c.node("SequenceLength", [s]), ["int64"])
        return self.c.finish(self.c.node("SequenceAt", [s, self.c.ints(self.d.int(-2, 1))]), [t])

    def split_to_sequence(self):
        self.since(11)
        t = self.d.choice(["float32", "float64", "int64"])
        shape = self.d.shape(1, empty=0)
        axis = self.d.axis(len(shape))
        x, kind = self.values(shape, t, 0), self.d.int(0, 2)
        split = ("", self.c.ints(self.d.int(1, 3)), self.c.ints([1, shape[axis] - 1]))[kind]
        keep = self.d.int(0, 1) if kind == 0 else None
        s, = self.c.node("SplitToSequence", [x, split], axis=axis, keepdims=keep)
        if self.op == "SplitToSequence" or kind:
            return self.c.finish(self.c.node("SequenceAt", [s, self.c.ints(self.d.int(-1, 0))]), [t])
        return self.c.finish(self.c.node("ConcatFromSequence", [s], axis=0, new_axis=self.d.int(0, 1)), [t])

    def optional(self):
        t = self.d.choice(["float32", "int64", "bool"])
        value, = self.c.node("Optional", [self.values(self.d.shape(), t, 0)])
        if self.op == "OptionalHasElement":
            return self.c.finish(self.c.node(self.op, [value]), ["bool"])
        return self.c.finish(self.c.node("OptionalGetElement", [value]), [t])

    def tf_idf(self):
        self.since(9)
        t = self.dtype(["int32", "int64"])
        x = self.c.add(self.d.r.integers(0, 4, self.d.shape(1, 2, empty=0)).astype(t))
        pairs = self.d.r.permutation([(a, b) for a in range(4) for b in range(4)])[:self.d.int(1, 6)]
        words = self.d.r.permutation(4)[:self.d.int(1, 4)]
        columns = self.d.r.permutation(len(words) + len(pairs))
        least = self.d.int(1, 2)
        return self.done([x], ["float32"], kind="exact", mode=self.d.choice(["TF", "IDF", "TFIDF"]),
                         min_gram_length=least, max_gram_length=self.d.int(least, 2),
                         max_skip_count=self.d.int(0, 3), ngram_counts=[0, len(words)],
                         ngram_indexes=columns.tolist(), pool_int64s=[*words.tolist(), *pairs.reshape(-1).tolist()],
                         weights=self.maybe([float(i + 1) / 4 for i in range(len(columns))]))

    def texts(self):
        digits = self.c.add(self.d.r.integers(0, 90, self.d.shape(empty=0)))
        text, = self.c.node("Cast", [digits], to=onnx.TensorProto.STRING)
        if self.op == "StringConcat":
            joined, = self.c.node("StringConcat", [text, text])
            return self.c.finish(self.c.node("Cast", [joined], to=onnx.TensorProto.INT64), ["int64"])
        parts = self.c.node("StringSplit", [text], 2, delimiter=self.maybe(self.d.choice("0123")) or "7")
        return self.c.finish(parts[1:], ["int64"])

    def normalizer(self):
        self.since(10)
        digits = self.c.add(self.d.r.integers(0, 9, [self.d.int(1, 6)]))
        text, = self.c.node("Cast", [digits], to=onnx.TensorProto.STRING)
        kept, = self.c.node("StringNormalizer", [text], stopwords=["1", "2", "5"],
                            is_case_sensitive=self.maybe(self.d.int(0, 1)))
        return self.c.finish(self.c.node("Shape", [kept]), ["int64"])

    def conditional(self):
        t = self.d.choice(["float32", "int64"])
        shape = self.d.shape(1)
        x, y = self.values(shape, t, 0), self.values(shape, t, 0)
        condition = self.c.add(np.asarray(self.d.chance(0.5)))
        graphs = {}
        for branch in ("then_branch", "else_branch"):
            op = self.d.choice(["Add", "Sub", "Mul", "Concat"])
            node = helper.make_node(op, [x, y], ["out"], **({"axis": 0} if op == "Concat" else {}))
            out = helper.make_tensor_value_info("out", PROTO[np.dtype(TYPES[t])], None)
            graphs[branch] = helper.make_graph([node], branch, [], [out])
        return self.done([condition], [t], **graphs)


    def loop(self):
        t = self.d.choice(["float32", "int64"])
        shape = self.d.shape(1, 3, empty=0)
        x, y = self.values(shape, t, 0), self.values(shape, t, 0)
        trips = self.c.add(np.asarray(self.d.int(0, 5)))
        condition = self.c.add(np.asarray(self.d.chance(0.8))) if self.d.chance(0.5) else ""
        limit = self.c.add(np.asarray(self.d.int(0, 5)))
        goes_on = ("Less", ["i", limit]) if self.opset >= 9 else ("Identity", ["go"])
        nodes = [helper.make_node(self.d.choice(["Add", "Sub"]), ["v", y], ["next"]),
                 helper.make_node(self.d.choice(["Add", "Sub"]), ["next", x], ["s"]),
                 helper.make_node(*goes_on, ["more"])]
        body = helper.make_graph(
            nodes, "body", [typed("i", "int64", []), typed("go", "bool", []), typed("v", t, shape)],
            [typed("more", "bool", []), typed("next", t, shape), typed("s", t, shape)])
        return self.done([trips, condition, x], [t, t], 2, kind="exact", body=body)

    def scan(self):
        if self.opset < 9:  # ONNX's Scan of opset 8 has a batch
            raise Unsuited
        t = self.d.choice(["float32", "int64"])
        shape = self.d.shape(1, 2, empty=0)
        axis = self.d.int(0, len(shape))
        x = self.values([*shape[:axis], self.d.int(1, 5), *shape[axis:]], t, 0)
        state, y = self.values(shape, t, 0), self.values(shape, t, 0)
        nodes = [helper.make_node(self.d.choice(["Add", "Sub"]), ["v", "slice"], ["next"]),
                 helper.make_node(self.d.choice(["Add", "Sub"]), ["next", y], ["s"])]
        body = helper.make_graph(nodes, "body", [typed("v", t, shape), typed("slice", t, shape)],
                                 [typed("next", t, shape), typed("s", t, shape)])
        return self.done([state, x], [t, t], 2, kind="exact", body=body, num_scan_inputs=1,
                         scan_input_axes=[axis], scan_input_directions=self.maybe([self.d.int(0, 1)]),
                         scan_output_axes=self.maybe([self.d.int(0, len(shape))]),
                         scan_output_directions=self.maybe([self.d.int(0, 1)]))


def typed(name, dtype, shape):
    return helper.make_tensor_value_info(name, PROTO[np.dtype(TYPES[dtype])], shape)


def with_ranges(**ranges):
    return lambda m: m.unary(**ranges)


# How a case of each operator is made.
MAKERS = {
    **dict.fromkeys("Abs Ceil Floor Log Neg Reciprocal Relu Round Sigmoid Sign Softplus "
                    "Sqrt Tanh Not Exp".split(), Maker.unary),
    **dict.fromkeys(["Cos", "Sin"], lambda m: m.unary(special=0)),
    **dict.fromkeys(["Erf", "HardSwish"], lambda m: m.unary(kind="single")),
    **dict.fromkeys("Acosh Asinh Atan Cosh Mish Sinh Softsign".split(), lambda m: m.unary(special=0, kind="sum")),
    **dict.fromkeys("Acos Asin Atanh Tan".split(), lambda m: m.unary(-0.9, 0.9, special=0, kind="sum")),
    "Celu": Maker.celu, "Gelu": Maker.gelu, "BitShift": Maker.bit_shift, "BitCast": Maker.bit_cast,
    "Selu": with_ranges(special=0, alpha=(0.5, 2), gamma=(0.5, 2), kind="sum"),
    "Shrink": with_ranges(special=0, bias=(0, 1), lambd=(0.2, 2), kind="sum"),
    "Swish": with_ranges(special=0, alpha=(0.5, 2), kind="sum"), "ThresholdedRelu": with_ranges(alpha=(-0.5, 2)),
    **dict.fromkeys("BitwiseAnd BitwiseNot BitwiseOr BitwiseXor".split(), Maker.bits),
    **dict.fromkeys(["IsInf", "IsNaN"], Maker.test_of_floats),
    "Elu": with_ranges(alpha=(0.1, 2), kind="sum"), "LeakyRelu": with_ranges(alpha=(-0.5, 0.5)),
    "HardSigmoid": with_ranges(alpha=(0.1, 0.5), beta=(0.1, 0.8), kind="sum"),
    **dict.fromkeys("And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual".split(), Maker.predicate),
    **dict.fromkeys("Add Sub Mul Div Mod".split(), Maker.arithmetic),
    **dict.fromkeys("Max Min Mean Sum".split(), Maker.variadic),
    **dict.fromkeys("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
                    "ReduceProd ReduceSum ReduceSumSquare".split(), Maker.reduce),
    **dict.fromkeys(["ArgMax", "ArgMin"], Maker.arg),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax"], Maker.softmax),
    **dict.fromkeys(["LpNormalization", "RMSNormalization"], Maker.row_norm),
    **dict.fromkeys(["MaxPool", "AveragePool", "LpPool"], Maker.pool),
    **dict.fromkeys(["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"], Maker.global_pool),
    **dict.fromkeys(["Conv", "ConvTranspose"], Maker.conv),
    **dict.fromkeys(["RNN", "GRU", "LSTM"], Maker.recurrent),
    **dict.fromkeys(["Gather", "GatherElements"], Maker.gather),
    **dict.fromkeys(["Shape", "Size"], Maker.shape_of),
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], Maker.depth_space),
    **dict.fromkeys(["CumSum", "CumProd"], Maker.cumulative),
    **dict.fromkeys(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"], Maker.loss),
    "Compress": Maker.compress, "Einsum": Maker.einsum, "EyeLike": Maker.eye_like, "GatherND": Maker.gather_nd,
    "ReverseSequence": Maker.reverse_sequence, "ScatterElements": Maker.scatter_elements,
    "GridSample": Maker.grid_sample, "NonMaxSuppression": Maker.non_max_suppression,
    **dict.fromkeys(["BlackmanWindow", "HammingWindow", "HannWindow"], Maker.window_function),
    "GroupNormalization": Maker.group_norm, "MeanVarianceNormalization": Maker.mean_variance,
    "Col2Im": Maker.col2im, "DeformConv": Maker.deform_conv, "Det": Maker.det, "MaxRoiPool": Maker.max_roi_pool,
    "MaxUnpool": Maker.max_unpool, "MelWeightMatrix": Maker.mel_weight_matrix, "RoiAlign": Maker.roi_align,
    "AffineGrid": Maker.affine_grid, "CenterCropPad": Maker.center_crop_pad, "TensorScatter": Maker.tensor_scatter,
    "DFT": Maker.dft, "STFT": Maker.stft, "LinearAttention": Maker.linear_attention,
    "CausalConvWithState": Maker.causal_conv,
    "Attention": Maker.attention, "RotaryEmbedding": Maker.rotary_embedding,
    "BatchNormalization": Maker.batch_norm, "Cast": Maker.cast, "CastLike": Maker.cast, "Clip": Maker.clip,
    "Concat": Maker.concat, "Constant": Maker.constant, "ConstantOfShape": Maker.constant_of_shape,
    "Dropout": Maker.dropout, "Expand": Maker.expand, "Flatten": Maker.flatten, "Gemm": Maker.gemm,
    "Identity": Maker.identity, "If": Maker.conditional, "InstanceNormalization": Maker.instance_norm,
    "LRN": Maker.lrn, "LayerNormalization": Maker.layer_norm, "Loop": Maker.loop, "MatMul": Maker.matmul,
    "NonZero": Maker.non_zero, "OneHot": Maker.one_hot, "PRelu": Maker.prelu, "Pad": Maker.pad,
    "Pow": Maker.pow, "Range": Maker.range, "Reshape": Maker.reshape, "Resize": Maker.resize,
    "Scan": Maker.scan, "ScatterND": Maker.scatter_nd, "Slice": Maker.slice, "Split": Maker.split,
    "Squeeze": Maker.squeeze, "Tile": Maker.tile, "TopK": Maker.topk, "Transpose": Maker.transpose,
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], Maker.quantization),
    "DynamicQuantizeLinear": Maker.dynamic_quantization,
    **dict.fromkeys(["MatMulInteger", "QLinearMatMul"], Maker.integer_matmul),
    **dict.fromkeys(["ConvInteger", "QLinearConv"], Maker.integer_conv),
    **dict.fromkeys("SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength".split(),
                    Maker.sequence),
    **dict.fromkeys(["SplitToSequence", "ConcatFromSequence"], Maker.split_to_sequence),
    **dict.fromkeys(["Optional", "OptionalGetElement", "OptionalHasElement"], Maker.optional),
    "TfIdfVectorizer": Maker.tf_idf, "StringNormalizer": Maker.normalizer,
    **dict.fromkeys(["StringConcat", "StringSplit"], Maker.texts),
    "Trilu": Maker.trilu, "Unique": Maker.unique, "Unsqueeze": Maker.unsqueeze, "Where": Maker.where,
}


# The first opset of each operator that is newer than OPSETS.
NEWER = {**dict.fromkeys(["StringConcat", "StringSplit"], 20),
         **dict.fromkeys(["Optional", "OptionalGetElement", "OptionalHasElement"], 18),
         "Attention": 24, "BitCast": 26, "CausalConvWithState": 27, "CumProd": 26, "GroupNormalization": 21,
         "LinearAttention": 27, "RMSNormalization": 23, "RotaryEmbedding": 23, "Swish": 24, "TensorScatter": 24}


def operator_case(draw, op, make=None, maker=None):
    """A case of an operator, of the first opset drawn that has it; some are spoiled. `make` and
    `maker` are given for operators of other domains."""
    make = make or MAKERS[op]
    maker = maker or (lambda: Maker(op, draw, NEWER.get(op) or draw.int(*OPSETS)))
    while True:
        try:
            case = make(maker())
        except Unsuited:
            continue
        if (case.inputs or case.constants) and draw.chance(0.08):
            case.spoil()
        return case
