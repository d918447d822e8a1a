"""The operators, by name: opkit.ops.Relu(x), opkit.ops.my_gemm(a, b, alpha=2.0).

Inputs are positional, or keywords with their names; attributes are keywords. Arrays of NumPy are read in
place, and so are arrays of every library that has DLPack. Results are arrays of the same library.
`out=` names an array, or a tuple of arrays, for the results; its dtype and shape must be those of the
result. Operators with state, such as random numbers, continue from call to call.
"""
from . import _core, _signatures

_functions = {}


def __getattr__(name):
    function = _functions.get(name)
    if function is None:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            facts = _core.describe(name)
        except LookupError as missing:
            raise AttributeError(str(missing)) from None
        function = _core.make_function(name, _signatures.docstring(name, facts))
        _functions[name] = function
        globals().setdefault(name, function)  # the next access finds it without this function
    return function


def __dir__():
    return [name for name in _core.operators() if name.isidentifier()]


def get(name):
    """The function of an operator whose name is no name in Python, such as "com.me.Gemm"."""
    return __getattr__(name)


def _forget(names):
    for name in names:
        function = _functions.pop(name, None)
        if function is not None and globals().get(name) is function:
            del globals()[name]
