#include "opkit/base/error.hpp"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

namespace error_test { namespace {

using opkit::Error;
using opkit::ErrorCode;

void Halve(int n) { OPKIT_ENFORCE(n % 2 == 0, "but n is ", n, "; pass an even number"); }

Error Caught(int n) {
  try {
    Halve(n);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kNotFound, "nothing was thrown");
}

TEST_CASE("Throw concatenates its parts into the message and keeps the code") {
  try {
    opkit::Throw(ErrorCode::kNotFound, "no blob '", std::string("X"), "' among ", 3);
    FAIL("Throw returned");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kNotFound);
    CHECK(error.message() == "no blob 'X' among 3");
    CHECK(std::string(error.what()) == "no blob 'X' among 3");
    CHECK(error.context().empty());
    CHECK(error.subject() == nullptr);
  }
}

TEST_CASE("a failed OPKIT_ENFORCE names the condition, the values and the remedy") {
  CHECK_NOTHROW(Halve(4));
  const Error error = Caught(3);
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() == "expected n % 2 == 0: but n is 3; pass an even number");
}

TEST_CASE("context lines are appended to what(), one indented line each, and not to message()") {
  Error error(ErrorCode::kOperatorFailed, "boom");
  error.AddContext("in op Scale").AddContext("in net N");
  CHECK(std::string(error.what()) == "boom\n  in op Scale\n  in net N");
  CHECK(error.message() == "boom");
  REQUIRE(error.context().size() == 2);
  CHECK(error.context()[1] == "in net N");
}

TEST_CASE("a long context keeps its first and last lines, and counts the rest") {
  Error error(ErrorCode::kOperatorFailed, "boom");
  for (int i = 0; i < 24; ++i) error.AddContext("line " + std::to_string(i));
  CHECK(error.lines_left_out() == 0);
  CHECK(error.context()[12] == "line 12");
  for (int i = 24; i < 100; ++i) error.AddContext("line " + std::to_string(i));
  REQUIRE(error.context().size() == 24);
  CHECK(error.context()[11] == "line 11");
  CHECK(error.context()[12] == "(77 lines of context left out)");
  CHECK(error.context()[13] == "line 89");
  CHECK(error.context()[23] == "line 99");
  CHECK(error.lines_left_out() == 77);
  std::string what = "boom";
  for (const std::string& line : error.context()) what += "\n  " + line;
  CHECK(error.what() == what);
  CHECK(error.message() == "boom");
}

TEST_CASE("context added to a copy leaves the original alone") {
  const Error original(ErrorCode::kCancelled, "cancelled");
  Error copy = original;
  copy.AddContext("later");
  CHECK(std::string(original.what()) == "cancelled");
  CHECK(std::string(copy.what()) == "cancelled\n  later");
}

TEST_CASE("an Error is caught as std::runtime_error and as std::exception") {
  CHECK_THROWS_AS(Halve(1), std::runtime_error);
  CHECK_THROWS_AS(Halve(1), std::exception);
}

TEST_CASE("every code has its own text") {
  CHECK(std::string(ToString(ErrorCode::kInvalidArgument)) == "invalid argument");
  CHECK(std::string(ToString(ErrorCode::kOutOfRange)) == "out of range");
  CHECK(std::string(ToString(ErrorCode::kOutOfMemory)) == "out of memory");
  CHECK(std::string(ToString(ErrorCode::kCancelled)) == "cancelled");
  CHECK(std::string(ToString(ErrorCode::kOperatorFailed)) == "operator failed");
}

TEST_CASE("an error made of a foreign exception keeps that exception") {
  Error error(ErrorCode::kOperatorFailed, "wrapped");
  CHECK(error.cause() == nullptr);
  error.SetCause(std::make_exception_ptr(std::out_of_range("original")));
  const Error copy = error;
  CHECK_THROWS_WITH_AS(std::rethrow_exception(copy.cause()), "original", std::out_of_range);
}

TEST_CASE("an error names its subject by address, and keeps it when copied") {
  const int tensor = 0;
  const Error error(ErrorCode::kUninitialized, "read too early", &tensor);
  CHECK(error.subject() == &tensor);
  CHECK(Error(error).subject() == &tensor);
}

}  // namespace
}  // namespace error_test
