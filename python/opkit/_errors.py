"""The exceptions of opkit. Each is an opkit.Error, and the exception of Python for its kind."""
from . import _core


class Error(Exception):
    """Every exception of opkit. `code` is the kind of the failure, as a text: "not_found"."""

    code = "operator_failed"


class InvalidArgumentError(Error, ValueError):
    """A value, shape or count that the operator does not accept."""


class TypeMismatchError(Error, TypeError):
    """A type or dtype other than the requested one."""


class NotFoundError(Error, LookupError):
    """There is no such operator, value, attribute or backend."""


class OutOfMemoryError(Error, MemoryError):
    """There is no memory of this size."""


_CLASSES = {"invalid_argument": InvalidArgumentError, "uninitialized": InvalidArgumentError,
            "out_of_range": InvalidArgumentError, "type_mismatch": TypeMismatchError,
            "not_found": NotFoundError, "out_of_memory": OutOfMemoryError}


def make(code, text):
    """The exception of an error of C++, by the number of its code."""
    name = _core.error_codes[code].replace(" ", "_")
    made = _CLASSES.get(name, Error)(text)
    made.code = name
    return made
