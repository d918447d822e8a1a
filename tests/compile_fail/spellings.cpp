// compiles
// One thing has one name across types, and the names that other types lead to work as well.
#include "opkit/op/function/op_tensor.hpp"
#include "opkit/op/registration.hpp"
#include "opkit/op/typed/typed_values.hpp"

using namespace opkit;

template <class Context>
class PowerOp final : public Operator<Context> {
 public:
  USE_OPERATOR_FUNCTIONS(Context);
  PowerOp(const OperatorDef& def, Workspace* ws)
      : Operator<Context>(def, ws), exponent_(Arg<float>("exponent")), base_(Arg("base", 2.f)) {}
  bool RunOnDevice() override { return exponent_ > base_; }

 private:
  float exponent_, base_;
};

inline void Infer(InferenceContext& c) {
  if (c.InputSize() != c.num_inputs() || c.OutputSize() != c.num_outputs()) return;
  const auto axis = c.Arg<int>("axis");
  c.SetOutput(0, c.input_dtype(0), {c.input_shape(0).dim(axis), c.input_shape(0).size()});
}

inline int64_t Elements(const Tensor& a, OpTensor b, In<"x", float> c, const Shape& d) {
  return a.numel() + b.numel() + c.numel() + d.numel() + a.rank() + b.rank() + c.rank() + d.rank();
}

inline std::string Text(const Tensor& a, const Shape& b, const SymbolicShape& c,
                        const OperatorDef& d, const TensorInfo& e) {
  return ToString(a) + ToString(b) + ToString(c) + ToString(d) + ToString(e);
}
