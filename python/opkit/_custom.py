"""Operators that are written in Python: the decorator op."""
import atexit
import inspect
import operator

import numpy

from . import _core, ops

atexit.register(_core.drop_python_functions)


def _as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


class CustomOperator:
    """An operator whose function is written in Python. Call it like a function of opkit.ops."""

    def __init__(self, function, name, shape, dtype, outputs, stateful):
        self.__wrapped__ = self._function = function
        self.__name__ = self.name = name or function.__name__
        self.__doc__ = inspect.getdoc(function) or ""
        self._backward = None
        self._shape, self._dtype = shape, dtype
        self._inputs, self._attributes, self._takes_out = self._read(function)
        if not self._inputs:
            raise TypeError(f"{self.name}: an operator needs at least one input")
        self._outputs = [f"output{i}" for i in range(outputs)] if isinstance(outputs, int) \
            else list(outputs)
        if not self._outputs:
            raise TypeError(f"{self.name}: an operator needs at least one output")
        code = function.__code__
        _core.register_operator(
            self.name, self.__doc__, code.co_filename, code.co_firstlineno, self._inputs,
            self._outputs, self._attributes, stateful, self._run, self._infer_shapes,
            self._infer_dtypes)
        ops._forget([self.name, f"{self.name}_backward"])

    def _read(self, function):
        """The names of the inputs, the attributes with defaults, and whether there is an `out`."""
        inputs, attributes, takes_out = [], {}, False
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{function.__name__}: an operator has no parameter {parameter}")
            if parameter.name == "out":
                takes_out = True
            elif parameter.default is not parameter.empty:
                attributes[parameter.name] = parameter.default
            elif parameter.kind == parameter.KEYWORD_ONLY:
                raise TypeError(f"{function.__name__}: attribute '{parameter.name}' needs a default")
            else:
                inputs.append(parameter.name)
        return inputs, attributes, takes_out

    def backward(self, function):
        """Decorates the function of the gradients: f(gradients of the outputs..., inputs...,
        outputs..., attributes by keyword) returns the gradients of the inputs."""
        self._backward = function
        self._backward_attributes = [
            p.name for p in inspect.signature(function).parameters.values()
            if p.name in self._attributes or p.kind == p.VAR_KEYWORD]
        _core.set_backward(self.name, self._run_backward)
        ops._forget([f"{self.name}_backward"])
        return self

    def __call__(self, *inputs, **keywords):
        return getattr(ops, self.name)(*inputs, **keywords)

    def __repr__(self):
        return f"<opkit operator {self.name}{inspect.signature(self._function)}>"

    # Called by the operator's run.
    def _store(self, what, results, arrays):
        if len(results) != len(arrays):
            raise ValueError(f"{what} of {self.name} returned {len(results)} arrays, expected "
                             f"{len(arrays)}")
        for i, (result, array) in enumerate(zip(results, arrays)):
            if array is None or result is array:
                continue
            result = numpy.asarray(result)
            if result.shape != array.shape:
                raise ValueError(f"{what} of {self.name} returned shape {result.shape} for result "
                                 f"{i}, expected {array.shape}")
            if result.dtype != array.dtype:
                raise TypeError(f"{what} of {self.name} returned {result.dtype} for result {i}, "
                                f"expected {array.dtype}")
            array[...] = result

    def _run(self, inputs, outputs, attributes):
        if self._takes_out:
            out = outputs[0] if len(outputs) == 1 else tuple(outputs)
            self._function(*inputs, out=out, **attributes)
            return
        result = self._function(*inputs, **attributes)
        self._store("the function", _as_list(result) if len(outputs) != 1 else [result], outputs)

    def _run_backward(self, inputs, outputs, attributes):
        if "**" not in self._backward_attributes and self._backward_attributes is not None:
            attributes = {n: v for n, v in attributes.items() if n in self._backward_attributes}
        results = _as_list(self._backward(*inputs, **attributes))
        if len(results) == len(outputs):
            results = [numpy.zeros_like(o) if r is None and o is not None else r
                       for r, o in zip(results, outputs)]
        self._store("backward", results, outputs)

    def _infer_shapes(self, shapes, attributes):
        count = len(self._outputs)
        if callable(self._shape):
            answer = self._shape(*shapes, **self._used(self._shape, attributes))
            try:
                found = [tuple(map(operator.index, s)) for s in ([answer] if count == 1 else answer)]
            except TypeError:
                found = []
            if len(found) != count:
                expected = "a tuple of numbers" if count == 1 else f"{count} tuples of numbers"
                raise TypeError(f"shape of {self.name} returned {answer!r}, expected {expected}")
            return found
        return [shapes[self._place(self._shape)]] * count

    def _infer_dtypes(self, dtypes, attributes):
        count = len(self._outputs)
        if callable(self._dtype) and not isinstance(self._dtype, type):
            answer = self._dtype(*dtypes, **self._used(self._dtype, attributes))
            return [answer] if count == 1 else list(answer)
        if isinstance(self._dtype, (list, tuple)):
            return list(self._dtype)
        if self._dtype == "same" or self._dtype in self._inputs:
            return [dtypes[self._place(self._dtype)]] * count
        return [self._dtype] * count

    def _place(self, rule):
        if rule == "same":
            return 0
        if rule in self._inputs:
            return self._inputs.index(rule)
        raise ValueError(f"{self.name}: expected a function, 'same' or the name of an input, found "
                         f"{rule!r}")

    @staticmethod
    def _used(function, attributes):
        """The attributes that a function of shapes or dtypes has as parameters."""
        known = inspect.signature(function).parameters.values()
        if any(p.kind == p.VAR_KEYWORD for p in known):
            return attributes
        names = {p.name for p in known}
        return {n: v for n, v in attributes.items() if n in names}


def op(function=None, *, name=None, shape="same", dtype="same", outputs=1, stateful=False):
    """Makes an operator of a function on NumPy arrays.

    Parameters without a default are inputs, parameters with a default are attributes. The function
    returns the result, or a tuple of results. If it has a parameter `out`, it writes its results
    there instead. Inputs are read-only.

    shape: "same" (as input 0), the name of an input, or a function of the inputs' shapes (tuples) and
        of the attributes that it names; it returns a tuple of numbers, or one for each result.
    dtype: "same" (as input 0), the name of an input, a dtype, or a function of the names of the
        inputs' dtypes.
    outputs: the number of results, or their names.
    stateful: two runs on the same inputs may differ.

    >>> @opkit.op
    ... def scaled_add(x, y, alpha=1.0):
    ...     return alpha * x + y
    >>> @scaled_add.backward
    ... def scaled_add_gradient(dz, x, y, z, alpha):
    ...     return alpha * dz, dz
    >>> scaled_add(a, b, alpha=2.0)
    """
    def make(function):
        return CustomOperator(function, name, shape, dtype, outputs, stateful)
    return make if function is None else make(function)
