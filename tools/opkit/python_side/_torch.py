"""Registers the operators of this package's shared object with PyTorch, and their inference."""
import ctypes
import keyword

import torch

from . import _library


def _register(name):
    """Registers the operator itself, if it is not registered yet, and returns it."""
    register = getattr(_library.library, "opkit_torch_register_" + name)
    register.restype = ctypes.c_char_p
    problem = register()
    if problem:
        raise RuntimeError(problem.decode())
    return getattr(getattr(torch.ops, _library.DOMAIN), name).default


def _name(dtype):
    return str(dtype).partition(".")[2]


# The names to which opkit adds an underscore in torch's schemas.
_KEYWORDS = {*keyword.kwlist, "Ellipsis", "NoneType"}


def _attribute(parameter):
    """The attribute of a parameter in torch's schema."""
    return parameter[:-1] if parameter[:-1] in _KEYWORDS else parameter


class _Call:
    """The arguments of one call, by the operator's schema in torch."""

    def __init__(self, op, args, kwargs):
        self.tensors, self.attributes = [], {}
        for i, argument in enumerate(op._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
            kind = str(argument.type)
            if kind == "List[Tensor]":
                self.tensors += value
            elif kind in ("Tensor", "Optional[Tensor]"):
                self.tensors.append(value)
            else:
                self.attributes[_attribute(argument.name)] = value
        while self.tensors and self.tensors[-1] is None:
            self.tensors.pop()

    def infer(self, name):
        """The (dtype, shape) of each result, in which an extent may be a SymInt, or None."""
        symbols = {}

        def extent(size, symbolic):
            if isinstance(size, int) or not symbolic:
                return int(size)
            return symbols.setdefault(str(size), (f"s{len(symbols)}", size))[0]

        for symbolic in (True, False):
            types = [t if t is None else (_name(t.dtype), [extent(s, symbolic) for s in t.shape])
                     for t in self.tensors]
            results = _library.infer(name, types, self.attributes)
            sizes = dict(symbols.values())
            # An extent that is computed from symbols is only found with their numbers.
            if not symbols or all(None not in (shape or [None]) for _, shape in results):
                break
        return [(dtype, shape and [sizes.get(s, s) for s in shape]) for dtype, shape in results]


def _fake(name, op):
    def fake(*args, **kwargs):
        call = _Call(op, args, kwargs)
        device = next((t.device for t in call.tensors if t is not None), "cpu")
        made = []
        for dtype, shape in call.infer(name):
            if dtype is None or shape is None:
                raise NotImplementedError(
                    f"the inputs' types do not decide the number of axes of a result of {name}")
            shape = [torch.library.get_ctx().new_dynamic_size() if s is None else s for s in shape]
            made.append(torch.empty(shape, dtype=getattr(torch, dtype), device=device))
        if str(op._schema.returns[0].type) == "List[Tensor]":
            return made
        return made[0] if len(made) == 1 else tuple(made)
    return fake


def _differentiate(name, op, gradient):
    """Registers the gradient, which another operator computes."""
    by_position = [a for a in op._schema.arguments if not a.kwarg_only]
    call_gradient = _caller(gradient)

    def setup_context(ctx, inputs, output, keyword_only_inputs=None):
        call = _Call(op, inputs, keyword_only_inputs or {})
        outputs = output if isinstance(output, (list, tuple)) else (output,)
        ctx.attributes, ctx.num_outputs = call.attributes, len(outputs)
        ctx.save_for_backward(*outputs, *call.tensors)

    def backward(ctx, *gradients):
        outputs = ctx.saved_tensors[:ctx.num_outputs]
        inputs = ctx.saved_tensors[ctx.num_outputs:]
        given = [torch.zeros_like(o) if g is None else g for g, o in zip(gradients, outputs)]
        made = call_gradient([*given, *outputs, *inputs], ctx.attributes)
        made = iter(made if isinstance(made, (list, tuple)) else [made])
        rest = iter(inputs)

        def take():
            """The gradient of the next input; None for one that is left out or has integers."""
            tensor, one = next(rest, None), next(made, None)
            return one if tensor is not None and tensor.is_floating_point() else None
        return tuple([take() for _ in inputs] if str(a.type) == "List[Tensor]"
                     else take() if str(a.type) in ("Tensor", "Optional[Tensor]")
                     else None for a in by_position)

    torch.library.register_autograd(f"{_library.DOMAIN}::{name}", backward,
                                    setup_context=setup_context)


def _caller(op):
    """A function (tensors, attributes) that calls the operator.

    torch.compile traces it, and cannot trace a schema.
    """
    arguments = op._schema.arguments
    many = any(str(a.type) == "List[Tensor]" for a in arguments[:1])
    parameters = {_attribute(a.name): a.name for a in arguments}

    def call(tensors, attributes):
        return op(*([list(tensors)] if many else tensors),
                  **{parameters[n]: value for n, value in attributes.items() if value is not None})
    return call


def operator(name, *, gradient=None):
    """A function (inputs, attributes) of an operator.

    gradient: the name of the operator that computes its gradient.
    """
    ops = {one: _register(one) for one in (name, gradient) if one}
    for one, op in ops.items():
        torch.library.register_fake(f"{_library.DOMAIN}::{one}", _fake(one, op))
    if gradient:
        _differentiate(name, ops[name], ops[gradient])

    return _caller(ops[name])
