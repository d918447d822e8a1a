// The lists that tests compare with.
#ifndef OPKIT_TESTS_SUPPORT_LISTS_HPP_
#define OPKIT_TESTS_SUPPORT_LISTS_HPP_

#include <cstdint>
#include <string>
#include <vector>

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;
using Strings = std::vector<std::string>;

#endif  // OPKIT_TESTS_SUPPORT_LISTS_HPP_
