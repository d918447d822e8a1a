// The definitions of opkit/base/error.hpp.
#ifndef OPKIT_BASE_IMPL_ERROR_IPP_
#define OPKIT_BASE_IMPL_ERROR_IPP_

#include <typeinfo>

#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

OPKIT_INLINE const char* ToString(ErrorCode code) {
  constexpr const char* kNames[] = {"invalid argument", "type mismatch",     "not found",
                                    "already exists",   "out of range",      "uninitialized",
                                    "out of memory",    "unsupported",       "failed precondition",
                                    "cancelled",        "deadline exceeded", "operator failed",
                                    "input or output"};
  return kNames[static_cast<int>(code)];
}

OPKIT_INLINE Error::Error(ErrorCode code, std::string message, const void* subject)
    : std::runtime_error(message),
      code_(code),
      subject_(subject),
      message_(std::move(message)),
      what_(message_) {}

OPKIT_INLINE const char* Error::what() const noexcept { return what_.c_str(); }

OPKIT_INLINE Error& Error::AddContext(std::string line) {
  constexpr size_t kMost = 24, kFirst = 12;
  if (context_.size() < kMost) {
    what_ += "\n  " + line;
    context_.push_back(std::move(line));
    return *this;
  }
  // The first time two lines are lost: the line that prints the number replaces a line of context.
  left_out_ += left_out_ == 0 ? 2 : 1;
  context_.erase(context_.begin() + kFirst + 1);
  context_.push_back(std::move(line));
  context_[kFirst] = StrCat("(", left_out_, " lines of context left out)");
  what_ = message_;
  for (const std::string& one : context_) what_ += "\n  " + one;
  return *this;
}

OPKIT_INLINE Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::kOperatorFailed, thrown.what()).SetCause(std::current_exception());
  } catch (...) {
    return Error(ErrorCode::kOperatorFailed, "threw something that is not a std::exception")
        .SetCause(std::current_exception());
  }
}

namespace detail {

OPKIT_INLINE void ThrowJoined(ErrorCode code, std::initializer_list<Text> parts) {
  throw Error(code, Join(parts));
}

OPKIT_INLINE void RethrowInContext(std::string line) {
  try {
    throw;
  } catch (Error& error) {
    if (error.is_shared() && typeid(error) == typeid(Error))
      throw Error(error).AddContext(std::move(line));
    if (!error.is_shared()) error.AddContext(std::move(line));
    throw;
  } catch (...) {
    throw CurrentError().AddContext(std::move(line));
  }
}

OPKIT_INLINE void AssertFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "opkit: internal error: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_BASE_IMPL_ERROR_IPP_
