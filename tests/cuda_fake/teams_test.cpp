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

}  // namespace teams_test
