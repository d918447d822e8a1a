"""The exceptions of opkit. Each is an opkit.Error, and the exception of Python for its kind."""


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


class UnsupportedError(Error, NotImplementedError):
    """The operator, kernel or device does not have what was requested."""


class DeadlineError(Error, TimeoutError):
    """The time limit passed first."""


class FileError(Error, OSError):
    """A file cannot be read or written."""


# By the exception of Python that exports to other hosts raise too.
_CLASSES = {"ValueError": InvalidArgumentError, "TypeError": TypeMismatchError,
            "LookupError": NotFoundError, "MemoryError": OutOfMemoryError,
            "NotImplementedError": UnsupportedError, "TimeoutError": DeadlineError,
            "OSError": FileError}


def make(code, python_class, text):
    """The exception of an error of C++, by the names of its code and of its class in Python."""
    made = _CLASSES.get(python_class, Error)(text)
    made.code = code.replace(" ", "_")
    return made
