#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/teams.hpp"
#include "opkit/device/copy.hpp"

namespace teams_test {
using namespace opkit;

namespace {

// y[row] = the sum of x[row, 0..columns).
struct RowSums {
  const float* x;
  float* y;
  int64_t columns;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    float sum = 0;
    team.Each(columns, [&](int64_t i) { sum += x[row * columns + i]; });
    sum = team.Sum(sum);
    if (team.is_first()) y[row] = sum;
  }
};

// A number and 10 to the power of its digits' number.
struct Digits {
  int32_t number, power;
};
// Reverses a row of at most four digits in place. Writes the number that the digits before the last
// one make, the largest digit, and whether there is a 9.
struct RowFacts {
  int32_t* x;
  int32_t* y;
  int64_t columns;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    int32_t* const in = x + row * columns;
    int8_t largest = 0;
    bool any = false;
    team.Each(columns, [&](int64_t i) {
      largest = in[i] > largest ? static_cast<int8_t>(in[i]) : largest;
      any = any || in[i] == 9;
    });
    largest = team.Combine(largest, [](int8_t a, int8_t b) { return a > b ? a : b; });
    any = team.Combine(any, [](bool a, bool b) { return a || b; });
    // Each thread has one element of a tile.
    const auto append = [](Digits a, Digits b) {
      return Digits{a.number * b.power + b.number, a.power * b.power};
    };
    Digits all{0, 1};
    for (int64_t tile = 0; tile < columns; tile += Team::size()) {
      const int64_t i = tile + team.thread();
      const Digits mine = i < columns ? Digits{in[i], 10} : Digits{0, 1};
      const Digits before = team.CombineBefore(mine, all, append);
      if (i == columns - 1) y[row * 3] = before.number;
      const bool is_last = team.thread() == Team::size() - 1;
      all = team.Combine(is_last ? append(before, mine) : Digits{0, 0},
                         [](Digits a, Digits b) { return a.power == 0 ? b : a; });
    }
    int32_t taken[4] = {};
    team.Each(columns, [&](int64_t i) { taken[i] = in[columns - 1 - i]; });
    team.Sync();
    team.Each(columns, [&](int64_t i) { in[i] = taken[i]; });
    if (!team.is_first()) return;
    y[row * 3 + 1] = largest;
    y[row * 3 + 2] = any;
  }
};

}  // namespace

TEST_CASE("loops of teams run in the stream's order, after the work before them") {
  CUDAContext context;
  Tensor x(Device{DeviceType::kCUDA, 0}), y({2}, DType::kFloat32, Device{DeviceType::kCUDA, 0});
  Copy(Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6}), &x);
  fake::Gate gate(context.cuda_stream());
  float* const in = x.mutable_data<float>();
  ParallelFor(context, 6, [in] OPKIT_DEVICE(int64_t i) { in[i] *= 10; });
  ParallelForTeams(context, 2, 3, RowSums{in, y.mutable_data<float>(), 3});
  ParallelForTeams(context, 0, 3, RowSums{nullptr, nullptr, 3});
  CHECK(*in == 1);  // the host returned before the loops ran
  gate.Open();
  context.FinishDeviceComputation();
  Tensor sums;
  Copy(y, &sums);
  CHECK(sums.ToVector<float>() == std::vector<float>{60, 150});
}

TEST_CASE("the threads of a team combine their values, and wait for each other") {
  CUDAContext context;
  constexpr int64_t kRows = 50;
  Tensor x({kRows, 4}, DType::kInt32, Device{DeviceType::kCUDA, 0});
  Tensor y({kRows, 3}, DType::kInt32, Device{DeviceType::kCUDA, 0});
  int32_t *const in = x.mutable_data<int32_t>(), *const facts = y.mutable_data<int32_t>();
  const auto fill = [&] {
    ParallelFor(context, kRows * 4, [in] OPKIT_DEVICE(int64_t i) {
      in[i] = static_cast<int32_t>((i % 4 + i / 4) % 10);
    });
  };
  const auto check = [&] {
    context.FinishDeviceComputation();
    for (int32_t row = 0; row < kRows; ++row) {
      CAPTURE(row);
      const auto at = [&](int32_t i) { return (i + row) % 10; };
      CHECK(facts[row * 3] == at(0) * 100 + at(1) * 10 + at(2));
      CHECK(facts[row * 3 + 1] == (std::max)((std::max)(at(0), at(1)), (std::max)(at(2), at(3))));
      CHECK(facts[row * 3 + 2] == (row % 10 >= 6));
      for (int32_t i = 0; i < 4; ++i) CHECK(in[row * 4 + i] == at(3 - i));
    }
  };
  fill();
  ParallelForTeams(context, kRows, 4, RowFacts{in, facts, 4});
  check();
  fill();
  ParallelForTeamsOf<1>(context, kRows, RowFacts{in, facts, 4});
  check();
}

}  // namespace teams_test
