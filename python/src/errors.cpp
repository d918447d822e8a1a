#include "errors.hpp"

#include <nanobind/stl/string.h>

#include <string>

#include "opkit/export/core.hpp"

namespace opkit_python {
namespace {

using opkit::Error;
using opkit::ErrorCode;

// Raises the Python exception that a function of the user threw. `context`, the lines of an Error,
// becomes its note.
void RaiseCause(const nb::python_error& cause, const char* context) {
  nb::python_error raised(cause);
  nb::object value = nb::borrow(raised.value());
  raised.restore();
  PyObject *type, *current, *trace;
  PyErr_Fetch(&type, &current, &trace);
  // Python 3.11 added notes; older versions raise the exception without a note.
  if (nb::hasattr(value, "add_note")) {
    PyObject* done = PyObject_CallMethod(value.ptr(), "add_note", "s", context);
    if (!done) PyErr_Clear();
    Py_XDECREF(done);
  }
  PyErr_Restore(type, current, trace);
}

void RaiseError(const Error& error) {
  if (error.cause()) {
    try {
      std::rethrow_exception(error.cause());
    } catch (const nb::python_error& cause) {
      return RaiseCause(cause, error.what());
    } catch (...) {  // another exception of C++: the Error describes it
    }
  }
  try {
    const nb::object make = nb::module_::import_("opkit._errors").attr("make");
    nb::object made = make(opkit::ToString(error.code()),
                           opkit::detail::PythonClassOf(error.code()), error.what());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  } catch (nb::python_error& failed) {
    failed.restore();
  }
}

}  // namespace

void SetPythonException() noexcept {
  try {
    throw;
  } catch (nb::python_error& raised) {
    raised.restore();
  } catch (const Error& error) {
    RaiseError(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const nb::builtin_exception& raised) {
    PyErr_SetString(
        raised.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_ValueError,
        raised.what());
  } catch (const std::exception& raised) {
    PyErr_SetString(PyExc_RuntimeError, raised.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception that is no std::exception");
  }
}

void BindErrors() {
  nb::register_exception_translator([](const std::exception_ptr& raised, void*) {
    try {
      std::rethrow_exception(raised);
    } catch (const Error&) {
      SetPythonException();
    }
  });
}

}  // namespace opkit_python
