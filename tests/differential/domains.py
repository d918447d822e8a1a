"""Random models of one operator of ai.onnx.ml or com.microsoft, whose peer is ONNX Runtime."""
import numpy as np
import onnx
from onnx import numpy_helper

from operators import Maker

TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


class DomainMaker(Maker):
    """The operator stands in `domain`, at a version of it."""

    def __init__(self, op, draw, opset, domain, version):
        super().__init__(op, draw, opset)
        self.domain, self.c.domains = domain, {domain: version}
        self.d.huge = False

    def done(self, inputs, types, outputs=1, kind=None, **attributes):
        self.c.kind = kind or self.c.kind
        return self.c.finish(self.c.node(self.op, inputs, outputs, domain=self.domain, **attributes), types)

    def floats(self, count, low=-2, high=2):
        return [float(v) for v in self.d.r.uniform(low, high, count).astype(np.float32)]

    def rows(self, types=("float32", "float32", "float64", "int64", "int32"), special=0.0, extent=6):
        """A matrix of rows, its type and its shape."""
        t = self.d.choice(types)
        shape = [self.d.int(1, 5), self.d.int(1, extent)]
        return self.values(shape, t, special), t, shape

    def new(self, values, constant=0.5):
        return self.c.add(values, constant)

    # -- ai.onnx.ml

    def scaler(self):
        x, _, shape = self.rows()
        count = self.d.choice([1, shape[1]])
        return self.done([x], ["float32"], kind="single", scale=self.floats(count), offset=self.floats(count))

    def normalizer(self):
        x, _, _ = self.rows()
        return self.done([x], ["float32"], kind="single", norm=self.d.choice(["MAX", "L1", "L2"]))

    def binarizer(self):
        x, t, _ = self.rows(["float32"], 0.3)
        return self.done([x], [t], kind="exact", threshold=self.maybe(self.floats(1)[0]))

    def imputer(self):
        t, shape = self.d.choice(["float32", "int64"]), [self.d.int(1, 5), self.d.int(1, 4)]
        x = np.round(self.d.values(shape, t, 0))
        count = self.d.choice([1, shape[1]])
        if t == "int64":
            return self.done([self.new(x, 0)], [t], kind="exact", replaced_value_int64=int(x[0, 0]),
                             imputed_value_int64s=[int(v) for v in self.d.r.integers(-9, 9, count)])
        replaced = self.d.choice([float(x[0, 0]), float("nan")])
        x[self.d.r.random(shape) < 0.3] = replaced
        return self.done([self.new(x, 0)], [t], kind="exact", replaced_value_float=replaced,
                         imputed_value_floats=self.floats(count))

    def array_feature_extractor(self):
        x, t, shape = self.rows()
        return self.done([x, self.new(self.d.r.integers(0, shape[1], [self.d.int(1, 4)]))], [t], kind="exact")

    def feature_vectorizer(self):
        t, count = self.d.choice(["float32", "float64", "int64", "int32"]), self.d.int(1, 5)
        sizes = [self.d.int(1, 3) for _ in range(self.d.int(1, 3))]
        inputs = [self.values([count, size], t, 0) for size in sizes]
        return self.done(inputs, ["float32"], kind="single", inputdimensions=sizes)

    def one_hot_encoder(self):
        t = self.d.choice(["int64", "int32", "float32", "float64"])
        x = self.d.values(self.d.shape(1, 2, 5, 0), "int64", 0).astype(t)
        cats = [int(v) for v in self.d.r.permutation(19)[:self.d.int(1, 12)] - 9]
        if t == "int64":  # ONNX Runtime has this type; onnx's reference counts equal categories once
            cats += cats[:self.d.int(0, 2)]
        return self.done([self.new(x, 0)], ["float32"], kind="exact", cats_int64s=cats, zeros=1)

    def label_encoder(self):
        names = {"int64": "ints", "float32": "floats"}
        key, value = self.d.choice(["int64", "float32"]), self.d.choice(["int64", "float32"])
        count = self.d.int(1, 8)
        keys = self.d.r.permutation(19)[:count] - 9
        lists = {}
        for what, t, numbers in (("keys", key, keys), ("values", value, self.d.r.integers(-9, 9, count))):
            kind = int if t == "int64" else float
            lists[f"{what}_{'int64s' if t == 'int64' else names[t]}"] = [kind(v) for v in numbers]
        x = self.d.values(self.d.shape(1, 2, 5, 0), "int64", 0).astype(key)
        default = {"default_int64": -7} if value == "int64" else {"default_float": -7.5}
        return self.done([self.new(x, 0)], [value], kind="exact", **lists, **(self.maybe(default) or {}))

    def category_mapper(self):
        """Digits as strings become integers, and these become strings that are digits again."""
        digits = self.c.add(self.d.r.integers(0, 12, self.d.shape(1, 2, 5, 0)))
        text, = self.c.node("Cast", [digits], to=onnx.TensorProto.STRING)
        default_int64 = self.maybe(self.d.int(-3, 3))
        for default in ({"default_int64": default_int64}, {"default_string": "77"}):
            count = self.d.int(1, 12)
            text, = self.c.node(self.op, [text], domain=self.domain, **default,
                                cats_strings=[str(v) for v in self.d.r.integers(0, 12, count)],
                                cats_int64s=[int(v) for v in self.d.r.integers(-3, 9, count)])
        self.c.kind = "exact"
        return self.c.finish(self.c.node("Cast", [text], to=onnx.TensorProto.INT64), ["int64"])

    def linear_classifier(self):
        x, _, shape = self.rows()
        classes = self.d.int(2, 4)
        return self.done([x], ["int64", "float32"], 2, kind="single", coefficients=self.floats(classes * shape[1]),
                         intercepts=self.floats(classes), multi_class=self.maybe(self.d.int(0, 1)),
                         classlabels_ints=[int(v) for v in self.d.r.permutation(9)[:classes]],
                         post_transform=self.maybe(self.d.choice(TRANSFORMS)))

    def linear_regressor(self):
        x, _, shape = self.rows(["float32"])
        targets = self.d.int(1, 3)
        return self.done([x], ["float32"], kind="single", coefficients=self.floats(targets * shape[1]),
                         intercepts=self.maybe(self.floats(targets)), targets=targets,
                         post_transform=self.maybe(self.d.choice(TRANSFORMS)))

    def svm_regressor(self):
        x, _, shape = self.rows(["float32"])
        vectors, kernel = self.d.int(1, 4), self.d.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])
        params = [self.d.r.uniform(0.1, 0.5), self.d.r.uniform(0, 1), float(self.d.int(1, 3))]
        return self.done([x], ["float32"], kind="single", support_vectors=self.floats(vectors * shape[1]),
                         coefficients=self.floats(vectors), n_supports=vectors, rho=self.floats(1),
                         kernel_type=kernel, kernel_params=params)

    def svm_classifier(self):
        x, _, shape = self.rows(["float32"])
        classes, kernel = self.d.int(2, 4), self.d.choice(["LINEAR", "POLY", "RBF", "SIGMOID"])
        pairs, counts = classes * (classes - 1) // 2, [self.d.int(0, 3) for _ in range(classes)]
        counts[self.d.int(0, classes - 1)] += 1
        params = [self.d.r.uniform(0.1, 0.5), self.d.r.uniform(0, 1), float(self.d.int(1, 3))]
        given = dict(kernel_type=kernel, kernel_params=params, post_transform=self.maybe(self.d.choice(TRANSFORMS)),
                     classlabels_ints=[int(v) for v in self.d.r.permutation(9)[:classes]])
        if self.d.chance(0.15):
            given["kernel_type"] = "LINEAR"
            return self.done([x], ["int64", "float32"], 2, kind="single", rho=self.floats(1),
                             coefficients=self.floats(classes * shape[1]), **given)
        has_probabilities = self.d.chance(0.5)
        if has_probabilities:
            # ONNX Runtime's SOFTMAX_ZERO takes numbers near 0 for 0.
            given |= dict(prob_a=self.floats(pairs, -2, -0.1), prob_b=self.floats(pairs, -0.5, 0.5),
                          post_transform=self.maybe(self.d.choice(TRANSFORMS[:3])))
        # The iteration that couples pairs ends by a rough bound, so that rounding can change its length.
        kind = "coarse" if has_probabilities and classes > 2 else "single"
        return self.done([x], ["int64", "float32"], 2, kind=kind, support_vectors=self.floats(sum(counts) * shape[1]),
                         coefficients=self.floats((classes - 1) * sum(counts)), vectors_per_class=counts,
                         rho=self.floats(pairs), **given)

    def forest(self, features, tensors=False):
        """Nodes of random trees, and their leaves as pairs of tree and node. With `tensors` as
        TreeEnsemble of opset 5 has them."""
        nodes, leaves, modes = [], [], self.d.choice([MODES[:1], MODES[:1], MODES])
        for tree in range(self.d.int(1, 4)):
            open_nodes, count = [0], 1
            rows = {}
            while open_nodes:
                node = open_nodes.pop(0)
                if count > 12 or (node and self.d.chance(0.4)):
                    rows[node] = dict(mode="LEAF", feature=0, value=0.0, true=0, false=0, missing=0)
                    leaves.append((tree, node))
                    continue
                rows[node] = dict(mode=self.d.choice(modes), feature=self.d.int(0, features - 1),
                                  value=float(np.round(self.d.r.uniform(-3, 3) * 2) / 2), true=count,
                                  false=count + 1, missing=self.d.int(0, 1))
                open_nodes += [count, count + 1]
                count += 2
            nodes += [(tree, node, row) for node, row in sorted(rows.items())]
        column = lambda key: [row[key] for _, _, row in nodes]
        return dict(nodes_treeids=[t for t, _, _ in nodes], nodes_nodeids=[n for _, n, _ in nodes],
                    nodes_featureids=column("feature"), nodes_values=column("value"), nodes_modes=column("mode"),
                    nodes_truenodeids=column("true"), nodes_falsenodeids=column("false"),
                    nodes_missing_value_tracks_true=column("missing")), leaves

    def steps(self, special=0.2):
        """Rows whose numbers often equal a threshold."""
        shape = [self.d.int(1, 40), self.d.int(1, 4)]
        x = (np.round(self.d.r.uniform(-4, 4, shape) * 2) / 2).astype(np.float32)
        if self.d.chance(special):
            x[self.d.r.random(shape) < 0.2] = np.nan
        return self.new(x, 0), shape

    def tree_classifier(self):
        x, shape = self.steps()
        nodes, leaves = self.forest(shape[1])
        classes = self.d.int(2, 4)
        own = [(t, n, c) for t, n in leaves for c in range(classes) if c == 0 or self.d.chance(0.8)]
        return self.done([x], ["int64", "float32"], 2, kind="single", **nodes,
                         class_treeids=[t for t, _, _ in own], class_nodeids=[n for _, n, _ in own],
                         class_ids=[c for _, _, c in own], class_weights=self.floats(len(own)),
                         classlabels_int64s=[int(v) for v in self.d.r.permutation(9)[:classes]],
                         base_values=self.maybe(self.floats(classes), 0.3),
                         post_transform=self.maybe(self.d.choice(TRANSFORMS)))

    def tree_regressor(self):
        x, shape = self.steps()
        nodes, leaves = self.forest(shape[1])
        targets, transform = self.d.int(1, 3), self.maybe(self.d.choice(TRANSFORMS))
        aggregate = self.maybe(self.d.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
        # ONNX Runtime leaves the base value of a target without a leaf out, but for plain sums.
        every = transform not in (None, "NONE") or aggregate in ("MIN", "MAX")
        own = [(t, n, c) for t, n in leaves for c in range(targets) if c == 0 or every or self.d.chance(0.8)]
        return self.done([x], ["float32"], kind="single", **nodes, n_targets=targets,
                         target_treeids=[t for t, _, _ in own], target_nodeids=[n for _, n, _ in own],
                         target_ids=[c for _, _, c in own], target_weights=self.floats(len(own)),
                         base_values=self.maybe(self.floats(targets), 0.3),
                         aggregate_function=aggregate, post_transform=transform)

    def tree_ensemble(self):
        x, shape = self.steps()
        old, _ = self.forest(shape[1])
        inner, leaves, roots = {}, {}, []
        for i, (tree, node) in enumerate(zip(old["nodes_treeids"], old["nodes_nodeids"])):
            table = leaves if old["nodes_modes"][i] == "LEAF" else inner
            table[tree, node] = len(table)
        columns = {key: [] for key in ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids",
                                       "nodes_trueleafs", "nodes_falseleafs", "nodes_missing_value_tracks_true")}
        splits, modes = [], []
        for i, (tree, node) in enumerate(zip(old["nodes_treeids"], old["nodes_nodeids"])):
            if (tree, node) not in inner:
                continue
            if node == 0:
                roots.append(inner[tree, node])
            for side in ("true", "false"):
                to = tree, old[f"nodes_{side}nodeids"][i]
                columns[f"nodes_{side}nodeids"].append(leaves[to] if to in leaves else inner[to])
                columns[f"nodes_{side}leafs"].append(int(to in leaves))
            for key in ("nodes_featureids", "nodes_missing_value_tracks_true"):
                columns[key].append(old[key][i])
            splits.append(old["nodes_values"][i])
            modes.append(MODES.index(old["nodes_modes"][i]))
        targets = self.d.int(1, 3)
        tensor = lambda values, t: numpy_helper.from_array(np.asarray(values, t))
        return self.done([x], ["float32"], kind="single", tree_roots=roots, n_targets=targets, **columns,
                         nodes_splits=tensor(splits, np.float32), nodes_modes=tensor(modes, np.uint8),
                         leaf_targetids=[self.d.int(0, targets - 1) for _ in leaves],
                         leaf_weights=tensor(self.floats(len(leaves)), np.float32),
                         aggregate_function=self.d.int(0, 3), post_transform=self.d.int(0, 3))

    # -- com.microsoft

    def gelu(self):
        t, shape = self.d.choice(["float32"]), self.d.shape(1, 4, empty=0)
        inputs = [self.values(shape, t, 0)]
        if self.op == "BiasGelu" or (self.op == "FastGelu" and self.d.chance(0.5)):
            inputs.append(self.values(shape[-1:], t, 0))
        alpha = {"alpha": self.maybe(self.floats(1, 0.5, 2)[0])} if self.op == "QuickGelu" else {}
        return self.done(inputs, [t], kind="single", **alpha)

    def fused_matmul(self):
        t, (m, k, n) = self.d.choice(["float32", "float64"]), (self.d.int(1, 6) for _ in range(3))
        batch = [self.d.int(1, 3) for _ in range(self.d.int(0, 2))]
        turn_a, turn_b = self.d.int(0, 1), self.d.int(0, 1)
        a, b = [k, m] if turn_a else [m, k], [n, k] if turn_b else [k, n]
        return self.done([self.values([*batch, *a], t, 0), self.values([*batch, *b], t, 0)], [t], kind="sum",
                         transA=turn_a, transB=turn_b, alpha=self.maybe(self.floats(1)[0]))

    def distances(self):
        t, (m, n, k) = self.d.choice(["float32", "float64"]), (self.d.int(1, 6) for _ in range(3))
        # The rows of A and B are far apart, since the distance of equal rows is a rounding error.
        rows = [self.values([m, k], t, 0), self.values([n, k], t, 0, low=8, high=16)]
        return self.done(rows, [t], kind="sum", metric=self.maybe(self.d.choice(["euclidean", "sqeuclidean"])))

    def fused_conv(self):
        x, w = [self.d.int(1, 2), self.d.int(1, 3), 6, 7], [self.d.int(1, 3), 0, self.d.int(1, 3), self.d.int(1, 3)]
        w[1] = x[1]
        activation = self.d.choice(["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
        count = {"LeakyRelu": 1, "Clip": 2, "HardSigmoid": 2}.get(activation, 0)
        params = sorted(self.floats(count, 0.1, 1)) if count else None
        inputs = [self.values(x, "float32", 0), self.values(w, "float32", 0)]
        if self.d.chance(0.6):
            inputs.append(self.values([w[0]], "float32", 0))
        return self.done(inputs, ["float32"], kind="single", activation=activation, activation_params=params,
                         pads=self.maybe([1, 1, 1, 1]), strides=self.maybe([2, 1]))

    def skip_norm(self):
        shape = [self.d.int(1, 3), self.d.int(1, 4), self.d.int(2, 8)]
        inputs = [self.values(shape, "float32", 0), self.values(shape, "float32", 0)]
        inputs += [self.values(shape[2:], "float32", 0) for _ in range(self.d.int(1, 3))]
        if self.op == "SkipSimplifiedLayerNormalization":
            inputs = inputs[:4]
        with_sum = self.d.chance(0.4)
        case = self.done(inputs, ["float32"], 4 if with_sum else 1, kind="single", epsilon=0.01)
        if with_sum:  # outputs 1 and 2 are those of training
            self.c.nodes[-1].output[1:3] = ["", ""]
            names = [name for name in self.c.nodes[-1].output if name]
            case = self.c.finish(names, ["float32", "float32"])
        return case

    def embed_norm(self):
        batch, steps, size, words = self.d.int(1, 3), self.d.int(1, 5), self.d.int(2, 6), self.d.int(2, 9)
        ids = lambda most: self.new(self.d.r.integers(0, most, [batch, steps]).astype(np.int32), 0)
        segments = self.d.chance(0.5)
        weights = lambda *shape: self.values(shape, "float32", 0, constant=1)  # whose shapes must be known
        inputs = [ids(words), ids(2) if segments else "", weights(words, size), weights(8, size),
                  weights(2, size) if segments else "", weights(size), weights(size)]
        if self.d.chance(0.5):
            inputs.append(ids(2))
        return self.done(inputs, ["float32", "int32"], 2, kind="single", epsilon=0.01)

    def attention(self):
        batch, steps, heads, size, k = (self.d.int(1, 3) for _ in range(5))
        hidden = heads * size
        mask = ""
        if self.d.chance(0.5):
            shape = self.d.choice([[batch, steps], [batch, steps, steps], [batch]])
            counts = self.d.r.integers(1, steps + 1, shape) if len(shape) == 1 else self.d.r.integers(0, 2, shape)
            if len(shape) > 1:
                counts[..., 0] = 1
            mask = self.new(counts.astype(np.int32), 0)
        rest = {"num_heads": heads, "unidirectional": self.maybe(self.d.int(0, 1))}
        if self.op == "QAttention":
            x = self.new(self.d.r.integers(0, 255, [batch, steps, k]).astype(np.uint8), 0)
            w = self.new(self.d.r.integers(-127, 127, [k, 3 * hidden]).astype(np.int8), 1)
            scales = [self.new(np.float32(0.02), 1), self.new(np.float32(0.01), 1)]
            inputs = [x, w, self.values([3 * hidden], "float32", 0), *scales, mask,
                      self.new(np.uint8(self.d.int(0, 255)), 1), self.new(np.int8(0), 1)]
            return self.done(inputs, ["float32"], kind="single", **rest)
        inputs = [self.values([batch, steps, k], "float32", 0), self.values([k, 3 * hidden], "float32", 0, constant=1),
                  self.values([3 * hidden], "float32", 0), mask]
        if self.d.chance(0.3) and not mask:
            past = self.d.int(1, 3)
            inputs.append(self.values([2, batch, heads, past, size], "float32", 0))
            return self.done(inputs, ["float32", "float32"], 2, kind="single", **rest)
        return self.done(inputs, ["float32"], kind="single", **rest)

    def group_query_attention(self):
        batch, kv_heads, size = self.d.int(1, 3), self.d.int(1, 2), 16
        heads = kv_heads * self.d.int(1, 3)
        first, rows = self.d.chance(0.5), self.d.choice([None, 0, 4])  # rows: of the cache beyond what is needed
        past = 0 if first else self.d.int(1, 5)
        steps = self.d.int(1, 4) if first or batch == 1 else 1
        if not first:
            rows = rows or 0
        counts = np.full([batch], past + steps, np.int32)
        if rows and not first:
            counts[1:] = self.d.r.integers(steps, past + steps + 1, batch - 1)
        packed = self.d.chance(0.3)
        inputs = [self.values([batch, steps, n * size], "float32", 0)
                  for n in ([heads + 2 * kv_heads] if packed else [heads, kv_heads, kv_heads])]
        inputs += [""] * 2 if packed else []
        cache = None if rows is None else past + (steps + rows if rows else 0)
        inputs += [self.values([batch, kv_heads, cache, size], "float32", 0, constant=0) if rows is not None else ""
                   for _ in range(2)]
        inputs += [self.new(counts - 1, 0), self.new(np.int32(past + steps), 0)]
        rest = dict(num_heads=heads, kv_num_heads=kv_heads, local_window_size=self.maybe(self.d.int(1, 4), 0.3),
                    softcap=self.maybe(self.floats(1, 0.5, 2)[0], 0.3), scale=self.maybe(self.floats(1, 0.1, 1)[0], 0.3))
        rotary, bias = self.d.chance(0.5), self.d.chance(0.3)
        if rotary:
            rest |= dict(do_rotary=1, rotary_interleaved=self.maybe(self.d.int(0, 1)))
        inputs += [self.values([12, size // 2], "float32", 0, constant=1) if rotary else "" for _ in range(2)] + [""]
        inputs.append(self.values([self.d.choice([1, batch]), self.d.choice([1, heads]), steps, past + steps],
                                  "float32", 0) if bias else "")
        if self.d.chance(0.2):
            inputs.append(self.values([heads], "float32", 0))
        rest["smooth_softmax"] = self.maybe(1, 0.2)
        case = self.done(inputs, ["float32"], 3, kind="single", **rest)
        if not rows:  # other rows of the cache hold any numbers
            case = self.c.finish(list(self.c.nodes[-1].output), ["float32"] * 3)
        return case

    def rotary(self):
        batch, heads, steps, size = self.d.int(1, 3), self.d.int(1, 3), self.d.int(1, 5), 2 * self.d.int(1, 5)
        shape = self.d.choice([[batch, heads, steps, size], [batch, steps, heads * size]])
        part = 2 * self.d.int(1, size // 2) if self.d.chance(0.3) else 0
        positions = self.d.r.integers(0, 20, [batch, steps]) if self.d.chance(0.6) else self.d.r.integers(0, 15, [1])
        caches = [self.values([20, (part or size) // 2], "float32", 0, constant=1) for _ in range(2)]
        heads = heads if part else self.maybe(heads)  # without heads, the sizes must be known
        x = self.values(shape, "float32", 0, constant=heads is None)
        return self.done([x, self.new(positions, 0), *caches], ["float32"], kind="single", num_heads=heads,
                         rotary_embedding_dim=part or None,
                         interleaved=self.maybe(self.d.int(0, 1)))

    def quantized(self, shape, t, constant=0.3):
        """The three inputs that are a quantised tensor."""
        info = np.iinfo(t)
        x = self.d.r.integers(info.min, info.max + 1, shape).astype(t)
        return [self.new(x, constant), *self.parameters(t)]

    def parameters(self, t, low=0.005, high=0.05):
        info = np.iinfo(t)
        return [self.new(np.float32(self.d.r.uniform(low, high)), 0.7),
                self.new(np.asarray(self.d.int(info.min // 2, info.max // 2), t), 0.7)]

    def qlinear_binary(self):
        t, shape = self.d.choice(["uint8", "int8"]), self.d.shape(1, 4, empty=0)
        inputs = self.quantized(shape, t) + self.quantized(self.d.broadcast(shape), t)
        return self.done([*inputs, *self.parameters(t, 0.02, 0.1)], [t], kind="unit")

    def qlinear_unary(self):
        t, shape = self.d.choice(["uint8", "int8"]), self.d.shape(1, 4, empty=0)
        rest = {}
        if self.op == "QLinearLeakyRelu":
            rest["alpha"] = self.floats(1, 0, 1)[0]
        if self.op == "QLinearSoftmax":
            shape = [extent + 1 for extent in shape]  # ONNX Runtime gives 0 for a single element
            rest = {"axis": self.d.axis(len(shape)), "opset": self.d.choice([12, 13])}
        inputs = self.quantized(shape, t) + self.parameters(t, 0.004, 0.02)
        return self.done(inputs, [t], kind="unit", **rest)

    def qlinear_pool(self):
        t, shape = self.d.choice(["uint8", "int8"]), [self.d.int(1, 2), self.d.int(1, 3), 5, 6]
        rest = {} if "Global" in self.op else {"kernel_shape": [self.d.int(1, 3), self.d.int(1, 3)],
                                               "strides": self.maybe([2, 1]), "pads": self.maybe([0, 0, 1, 1], 0.3),
                                               "count_include_pad": self.maybe(self.d.int(0, 1))}
        if rest.get("pads"):
            rest["kernel_shape"] = [2, 2]
        return self.done(self.quantized(shape, t) + self.parameters(t), [t], kind="unit", **rest)

    def qlinear_concat(self):
        t, shape = self.d.choice(["uint8", "int8"]), self.d.shape(1, 3, empty=0)
        axis, inputs = self.d.axis(len(shape)), self.parameters(t)
        for _ in range(self.d.int(1, 3)):
            part = list(shape)
            part[axis] = self.d.int(1, 4)
            inputs += self.quantized(part, t)
        return self.done(inputs, [t], kind="unit", axis=axis)

    def qgemm(self):
        t, (m, k, n) = self.d.choice(["uint8", "int8"]), (self.d.int(1, 6) for _ in range(3))
        turn_a, turn_b, quantized = self.d.int(0, 1), self.d.int(0, 1), self.d.chance(0.6)
        inputs = self.quantized([k, m] if turn_a else [m, k], t) + self.quantized([n, k] if turn_b else [k, n], t)
        with_c = self.d.chance(0.5)
        inputs.append(self.new(self.d.r.integers(-999, 999, [n]).astype(np.int32)) if with_c else "")
        if quantized:
            inputs += self.parameters(t, 0.1, 0.3)
        return self.done(inputs, [t if quantized else "float32"], kind="unit" if quantized else "single",
                         transA=turn_a, transB=turn_b, alpha=self.maybe(self.floats(1, 0.5, 1.5)[0]))

    def integer_product(self):
        m, k, n = (self.d.int(1, 7) for _ in range(3))
        tb = self.d.choice(["uint8", "int8"])
        columns = self.d.choice([[], [n]])
        b = self.new(self.d.r.integers(np.iinfo(tb).min, np.iinfo(tb).max + 1, [k, n]).astype(tb))
        scale = self.new(self.d.r.uniform(0.01, 0.05, columns).astype(np.float32))
        zero = self.new(self.d.r.integers(-9 if tb == "int8" else 0, 9, columns).astype(tb))
        zero = self.maybe(zero) or ""
        bias = self.values([n], "float32", 0) if self.d.chance(0.5) else ""
        if self.op == "DynamicQuantizeMatMul":
            return self.done([self.values([m, k], "float32", 0), b, scale, zero, bias], ["float32"], kind="single")
        a, a_scale, a_zero = self.quantized([m, k], "uint8")
        return self.done([a, b, a_scale, scale, a_zero if self.d.chance(0.7) else "", zero, bias], ["float32"],
                         kind="single")

    def matmul_nbits(self):
        bits, block = self.d.choice([2, 4, 4, 8]), self.d.choice([16, 32])
        m, k, n = self.d.int(1, 4), self.d.int(1, 70), self.d.int(1, 6)
        blocks = -(-k // block)
        b = self.new(self.d.r.integers(0, 256, [n, blocks, block * bits // 8]).astype(np.uint8), 1)
        scales = self.new(self.d.r.uniform(0.05, 0.2, [n, blocks]).astype(np.float32), 1)
        zero = ""
        if self.d.chance(0.5):
            zero = self.new(self.d.r.integers(0, 256, [n, -(-blocks * bits // 8)]).astype(np.uint8), 1)
        # With accuracy_level 4, both programs may round A to 8 bits.
        rounded = self.d.chance(0.5)
        return self.done([self.values([m, k], "float32", 0, constant=0), b, scales, zero], ["float32"],
                         kind="coarse" if rounded else "single",
                         N=n, K=k, bits=bits, block_size=block, accuracy_level=4 if rounded else 0)

    def quantized_lstm(self):
        steps, batch, size, hidden = (self.d.int(1, 4) for _ in range(4))
        directions = self.d.int(1, 2)
        t, by_column = self.d.choice(["uint8", "int8"]), self.d.chance(0.5)
        info = np.iinfo(t)

        def weights(rows):
            shape = [directions, 4 * hidden] if by_column else [directions]
            zero = np.zeros(shape, t) if t == "int8" else self.d.r.integers(100, 150, shape).astype(t)
            return (self.new(self.d.r.integers(info.min, info.max + 1, [directions, rows, 4 * hidden]).astype(t), 1),
                    self.new(self.d.r.uniform(0.002, 0.01, shape).astype(np.float32), 1), self.new(zero, 1))
        w, w_scale, w_zero = weights(size)
        r, r_scale, r_zero = weights(hidden)
        b = self.values([directions, 8 * hidden], "float32", 0) if self.d.chance(0.5) else ""
        inputs = [self.values([steps, batch, size], "float32", 0, constant=0), w, r, b, "", "", "", "",
                  w_scale, w_zero, r_scale, r_zero]
        return self.done(inputs, ["float32"] * 3, 3, kind="coarse", hidden_size=hidden,
                         direction="bidirectional" if directions == 2 else self.d.choice(["forward", "reverse"]))


M = DomainMaker
ML, MICROSOFT = "ai.onnx.ml", "com.microsoft"
MAKERS = {
    f"{ML}.ArrayFeatureExtractor": M.array_feature_extractor, f"{ML}.Binarizer": M.binarizer,
    f"{ML}.CategoryMapper": M.category_mapper,
    f"{ML}.FeatureVectorizer": M.feature_vectorizer, f"{ML}.Imputer": M.imputer, f"{ML}.LabelEncoder": M.label_encoder,
    f"{ML}.LinearClassifier": M.linear_classifier, f"{ML}.LinearRegressor": M.linear_regressor,
    f"{ML}.Normalizer": M.normalizer, f"{ML}.OneHotEncoder": M.one_hot_encoder, f"{ML}.SVMRegressor": M.svm_regressor,
    f"{ML}.SVMClassifier": M.svm_classifier,
    f"{ML}.Scaler": M.scaler, f"{ML}.TreeEnsemble": M.tree_ensemble,
    f"{ML}.TreeEnsembleClassifier": M.tree_classifier, f"{ML}.TreeEnsembleRegressor": M.tree_regressor,
    **dict.fromkeys([f"{MICROSOFT}.{op}" for op in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu")], M.gelu),
    f"{MICROSOFT}.CDist": M.distances,
    f"{MICROSOFT}.FusedMatMul": M.fused_matmul, f"{MICROSOFT}.FusedConv": M.fused_conv,
    f"{MICROSOFT}.SkipLayerNormalization": M.skip_norm, f"{MICROSOFT}.SkipSimplifiedLayerNormalization": M.skip_norm,
    f"{MICROSOFT}.EmbedLayerNormalization": M.embed_norm,
    f"{MICROSOFT}.GroupQueryAttention": M.group_query_attention, f"{MICROSOFT}.RotaryEmbedding": M.rotary,
    f"{MICROSOFT}.Attention": M.attention, f"{MICROSOFT}.QAttention": M.attention,
    f"{MICROSOFT}.QLinearAdd": M.qlinear_binary, f"{MICROSOFT}.QLinearMul": M.qlinear_binary,
    f"{MICROSOFT}.QLinearSigmoid": M.qlinear_unary, f"{MICROSOFT}.QLinearLeakyRelu": M.qlinear_unary,
    f"{MICROSOFT}.QLinearSoftmax": M.qlinear_unary, f"{MICROSOFT}.QLinearConcat": M.qlinear_concat,
    f"{MICROSOFT}.QLinearAveragePool": M.qlinear_pool, f"{MICROSOFT}.QLinearGlobalAveragePool": M.qlinear_pool,
    f"{MICROSOFT}.QGemm": M.qgemm, f"{MICROSOFT}.MatMulIntegerToFloat": M.integer_product,
    f"{MICROSOFT}.DynamicQuantizeMatMul": M.integer_product, f"{MICROSOFT}.MatMulNBits": M.matmul_nbits,
    f"{MICROSOFT}.DynamicQuantizeLSTM": M.quantized_lstm,
}
# The version of ai.onnx.ml that an operator is of; 1 for the others, and for com.microsoft.
VERSIONS = {f"{ML}.LabelEncoder": 2, f"{ML}.TreeEnsemble": 5, f"{ML}.TreeEnsembleClassifier": 3,
            f"{ML}.TreeEnsembleRegressor": 3}


def domain_maker(name, draw):
    domain, op = name.rsplit(".", 1)
    return DomainMaker(op, draw, 17, domain, VERSIONS.get(name, 1))
