"""Makes functions of JAX from the operators of this package's shared object."""
import ctypes

import jax
import jax.numpy as jnp
import numpy as np

from . import _library


def _capsule(symbol):
    """A capsule with the address of a variable of the shared object."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(ctypes.c_int64.in_dll(_library.library, symbol)), None, None)


def _register(name, stateful):
    """Registers the operator's handlers; returns the name of the target."""
    target = f"{__package__}.{name}"
    for platform, prefix in (("cpu", "opkit_xla_"), ("CUDA", "opkit_xla_cuda_")):
        if stateful:
            jax.ffi.register_ffi_type(target, {
                "type_id": _capsule("opkit_xla_type_id_" + name),
                "type_info": _capsule("opkit_xla_type_info_" + name)}, platform=platform)
        handler = jax.ffi.pycapsule(getattr(_library.library, prefix + name))
        jax.ffi.register_ffi_target(target, {"instantiate": handler, "execute": handler},
                                    platform=platform)
    return target


def _value(kind, value):
    """An attribute in the form that XLA takes."""
    if kind == "int":
        return np.int64(value)
    if kind == "float":
        return np.float64(value)
    if kind == "bool":
        return np.bool_(value)
    if kind == "string":
        return str(value)
    if kind == "strings":
        return {str(i): text for i, text in enumerate(value)}
    if kind in ("ints", "bools"):
        return np.array(value, np.int64)
    if kind == "floats":
        return np.array(value, np.float64)
    if kind is None:
        return value
    raise NotImplementedError(f"XLA takes no attribute of type {kind}")


def _hashable(value):
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


def _outputs(name, inputs, attributes):
    """The types of the results, from the operator's own inference."""
    types = [i if i is None else (i.dtype.name, i.shape) for i in inputs]
    results = []
    for dtype, shape in _library.infer(name, types, attributes):
        if dtype is None or shape is None or None in shape:
            raise NotImplementedError(
                f"the inputs' types do not decide the results of {name}, and XLA needs their shapes "
                "before the run")
        if jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
            raise TypeError(f"{name} returns {dtype}; allow it by "
                            'jax.config.update("jax_enable_x64", True)')
        results.append(jax.ShapeDtypeStruct(shape, dtype))
    return results


def _caller(name, kinds, *, stateful=False, elementwise=False):
    """A function that calls one operator: (attributes, *inputs) -> list of results."""
    target = _register(name, stateful)

    def call(attributes, *inputs):
        attributes = dict(attributes)
        inputs = list(inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        results = _outputs(name, inputs, attributes)
        values = {n: _value(kinds[n], v) for n, v in attributes.items() if v is not None}
        present = [i for i in inputs if i is not None]
        if len(present) < len(inputs):
            values["opkit_inputs"] = np.array([i is not None for i in inputs], np.int64)
        # One more axis in front of all shapes changes nothing for an elementwise operator, as long as
        # it does not broadcast.
        at_once = elementwise and len({i.shape for i in present}) == 1
        return jax.ffi.ffi_call(target, results, has_side_effect=stateful,
                                vmap_method="broadcast_all" if at_once else "sequential")(
                                    *present, **values)
    return call


def _differentiable(forward, backward):
    """`forward` with the gradient that the operator of `backward` computes."""
    call = jax.custom_vjp(forward, nondiff_argnums=(0,))

    def save(attributes, *inputs):
        outputs = forward(attributes, *inputs)
        return outputs, (inputs, outputs)

    def pull_back(attributes, saved, cotangents):
        inputs, outputs = saved
        # The cotangent of integers has no values.
        given = [c if c.dtype == o.dtype else jnp.zeros_like(o)
                 for c, o in zip(cotangents, outputs)]
        gradients = backward(attributes, *given, *outputs, *inputs)
        gradients += [None] * (len(inputs) - len(gradients))
        return tuple(g if i is not None and jnp.issubdtype(i.dtype, jnp.inexact) else None
                     for g, i in zip(gradients, inputs))
    call.defvjp(save, pull_back)
    return call


def operator(name, kinds, *, gradient=None, stateful=False, elementwise=False):
    """A function (inputs, attributes) of an operator.

    kinds: the types of its attributes, by name.
    gradient: the name of the operator that computes its gradient.
    """
    call = _caller(name, kinds, stateful=stateful, elementwise=elementwise)
    if gradient:
        call = _differentiable(call, _caller(gradient, kinds, elementwise=elementwise))

    def run(inputs, attributes):
        results = call(tuple((n, _hashable(v)) for n, v in attributes.items()),
                       *(i if i is None else jnp.asarray(i) for i in inputs))
        return results[0] if len(results) == 1 else tuple(results)
    return run
