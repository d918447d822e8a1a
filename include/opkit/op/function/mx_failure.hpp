// CheckMxReturn: turns FAIL from a function in MXNet's spelling into an Error with the text of
// OPKIT_ERROR_MSG.
#ifndef OPKIT_OP_FUNCTION_MX_FAILURE_HPP_
#define OPKIT_OP_FUNCTION_MX_FAILURE_HPP_

#include "opkit/op/boundary/host/host_table.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The Error for a FAIL that a library's function in MXNet's spelling has returned. The library's
// host stores the reason.
class OPKIT_VISIBLE MxFailure : public Error {
 public:
  using Error::Error;
};

// Calls f. If f returns FAIL, throws an Error with the text of OPKIT_ERROR_MSG. In a library throws
// MxFailure, without the text. If f returns a failure with a text, throws an Error with that text.
template <class F>
void CheckMxReturn(const char* what, F&& f) {
  static_cast<void>(HostTable::Global());  // makes the host that keeps the text
  const HostErrorScope scope;
  const OpStatus status = f();
  if (status.ok()) return;
  if (const std::string why = status.message(); !why.empty())
    Throw(ErrorCode::kOperatorFailed, what, " failed: ", why);
  if (!IsProgramHost(g_host))
    throw MxFailure(ErrorCode::kOperatorFailed, StrCat(what, " returned FAIL"));
  const std::string text = t_host_error && *t_host_error ? (*t_host_error)->text : std::string();
  Throw(ErrorCode::kOperatorFailed, what, " returned FAIL", text.empty() ? "" : ": ", text);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_MX_FAILURE_HPP_
