// Runs an operator on the "eigen" backend and plainly, and compares.
#ifndef OPKIT_TESTS_BACKENDS_EIGEN_COMPARE_BACKENDS_HPP_
#define OPKIT_TESTS_BACKENDS_EIGEN_COMPARE_BACKENDS_HPP_

#include <doctest/doctest.h>

#include <cmath>

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/kernel_candidates.hpp"

// Floats that differ by 1e-5 + 1e-4 of the expected value at most; infinities are the same.
inline void CheckClose(const opkit::Tensor& found, const opkit::Tensor& expected) {
  REQUIRE(found.shape() == expected.shape());
  REQUIRE(found.dtype() == expected.dtype());
  const float *a = found.data<float>(), *b = expected.data<float>();
  int64_t wrong = 0, first = -1;
  for (int64_t i = 0; i < found.numel(); ++i) {
    const bool same =
        a[i] == b[i] ||
        (std::isfinite(b[i]) && std::abs(a[i] - b[i]) <= 1e-5f + 1e-4f * std::abs(b[i])) ||
        (std::isnan(a[i]) && std::isnan(b[i]));
    if (same || wrong++ > 0) continue;
    first = i;
  }
  if (wrong > 0)
    FAIL_CHECK(wrong << " of " << found.numel() << " elements of " << ToString(found)
                     << " differ, the first at " << first << ": " << a[first] << ", expected "
                     << b[first]);
}

// What the "eigen" kernel of an operator proposes for a node.
inline std::vector<opkit::KernelConfig> ProposeOfEigen(const opkit::KernelQuery& query) {
  for (const opkit::Kernel* kernel : opkit::OpRegistry::Global().KernelsOf(query.def.type()))
    if (kernel->backend == "eigen") return kernel->propose(query);
  FAIL("no kernel of eigen for " << query.def.type());
  return {};
}

// Whether selection takes the "eigen" kernel of a node first.
inline bool IsTakenByEigen(const std::string& op, const std::vector<opkit::Tensor>& inputs,
                           const opkit::Arguments& args, int num_outputs) {
  opkit::OperatorDef def(op, {}, {}, args);
  std::vector<opkit::TensorInfo> infos;
  for (const opkit::Tensor& input : inputs) {
    def.Input("i" + std::to_string(infos.size()));
    infos.push_back(opkit::TensorInfo::Of(input));
  }
  for (int o = 0; o < num_outputs; ++o) def.Output("o" + std::to_string(o));
  const auto outputs = opkit::OpRegistry::Global().GetSchema(op).InferOutputs(def, infos);
  const auto first = opkit::KernelCandidates(def.Engine("eigen"), infos, outputs)[0];
  return first.kernel->backend == "eigen" && first.dropped.empty();
}

// Every output as the plain operator makes it, on 1 and on 3 threads, to the bit the same on both.
inline void CheckSameOnEigen(const std::string& op, const std::vector<opkit::Tensor>& inputs,
                             const opkit::Arguments& args = {}, int num_outputs = 1) {
  std::string node = op + " of";
  for (const opkit::Tensor& input : inputs) node += " " + ToString(input.shape());
  for (const auto& arg : args) node += ", " + arg.name + " " + ToString(arg.value);
  INFO(node);
  const auto expected =
      opkit::Invoke(op, inputs, args, {.engine = "reference", .num_outputs = num_outputs});
  std::vector<opkit::Tensor> single;
  for (int threads : {1, 3}) {
    static opkit::ThreadPool pools[2] = {opkit::ThreadPool(1), opkit::ThreadPool(3)};
    const opkit::PoolScope scope(pools[threads / 2]);
    const auto found =
        opkit::Invoke(op, inputs, args, {.engine = "eigen", .num_outputs = num_outputs});
    for (size_t o = 0; o < found.size(); ++o) {
      CheckClose(found[o], expected[o]);
      if (threads > 1 && found[o].nbytes() > 0)
        CHECK(std::memcmp(found[o].raw_data(), single[o].raw_data(),
                          static_cast<size_t>(found[o].nbytes())) == 0);
    }
    single = found;
  }
}

#endif  // OPKIT_TESTS_BACKENDS_EIGEN_COMPARE_BACKENDS_HPP_
