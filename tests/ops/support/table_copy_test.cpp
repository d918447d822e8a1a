// TableCopy against one loop over all elements, with filled places and rows of every kind.
#include "opkit/ops/support/table_copy.hpp"

#include <doctest/doctest.h>

#include "opkit/op/check/check_data.hpp"
#include "support/sanitizers.hpp"

namespace table_copy_test {
using namespace opkit;

namespace {

struct TestAxis {
  int64_t extent;
  bool kept;
  std::vector<int64_t> table;  // also where it is kept
};

std::vector<char> CopyOneByOne(const std::vector<TestAxis>& axes, int64_t item,
                               const std::vector<char>& from, const std::vector<char>& fill) {
  int64_t count = 1;
  for (const TestAxis& axis : axes) count *= static_cast<int64_t>(axis.table.size());
  std::vector<char> to;
  for (int64_t o = 0; o < count; ++o) {
    int64_t rest = o, step = 1, source = 0;
    bool filled = false;
    for (size_t i = axes.size(); i-- > 0;) {
      const auto size = static_cast<int64_t>(axes[i].table.size());
      const int64_t index = axes[i].table[static_cast<size_t>(rest % size)];
      rest /= size;
      filled |= index < 0;
      source += index * step;
      step *= axes[i].extent;
    }
    const char* element = filled ? fill.data() : from.data() + source * item;
    to.insert(to.end(), element, element + item);
  }
  return to;
}

TEST_CASE("elements of 1, 2, 4, 8 and 16 bytes have a type, and no others") {
  for (int64_t bytes = 0; bytes <= 32; ++bytes) {
    CAPTURE(bytes);
    int64_t size = 0;
    const bool found =
        detail::WithElementOfSize(bytes, [&](auto element) { size = sizeof element; });
    CHECK(found == (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16));
    CHECK(size == (found ? bytes : 0));
  }
}

TEST_CASE("any copy is the one of its elements") {
  const uint64_t seed = 21;
  CAPTURE(seed);
  detail::CheckRandom random(seed);
  TableCopy copy;
  ThreadPool threads(3);
  PoolScope scope(threads);
  for (int round = 0; round < Rounds(1500); ++round) {
    const int rank = static_cast<int>(random.Next() % 5);
    const int64_t items[] = {1, 2, 4, 8, 16};
    const int64_t item = items[random.Next() % 5];
    std::vector<TestAxis> axes;
    int64_t elements = 1;
    for (int i = 0; i < rank; ++i) {
      TestAxis& axis = axes.emplace_back();
      axis.extent = 1 + static_cast<int64_t>(random.Next() % (rank < 3 ? 40 : 6));
      axis.kept = random.Next() % 3 == 0;
      const auto size = axis.kept ? axis.extent : static_cast<int64_t>(random.Next() % 30);
      const uint64_t kind = random.Next() % 3;
      for (int64_t o = 0; o < size; ++o) {
        const int64_t index = axis.kept   ? o
                              : kind == 0 ? static_cast<int64_t>(random.Next() % 64) - 4
                              : kind == 1 ? o - 5
                                          : o / 2;
        axis.table.push_back(index < 0 || index >= axis.extent ? -1 : index);
      }
      elements *= axis.extent;
    }
    std::vector<char> from(static_cast<size_t>(elements * item));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
    std::vector<char> fill(static_cast<size_t>(item));
    for (size_t i = 0; i < fill.size(); ++i) fill[i] = static_cast<char>(200 + i);
    const std::vector<char> expected = CopyOneByOne(axes, item, from, fill);
    std::vector<char> found(expected.size(), 'x');
    copy.Start(item);
    for (const TestAxis& axis : axes)
      axis.kept ? copy.Keep(axis.extent) : void(copy.Axis(axis.extent) = axis.table);
    copy.Run(from.data(), found.data(), fill.data());
    CAPTURE(round);
    REQUIRE(found == expected);
  }
}

TEST_CASE("a long table is cut into pieces that meet") {
  ThreadPool threads(3);
  PoolScope scope(threads);
  std::vector<uint32_t> from(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i * i);
  std::vector<uint32_t> to(200003);
  TableCopy copy;
  copy.Start(4);
  std::vector<int64_t>& table = copy.Axis(1000);
  for (size_t i = 0; i < to.size(); ++i) table.push_back(static_cast<int64_t>(i * 17 % 1000));
  copy.Run(from.data(), to.data());
  bool same = true;
  for (size_t i = 0; i < to.size(); ++i) same &= to[i] == from[i * 17 % 1000];
  CHECK(same);
}

TEST_CASE("rows whose elements are repeated are copied, and copied again") {
  for (const int64_t times : {2, 3, 4, 5}) {
    std::vector<uint16_t> from(14), to(static_cast<size_t>(14 * times));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i * 1000);
    TableCopy copy;
    copy.Start(2);
    copy.Keep(2);
    std::vector<int64_t>& table = copy.Axis(7);
    for (int64_t o = 0; o < 7 * times; ++o) table.push_back(o / times);
    for (int run = 0; run < 2; ++run) {  // again, with what was prepared
      std::fill(to.begin(), to.end(), uint16_t{1});
      copy.Run(from.data(), to.data());
      for (size_t o = 0; o < to.size(); ++o) CHECK(to[o] == from[o / static_cast<size_t>(times)]);
    }
  }
}

TEST_CASE("nothing is read where the input has no elements") {
  const float fill = 3;
  float to[6] = {};
  TableCopy copy;
  copy.Start(4);
  copy.Axis(0) = {-1, -1};
  copy.Keep(3);
  copy.Run(nullptr, to, &fill);
  for (const float value : to) CHECK(value == 3);
}

}  // namespace
}  // namespace table_copy_test
