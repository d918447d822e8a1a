// SetLogHook: redirects the log lines of function operators, of this program and of its libraries.
#ifndef OPKIT_OP_FUNCTION_LOG_HOOK_HPP_
#define OPKIT_OP_FUNCTION_LOG_HOOK_HPP_

#include "opkit/op/function/op_resource.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Receives operators' log lines. Called from any thread.
using LogHook = void (*)(LogLevel level, std::string_view op, std::string_view text);
// Replaces the log hook and returns the previous hook; null restores logging to stderr.
LogHook SetLogHook(LogHook hook);

namespace detail {

// Passes a line to the log hook.
void WriteLog(LogLevel level, std::string_view op, std::string_view text);

}  // namespace detail
}}  // namespace opkit

#ifdef OPKIT_DEFINITIONS
#include "opkit/op/function/impl/log_hook.ipp"
#endif

#endif  // OPKIT_OP_FUNCTION_LOG_HOOK_HPP_
