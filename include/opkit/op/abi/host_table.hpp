// The host's side of opkit_abi.h: the table of functions that serve function operators, in this
// program and in the libraries it loads, and the failure that each thread is about to report.
#ifndef OPKIT_OP_ABI_HOST_TABLE_HPP_
#define OPKIT_OP_ABI_HOST_TABLE_HPP_

#include <memory>

#include "opkit/op/abi/op_resource.hpp"
#include "opkit/op/abi/program_host.hpp"

namespace opkit::inline OPKIT_ABI {

// Receives operators' log lines. Called from any thread.
using LogHook = void (*)(LogLevel level, std::string_view op, std::string_view text);
// Replaces the log hook and returns the one before; null goes back to stderr.
LogHook SetLogHook(LogHook hook);

namespace detail {

// Hands a line to the log hook.
void WriteLog(LogLevel level, std::string_view op, std::string_view text);

// The reason why the function that this thread runs fails.
struct HostError : RefCounted {
  std::string text;              // given by the operator
  std::string failure;           // given by a function of the host's table
  std::exception_ptr exception;  // the cause of either, if it was thrown in this program
};
using HostErrorSlot = IntrusivePtr<HostError>;  // made when something fails

inline constinit thread_local HostErrorSlot* t_host_error = nullptr;  // of the innermost scope
OPKIT_COLD HostError& CurrentHostError();
// Gives this thread an empty error, and at its end the error that it had before.
class HostErrorScope {
 public:
  HostErrorScope() : outer_(t_host_error) { t_host_error = &slot_; }
  ~HostErrorScope() { t_host_error = outer_; }

 private:
  HostErrorSlot slot_;
  HostErrorSlot* outer_;
};

// Called in a catch block: keeps the exception as this thread's failure, and says which status to
// answer. `unknown` describes an exception that is not a std::exception.
OPKIT_COLD OPKIT_IMAGE_LOCAL opkit_status
KeepFailure(const char* unknown = "it threw something that is not a std::exception") noexcept;
// Runs `body` for a caller of the table.
template <class Body>
opkit_status AnswerCaller(Body body) noexcept {
  try {
    body();
    return OPKIT_OK;
  } catch (...) {
    return KeepFailure();
  }
}

// This program's own table, in use from the first function operator on.
OPKIT_IMAGE_LOCAL const opkit_host& ProgramHost();

}  // namespace detail
}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/abi/impl/host_table.ipp"
#endif

#endif  // OPKIT_OP_ABI_HOST_TABLE_HPP_
