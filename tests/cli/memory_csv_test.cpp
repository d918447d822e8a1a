#include "memory_csv.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/error_of.hpp"

namespace memory_csv_test { namespace {

using cli::MemoryTable;
using cli::ParseMemoryCsv;
using cli::ToCsv;

TEST_CASE("a table is read with its ids, spans and sizes") {
  const MemoryTable table = ParseMemoryCsv("id,lower,upper,size\na,0,5,1024\nb 2,-3,9,0\n");
  CHECK(table.ids == std::vector<std::string>{"a", "b 2"});
  REQUIRE(table.buffers.size() == 2);
  CHECK(table.buffers[0].upper == 5);
  CHECK(table.buffers[0].size == 1024);
  CHECK(table.buffers[0].alignment == 1);
  CHECK(table.buffers[1].lower == -3);
  CHECK(table.buffers[1].size == 0);
  CHECK(table.offsets.empty());
}

TEST_CASE("columns in another order, offsets, CRLF, empty lines and no last line end are read") {
  const MemoryTable table =
      ParseMemoryCsv("size,offset,id,upper,lower\r\n8,64,x,2,1\r\n\r\n9223372036854775807,0,y,4,3");
  CHECK(table.ids == std::vector<std::string>{"x", "y"});
  CHECK(table.offsets == std::vector<int64_t>{64, 0});
  CHECK(table.buffers[0].lower == 1);
  CHECK(table.buffers[1].size == INT64_MAX);
}

TEST_CASE("a written table reads back the same") {
  const std::vector<opkit::MemoryInterval> buffers = {{0, 2, 8}, {-1, 3, 16}};
  CHECK(ToCsv(buffers) == "id,lower,upper,size\n0,0,2,8\n1,-1,3,16\n");
  const std::string text = ToCsv(buffers, {16, 0}, {"x", "y"});
  CHECK(text == "id,lower,upper,size,offset\nx,0,2,8,16\ny,-1,3,16,0\n");
  const MemoryTable table = ParseMemoryCsv(text);
  CHECK(ToCsv(table.buffers, table.offsets, table.ids) == text);
}

TEST_CASE("text that is no such table is refused with its line") {
  const auto message = [](std::string_view text) {
    return ErrorOf([&] { (void)ParseMemoryCsv(text); }).message();
  };
  CHECK(message("") ==
        "line 1: expected the columns id,lower,upper,size and perhaps offset, found ''");
  CHECK(message("id,lower,upper\n") ==
        "line 1: expected the columns id,lower,upper,size and perhaps offset, found "
        "'id,lower,upper'");
  CHECK(Contains(message("id,lower,upper,bytes\n"), "line 1: expected the columns"));
  CHECK(Contains(message("id,lower,upper,size,more\n"), "line 1: expected the columns"));
  CHECK(Contains(message("id,lower,upper,size,offset,more\n"), "line 1: expected the columns"));
  CHECK(Contains(message("id,lower,lower,size\n"), "line 1: expected the columns"));
  const std::string head = "id,lower,upper,size\n0,1,2,3\n";
  CHECK(message(head + "1,2,3\n") == "line 3: expected 4 cells as in the header, found 3");
  CHECK(message(head + "\n1,2,3,4,5\n") == "line 4: expected 4 cells as in the header, found 5");
  CHECK(message(head + "1,2,3,4k\n") == "line 3: expected a 64-bit integer as size, found '4k'");
  CHECK(message(head + "1,,3,4\n") == "line 3: expected a 64-bit integer as lower, found ''");
  CHECK(message(head + "1,2,9223372036854775808,4\n") ==
        "line 3: expected a 64-bit integer as upper, found '9223372036854775808'");
  CHECK(message(head + "1,3,3,4\n") == "line 3: lower is 3 and upper 3: expected lower < upper");
  CHECK(message(head + "1,2,3,-4\n") == "line 3: size is -4: expected 0 or more");
  CHECK(message(head + "1,2,3,4\n2,2,3,4\n1,4,5,6\n") ==
        "line 5: id '1' stands in an earlier line as well");
  CHECK(message("id,lower,upper,size,offset\n1,2,3,4,-64\n") ==
        "line 2: offset is -64: expected 0 or more");
}

TEST_CASE("an id that could not be written again is not read") {
  CHECK(ErrorOf([] { ParseMemoryCsv("id,lower,upper,size\n1\r\"\",2,3,4\n"); }).message() ==
        "line 2: id '1\r\"\"' has a carriage return inside");
}

TEST_CASE("an id that a cell cannot hold is refused") {
  const auto message = [](const std::vector<int64_t>& offsets,
                          const std::vector<std::string>& ids) {
    return ErrorOf([&] { (void)ToCsv({{0, 1, 8}}, offsets, ids); }).message();
  };
  CHECK(message({}, {"a,b"}) ==
        "id 'a,b' of buffer 0 has a comma or a line end, which a cell cannot hold");
  CHECK(message({1, 2}, {}) ==
        "expected an offset and an id for each of 1 buffers, or none; found 2 offsets and 0 ids");
}

}  // namespace
}  // namespace memory_csv_test
