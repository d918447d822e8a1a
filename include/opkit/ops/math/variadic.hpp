// Operators on any number of tensors: Max, Mean, Min, Sum. Source: the ONNX operator pages
// (https://onnx.ai/onnx/operators), opset 21.
#ifndef OPKIT_OPS_MATH_VARIADIC_HPP_
#define OPKIT_OPS_MATH_VARIADIC_HPP_

#include "opkit/ops/math/element_functions.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Folds its inputs, from the first on, with a kernel of two inputs. Each block of the output is
// completed in a buffer before it is written. So the output may share memory with any input of the
// same shape.
class VariadicOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    Tensor* out = InferredOutput(0);
    if (planned_for_ != inference().version()) [[unlikely]]
      Prepare(*out);
    const int64_t item = ItemSize(out->dtype());
    char* to = static_cast<char*>(out->raw_mutable_data());
    for (int i = 0; i < InputSize(); ++i)
      data_[detail::Index(i)] = static_cast<const char*>(InputBeside(i, *out).raw_data());
    if (InputSize() == 1) {
      if (to != data_[0] && out->nbytes() > 0)
        std::memcpy(to, data_[0], static_cast<size_t>(out->nbytes()));
    } else if (InputSize() == 2 && !finish_) {
      loops_[1].Run(BroadcastLoop::kGrain, [&](int64_t at, int64_t n, const int64_t* from) {
        RunFirst(to + at * item, n, from, item);
      });
    } else {
      ParallelForRange(out->numel(), BroadcastLoop::kGrain, [&](int64_t begin, int64_t end) {
        alignas(64) char block[kBlockBytes];
        const int64_t size = kBlockBytes / item;
        for (int64_t at = begin; at < end; at += size) {
          const int64_t n = end - at < size ? end - at : size;
          RunBlock(at, n, item, block);
          std::memcpy(to + at * item, block, static_cast<size_t>(n * item));
        }
      });
    }
    return true;
  }

 protected:
  // The kernels for the present dtypes.
  struct Kernels {
    ElementKernel fold = nullptr;  // folds two inputs; null if no kernel computes the dtype
    // Computes the output from the folded result and the number of inputs; null: nothing to do.
    ElementKernel finish = nullptr;
  };
  virtual Kernels FindKernels() const = 0;

 private:
  static constexpr int64_t kBlockBytes = 8192;

  // Folds `n` elements of inputs 0 and 1.
  void RunFirst(char* out, int64_t n, const int64_t* from, int64_t item) const {
    fold_({out,
           {data_[0] + from[0] * item, data_[1] + from[1] * item},
           {loops_[1].step(0), loops_[1].step(1)},
           n,
           nullptr});
  }
  // Folds all inputs for `size` elements of the output into `block`.
  void RunBlock(int64_t begin, int64_t size, int64_t item, char* block) const {
    loops_[1].Walk(begin, begin + size, [&](int64_t at, int64_t n, const int64_t* from) {
      RunFirst(block + (at - begin) * item, n, from, item);
    });
    for (size_t i = 2; i < loops_.size(); ++i)
      loops_[i].Walk(begin, begin + size, [&](int64_t at, int64_t n, const int64_t* from) {
        char* out = block + (at - begin) * item;
        fold_({out, {out, data_[i] + from[0] * item}, {1, loops_[i].step(0)}, n, nullptr});
      });
    const float count = static_cast<float>(InputSize());
    if (finish_) finish_({block, {block}, {1}, size, &count});
  }
  OPKIT_COLD void Prepare(const Tensor& out) {
    loops_.clear();
    for (int i = 0; i < InputSize(); ++i)
      loops_.push_back(i == 1 ? BroadcastLoop(out.shape(), {&Input(0).shape(), &Input(1).shape()})
                              : BroadcastLoop(out.shape(), {&Input(i).shape()}));
    data_.resize(loops_.size());
    const Kernels kernels = FindKernels();
    if (!kernels.fold)
      Throw(ErrorCode::kTypeMismatch, type(), " has no kernel for ", ToString(Input(0)));
    fold_ = kernels.fold;
    finish_ = kernels.finish;
    planned_for_ = inference().version();
  }

  uint64_t planned_for_ = 0;
  std::vector<BroadcastLoop> loops_;  // by input; loops_[1] is for inputs 0 and 1, loops_[0] unused
  std::vector<const char*> data_;
  ElementKernel fold_ = nullptr, finish_ = nullptr;
};

namespace detail {

// A variadic operator that folds with F.
template <class F, class Types>
class FoldOperator : public VariadicOperator {
 public:
  using VariadicOperator::VariadicOperator;

 protected:
  Kernels FindKernels() const override {
    return {Types::template Find<ElementKernel>(Input(0).dtype(),
                                                []<class T>() { return &RunBinary<F, T>; })};
  }
};

inline constexpr int kNoLimit = 1 << 30;  // OpSchema shows it as "at least 1"

inline auto VariadicSchema(const char* doc, std::vector<DType> dtypes) {
  return [=](OpSchema& schema) {
    schema.Doc(StrCat(doc, " Inputs are broadcast as in NumPy."))
        .NumInputs(1, kNoLimit)
        .Input(0, "data_0", "one or more tensors of one type", dtypes)
        .Output(0, "result", "of the inputs' type, of the shape that they are broadcast to", dtypes)
        .Inplace([](int, int) { return true; })
        .Flops([](auto& c) {
          return static_cast<uint64_t>(c.num_inputs()) * OpSchema::Elements(c.output(0));
        })
        .Infer([dtypes](InferenceContext& c) {
          const DType dtype = ExpectSameDType(c);
          for (int i = 0; i < c.num_inputs(); ++i) {
            if (!c.HasInput(i))
              Throw(ErrorCode::kInvalidArgument, c.def().type(), ": input ", i,
                    " has no name; none of its inputs can be left out");
            ExpectDType(c, i, dtypes);
          }
          c.SetOutput(0, dtype, BroadcastInputs(c, c.num_inputs()));
        });
  };
}

// The gradient of Max and Min. Inputs that are equal to the output share its gradient.
class ExtremeGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override {
    const int count = static_cast<int>(Def().inputs().size());
    std::vector<std::string> masks, ones;
    for (int i = 0; i < count; ++i) {
      masks.push_back(Node("Equal", {I(i), O(0)}));
      ones.push_back(Node("CastLike", {masks.back(), GO(0)}));
    }
    const std::string share = Node("Div", {GO(0), Node("Sum", ones)});
    for (int i = 0; i < count; ++i) GiveSummed(i, Masked(masks[Index(i)], share));
  }
};
OPKIT_REGISTER_GRADIENT(Max, ExtremeGradient);
OPKIT_REGISTER_GRADIENT(Min, ExtremeGradient);
OPKIT_NODE_GRADIENT(Mean) {
  const int count = static_cast<int>(Def().inputs().size());
  for (int i = 0; i < count; ++i) GiveSummed(i, GO(0), 1 / static_cast<float>(count));
}
OPKIT_NODE_GRADIENT(Sum) {
  for (int i = 0; i < static_cast<int>(Def().inputs().size()); ++i) GiveSummed(i, GO(0));
}

}  // namespace detail

using MaxOp = detail::FoldOperator<detail::MaxFunction, NumericTypes>;
using MinOp = detail::FoldOperator<detail::MinFunction, NumericTypes>;
using SumOp = detail::FoldOperator<detail::SumFunction, FloatTypes>;

class MeanOp : public SumOp {
 public:
  using SumOp::SumOp;

 protected:
  Kernels FindKernels() const override {
    Kernels found = SumOp::FindKernels();
    FloatTypes::Visit(Input(0).dtype(), [&]<class T>() {
      found.finish = &detail::RunUnary<detail::DivideByCountFunction, T>;
    });
    return found;
  }
};

OPKIT_STANDARD_OPERATOR(Max, kMaker, MaxOp)
    .FillUsing(
        detail::VariadicSchema("The largest of the inputs, element by element; NaN where one is.",
                               NumericTypes::DTypes()));
OPKIT_STANDARD_OPERATOR(Mean, kMaker, MeanOp)
    .FillUsing(detail::VariadicSchema("The mean of the inputs, element by element.",
                                      FloatTypes::DTypes()));
OPKIT_STANDARD_OPERATOR(Min, kMaker, MinOp)
    .FillUsing(
        detail::VariadicSchema("The smallest of the inputs, element by element; NaN where one is.",
                               NumericTypes::DTypes()));
OPKIT_STANDARD_OPERATOR(Sum, kMaker, SumOp)
    .FillUsing(detail::VariadicSchema("The sum of the inputs, element by element.",
                                      FloatTypes::DTypes()));

}}  // namespace opkit

#endif  // OPKIT_OPS_MATH_VARIADIC_HPP_
