// Compares an operator of a backend with the reference operator.
#ifndef OPKIT_TESTS_SUPPORT_COMPARE_BACKENDS_HPP_
#define OPKIT_TESTS_SUPPORT_COMPARE_BACKENDS_HPP_

#include <doctest/doctest.h>

#include <cstring>

#include "opkit/engine/thread_pool.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/kernel_candidates.hpp"
#include "support/compare.hpp"

// Checks that floating-point elements differ by at most 1e-5 + 1e-4 * |expected|.
inline void CheckClose(const opkit::Tensor& found, const opkit::Tensor& expected) {
  CHECK(Difference(found, expected, {.rtol = 1e-4, .atol = 1e-5}) == "");
}

// Returns the configurations that the backend's kernel proposes for a node.
inline std::vector<opkit::KernelConfig> ProposeOf(const std::string& backend,
                                                  const opkit::KernelQuery& query) {
  for (const opkit::Kernel* kernel : opkit::OpRegistry::Global().KernelsOf(query.def.type()))
    if (kernel->backend == backend) return kernel->propose(query);
  FAIL("no kernel of " << backend << " for " << query.def.type());
  return {};
}

// True if selection prefers the backend's kernel for a node that names the backend.
inline bool IsTakenBy(const std::string& backend, const std::string& op,
                      const std::vector<opkit::Tensor>& inputs, const opkit::Arguments& args,
                      int num_outputs) {
  opkit::OperatorDef def(op, {}, {}, args);
  std::vector<opkit::TensorInfo> infos;
  for (const opkit::Tensor& input : inputs) {
    const bool given = input.dtype() != opkit::DType::kUndefined;
    def.Input(given ? "i" + std::to_string(infos.size()) : std::string());
    infos.push_back(opkit::TensorInfo::Of(input));
  }
  for (int o = 0; o < num_outputs; ++o) def.Output("o" + std::to_string(o));
  const auto outputs = opkit::OpRegistry::Global().GetSchema(op).InferOutputs(def, infos);
  const auto first = opkit::KernelCandidates(def.Backends(backend), infos, outputs)[0];
  return first.kernel && first.backend == backend && first.dropped.empty();
}

// Checks that every output is close to the reference operator's, on 1 and on 3 threads, and bitwise
// the same on both.
inline void CheckSameOn(const std::string& backend, const std::string& op,
                        const std::vector<opkit::Tensor>& inputs, const opkit::Arguments& args = {},
                        int num_outputs = 1) {
  std::string node = op + " of";
  for (const opkit::Tensor& input : inputs) node += " " + ToString(input.shape());
  for (const auto& arg : args) node += ", " + arg.name + " " + ToString(arg.value);
  INFO(node);
  const auto expected =
      opkit::Invoke(op, inputs, args, {.backends = "reference", .num_outputs = num_outputs});
  std::vector<opkit::Tensor> single;
  for (int threads : {1, 3}) {
    static opkit::ThreadPool pools[2] = {opkit::ThreadPool(1), opkit::ThreadPool(3)};
    const opkit::PoolScope scope(pools[threads / 2]);
    const auto found =
        opkit::Invoke(op, inputs, args, {.backends = backend, .num_outputs = num_outputs});
    for (size_t o = 0; o < found.size(); ++o) {
      CheckClose(found[o], expected[o]);
      if (threads > 1 && found[o].nbytes() > 0)
        CHECK(std::memcmp(found[o].raw_data(), single[o].raw_data(),
                          static_cast<size_t>(found[o].nbytes())) == 0);
    }
    single = found;
  }
}

#endif  // OPKIT_TESTS_SUPPORT_COMPARE_BACKENDS_HPP_
