// The parts that the exports to all hosts share: the operators that an image exports and their
// domain (exported_operator.hpp), operators that stay ready between calls (kept_operators.hpp),
// attributes in the form that the schema declares, and errors. A header for each host stands beside
// this one.
#ifndef OPKIT_EXPORT_CORE_HPP_
#define OPKIT_EXPORT_CORE_HPP_

#include "opkit/base/scoped_value.hpp"
#include "opkit/export/kept_operators.hpp"
#include "opkit/op/boundary/host/program_host.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Throws kFailedPrecondition: a plain call of an operator with needs_instance(). `mend` says how
// this host makes an instance.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void RefuseState(const ExportedOperator& op,
                                                           const char* mend);
// Throws kUnsupported if a node with these attributes writes to its inputs, which `host` forbids.
OPKIT_IMAGE_LOCAL void RefuseMutation(const ExportedOperator& op, int num_inputs,
                                      const Arguments& args, const char* host);

// Returns a host's value in the form that the schema declares: an integer as a float, 0 and 1 as a
// bool, and the same for the elements of lists; an empty list of any type. Other values are
// returned unchanged, and making the operator reports a wrong type. `declared` may be null.
OPKIT_IMAGE_LOCAL Attribute FitAttribute(const AttributeSchema* declared, Attribute value);

// The class of Python's exceptions for an error: "ValueError", "TypeError", "LookupError",
// "MemoryError", "NotImplementedError", "OSError", "TimeoutError" or "RuntimeError".
constexpr const char* PythonClassOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfRange:
    case ErrorCode::kUninitialized:
      return "ValueError";
    case ErrorCode::kTypeMismatch:
      return "TypeError";
    case ErrorCode::kNotFound:
      return "LookupError";
    case ErrorCode::kOutOfMemory:
      return "MemoryError";
    case ErrorCode::kUnsupported:
      return "NotImplementedError";
    case ErrorCode::kDeadlineExceeded:
      return "TimeoutError";
    case ErrorCode::kIo:
      return "OSError";
    default:
      return "RuntimeError";
  }
}

// Returns call(), or fail(code, text) if it throws anything. A boundary of C lets no exception
// pass. The call runs this image's own operators.
template <class Call, class Fail>
auto GuardBoundary(Call&& call, Fail&& fail) noexcept -> decltype(call()) {
  try {
    const ScopedValue own(t_calls_own_operators, true);
    return call();
  } catch (...) {
    ErrorCode code = ErrorCode::kOutOfMemory;
    const char* text = "out of memory";
    std::optional<Error> error;
    try {
      error.emplace(CurrentError());
      code = error->code();
      text = error->what();
    } catch (...) {  // no memory for the Error
    }
    return fail(code, text);
  }
}

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/core.ipp"
#endif

#endif  // OPKIT_EXPORT_CORE_HPP_
