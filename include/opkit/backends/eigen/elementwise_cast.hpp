// Cast for the "eigen" backend, between the types that models convert most: bool, int32, int64 and
// float32, and between float32 and the half types.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_CAST_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_CAST_HPP_

#include "opkit/backends/eigen/support/elementwise_vectors.hpp"
#include "opkit/backends/eigen/support/half_lanes.hpp"
#include "opkit/ops/cast.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class From, class To>
void RunCastVectors(const ElementRun& run) {
  using Stored = StoredType<From>;
  RunVectors<StoredType<To>>(
      run,
      [](const Vector<Stored>& x, Vector<StoredType<To>>& out) {
        if constexpr (std::is_same_v<From, bool>) {
          Vector<int8_t> mask;
          Vector<int32_t> wide;
          IsTrue(x, mask);
          ConvertVector(mask, wide);
          if constexpr (std::is_same_v<To, float>) {
            wide &= std::bit_cast<int32_t>(1.f);
            std::memcpy(&out, &wide, sizeof out);
          } else {
            ConvertVector(wide & 1, out);
          }
        } else if constexpr (std::is_same_v<To, bool>) {
          ConvertVector((x != Vector<Stored>{}) & 1, out);
        } else {
          ConvertVector(x, out);
        }
      },
      VectorOperand<Stored>(run, 0));
}

template <HalfConversion convert>
void RunHalfConversion(const ElementRun& run) {
  convert(run.in[0], run.out, run.n);
}

class EigenCastOp final : public CastOp {
 public:
  using CastOp::CastOp;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const DType from = query.inputs[0].dtype, to = query.outputs[0].dtype;
    if (!Find(from, to))
      throw UnsupportedOperatorFeature(StrCat("it does not convert ", from, " to ", to));
    return CastOp::Propose(query);
  }

 protected:
  ElementKernel FindKernel() const override {
    const ElementKernel found = Find(Input(0).dtype(), to());
    return found ? found : CastOp::FindKernel();
  }

 private:
  // Returns the kernel that converts `from` to `to`; null if there is none. For float32 to integers
  // there is none, because the reference kernel checks ranges.
  static ElementKernel Find(DType from, DType to) {
    using Types = ElementTypes<bool, int32_t, int64_t, float>;
    if (from == DType::kFloat16 && to == DType::kFloat32)
      return &RunHalfConversion<&WidenElements<float16>>;
    if (from == DType::kBFloat16 && to == DType::kFloat32)
      return &RunHalfConversion<&WidenElements<bfloat16>>;
    if (from == DType::kFloat32 && to == DType::kFloat16)
      return &RunHalfConversion<&NarrowElements<float16>>;
    if (from == DType::kFloat32 && to == DType::kBFloat16)
      return &RunHalfConversion<&NarrowElements<bfloat16>>;
    return Types::Find<ElementKernel>(from, [&]<class From>() {
      return Types::Find<ElementKernel>(to, []<class To>() -> ElementKernel {
        if constexpr (!std::is_same_v<From, float> || std::is_same_v<To, bool>)
          return &RunCastVectors<From, To>;
        return nullptr;
      });
    });
  }
};

}  // namespace detail

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Cast, eigen, detail::EigenCastOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_CAST_HPP_
