"""opkit: operators in C++ and Python.

    import opkit, numpy as np
    opkit.load("libmy_ops.so")
    opkit.ops.my_gemm(a, b, alpha=2.0)         # arrays of NumPy, PyTorch or JAX
    help(opkit.ops.my_gemm)

    graph = opkit.load_onnx("model.onnx")
    executor = opkit.Executor(graph.compile(threads=2))
    executor.run({"x": array})                 # a dict of arrays

    with opkit.profile() as report:
        executor.run({"x": array})
    print(report)
"""
import os as _os

from . import _core, ops
from ._core import Executor, Graph, Library, Plan, __version__
from ._custom import op
from ._errors import (DeadlineError, Error, FileError, InvalidArgumentError, NotFoundError,
                      OutOfMemoryError, TypeMismatchError, UnsupportedError)
from ._profile import profile

__all__ = ["DeadlineError", "Error", "Executor", "FileError", "Graph", "InvalidArgumentError",
           "Library", "NotFoundError", "Operator", "OutOfMemoryError", "Plan", "TypeMismatchError",
           "UnsupportedError", "get_cmake_dir", "get_include", "get_program", "load", "load_onnx",
           "op", "ops", "profile"]

_FOLDER = _os.path.dirname(_os.path.abspath(__file__))


_SOURCES = (".cc", ".cpp", ".cxx", ".c", ".cu")


def load(path, *, flags=(), backend="", allow_override=False):
    """Loads a library of operators; returns it. Its operators are then in opkit.ops.

    path: a shared object, or a source ("ops.cc"). A source is compiled with $CXX, unless the result of
        an earlier compilation is still valid.
    flags: more words for the compiler of a source, as ["-O3"].
    backend: the name for its kernels of operators that exist already.
    allow_override: prefers these kernels to the existing ones.
    """
    path = _os.fspath(path)
    if isinstance(flags, str):
        raise TypeError("flags is a list of words for the compiler, as ['-O3'], not one text")
    if path.endswith(_SOURCES):
        library = _core.build_library(path, list(flags), backend, allow_override)
    elif flags:
        raise ValueError(f"flags are for the compiler of a source; {path} is none")
    else:
        library = _core.load_library(path, backend, allow_override)
    ops._forget(library.operators)
    return library


def load_onnx(path, fix_defaults=False, zipmap_columns=False):
    """The graph of an ONNX model. Its nodes run with the operators of opkit and of loaded libraries.
    With `fix_defaults`, inputs that have a default become constants. With `zipmap_columns`, an output
    that a ZipMap makes becomes an output NAME.LABEL for each label."""
    return _core.load_onnx(_os.fspath(path), fix_defaults, zipmap_columns)


def Operator(name, *, backends="", **attributes):
    """An operator with these attributes, and with state of its own if it has state.

    >>> total = opkit.Operator("RunningSum")
    >>> total(x); total(x)
    """
    from . import _signatures
    text = _signatures.docstring(name, _core.describe(name))
    return _core.make_function(name, text, attributes, backends)


def get_include():
    """The folder of opkit's headers, for a compiler's option -I."""
    return _os.path.join(_FOLDER, "include")


def get_cmake_dir():
    """The folder for CMake's opkit_DIR, or for CMAKE_PREFIX_PATH."""
    return _os.path.join(_FOLDER, "lib", "cmake", "opkit")


def get_program():
    """The path of the command-line program, which `python -m opkit` runs."""
    return _os.path.join(_FOLDER, "bin", "opkit")
