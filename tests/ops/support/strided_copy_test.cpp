// StridedCopy: every order of axes, strides and element sizes against one loop over all elements.
#include "opkit/ops/support/strided_copy.hpp"

#include <doctest/doctest.h>

#include "opkit/op/check/check_data.hpp"

namespace strided_copy_test {
using namespace opkit;

namespace {

struct Axes {
  std::vector<int64_t> extent, from, to;
};

// As StridedCopy is defined.
void CopyOneByOne(const Axes& axes, int64_t item, const char* from, char* to) {
  std::vector<int64_t> index(axes.extent.size(), 0);
  for (const int64_t extent : axes.extent)
    if (extent == 0) return;
  for (;;) {
    int64_t source = 0, target = 0;
    for (size_t i = 0; i < index.size(); ++i) {
      source += index[i] * axes.from[i];
      target += index[i] * axes.to[i];
    }
    std::memcpy(to + target * item, from + source * item, static_cast<size_t>(item));
    size_t i = index.size();
    while (i > 0 && ++index[i - 1] == axes.extent[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

// Elements from the first to the last that strides reach, and where index 0 of all axes is.
std::pair<int64_t, int64_t> Reach(const std::vector<int64_t>& extents,
                                  const std::vector<int64_t>& strides) {
  int64_t first = 0, last = 0;
  for (size_t i = 0; i < extents.size(); ++i)
    (strides[i] < 0 ? first : last) += (std::max)(extents[i] - 1, int64_t{0}) * strides[i];
  return {last - first + 1, -first};
}

void CheckCopy(StridedCopy& copy, const Axes& axes, int64_t item) {
  const auto [source_size, source_zero] = Reach(axes.extent, axes.from);
  const auto [target_size, target_zero] = Reach(axes.extent, axes.to);
  std::vector<char> source(static_cast<size_t>(source_size * item));
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 7 + i / 251);
  std::vector<char> expected(static_cast<size_t>(target_size * item), 'x');
  std::vector<char> found = expected;
  CopyOneByOne(axes, item, source.data() + source_zero * item,
               expected.data() + target_zero * item);
  copy.Start(item);
  for (size_t i = 0; i < axes.extent.size(); ++i)
    copy.Axis(axes.extent[i], axes.from[i], axes.to[i]);
  copy.Run(source.data() + source_zero * item, found.data() + target_zero * item);
  CAPTURE(item);
  CAPTURE(ToString(Dims(axes.extent)));
  CAPTURE(ToString(Dims(axes.from)));
  CAPTURE(ToString(Dims(axes.to)));
  CHECK(found == expected);
}

TEST_CASE("any copy is the one of its elements") {
  const uint64_t seed = 20;
  CAPTURE(seed);
  detail::CheckRandom random(seed);
  StridedCopy copy;
  ThreadPool threads(3);
  for (int round = 0; round < 1500; ++round) {
    const int rank = static_cast<int>(random.Next() % 6);
    const int64_t items[] = {1, 2, 4, 8, 16};
    const int64_t item = items[random.Next() % 5];
    Axes axes;
    for (int i = 0; i < rank; ++i) {
      const int64_t small = static_cast<int64_t>(random.Next() % 5);
      const bool large = random.Next() % 6 == 0 && rank < 4;
      axes.extent.push_back(large ? 20 + small * 13 : round % 10 == 0 ? small : 1 + small);
    }
    // Both sides lie densely, each in an order of its own.
    for (std::vector<int64_t>* strides : {&axes.from, &axes.to}) {
      std::vector<size_t> order(static_cast<size_t>(rank));
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      if (random.Next() % 3)
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Next() % i]);
      strides->assign(static_cast<size_t>(rank), 0);
      int64_t step = 1;
      for (size_t i = order.size(); i-- > 0;) {
        (*strides)[order[i]] = step;
        step *= (std::max)(axes.extent[order[i]], int64_t{1});
        if (random.Next() % 5 == 0) step += 3;  // a gap
      }
    }
    for (int64_t& stride : axes.from) {
      if (random.Next() % 6 == 0) stride = 0;
      if (random.Next() % 6 == 0) stride = -stride;
    }
    for (int64_t& stride : axes.to)
      if (random.Next() % 12 == 0) stride = -stride;
    if (round % 2) {
      PoolScope scope(threads);
      CheckCopy(copy, axes, item);
    } else {
      CheckCopy(copy, axes, item);
    }
  }
}

TEST_CASE("large copies are cut into pieces that meet") {
  StridedCopy copy;
  ThreadPool threads(3);
  PoolScope scope(threads);
  CheckCopy(copy, {{1000003}, {1}, {1}}, 1);                    // one block
  CheckCopy(copy, {{3, 100001}, {100001, 1}, {100003, 1}}, 2);  // blocks, with a gap
  CheckCopy(copy, {{70001}, {2}, {1}}, 4);                      // one row
  CheckCopy(copy, {{70001}, {0}, {1}}, 8);                      // filled
  CheckCopy(copy, {{70001}, {3}, {2}}, 16);                     //
  CheckCopy(copy, {{301, 403}, {1, 301}, {403, 1}}, 4);         // transposed
  CheckCopy(copy, {{3, 50021}, {1, 3}, {50021, 1}}, 1);         // few and long ones
  CheckCopy(copy, {{50021, 3}, {1, 50021}, {3, 1}}, 4);         //
  CheckCopy(copy, {{5, 60, 70, 6}, {25200, 6, 360, 1}, {25200, 420, 6, 1}}, 4);
}

TEST_CASE("bytes are copied in any amount") {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{300001}}) {
    std::vector<char> from(static_cast<size_t>(bytes)), to(from.size(), 'x');
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 31);
    CopyBytes(to.data(), from.data(), bytes);
    CHECK(to == from);
  }
  CopyBytes(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace strided_copy_test
