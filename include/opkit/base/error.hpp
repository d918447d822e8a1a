// opkit::Error, the one exception of the toolkit: a code to branch on, a message with what was
// expected, what was found and how to fix it, and context lines that callers add. Wrong input of a
// user throws an Error; a broken invariant of the toolkit fails an OPKIT_ASSERT.
#ifndef OPKIT_BASE_ERROR_HPP_
#define OPKIT_BASE_ERROR_HPP_

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <utility>

#include "opkit/base/strings.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The kind of a failure, for programs that react to it; the C boundary has the same kinds.
enum class ErrorCode {
  kInvalidArgument,     // a value, shape or count that the callee does not accept
  kTypeMismatch,        // a type or dtype other than the requested one
  kNotFound,            // no such operator, blob, backend, argument
  kAlreadyExists,       // registered or created twice
  kOutOfRange,          // an index or a number outside what can be represented
  kUninitialized,       // a tensor or blob read before anything was written
  kOutOfMemory,         // an allocator has no memory of this size
  kUnsupported,         // understood, but not possible on this device, dtype or build
  kFailedPrecondition,  // called in a state that does not allow it
  kCancelled,           // ended by Cancel, or skipped after it
  kDeadlineExceeded,    // the time given to a wait or a run is over
  kOperatorFailed,      // RunOnDevice returned false, or threw something that is not an Error
  kIo,                  // a file that cannot be opened, read or written
};

const char* ToString(ErrorCode code);

// `what()` is the message followed by one indented line for each context. Copies are independent.
// AddContext is not thread-safe: add lines to a copy of an Error that an event holds, because all
// threads that wait for the event share it.
class OPKIT_VISIBLE Error : public std::runtime_error {
 public:
  // Use Throw() below to make an Error and throw it.
  Error(ErrorCode code, std::string message, const void* subject = nullptr);

  // Return the whole text, and its parts: the code, the message alone, and the lines of context.
  OPKIT_INLINE const char* what() const noexcept override;
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::vector<std::string>& context() const noexcept { return context_; }
  // Returns the number of lines left out of a long context. The context keeps the first lines,
  // which are nearest to the failure, and the last lines; a line between them prints this number.
  int lines_left_out() const noexcept { return left_out_; }
  // Returns the original exception if this error was made from an exception of another type; else
  // null.
  const std::exception_ptr& cause() const noexcept { return cause_; }
  Error& SetCause(std::exception_ptr cause) { return cause_ = std::move(cause), *this; }
  // Returns the address of the object that the error is about (a Tensor), for a caller who knows
  // its name.
  const void* subject() const noexcept { return subject_; }

  // Adds a line of context: a place where the failure passed. The innermost place comes first.
  Error& AddContext(std::string line);
  // True once threads share this object; it is then immutable. Copies start unshared.
  bool is_shared() const noexcept { return shared_.Get(); }
  void SetShared() const noexcept { shared_.Set(); }

 private:
  // A flag that copies do not inherit.
  struct SharedFlag {
    SharedFlag() = default;
    SharedFlag(const SharedFlag&) {}
    SharedFlag& operator=(const SharedFlag&) { return *this; }
    // Relaxed: the thread that shares the object sets the flag before other threads can see it.
    bool Get() const { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
    void Set() const { __atomic_store_n(&value, true, __ATOMIC_RELAXED); }
    mutable bool value = false;
  };

  ErrorCode code_;
  const void* subject_;
  std::string message_;
  std::string what_;
  std::vector<std::string> context_;
  int left_out_ = 0;
  std::exception_ptr cause_;
  SharedFlag shared_;
};

namespace detail {
[[noreturn]] OPKIT_COLD void ThrowJoined(ErrorCode code, std::initializer_list<Text> parts);
}

// Throws an Error whose message is StrCat of the parts.
template <class Part, class... Parts>
[[noreturn]] OPKIT_COLD void Throw(ErrorCode code, const Part& part, const Parts&... parts) {
  detail::ThrowJoined(code, {part, parts...});
}

// Returns the current exception as an Error; call it in a catch block. An exception of another type
// becomes the Error's cause(), and its what() the message.
OPKIT_COLD Error CurrentError();

namespace detail {

// Throws the current exception again with one more line of context; call it in a catch block. An
// exception of another type becomes an Error. Adds the line to a copy if the Error is shared. A
// shared Error of a derived class is thrown without the line, because a copy would lose the derived
// class's part.
[[noreturn]] OPKIT_COLD void RethrowInContext(std::string line);

// Returns call(), and adds the line context() to an exception that it throws.
template <class F, class Context>
decltype(auto) InContext(F&& call, Context&& context) {
  try {
    return call();
  } catch (...) {
    RethrowInContext(context());
  }
}

[[noreturn]] OPKIT_COLD void AssertFailed(const char* condition, const char* file, int line);
}  // namespace detail

}}  // namespace opkit

// Throws an Error (kInvalidArgument) with the condition's text and the parts if the condition is
// false. For operator authors.
#define OPKIT_ENFORCE(condition, ...)                                        \
  do {                                                                       \
    if (!(condition)) [[unlikely]]                                           \
      ::opkit::Throw(::opkit::ErrorCode::kInvalidArgument,                   \
                     "expected " #condition __VA_OPT__(": ", ) __VA_ARGS__); \
  } while (0)

// Aborts if the condition, an invariant of the toolkit itself, is false. Compiled out with NDEBUG.
#ifdef NDEBUG
#define OPKIT_ASSERT(condition) static_cast<void>(0)
#else
#define OPKIT_ASSERT(condition)       \
  ((condition) ? static_cast<void>(0) \
               : ::opkit::detail::AssertFailed(#condition, __FILE__, __LINE__))
#endif

#ifdef OPKIT_DEFINITIONS
#include "opkit/base/impl/error.ipp"
#endif

#endif  // OPKIT_BASE_ERROR_HPP_
