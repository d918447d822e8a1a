// Functions in MXNet's spelling answer MX_FAIL, and say why by OPKIT_ERROR_MSG: an Error of that.
#ifndef OPKIT_OP_FUNCTION_ANSWERED_FAIL_HPP_
#define OPKIT_OP_FUNCTION_ANSWERED_FAIL_HPP_

#include "opkit/op/abi/host_table.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// A function in MXNet's spelling has answered FAIL, and the host of its library has the reason.
class OPKIT_EXPORT AnsweredFail : public Error {
 public:
  using Error::Error;
};

// Calls f, whose FAIL becomes an Error with the text that OPKIT_ERROR_MSG collected.
template <class F>
void CallReturning(const char* what, F&& f) {
  static_cast<void>(ProgramHost());  // keeps the text
  const HostErrorScope scope;
  if (f() == SUCCESS) return;
  if (!IsProgramHost(g_host))
    throw AnsweredFail(ErrorCode::kOperatorFailed, StrCat(what, " answered FAIL"));
  const std::string text = t_host_error && *t_host_error ? (*t_host_error)->text : std::string();
  Throw(ErrorCode::kOperatorFailed, what, " answered FAIL", text.empty() ? "" : ": ", text);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_ANSWERED_FAIL_HPP_
