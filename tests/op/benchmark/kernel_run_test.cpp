#include "opkit/op/benchmark/kernel_run.hpp"

#include <doctest/doctest.h>

#include <set>

#include "opkit/op/kernel_candidates.hpp"
#include "opkit/op/operator.hpp"
#include "opkit/op/registration.hpp"
#include "support/layouts.hpp"

namespace kernel_run_test {
namespace {

using namespace opkit;

// y = x + w, and where x, w and y lay in each run.
struct Places {
  std::set<const void*> x, w, y;
} g_places;
class RecordPlacesOp final : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    const Tensor &x = Input(0), &w = Input(1);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      y->mutable_data<float>()[i] = x.data<float>()[i] + w.data<float>()[i];
    g_places.x.insert(x.raw_data());
    g_places.w.insert(w.raw_data());
    g_places.y.insert(y->raw_data());
    return true;
  }
};
REGISTER_CPU_OPERATOR(RecordPlaces, RecordPlacesOp);
OPERATOR_SCHEMA(RecordPlaces)
    .NumInputs(2)
    .NumOutputs(1)
    .IdenticalTypeAndShapeOfInput(0)
    .PointwiseCost(1);

// Runs the node once for each copy, and returns how many copies there are.
size_t RunAll(ColdData cold, const std::vector<bool>& constants) {
  const OperatorDef def("RecordPlaces", {"x", "w"}, {"y"});
  const Tensor x = Tensor::From<float>({3}, {1, 2, 3}), w = Tensor::From<float>({3}, {4, 5, 6});
  const std::vector<TensorInfo> infos = {TensorInfo::Of(x), TensorInfo::Of(w)};
  const auto candidates = KernelCandidates(def, infos, {infos.data(), 1});
  KernelRun run(def, *candidates[0].kernel, candidates[0].config, std::vector<Tensor>{x, w},
                {.cold = cold, .constants = constants});
  g_places = {};
  for (size_t i = 0; i < run.copies(); ++i) {
    run.Run();
    if (i % 100 == 0) CHECK(run.Output(0).ToVector<float>() == std::vector<float>{5, 7, 9});
  }
  CHECK(run.cost().flops == 3);
  return run.copies();
}

}  // namespace

TEST_CASE("a run reads the same memory again unless data is to be cold") {
  CHECK(RunAll(ColdData::kNone, {}) == 1);
  CHECK(RunAll(ColdData::kWeights, {}) == 1);  // no input is a weight
  size_t copies = RunAll(ColdData::kWeights, {false, true});
  CHECK(copies > 1);
  CHECK(g_places.w.size() == copies);
  CHECK(g_places.x.size() == 1);
  copies = RunAll(ColdData::kAll, {false, true});
  CHECK(copies > 1);
  CHECK(g_places.w.size() == copies);
  CHECK(g_places.x.size() == copies);
  CHECK(g_places.y.size() == copies);
}

TEST_CASE("inputs come in the layouts of the configuration, and outputs leave them") {
  const OperatorDef def("InLayouts", {"a", "b"}, {"y"}, {{"a", "A"}, {"b", "B"}, {"y", "B"}});
  const Tensor a = Tensor::From<float>({3}, {1, 2, 3}), b = Tensor::From<float>({3}, {10, 20, 30});
  const std::vector<TensorInfo> infos = {TensorInfo::Of(a), TensorInfo::Of(b)};
  int runs = 0;
  for (const KernelCandidate& one : KernelCandidates(def, infos, {infos.data(), 1})) {
    KernelRun run(def, *one.kernel, one.config, std::vector<Tensor>{a, b}, {});
    run.Run();
    CHECK(run.Output(0).ToVector<float>() == std::vector<float>{12, 24, 36});
    runs += !one.config.is_standard();
  }
  CHECK(runs == 1);
}

}  // namespace kernel_run_test
