// Operators of the mixed graphs: with several kernels each, in layouts, on streams and on a device
// whose memory holds other bytes than the host's, with views, and with inputs that they rewrite.
#ifndef OPKIT_TESTS_STRESS_MIXED_OPS_HPP_
#define OPKIT_TESTS_STRESS_MIXED_OPS_HPP_

#include "opkit/partition.hpp"
#include "stress_ops.hpp"
#include "support/layouts.hpp"
#include "support/sim_device.hpp"

namespace mixed_ops {

using namespace opkit;

constexpr auto kThere = sim_device::kSim;
constexpr uint64_t kScrambled = 0x5a5a5a5a5a5a5a5a;

// The device's memory holds each byte scrambled, so that a value that was not copied is wrong.
inline void CopyScrambled(void* to, Device, const void* from, Device, int64_t nbytes, void*) {
  for (int64_t i = 0; i < nbytes; ++i)
    static_cast<unsigned char*>(to)[i] = static_cast<const unsigned char*>(from)[i] ^ 0x5a;
}
inline int64_t LiveBytesThere() { return GetAllocator(kThere).live_bytes(); }
// Makes the device, once.
inline void AddDevice() {
  static auto& device = *new sim_device::SimDevice;
  static_cast<void>(device);
  RegisterCopy(DeviceType::kCPU, kThere, &CopyScrambled);
  RegisterCopy(kThere, DeviceType::kCPU, &CopyScrambled);
}

// The elements of a tensor, by number, wherever they lie.
class Elements {
 public:
  explicit Elements(const Tensor& tensor)
      : count_(tensor.numel()),
        mask_(tensor.device().type == kThere ? kScrambled : 0),
        data_(static_cast<int64_t*>(const_cast<void*>(tensor.raw_data()))),
        place_(test_layouts::PlaceIn(tensor.layout())) {
    if (!tensor.layout().is_standard() || tensor.shape().rank() != 2) return;
    columns_ = tensor.shape()[1];
    row_ = tensor.strides()[0], column_ = tensor.strides()[1];
  }
  int64_t count() const { return count_; }
  int64_t Get(int64_t i) const {
    return static_cast<int64_t>(static_cast<uint64_t>(At(i)) ^ mask_);
  }
  void Set(int64_t i, int64_t value) const {
    At(i) = static_cast<int64_t>(static_cast<uint64_t>(value) ^ mask_);
  }

 private:
  int64_t& At(int64_t i) const {
    if (columns_ > 0) return data_[i / columns_ * row_ + i % columns_ * column_];
    return data_[place_(i, count_)];
  }

  int64_t count_;
  uint64_t mask_;
  int64_t* data_;
  test_layouts::PlaceOf place_;
  int64_t columns_ = 0, row_ = 0, column_ = 0;
};

// Output o of the function that all operators here compute.
template <class Get>
std::vector<int64_t> Mixed(int64_t count, int64_t salt, int o, size_t inputs, Get get) {
  std::vector<int64_t> out(detail::Index(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t total = 0;
    for (size_t k = 0; k < inputs; ++k) total = stress_ops::Mixed(total, salt, o, get(k, i));
    out[detail::Index(i)] = total;
  }
  return out;
}

template <class Context>
class MixedOp : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  MixedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : Operator<Context>(def, ws, config),
        salt_(this->template GetSingleArgument<int64_t>("salt", 0)) {
    MayFail(static_cast<uint64_t>(salt_));
  }
  bool RunOnDevice() override {
    CountOperator();
    MayFail(static_cast<uint64_t>(salt_) + 1);
    std::vector<Elements> in;
    for (int i = 0; i < this->InputSize(); ++i) in.emplace_back(this->Input(i));
    for (int o = 0; o < this->OutputSize(); ++o) {
      if (!this->HasOutput(o)) continue;
      const Elements to(*this->Output(o, this->Input(0).shape(), DType::kInt64));
      // Through values of its own: in place an element may be written before it is read.
      const auto work = [in, salt = salt_, o, to] {
        const auto values = Mixed(to.count(), salt, o, in.size(), [&](size_t k, int64_t i) {
          return in[k].count() > 0 ? in[k].Get(i % in[k].count()) : 0;
        });
        for (int64_t i = 0; i < to.count(); ++i) to.Set(i, values[detail::Index(i)]);
      };
      if constexpr (Context::kAsynchronous)
        ParallelFor(this->context_, 1, [work](int64_t) { work(); });
      else
        work();
    }
    return true;
  }

 private:
  const int64_t salt_;
};
// Reads its inputs by their strides.
class MixedStridedOp final : public MixedOp<CPUContext> {
 public:
  using MixedOp::MixedOp;
  bool AcceptsStrides() const override { return true; }
};
// Works in layouts that its node names, or in that of its first input, and spoils its scratch.
class MixedLayoutsOp final : public MixedOp<CPUContext> {
 public:
  MixedLayoutsOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : MixedOp(def, ws, config), scratch_(config ? config->scratch_bytes : 0) {}
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const Arguments& args = query.def.args();
    const auto salt = args.Get<int64_t>("salt", 0);
    const auto named = [&](const char* which) {
      return test_layouts::Named(args.Get<std::string>(which, "standard"));
    };
    std::vector<KernelConfig> configs(2);
    configs[0].input_layouts.assign(query.inputs.size(), named("b"));
    configs[0].input_layouts[0] = named("a");
    configs[0].output_layouts.assign(query.outputs.size(), named("y"));
    configs[1].input_layouts.assign(query.inputs.size(), query.inputs[0].layout);
    configs[1].output_layouts.assign(query.outputs.size(), query.inputs[0].layout);
    for (KernelConfig& config : configs) {
      if (query.outputs.size() == 1 && salt % 2) config.inplace = {{0, 0}};
      config.scratch_bytes = salt % 3 * 40;
      if (salt % 5) config.cost_ns = static_cast<double>(100 + salt % 7);
    }
    return configs;
  }
  bool RunOnDevice() override {
    if (scratch_ > 0) std::memset(Scratch(scratch_), 0x7e, static_cast<size_t>(scratch_));
    return MixedOp::RunOnDevice();
  }

 private:
  const int64_t scratch_;
};

inline void AddArguments(OpSchema& schema) {
  schema.Arg<int64_t>("salt", "of its function", 0);
  for (const char* layout : {"a", "b", "y"})
    schema.Arg<std::string>(layout, "the layout of its first input, the others, its outputs");
  schema.Infer([](InferenceContext& c) {
    for (int o = 0; o < c.num_outputs(); ++o) c.SetOutput(o, DType::kInt64, c.input_shape(0));
  });
}
OPERATOR_SCHEMA(MixedSum).NumInputs(1, 4).NumOutputs(1).Inplace({{0, 0}}).FillUsing(AddArguments);
OPERATOR_SCHEMA(MixedSplit).NumInputs(1, 4).NumOutputs(1, 2).FillUsing(AddArguments);
// Rewrites its first input.
OPERATOR_SCHEMA(MixedAdd).NumInputs(1, 4).NumOutputs(1).EnforceInplace({{0, 0}}).FillUsing(
    AddArguments);
REGISTER_CPU_OPERATOR(MixedSum, MixedOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(MixedSum, MixedOp<CPUStreamContext>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(MixedSum, strided, MixedStridedOp);
REGISTER_CPU_OPERATOR_WITH_ENGINE(MixedSum, layouts, MixedLayoutsOp);
OPKIT_REGISTER_DEVICE_OPERATOR(kThere, MixedSum, MixedOp<sim_device::SimContext>);
REGISTER_CPU_OPERATOR(MixedSplit, MixedOp<CPUContext>);
REGISTER_CPU_STREAM_OPERATOR(MixedSplit, MixedOp<CPUStreamContext>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(MixedSplit, layouts, MixedLayoutsOp);
OPKIT_REGISTER_DEVICE_OPERATOR(kThere, MixedSplit, MixedOp<sim_device::SimContext>);
REGISTER_CPU_OPERATOR(MixedAdd, MixedOp<CPUContext>);
OPKIT_REGISTER_DEVICE_OPERATOR(kThere, MixedAdd, MixedOp<sim_device::SimContext>);

// Copies its input under another name, or with the axes in the other order.
class MixedViewOp final : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    CountOperator();
    MayFail(0);
    if (def().type() == "MixedTurn")
      SetOutputTensor(0, Input(0).Permute({1, 0}));
    else
      OutputTensorAlias(0, Input(0));
    return true;
  }
};
OPERATOR_SCHEMA(MixedView).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPERATOR_SCHEMA(MixedTurn).NumInputs(1).NumOutputs(1).Infer([](InferenceContext& c) {
  c.SetOutput(0, c.input_dtype(0), {c.input_shape(0)[1], c.input_shape(0)[0]});
});
REGISTER_CPU_OPERATOR(MixedView, MixedViewOp);
REGISTER_CPU_OPERATOR(MixedTurn, MixedViewOp);

// Takes nodes by the option `seed`.
REGISTER_PARTITIONER(mixed).setSupportedOps([](const PartitionView& view, PartitionAnswer& answer,
                                               const PartitionArguments& options) {
  Random random(options.empty() ? 0 : std::stoull(options[0].second));
  for (const PartitionNode& node : view.nodes())
    if (!random.OneIn(3)) answer.Take(node, random.OneIn(4) ? 1 : kAnySubgraph);
});

}  // namespace mixed_ops

#endif  // OPKIT_TESTS_STRESS_MIXED_OPS_HPP_
