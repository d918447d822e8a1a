"""The shared object of this package: calls of its operators by tvm-ffi, and their inference."""
import builtins
import ctypes
import json
import os
import sys

DOMAIN = "@DOMAIN@"
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "@FILE@")

library = ctypes.CDLL(PATH)
_infer = library.opkit_export_infer
_infer.restype = ctypes.c_char_p
_infer.argtypes = [ctypes.c_char_p]


def infer(op, inputs, attributes):
    """The (dtype, shape) of each output of a call.

    inputs: a (dtype, shape) for each input, None for one that is left out. An extent is a number,
        or the text of a symbol; in the result it may also be None, unknown before the run.
    attributes: a dict; None is the operator's default.
    """
    call = {"op": op,
            "inputs": [i and {"dtype": i[0], "shape": list(i[1])} for i in inputs],
            "attributes": {name: v for name, v in attributes.items() if v is not None}}
    # NumPy's numbers and arrays have tolist().
    answer = json.loads(_infer(json.dumps(call, default=lambda value: value.tolist()).encode()))
    if "error" in answer:
        raise getattr(builtins, answer["class"])(answer["error"])
    return [(o["dtype"], o["shape"]) for o in answer["outputs"]]


_functions = {}


def _function(name):
    if "module" not in _functions:
        import tvm_ffi
        _functions["module"] = tvm_ffi.load_module(PATH)
    _functions[name] = getattr(_functions["module"], name)
    return _functions[name]


def _returned(made, inputs):
    """The results as NumPy arrays if an input is one; else as tvm-ffi returns them."""
    numpy = sys.modules.get("numpy")
    is_numpy = numpy and any(isinstance(i, numpy.ndarray) for i in inputs)
    if hasattr(made, "shape"):
        return numpy.from_dlpack(made) if is_numpy else made
    return tuple(numpy.from_dlpack(one) if is_numpy else one for one in made)


def _call(function, inputs, attributes, out, many):
    given = (list(inputs),) if many else inputs
    if out is None:
        return _returned(function(*given, *attributes), inputs)
    function(*given, *attributes, *(out if isinstance(out, (list, tuple)) else (out,)))
    return out


def call(name, inputs, attributes, out=None, many=False):
    """Calls an operator on NumPy arrays or DLPack tensors. many: it takes any number of inputs."""
    return _call(_functions.get(name) or _function(name), inputs, attributes, out, many)


def create(name, attributes, many=False):
    """A function with an operator, and so a state, of its own."""
    function = _function(name + "_create")(*attributes)

    def run(*inputs, out=None):
        return _call(function, inputs, (), out, many)
    return run
