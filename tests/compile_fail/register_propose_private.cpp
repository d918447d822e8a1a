// expect: Class's Propose must be public, and `static std::vector<KernelConfig> Propose(const KernelQuery&)`
#include "opkit/op/registration.hpp"

class Declines : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return true; }

 private:
  static std::vector<opkit::KernelConfig> Propose(const opkit::KernelQuery&) { return {{}}; }
};

OPERATOR_SCHEMA(Declining);
REGISTER_CPU_OPERATOR(Declining, Declines);
