// Short names for the lists that tests compare, and how doctest prints them when a check fails.
#ifndef OPKIT_TESTS_SUPPORT_LISTS_HPP_
#define OPKIT_TESTS_SUPPORT_LISTS_HPP_

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;
using Strings = std::vector<std::string>;

namespace doctest {

template <class T>
struct StringMaker<std::vector<T>> {
  static String convert(const std::vector<T>& list) {
    constexpr size_t kShown = 32;
    String text = "{";
    for (size_t i = 0; i < list.size() && i < kShown; ++i)
      text += (i > 0 ? String(", ") : String()) + toString(static_cast<const T&>(list[i]));
    if (list.size() > kShown) text += String(", ... of ") + toString(list.size());
    return text + String("}");
  }
};

}  // namespace doctest

#endif  // OPKIT_TESTS_SUPPORT_LISTS_HPP_
