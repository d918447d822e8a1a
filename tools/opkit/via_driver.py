"""Calls operators of a library through one host and compares results with those of opkit.

usage: via_driver.py HOST FOLDER LIBRARY FIRST

`opkit check --via` writes this file, and FOLDER with two more: cases.json, a case in each line, and
data.bin, the bytes of their tensors. This program begins with case FIRST. It writes a JSON object in
each line of its standard output: the versions of the host, the number of each case before the case
begins, and its result after it; at last the times of a call.
"""
import ctypes
import importlib
import json
import os
import re
import statistics
import struct
import sys
import time


class NotCarried(Exception):
    """The host has no form for this case. The text is the reason, without names of the case."""


class Tensor:
    """The dtype's name, the shape, and the bytes of the elements in row-major order."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), bytes(data)

    @staticmethod
    def of(array):
        return Tensor(array.dtype.name, array.shape, np.ascontiguousarray(array).tobytes())

    def array(self):
        """A NumPy array with memory of its own."""
        return np.frombuffer(self.data, np_dtype(self.dtype)).reshape(self.shape).copy()

    def difference(self, expected):
        """What differs from the expected tensor, as text; empty if nothing does."""
        if (self.dtype, self.shape) != (expected.dtype, expected.shape):
            return (f"is {self.dtype}{list(self.shape)} instead of "
                    f"{expected.dtype}{list(expected.shape)}")
        if self.data == expected.data:
            return ""
        found, wanted = (tensor.array().reshape(-1) for tensor in (self, expected))
        size = found.dtype.itemsize
        for i in range(len(found)):
            if self.data[i * size:][:size] != expected.data[i * size:][:size]:
                at = [int(k) for k in np.unravel_index(i, self.shape)]
                return f"has {found[i]!s} instead of {wanted[i]!s} at {at}"
        return "has other bytes"


def np_dtype(name):
    if name != "bfloat16":
        return np.dtype(name)
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise NotCarried("NumPy has bfloat16 only with the package ml_dtypes") from None


class Case:
    """One call: its operator, inputs (None for one that is left out) and attributes, and what opkit
    gave: outputs for each of several runs, or the text of an error."""

    def __init__(self, fields, data):
        def tensor(t):
            return t and Tensor(t["dtype"], t["shape"], data[t["at"]:t["at"] + t["bytes"]])

        self.op, self.name, self.error = fields["op"], fields["name"], fields.get("error")
        self.inputs = [tensor(t) for t in fields["inputs"]]
        self.runs = [[tensor(t) for t in run] for run in fields["runs"]]
        inferred = fields["inferred"]  # [dtype or None, shape or None] of each output
        self.num_outputs = len(inferred)
        known = all(dtype and shape is not None for dtype, shape in inferred)
        self.types = inferred if known else None  # None if only the run knows them
        self.same = fields["same"]  # False: two runs may differ, so only dtypes and shapes count
        self.stateful = fields["stateful"]
        self.max_inputs, self.names = fields["max_inputs"], fields["attributes"]
        self.us = fields.get("us")  # the time of a call in C++, for the smallest case of an operator
        self.given = {}  # name: (type, value)
        for name, kind, values in fields["given"]:
            if kind.startswith("float"):
                values = [float(value) for value in values]
            if kind.startswith("tensor"):
                values = [tensor(value) for value in values]
            self.given[name] = (kind, values if kind.endswith("s") else values[0])


class NumPy:
    """tvm-ffi, which calls an operator on NumPy arrays."""
    modules = ("tvm_ffi",)
    symbol = "__tvm_ffi_{}"

    def __init__(self, library, domain):
        self.module = importlib.import_module("tvm_ffi").load_module(library)

    def forms(self, case):
        if case.types is not None and not case.stateful:
            yield "into given arrays", lambda: self.call(case, True)
        yield "", lambda: self.call(case, False)
        if len(case.inputs) > case.max_inputs:
            yield "as a list", lambda: self.call(case, False, True)

    def call(self, case, into, as_list=False):
        inputs = [tensor and self.array(tensor) for tensor in case.inputs]
        last = max((i + 1 for i, name in enumerate(case.names) if name in case.given), default=0)
        attributes = [self.value(*case.given[name]) if name in case.given else None
                      for name in case.names[:last]]
        outputs = [self.empty(*of) for of in case.types] if into else []
        # Given outputs behind inputs of any number would be further inputs.
        if as_list or (into and len(inputs) > case.max_inputs):
            inputs = [inputs]
        elif attributes or outputs:  # a None behind too few inputs would be an input
            inputs += [None] * (case.max_inputs - len(inputs))
        if case.stateful:
            function = getattr(self.module, case.op + "_create")(*attributes)
            attributes = []
        else:
            function = getattr(self.module, case.op)
        args = (*inputs, *attributes, *outputs)

        def read(result):
            if into:
                return [Tensor.of(output) for output in outputs]
            results = [result] if hasattr(result, "__dlpack__") else list(result)
            return [Tensor.of(np.from_dlpack(one)) for one in results]
        return lambda: function(*args), read

    @staticmethod
    def dtype_of(name):
        if name == "bfloat16":
            raise NotCarried("DLPack of NumPy arrays has no bfloat16")
        if name.startswith("complex"):
            raise NotCarried("tvm-ffi has no complex numbers")
        return np.dtype(name)

    def array(self, tensor):
        self.dtype_of(tensor.dtype)
        return tensor.array()

    def empty(self, dtype, shape):
        return np.empty(shape, self.dtype_of(dtype))

    def value(self, kind, value):
        if kind == "tensor":
            return self.array(value)
        if kind == "tensors":
            return [self.array(one) for one in value]
        return value

    def own(self, shape):
        x = np.ones(shape, np.float32)
        return lambda: np.negative(x)


class Onnx:
    """A model of one node, in the form of onnx.proto: (number of a field, value) after each other."""
    types = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
             "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16}

    @staticmethod
    def varint(value):
        value &= 2**64 - 1
        out = b""
        while value > 127:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    @classmethod
    def field(cls, number, value):
        if isinstance(value, int):
            return cls.varint(number << 3) + cls.varint(value)
        if isinstance(value, float):
            if struct.unpack("<f", struct.pack("<f", value))[0] != value and value == value:
                raise NotCarried("an attribute of ONNX is a float32")
            return cls.varint(number << 3 | 5) + struct.pack("<f", value)
        data = value.encode() if isinstance(value, str) else value
        return cls.varint(number << 3 | 2) + cls.varint(len(data)) + data

    @classmethod
    def type_of(cls, dtype):
        if dtype not in cls.types:
            raise NotCarried(f"ONNX Runtime calls no custom operator on {dtype}")
        return cls.types[dtype]

    @classmethod
    def value_info(cls, name, dtype, shape):
        kind = cls.field(1, cls.type_of(dtype))
        if shape is not None:
            kind += cls.field(2, b"".join(cls.field(1, cls.field(1, extent)) for extent in shape))
        return cls.field(1, name) + cls.field(2, cls.field(1, kind))

    @classmethod
    def tensor(cls, tensor):
        return (b"".join(cls.field(1, extent) for extent in tensor.shape) +
                cls.field(2, cls.type_of(tensor.dtype)) + cls.field(9, tensor.data))

    @classmethod
    def attribute(cls, name, kind, value):
        values = value if kind.endswith("s") else [value]
        stem = kind[:-1] if kind.endswith("s") else kind
        if stem == "tensor":
            values = [cls.tensor(one) for one in values]
        if stem in ("int", "bool"):
            values = [int(one) for one in values]
        number, code = {"int": (3, 2), "bool": (3, 2), "float": (2, 1), "string": (4, 3),
                        "tensor": (5, 4)}[stem]
        if kind.endswith("s"):
            number, code = {2: 7, 3: 8, 4: 9, 5: 10}[number], code + 5
        return (cls.field(1, name) + b"".join(cls.field(number, one) for one in values) +
                cls.field(20, code))

    @classmethod
    def node(cls, case, domain, outputs):
        inputs = [f"x{i}" if tensor else "" for i, tensor in enumerate(case.inputs)]
        return (b"".join(cls.field(1, name) for name in inputs) +
                b"".join(cls.field(2, name) for name in outputs) + cls.field(4, case.op) +
                b"".join(cls.field(5, cls.attribute(name, *case.given[name]))
                         for name in case.given) + cls.field(7, domain))

    @classmethod
    def model(cls, node, inputs, outputs, domain=None):
        graph = (cls.field(1, node) + cls.field(2, "case") +
                 b"".join(cls.field(11, value) for value in inputs) +
                 b"".join(cls.field(12, value) for value in outputs))
        model = cls.field(1, 9) + cls.field(7, graph) + cls.field(8, cls.field(2, 17))
        return model + (cls.field(8, cls.field(1, domain) + cls.field(2, 1)) if domain else b"")


class OnnxRuntime:
    """A session of ONNX Runtime, with a model of one node."""
    modules = ("onnxruntime",)
    symbol = "RegisterCustomOps"

    def __init__(self, library, domain):
        self.host = importlib.import_module("onnxruntime")
        self.host.set_default_logger_severity(4)
        self.library, self.domain = library, domain

    def forms(self, case):
        yield "", lambda: self.call(case, True)
        yield "without shapes in the model", lambda: self.call(case, False)

    def session(self, model):
        options = self.host.SessionOptions()
        options.log_severity_level = 4
        options.register_custom_ops_library(self.library)
        return self.host.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def call(self, case, shapes):
        outputs = [f"y{o}" for o in range(case.num_outputs)]
        given = [(f"x{i}", tensor) for i, tensor in enumerate(case.inputs) if tensor]
        session = self.session(Onnx.model(
            Onnx.node(case, self.domain, outputs),
            [Onnx.value_info(name, tensor.dtype, tensor.shape if shapes else None)
             for name, tensor in given],
            [Onnx.field(1, name) for name in outputs], self.domain))
        feeds = {name: self.value(tensor) for name, tensor in given}
        return (lambda: session.run_with_ort_values(outputs, feeds),
                lambda values: [self.tensor(value) for value in values])

    def value(self, tensor):
        of = self.host.OrtValue
        if tensor.dtype == "bfloat16":
            bits = np.frombuffer(tensor.data, np.uint16).reshape(tensor.shape).copy()
            return of.ortvalue_from_numpy_with_onnx_type(bits, Onnx.types["bfloat16"])
        return of.ortvalue_from_numpy(tensor.array())

    @staticmethod
    def tensor(value):
        names = {number: name for name, number in Onnx.types.items()}
        dtype, shape = names[value.element_type()], value.shape()
        size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        for extent in shape:
            size *= extent
        return Tensor(dtype, shape, ctypes.string_at(value.data_ptr(), size) if size else b"")

    @staticmethod
    def refusal(text, expected):
        """The reason if the host itself refuses a node, before it asks the operator."""
        if "is not a registered function/op" in text:
            return NOT_EXPORTED
        signs = ("Type Error:", "Could not find an implementation", "no kernel def matches")
        if expected and any(sign in text for sign in signs):
            return "ONNX Runtime itself refuses dtypes that the operator does not list"
        return None

    def own(self, shape):
        node = Onnx.field(1, "x") + Onnx.field(2, "y") + Onnx.field(4, "Neg")
        session = self.session(Onnx.model(node, [Onnx.value_info("x", "float32", shape)],
                                          [Onnx.value_info("y", "float32", None)]))
        feeds = {"x": self.host.OrtValue.ortvalue_from_numpy(np.ones(shape, np.float32))}
        return lambda: session.run_with_ort_values(["y"], feeds)


class Jax:
    """A program of JAX, compiled with jax.jit, which calls the operator through XLA."""
    modules = ("jax", "jaxlib")
    symbol = "opkit_xla_{}"

    def __init__(self, library, domain):
        self.jax = importlib.import_module("jax")
        self.jax.config.update("jax_platforms", "cpu")
        self.jax.config.update("jax_enable_x64", True)
        self.library, self.known = ctypes.CDLL(library), set()

    def forms(self, case):
        yield "", lambda: self.call(case)

    def capsule(self, symbol):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(ctypes.c_int64.in_dll(self.library, symbol)), None, None)

    def register(self, case):
        if case.op in self.known:
            return
        ffi, handler = self.jax.ffi, getattr(self.library, "opkit_xla_" + case.op)
        if case.stateful:
            ffi.register_ffi_type(case.op, {
                "type_id": self.capsule("opkit_xla_type_id_" + case.op),
                "type_info": self.capsule("opkit_xla_type_info_" + case.op)}, platform="cpu")
        handler = ffi.pycapsule(handler)
        # XLA has targets of its own, such as TopK.
        ffi.register_ffi_target("via." + case.op, {"instantiate": handler, "execute": handler},
                                platform="cpu")
        self.known.add(case.op)

    def call(self, case):
        self.register(case)
        types = case.types or [[t.dtype, t.shape] for t in (case.runs[0] if case.runs else ())]
        if not types:  # an error that comes before the results are looked at
            types = [["float32", [1]]] * case.num_outputs
        if case.error and all(0 in shape for _, shape in types):
            raise NotCarried("XLA runs no call whose results are empty")
        results = [self.jax.ShapeDtypeStruct(tuple(shape), np_dtype(dtype))
                   for dtype, shape in types]
        attributes = {name: self.value(*given) for name, given in case.given.items()}
        if None in case.inputs:
            attributes["opkit_inputs"] = np.array([tensor is not None for tensor in case.inputs],
                                                  np.int64)
        args = [self.jax.numpy.asarray(tensor.array()) for tensor in case.inputs if tensor]
        program = self.jax.jit(
            lambda *args: self.jax.ffi.ffi_call("via." + case.op, results)(*args, **attributes))
        if not case.error and not case.stateful:
            program = program.lower(*args).compile()
        return (lambda: self.jax.block_until_ready(program(*args)),
                lambda arrays: [Tensor.of(np.asarray(array)) for array in arrays])

    @staticmethod
    def value(kind, value):
        if kind.startswith("tensor"):
            raise NotCarried("an attribute of XLA is no tensor")
        if kind == "strings":
            return {str(i): text for i, text in enumerate(value)}
        if kind.endswith("s"):
            return np.array(value, np.float64 if kind == "floats" else np.int64)
        return {"int": np.int64, "float": np.float64, "bool": np.bool_, "string": str}[kind](value)

    def own(self, shape):
        x = self.jax.numpy.ones(shape, np.float32)
        program = self.jax.jit(lambda x: -x)
        return lambda: self.jax.block_until_ready(program(x))


class Torch:
    """torch.ops of PyTorch."""
    modules = ("torch",)
    symbol = "opkit_torch_register_{}"

    def __init__(self, library, domain):
        self.torch = importlib.import_module("torch")
        self.torch.ops.load_library(library)
        self.domain = domain

    def forms(self, case):
        if case.stateful:
            raise NotCarried("an operator of PyTorch has no object that could own a state")
        yield "", lambda: self.call(case)

    def call(self, case):
        function = getattr(getattr(self.torch.ops, self.domain), case.op)
        inputs = [tensor and self.tensor(tensor) for tensor in case.inputs]
        if function.default._schema.arguments[0].type.kind() == "ListType":
            inputs = [inputs]
        given = {name: self.value(*value) for name, value in case.given.items()}

        def read(result):
            results = [result] if isinstance(result, self.torch.Tensor) else list(result)
            return [self.read(one) for one in results]
        return lambda: function(*inputs, **given), read

    def tensor(self, tensor):
        dtype = getattr(self.torch, tensor.dtype, None)
        if dtype is None:
            raise NotCarried(f"this version of PyTorch has no {tensor.dtype}")
        out = self.torch.empty(tensor.shape, dtype=dtype)
        ctypes.memmove(out.data_ptr(), tensor.data, len(tensor.data))
        return out

    def read(self, tensor):
        tensor = tensor.contiguous()
        size = tensor.numel() * tensor.element_size()
        return Tensor(str(tensor.dtype).split(".")[-1], tensor.shape,
                      ctypes.string_at(tensor.data_ptr(), size) if size else b"")

    def value(self, kind, value):
        if kind == "tensor":
            return self.tensor(value)
        if kind == "tensors":
            return [self.tensor(one) for one in value]
        return value

    def own(self, shape):
        x = self.torch.ones(shape)
        return lambda: self.torch.neg(x)


HOSTS = {"numpy": NumPy, "jax": Jax, "ort": OnnxRuntime, "torch": Torch}
NOT_EXPORTED = "the library does not export the operator to this host"
# Errors of the exports for calls that a host does not allow at all.
BY_DESIGN = {
    "does not allow an operator to write to its inputs": "the host lets no operator write to inputs",
    "say how many with InvokeOptions::num_outputs": "a call does not say how many outputs it wants",
}


def comparable(text):
    """The text with lists of dtypes in alphabetical order: a library that is loaded lists them in
    another order than in itself."""
    names = r"(?:bool|u?int\d+|b?float\d+|complex\d+)"
    return re.sub(rf"\[{names}(?:, {names})*\]",
                  lambda found: str(sorted(re.findall(names, found[0]))), text)


def check(host, case):
    """Returns what is wrong, or an empty text."""
    for form, make in host.forms(case):
        where = f" ({form})" if form else ""
        runs, text = [], None
        try:
            call, read = make()
            for _ in range(max(len(case.runs), 1)):
                runs.append(read(call()))
        except NotCarried:
            raise
        except Exception as error:  # of any class: the host's own
            text = str(error)
        if text is not None:
            for sentence, reason in BY_DESIGN.items():
                if sentence in text:
                    raise NotCarried(reason)
            if case.error is None or comparable(case.error) not in comparable(text):
                reason = host.refusal(text, case.error) if hasattr(host, "refusal") else None
                if reason:
                    raise NotCarried(reason)
            if case.error is None:
                return f"fails{where}: {text}"
            if comparable(case.error) not in comparable(text):
                return f"fails{where} with the text: {text}; opkit's text is: {case.error}"
            continue
        if case.error is not None:
            return f"succeeds{where}, but opkit fails: {case.error}"
        for run, (found, expected) in enumerate(zip(runs, case.runs)):
            if len(found) != len(expected):
                return f"gives {len(found)} outputs{where} instead of {len(expected)}"
            for o, (one, wanted) in enumerate(zip(found, expected)):
                if not case.same:
                    one.data = wanted.data if len(one.data) == len(wanted.data) else one.data
                difference = one.difference(wanted)
                if difference:
                    nth = f" of run {run + 1}" if run else ""
                    return f"output {o}{nth} {difference}{where}"
    return ""


def measure(host, case):
    """Returns the median time of a call, and of the host's own negation on the same shape, in us.
    Calls of both take turns, so that a change of the machine's speed meets both."""
    own = host.own(case.inputs[0].shape if case.inputs and case.inputs[0] else ())
    call, _ = next(iter(host.forms(case)))[1]()
    functions = (call, own)
    counts, samples = [], ([], [])
    for function in functions:
        function()
        begin = time.perf_counter()
        for _ in range(10):
            function()
        counts.append(max(1, min(1000, int(2e-4 / max(time.perf_counter() - begin, 1e-9) * 10))))
    for _ in range(101):
        for function, count, times in zip(functions, counts, samples):
            begin = time.perf_counter()
            for _ in range(count):
                function()
            times.append((time.perf_counter() - begin) / count * 1e6)
    return [statistics.median(times) for times in samples]


def main(name, folder, library, first):
    lines = os.fdopen(os.dup(1), "w")  # what the host or the library prints goes to stderr
    os.dup2(2, 1)

    def say(**facts):
        lines.write(json.dumps(facts) + "\n")
        lines.flush()

    kind = HOSTS[name]
    try:
        global np
        np = importlib.import_module("numpy")
        versions = [f"{module} {importlib.import_module(module).__version__}"
                    for module in kind.modules]
    except ImportError as error:
        say(missing=str(error))
        return
    say(version=", ".join(versions))

    with open(os.path.join(folder, "data.bin"), "rb") as file:
        data = file.read()
    exports = ctypes.CDLL(library)
    domain = "opkit"
    if hasattr(exports, "opkit_export_domain_name"):
        exports.opkit_export_domain_name.restype = ctypes.c_char_p
        domain = exports.opkit_export_domain_name().decode()
    host, timed = kind(library, domain), []
    with open(os.path.join(folder, "cases.json"), encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number < first:
                continue
            case = Case(json.loads(line), data)
            say(begin=number)
            try:
                if not hasattr(exports, kind.symbol.format(case.op)):
                    raise NotCarried(NOT_EXPORTED)
                wrong = check(host, case)
            except NotCarried as reason:
                say(case=number, not_carried=str(reason))
                continue
            say(case=number, wrong=wrong)
            if case.us is not None and not wrong:
                timed.append((sum(len(t.data) for t in case.inputs if t), number, case))
    if timed:
        _, number, case = min(timed, key=lambda one: one[:2])
        say(begin=number, timing=True)
        us, own = measure(host, case)
        say(timed=case.name, us=us, own_us=own, cpp_us=case.us)
    say(end=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    sys.stderr.flush()
    os._exit(0)  # the end of a host's own threads is not what is checked
