// expect-first: REGISTER_*_OPERATOR(name, Class): Class is a class template; write its context as well, such as Class<CPUContext>
#include "opkit/op/registration.hpp"

template <class Context>
class ScaleOp final : public opkit::Operator<Context> {
 public:
  using opkit::Operator<Context>::Operator;
  bool RunOnDevice() override { return true; }
};

OPERATOR_SCHEMA(Scale);
REGISTER_CPU_OPERATOR(Scale, ScaleOp);
