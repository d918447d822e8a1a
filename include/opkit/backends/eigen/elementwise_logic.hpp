// Kernels of the "eigen" backend for operators with inputs or outputs of bool: And, Equal, Greater,
// GreaterOrEqual, Less, LessOrEqual, Not, Or and Where.
#ifndef OPKIT_BACKENDS_EIGEN_ELEMENTWISE_LOGIC_HPP_
#define OPKIT_BACKENDS_EIGEN_ELEMENTWISE_LOGIC_HPP_

#include "opkit/backends/eigen/support/elementwise_vectors.hpp"
#include "opkit/backends/eigen/support/half_operator.hpp"
#include "opkit/ops/math/logic.hpp"
#include "opkit/ops/math/unary.hpp"
#include "opkit/ops/where.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

template <class Predicate, class T>
void RunPredicateVectors(const ElementRun& run) {
  using Mask = Vector<std::conditional_t<sizeof(T) == 8, int64_t, int32_t>>;
  RunVectors<int8_t>(
      run,
      [](const Vector<T>& a, const Vector<T>& b, Vector<int8_t>& out) {
        Mask mask;
        Predicate::Apply(a, b, mask);
        ConvertVector(mask, out);
        out &= 1;
      },
      VectorOperand<T>(run, 0), VectorOperand<T>(run, 1));
}
inline void RunAndVectors(const ElementRun& run) {
  RunVectors<int8_t>(
      run,
      [](const Vector<uint8_t>& a, const Vector<uint8_t>& b, Vector<int8_t>& out) {
        Vector<int8_t> left, right;
        IsTrue(a, left);
        IsTrue(b, right);
        out = left & right & 1;
      },
      VectorOperand<uint8_t>(run, 0), VectorOperand<uint8_t>(run, 1));
}
inline void RunOrVectors(const ElementRun& run) {
  RunVectors<int8_t>(
      run,
      [](const Vector<uint8_t>& a, const Vector<uint8_t>& b, Vector<int8_t>& out) {
        IsTrue(a | b, out);
        out &= 1;
      },
      VectorOperand<uint8_t>(run, 0), VectorOperand<uint8_t>(run, 1));
}
inline void RunNotVectors(const ElementRun& run) {
  RunVectors<int8_t>(
      run,
      [](const Vector<uint8_t>& x, Vector<int8_t>& out) {
        IsTrue(x, out);
        out = ~out & 1;
      },
      VectorOperand<uint8_t>(run, 0));
}
template <class Word>
void RunWhereVectors(const ElementRun& run) {
  RunVectors<Word>(
      run,
      [](const Vector<uint8_t>& condition, const Vector<Word>& x, const Vector<Word>& y,
         Vector<Word>& out) {
        Vector<int8_t> mask;
        Vector<Word> from_x;
        IsTrue(condition, mask);
        ConvertVector(mask, from_x);
        out = (x & from_x) | (y & ~from_x);
      },
      VectorOperand<uint8_t>(run, 0), VectorOperand<Word>(run, 1), VectorOperand<Word>(run, 2));
}

// Proposes a kernel if the type of input `i` is in `dtypes`. Throws UnsupportedOperatorFeature for
// other types.
inline std::vector<KernelConfig> ProposeForTypes(const KernelQuery& query, size_t i,
                                                 const std::vector<DType>& dtypes) {
  RequireDTypes(query, i, dtypes);
  return {InplaceBySchema(query)};
}

// A comparison, with vector kernels for float32, int32 and int64.
template <class Op, class Predicate>
class EigenPredicate final : public Op {
 public:
  using Op::Op;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeForTypes(query, 0, Types::DTypes());
  }

 protected:
  ElementKernel FindKernel() const override {
    const ElementKernel found = Types::template Find<ElementKernel>(
        this->Input(0).dtype(), []<class T>() { return &RunPredicateVectors<Predicate, T>; });
    return found ? found : Op::FindKernel();
  }

 private:
  using Types = ElementTypes<float, int32_t, int64_t>;
};
// An operator on bools, with the kernel kKernel.
template <class Op, ElementKernel kKernel>
class EigenLogic final : public Op {
 public:
  using Op::Op;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeForTypes(query, 0, {DType::kBool});
  }

 protected:
  ElementKernel FindKernel() const override { return kKernel; }
};
class EigenWhereOp final : public WhereOp {
 public:
  using WhereOp::WhereOp;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    return ProposeForTypes(query, 1,
                           {DType::kFloat32, DType::kInt32, DType::kUInt32, DType::kFloat64,
                            DType::kInt64, DType::kUInt64, DType::kComplex64});
  }

 protected:
  ElementKernel FindKernel() const override {
    const int64_t bytes = ItemSize(Input(1).dtype());
    return bytes == 4   ? &RunWhereVectors<int32_t>
           : bytes == 8 ? &RunWhereVectors<int64_t>
                        : WhereOp::FindKernel();
  }
};

}  // namespace detail

OPKIT_EIGEN_OPERATOR(And, detail::EigenLogic<AndOp, &detail::RunAndVectors>);
OPKIT_EIGEN_OPERATOR(Not, detail::EigenLogic<NotOp, &detail::RunNotVectors>);
OPKIT_EIGEN_OPERATOR(Or, detail::EigenLogic<OrOp, &detail::RunOrVectors>);
OPKIT_EIGEN_OPERATOR(Where, detail::EigenWhereOp);

// Defines the comparison of vectors for an operator and registers its kernel.
#define OPKIT_VECTOR_PREDICATE(name, op)                                \
  namespace detail {                                                    \
  struct name##Vector {                                                 \
    template <class Operand, class Mask>                                \
    static void Apply(const Operand& a, const Operand& b, Mask& mask) { \
      mask = a op b;                                                    \
    }                                                                   \
  };                                                                    \
  }                                                                     \
  OPKIT_EIGEN_OPERATOR(name, detail::EigenPredicate<name##Op, detail::name##Vector>)
OPKIT_VECTOR_PREDICATE(Equal, ==);
OPKIT_VECTOR_PREDICATE(Greater, >);
OPKIT_VECTOR_PREDICATE(GreaterOrEqual, >=);
OPKIT_VECTOR_PREDICATE(Less, <);
OPKIT_VECTOR_PREDICATE(LessOrEqual, <=);
#undef OPKIT_VECTOR_PREDICATE

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ELEMENTWISE_LOGIC_HPP_
