// Checks that a call throws an Error whose message contains a text; prints the whole message
// otherwise.
#ifndef OPKIT_TESTS_SUPPORT_CHECK_FAILS_HPP_
#define OPKIT_TESTS_SUPPORT_CHECK_FAILS_HPP_

#include <doctest/doctest.h>

#include "support/error_of.hpp"

template <class F>
void CheckFails(F&& call, std::string_view text) {
  const std::string found = ErrorOf(call).what();
  CHECK_MESSAGE(Contains(found, text), found);
}

#endif  // OPKIT_TESTS_SUPPORT_CHECK_FAILS_HPP_
