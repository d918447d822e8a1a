// ScopedValue: gives a variable, mostly a thread_local one, another value for the length of a
// scope.
#ifndef OPKIT_BASE_SCOPED_VALUE_HPP_
#define OPKIT_BASE_SCOPED_VALUE_HPP_

#include <type_traits>
#include <utility>

#include "opkit/config.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

//   const ScopedValue runner(t_loop_runner, &mine);
template <class T>
class [[nodiscard]] ScopedValue {
 public:
  // The variable must outlive the scope. The end of the scope restores the previous value.
  ScopedValue(T& variable, std::type_identity_t<T> value)
      : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ScopedValue(ScopedValue&&) = delete;
  ~ScopedValue() { variable_ = std::move(outer_); }

 private:
  T& variable_;
  T outer_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BASE_SCOPED_VALUE_HPP_
