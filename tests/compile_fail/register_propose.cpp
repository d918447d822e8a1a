// compiles
#include "opkit/op/registration.hpp"

// Propose as it must be, one that a class inherits, and a name that only resembles it.
class Proposes : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  static std::vector<opkit::KernelConfig> Propose(const opkit::KernelQuery&) { return {{}}; }
  bool RunOnDevice() override { return true; }
};
class Inherits final : public Proposes {
 public:
  using Proposes::Proposes;
};
class Resembles : public opkit::Operator<opkit::CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override { return Proposed(); }

 private:
  bool Proposed() const { return true; }
};

OPERATOR_SCHEMA(Good);
REGISTER_CPU_OPERATOR(Good, Proposes);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Good, second, Inherits);
REGISTER_CPU_OPERATOR_WITH_ENGINE(Good, third, Resembles);
