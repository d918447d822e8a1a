// float16 and bfloat16 for every kernel of the "eigen" backend: an operator that converts its
// inputs to float32, runs the kernel and converts the outputs. For calls without a plan and for
// nodes that the pass ComputeHalfInFloat32 keeps; for the others, the pass does without most
// conversions.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_HALF_OPERATOR_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_HALF_OPERATOR_HPP_

#include "opkit/backends/eigen/support/half_lanes.hpp"
#include "opkit/graph/passes/half_precision.hpp"
#include "opkit/op/invoke.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline bool HasHalf(std::span<const TensorInfo> infos) {
  for (const TensorInfo& info : infos)
    if (IsHalf(info.dtype)) return true;
  return false;
}
// Returns the types with float32 in place of half types, without the data of these.
inline std::vector<TensorInfo> WithFloat32(std::span<const TensorInfo> infos) {
  std::vector<TensorInfo> wide(infos.begin(), infos.end());
  for (TensorInfo& info : wide) {
    if (!IsHalf(info.dtype)) continue;
    info.dtype = DType::kFloat32;
    info.constant = nullptr;
  }
  return wide;
}
// True if the operator infers these types of outputs from these types of inputs.
inline bool Infers(const OperatorDef& def, const std::vector<TensorInfo>& inputs,
                   const std::vector<TensorInfo>& outputs) try {
  const OpSchema& schema = OpRegistry::Global().GetSchema(def.type());
  const std::vector<TensorInfo> inferred = schema.InferOutputs(def, inputs);
  for (size_t o = 0; o < outputs.size(); ++o)
    if (inferred[o].dtype != outputs[o].dtype) return false;
  return true;
} catch (const Error&) {
  return false;
}

using ProposeFunction = std::vector<KernelConfig> (*)(const KernelQuery&);

// Returns the proposals of a kernel. For a node with half types that the kernel refuses, returns
// the variant kInFloat32 if it takes the node with float32 in their place, and the node leaves out
// no output. Throws its refusal.
inline std::vector<KernelConfig> ProposeWithHalf(const KernelQuery& query,
                                                 ProposeFunction propose) try {
  return propose(query);
} catch (const UnsupportedOperatorFeature&) {
  if (!HasHalf(query.inputs) || Contains(query.def.outputs(), std::string())) throw;
  const std::vector<TensorInfo> inputs = WithFloat32(query.inputs);
  const std::vector<TensorInfo> outputs = WithFloat32(query.outputs);
  if (!Infers(query.def, inputs, outputs)) throw;
  static_cast<void>(propose({query.def, inputs, outputs}));
  KernelConfig config;
  config.variant = kInFloat32;
  return {config};
}

// Converts whole tensors, which it keeps for the next run.
class HalfOperator final : public StandardOperator {
 public:
  HalfOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : StandardOperator(def, ws, config),
        inner_(def.type(), Present(def), def.args(),
               {.backends = kEigenBackend, .num_outputs = OutputSize(), .backend_need = kRequired}),
        inputs_(def.inputs().size()),
        wide_(def.inputs().size()),
        outputs_(def.outputs().size()) {}

  bool RunOnDevice() override {
    for (int i = 0; i < InputSize(); ++i) {
      if (!HasInput(i)) continue;
      const Tensor& input = DenseInput(i);
      inputs_[Index(i)] = input;
      if (!IsHalf(input.dtype())) continue;
      Tensor& wide = wide_[Index(i)];
      wide.Resize(input.shape(), DType::kFloat32);
      Convert(input, wide);
      inputs_[Index(i)] = wide;
    }
    inner_.Run(inputs_, outputs_);
    for (Tensor& input : inputs_) input = Tensor();  // the caller's
    for (int o = 0; o < OutputSize(); ++o) {
      if (!HasOutput(o)) continue;
      Tensor* output = InferredOutput(o);
      const Tensor& made = outputs_[Index(o)];
      if (output->dtype() == made.dtype())
        std::memcpy(output->raw_mutable_data(), made.raw_data(), Index(made.nbytes()));
      else
        Convert(made, *output);
    }
    return true;
  }

 private:
  static std::vector<int> Present(const OperatorDef& def) {
    std::vector<int> present;
    for (const std::string& input : def.inputs()) present.push_back(!input.empty());
    return present;
  }
  // Converts all elements, on the threads of the current pool.
  void Convert(const Tensor& from, Tensor& to) {
    const HalfConversion convert = FindHalfConversion(from.dtype(), to.dtype());
    const char* source = static_cast<const char*>(from.raw_data());
    char* target = static_cast<char*>(to.raw_mutable_data());
    const int64_t from_size = ItemSize(from.dtype()), to_size = ItemSize(to.dtype());
    constexpr int64_t kGrain = 32768;
    ParallelForRange(from.numel(), kGrain, [&](int64_t begin, int64_t end) {
      convert(source + begin * from_size, target + begin * to_size, end - begin);
    });
  }

  ResolvedOperator inner_;
  std::vector<Tensor> inputs_;          // of the inner operator
  std::vector<Tensor> wide_, outputs_;  // kept for the next run
};

template <class Op>
std::vector<KernelConfig> ProposeEigen(const KernelQuery& query) {
  return ProposeWithHalf(query, &Op::Propose);
}
template <class Op>
std::unique_ptr<OperatorBase> CreateEigen(const OperatorDef& def, Workspace* ws,
                                          const KernelConfig* config) {
  if (config && config->variant == kInFloat32)
    return std::make_unique<HalfOperator>(def, ws, config);
  return CreateClass<Op>(def, ws, config);
}
template <class Op>
bool RegisterEigen(const KernelRegistration& kernel) noexcept {
  return RegisterProposingKernel(kernel, &CreateEigen<Op>, &ProposeEigen<Op>);
}

}}}  // namespace opkit::detail

// Registers the kernel of an operator for the "eigen" backend. The class comes last, so that it may
// contain commas.
#define OPKIT_EIGEN_OPERATOR(name, ...)                                              \
  OPKIT_REGISTRATION_OF(OPKIT_EIGEN_OPERATOR, name);                                 \
  extern "C" __attribute__((visibility("hidden"))) void OPKIT_SCHEMA_ANCHOR(name)(); \
  [[maybe_unused]] static const bool OPKIT_UNIQUE(opkit_kernel_) =                   \
      (OPKIT_SCHEMA_ANCHOR(name)(),                                                  \
       ::opkit::detail::RegisterEigen<__VA_ARGS__>(                                  \
           {#name, ::opkit::DeviceType::kCPU, ::opkit::kEigenBackend,                \
            ::opkit::Kernel::Priority::kDefault, __FILE__, __LINE__}))

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_HALF_OPERATOR_HPP_
