#include <algorithm>

#include "device.cuh"
#include "opkit/backends/cuda/teams.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/typed_operator.hpp"

namespace cuda_teams_test {
using namespace opkit;

// y[row] = the sum of row `row` of x.
struct RowSum {
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

template <class Context>
void RowSums(Context& ctx, In<"x", float> x, Out<"y", float> y) {
  ParallelForTeams(ctx, x.dim(0), x.dim(1), RowSum{x.data(), y.data(), x.dim(1)});
}
OPKIT_OP(RowSums)
    .OutShape<"y">([](const InferenceContext& c) -> SymbolicShape { return {c.input_shape(0)[0]}; })
    .Kernel<CUDAContext>();

namespace {

// y[row] = the sum of x[row, 0..columns); least[row] = its smallest element with its column.
struct Least {
  float value;
  int32_t column;
};
struct RowFacts {
  const float* x;
  float* sums;
  Least* least;
  int64_t columns;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    float sum = 0;
    Least mine{1e30f, -1};
    team.Each(columns, [&](int64_t i) {
      const float value = x[row * columns + i];
      sum += value;
      if (value < mine.value) mine = {value, static_cast<int32_t>(i)};
    });
    sum = team.Sum(sum);
    mine = team.Combine(mine, [](Least a, Least b) { return a.value < b.value ? a : b; });
    if (team.is_first()) {
      sums[row] = sum;
      least[row] = mine;
    }
  }
};

// Each thread writes its elements of a row, and then reads those of others.
struct Reversed {
  int32_t* shared;
  int32_t* y;
  int64_t columns;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    team.Each(columns,
              [&](int64_t i) { shared[row * columns + i] = static_cast<int32_t>(row * 1000 + i); });
    team.Sync();
    team.Each(columns,
              [&](int64_t i) { y[row * columns + i] = shared[row * columns + columns - 1 - i]; });
  }
};

Tensor OnDevice(const Shape& shape, DType dtype) {
  Tensor out(shape, dtype, kCuda0);
  out.raw_mutable_data();
  return out;
}

}  // namespace

// Rows of few elements get a warp, rows of more a block; more rows than teams that run at once.
TEST_CASE("warps and blocks combine the values of their threads") {
  NEEDS_CUDA_DEVICE();
  for (const auto& size : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 31}, {5, 32}, {7, 1000}, {40000, 33}, {2, 1025}, {3, 5000}, {6000, 1100}}) {
    const int64_t rows = size.first, columns = size.second;
    CAPTURE(rows);
    CAPTURE(columns);
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 7919 + i / 13) % 251);
    const Tensor x = ToCuda(values);
    Tensor sums = OnDevice(Shape({rows}), DType::kFloat32);
    Tensor least = OnDevice(Shape({rows, 2}), DType::kFloat32);
    CUDAContext context;
    ParallelForTeams(context, rows, columns,
                     RowFacts{x.data<float>(), sums.mutable_data<float>(),
                              static_cast<Least*>(least.raw_mutable_data()), columns});
    context.FinishDeviceComputation();
    const std::vector<float> found = ToHost(sums);
    Tensor pairs;
    Copy(least, &pairs);
    int wrong = 0;
    for (int64_t row = 0; row < rows; ++row) {
      float sum = 0, smallest = 1e30f;
      for (int64_t i = 0; i < columns; ++i) {
        sum += values[static_cast<size_t>(row * columns + i)];
        smallest = std::min(smallest, values[static_cast<size_t>(row * columns + i)]);
      }
      const Least& pair = static_cast<const Least*>(pairs.raw_data())[row];
      wrong += found[static_cast<size_t>(row)] != sum || pair.value != smallest ||
               values[static_cast<size_t>(row * columns + pair.column)] != smallest;
    }
    CHECK(wrong == 0);  // sums of whole numbers below 2^24, so any order gives the same
  }
}

TEST_CASE("after Sync a thread sees what the others of its team have written") {
  NEEDS_CUDA_DEVICE();
  for (const int64_t columns : {32, 900, 3000}) {
    CAPTURE(columns);
    constexpr int64_t kRows = 300;
    Tensor shared = OnDevice(Shape({kRows, columns}), DType::kInt32);
    Tensor y = OnDevice(Shape({kRows, columns}), DType::kInt32);
    CUDAContext context;
    ParallelForTeams(context, kRows, columns,
                     Reversed{shared.mutable_data<int32_t>(), y.mutable_data<int32_t>(), columns});
    context.FinishDeviceComputation();
    Tensor host;
    Copy(y, &host);
    int wrong = 0;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t i = 0; i < columns; ++i)
        wrong += host.data<int32_t>()[row * columns + i] != row * 1000 + columns - 1 - i;
    CHECK(wrong == 0);
  }
}

TEST_CASE("a typed function runs a loop of teams") {
  NEEDS_CUDA_DEVICE();
  Tensor x(kCuda0);
  Copy(Tensor::From<float>({2, 3}, {1, 2, 3, 4, 5, 6}), &x);
  CHECK(ToHost(Invoke("RowSums", {x})[0]) == std::vector<float>{6, 15});
}

TEST_CASE("no rows launch nothing") {
  NEEDS_CUDA_DEVICE();
  CUDAContext context;
  ParallelForTeams(context, 0, 3, RowFacts{nullptr, nullptr, nullptr, 3});
  CHECK_NOTHROW(context.FinishDeviceComputation());
}

}  // namespace cuda_teams_test
