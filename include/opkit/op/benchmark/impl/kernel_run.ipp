// Definitions of KernelRun.
#ifndef OPKIT_OP_BENCHMARK_IMPL_KERNEL_RUN_IPP_
#define OPKIT_OP_BENCHMARK_IMPL_KERNEL_RUN_IPP_

#include <algorithm>

#include "opkit/base/platform.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/op/benchmark/kernel_run.hpp"
#include "opkit/op/create_operator.hpp"
#include "opkit/op/schema.hpp"
#include "opkit/op/workspace.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

struct KernelRun::Copy {
  Workspace workspace;
  std::unique_ptr<OperatorBase> op;
};

OPKIT_INLINE KernelRun::KernelRun(KernelRun&&) noexcept = default;
OPKIT_INLINE KernelRun::~KernelRun() = default;

OPKIT_COLD OPKIT_INLINE KernelRun::KernelRun(const OperatorDef& node, const Kernel& kernel,
                                             const KernelConfig& config,
                                             std::span<const Tensor> inputs,
                                             const Options& options) {
  const detail::RegistryUse use;
  OperatorDef def = node;
  def.Device(kernel.device, def.device().index).Backends(kernel.backend, kRequired);
  const Device memory = MemoryDevice(def.device());
  const auto is_constant = [&](size_t i) {
    return i < options.constants.size() && options.constants[i];
  };
  const auto make = [&] {
    auto copy = std::make_unique<Copy>();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (def.inputs()[i].empty()) continue;
      Tensor& input = *copy->workspace.CreateTensor(def.inputs()[i]);
      // Data that stays in the caches lies in the first copy's memory.
      if (!copies_.empty() && options.cold == ColdData::kWeights && !is_constant(i)) {
        input = *copies_[0]->workspace.GetTensor(def.inputs()[i]);
        continue;
      }
      input = Tensor(memory);
      opkit::Copy(inputs[i], &input);
      if (const Layout layout = config.input_layout(i); !layout.is_standard())
        input = ConvertLayout(input, layout);
    }
    copy->op = CreateOperator(def, &copy->workspace,
                              {.kernel = &kernel, .config = &config, .converts = true});
    copy->op->Run();
    return copy;
  };
  copies_.push_back(make());
  std::vector<TensorInfo> input_infos, output_infos;
  int64_t cold_bytes = 0;
  const auto add = [&](std::vector<TensorInfo>& infos, const std::string& name, bool cold) {
    if (name.empty()) return static_cast<void>(infos.emplace_back());
    const Tensor& tensor = *copies_[0]->workspace.GetTensor(name);
    infos.push_back(TensorInfo::Of(tensor));
    if (cold) cold_bytes += LayoutBytes(tensor.layout(), tensor.shape(), tensor.dtype());
  };
  const bool all = options.cold == ColdData::kAll;
  for (size_t i = 0; i < inputs.size(); ++i)
    add(input_infos, def.inputs()[i],
        all || (options.cold == ColdData::kWeights && is_constant(i)));
  for (const std::string& output : def.outputs()) add(output_infos, output, all);
  cost_ = OpRegistry::Global().GetSchema(def.type()).Cost(def, input_infos, output_infos);
  if (cold_bytes == 0) return;
  // Twice the cache: a copy is gone from it when its turn comes again. Tiny nodes would need very
  // many copies, and all copies together very much memory.
  constexpr int64_t kMostCopies = 1000, kMostBytes = int64_t{1} << 30;
  const int64_t wanted = 2 * detail::LastCacheBytes() / cold_bytes + 2;
  const int64_t most = (std::min)(kMostCopies, (std::max)(int64_t{2}, kMostBytes / cold_bytes));
  for (int64_t i = 1; i < (std::min)(wanted, most); ++i) copies_.push_back(make());
}

OPKIT_INLINE void KernelRun::Run() {
  latest_ = next_;
  copies_[next_]->op->Run();
  next_ = next_ + 1 == copies_.size() ? 0 : next_ + 1;
}

OPKIT_COLD OPKIT_INLINE Tensor KernelRun::Output(size_t o) const {
  const Copy& copy = *copies_[latest_];
  Tensor out;
  opkit::Copy(ConvertLayout(*copy.workspace.GetTensor(copy.op->def().outputs()[o]), Layout()),
              &out);
  return out;
}

}}  // namespace opkit

#endif  // OPKIT_OP_BENCHMARK_IMPL_KERNEL_RUN_IPP_
