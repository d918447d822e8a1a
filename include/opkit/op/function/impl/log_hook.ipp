// The log hook of the program.
#ifndef OPKIT_OP_FUNCTION_IMPL_LOG_HOOK_IPP_
#define OPKIT_OP_FUNCTION_IMPL_LOG_HOOK_IPP_

#include <atomic>
#include <cstdio>

#include "opkit/op/function/log_hook.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void LogToStderr(LogLevel level, std::string_view op, std::string_view text) {
  std::fprintf(stderr, "opkit %s: %.*s: %.*s\n", ToString(level), static_cast<int>(op.size()),
               op.data(), static_cast<int>(text.size()), text.data());
}
inline constinit std::atomic<LogHook> g_log_hook{&LogToStderr};
OPKIT_INLINE void WriteLog(LogLevel level, std::string_view op, std::string_view text) {
  g_log_hook.load(std::memory_order_acquire)(level, op, text);
}

}  // namespace detail

OPKIT_INLINE LogHook SetLogHook(LogHook hook) {
  return detail::g_log_hook.exchange(hook ? hook : &detail::LogToStderr, std::memory_order_acq_rel);
}

}}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_IMPL_LOG_HOOK_IPP_
