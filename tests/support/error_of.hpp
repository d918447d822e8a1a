// Returns the Error that a call throws, for tests of its code and text.
#ifndef OPKIT_TESTS_SUPPORT_ERROR_OF_HPP_
#define OPKIT_TESTS_SUPPORT_ERROR_OF_HPP_

#include <string>

#include "opkit/base/error.hpp"
#include "text.hpp"

template <class F>
opkit::Error ErrorOf(F&& call) {
  try {
    call();
  } catch (const opkit::Error& error) {
    return error;
  }
  return opkit::Error(opkit::ErrorCode::kAlreadyExists, "no Error was thrown");
}

#endif  // OPKIT_TESTS_SUPPORT_ERROR_OF_HPP_
