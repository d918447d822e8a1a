#include "opkit/cluster/record_bytes.hpp"

#include <doctest/doctest.h>

namespace record_bytes_test { namespace {

using opkit::detail::RecordBytes;

struct Record {
  int64_t number = 0;
  std::string text;
  std::vector<int> numbers;

  void Pass(RecordBytes& bytes) {
    bytes.Number(number);
    bytes.Text(text);
    bytes.Numbers(numbers);
  }
};

TEST_CASE("records are read as they were written, one after the other") {
  Record first{-5, std::string("a\0b", 3), {1, 2, 3}}, second{7, "", {}};
  RecordBytes written;
  CHECK_FALSE(written.is_reading());
  first.Pass(written);
  second.Pass(written);
  RecordBytes bytes(written.bytes());
  CHECK(bytes.is_reading());
  Record read{1, "old", {9}};
  read.Pass(bytes);
  CHECK(read.number == -5);
  CHECK(read.text == std::string("a\0b", 3));
  CHECK(read.numbers == std::vector<int>{1, 2, 3});
  read.Pass(bytes);
  CHECK(read.number == 7);
  CHECK(read.text.empty());
  CHECK(read.numbers.empty());
}

}  // namespace
}  // namespace record_bytes_test
