// A header-only program of opkit.hpp alone: an operator whose kernel proposes configurations, or
// whose backend has a rank, is an Error that names the header to include, and so is the call of a
// class operator from a static variable's initialiser in a file before the one that registers it.
#include <cstdio>
#include <opkit/opkit.hpp>
#include <string>
#include <vector>

using namespace opkit;

// What a call of the operator throws; empty where it returns.
static std::string Why(const char* op) {
  try {
    Invoke(op, {Tensor::From<float>({2}, {1, 2})});
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
    Output(0, Input(0).shape(), Input(0).dtype())->CopyFrom(Input(0));
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
  check(Why("Proposing"),
        "a kernel that proposes configurations, or has a rank, needs opkit/graph.hpp");
  check(Why("Ranked"),
        "a kernel that proposes configurations, or has a rank, needs opkit/graph.hpp");
  check(g_too_early, "Plain");
  return failed;
}
