// Exceptions at the border to Python: the current C++ exception becomes Python's current exception.
#ifndef OPKIT_PYTHON_ERRORS_HPP_
#define OPKIT_PYTHON_ERRORS_HPP_

#include <nanobind/nanobind.h>

#include "opkit/base/error.hpp"

namespace opkit_python {

namespace nb = nanobind;

// Sets Python's exception from the C++ exception in flight; call it in a catch block, with the GIL.
// An opkit::Error becomes the class of opkit._errors that belongs to its code. An exception that a
// Python function threw inside an operator stays that exception, and gets the operator's context as
// a note.
void SetPythonException() noexcept;

// Returns call(), or null with Python's exception set: for functions that CPython calls directly.
template <class Call>
PyObject* Guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (...) {
    SetPythonException();
    return nullptr;
  }
}

void BindErrors();

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_ERRORS_HPP_
