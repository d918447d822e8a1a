// A header-only program of opkit.hpp alone, whose kernels propose configurations, in another layout
// too, or have a backend with a rank: their registration brings what Invoke needs to select them.
// A call before that registration is an Error.
#include <cstdio>
#include <cstring>
#include <opkit/core/channels_last.hpp>
#include <opkit/opkit.hpp>
#include <string>
#include <vector>

using namespace opkit;

// The message of the Error that a call of the operator throws; empty if it returns.
static std::string Why(const char* op) {
  try {
    Invoke(op, {Tensor::From<float>({1, 1, 1, 2}, {1, 2})});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}
// Before any registration of this file.
static const std::string g_too_early = Why("Plain");

class CopyOp : public Operator<CPUContext> {
 public:
  using Operator<CPUContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* const y = Output(0, x.shape(), x.dtype());
    std::memcpy(y->raw_mutable_data(), x.raw_data(), static_cast<size_t>(x.nbytes()));
    return true;
  }
};
OPKIT_OPERATOR_SCHEMA(Plain).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Plain, CopyOp);

struct ProposingOp final : CopyOp {
  using CopyOp::CopyOp;
  static std::vector<KernelConfig> Propose(const KernelQuery&) { return {{}}; }
};
OPKIT_OPERATOR_SCHEMA(Proposing).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Proposing, ProposingOp);

struct ImagesOp final : CopyOp {
  using CopyOp::CopyOp;
  static std::vector<KernelConfig> Propose(const KernelQuery&) {
    KernelConfig config;
    config.input_layouts = config.output_layouts = {Layout{ChannelsLast(), {}}};
    return {config};
  }
};
OPKIT_OPERATOR_SCHEMA(Images).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR(Images, ImagesOp);

OPKIT_REGISTER_BACKEND_RANK("ranked", 10);
OPKIT_OPERATOR_SCHEMA(Ranked).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Ranked, ranked, CopyOp);

int main() {
  int failed = 0;
  const auto check = [&](const std::string& found, const char* wanted) {
    if (found.find(wanted) != std::string::npos && (*wanted || found.empty())) return;
    std::printf("expected '%s', found '%s'\n", wanted, found.c_str());
    failed = 1;
  };
  check(Why("Plain"), "");
  check(Why("Proposing"), "");
  check(Why("Images"), "");
  check(Why("Ranked"), "");
  check(g_too_early, "Plain");
  return failed;
}
