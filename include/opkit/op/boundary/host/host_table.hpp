// The host's side of opkit_abi.h: the table of functions that serve function operators in this
// program and in its libraries, and each thread's current failure.
#ifndef OPKIT_OP_BOUNDARY_HOST_HOST_TABLE_HPP_
#define OPKIT_OP_BOUNDARY_HOST_HOST_TABLE_HPP_

#include <memory>

#include "opkit/base/scoped_value.hpp"
#include "opkit/op/boundary/host/program_host.hpp"
#include "opkit/op/function/log_hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The reason for the failure of the function that this thread runs.
struct HostError : RefCounted {
  std::string text;              // given by the operator
  std::string failure;           // given by a function of the host's table
  std::exception_ptr exception;  // their cause, if thrown in this program
};
using HostErrorSlot = IntrusivePtr<HostError>;  // made at the first failure

// The error of the innermost HostErrorScope on this thread.
inline constinit thread_local HostErrorSlot* t_host_error = nullptr;
OPKIT_COLD HostError& CurrentHostError();
// Gives this thread an empty error; restores the previous error at the end of the scope.
class HostErrorScope {
  HostErrorSlot slot_;
  const ScopedValue<HostErrorSlot*> scope_{t_host_error, &slot_};
};

// Stores the current exception as this thread's failure, and returns its status; for use in a catch
// block. `unknown` describes an exception that is not a std::exception.
OPKIT_COLD OPKIT_IMAGE_LOCAL opkit_status
KeepFailure(const char* unknown = "it threw something that is not a std::exception") noexcept;
// Runs `body` for a caller of the table; returns the status.
template <class Body>
opkit_status AnswerCaller(Body body) noexcept {
  try {
    body();
    return OPKIT_OK;
  } catch (...) {
    return KeepFailure();
  }
}

// Returns the object that is the `context` of a struct that the library got from this program.
template <class Self, class Struct>
Self& ContextOf(const Struct* from) {
  if (!from)
    Throw(ErrorCode::kInvalidArgument, "a function of ", Self::kStruct,
          " is called without the struct");
  return *static_cast<Self*>(from->context);
}
// A function of such a struct: calls the member kMember of the object with the other arguments.
template <class Self, auto kMember, class Struct, class... Args>
opkit_status AnswerBy(const Struct* from, Args... args) {
  return AnswerCaller([&] { (ContextOf<Self>(from).*kMember)(args...); });
}

struct HostTable {
  // Returns this program's own table. The first call, from the first function operator, puts the
  // table into use.
  OPKIT_IMAGE_LOCAL static const opkit_host& Global();
};

}}}  // namespace opkit::detail

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/boundary/host/impl/host_table.ipp"
#endif

#endif  // OPKIT_OP_BOUNDARY_HOST_HOST_TABLE_HPP_
