// An elementwise operator whose function the test gives as a template argument.
#ifndef OPKIT_TESTS_SUPPORT_POINTWISE_OP_HPP_
#define OPKIT_TESTS_SUPPORT_POINTWISE_OP_HPP_

#include "opkit/op/operator.hpp"

// Computes f(a, b, k, o) for each element of output o, in any floating-point dtype. `a` is from the
// first input, `b` from the last one, which may be the same; `k` is the argument "k" (default 1).
template <auto f>
class PointwiseOp final : public opkit::Operator<opkit::CPUContext> {
 public:
  PointwiseOp(const opkit::OperatorDef& def, opkit::Workspace* ws)
      : Operator(def, ws), k_(GetSingleArgument<double>("k", 1.0)) {}
  bool RunOnDevice() override {
    const opkit::Tensor &a = Input(0), &b = Input(InputSize() - 1);
    opkit::DispatchDType<opkit::float16, float, double>(a.dtype(), [&]<class T>() {
      const T *from_a = a.data<T>(), *from_b = b.data<T>();
      for (int o = 0; o < OutputSize(); ++o) {
        T* y = Output(o, a.shape(), a.dtype())->template mutable_data<T>();
        for (int64_t i = 0; i < a.numel(); ++i)
          y[i] =
              Rounded<T>(f(static_cast<double>(from_a[i]), static_cast<double>(from_b[i]), k_, o));
      }
    });
    return true;
  }

 private:
  template <class T>
  static T Rounded(double value) {
    if constexpr (std::is_same_v<T, opkit::float16>) return T(static_cast<float>(value));
    return static_cast<T>(value);
  }
  const double k_;
};

#endif  // OPKIT_TESTS_SUPPORT_POINTWISE_OP_HPP_
