// NodeGradient: the base of gradient makers that build a gradient from standard operators. Also
// SumToShape, the gradient of broadcasting, and ZerosLike. Gradients use operators of other
// headers: to differentiate, include opkit/ops/all.hpp or link opkit::ops.
#ifndef OPKIT_OPS_SUPPORT_NODE_GRADIENT_HPP_
#define OPKIT_OPS_SUPPORT_NODE_GRADIENT_HPP_

#include "opkit/ops/support/broadcast_loop.hpp"
#include "opkit/ops/support/element_sum.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   OPKIT_NODE_GRADIENT(Mul) {
//     GiveSummed(0, Node("Mul", {GO(0), I(1)}));
//     GiveSummed(1, Node("Mul", {GO(0), I(0)}));
//   }
class NodeGradient : public GradientMakerBase {
 public:
  using GradientMakerBase::GradientMakerBase;
  bool CopyArguments() const override { return false; }
  GradientOpsMeta Get() override {
    for (int o = 0; o < static_cast<int>(Def().outputs().size()); ++o)
      if (HasGO(o)) return GradientMakerBase::Get();
    return {{}, std::vector<GradientValue>(Def().inputs().size())};
  }
  std::vector<OperatorDef> GetGradientDefs() final {
    Make();
    return std::move(nodes_);
  }

 protected:
  // Builds the gradient: calls Give or GiveSummed for every input that has a gradient.
  virtual void Make() = 0;

  // Adds a node and returns the name of its result.
  std::string Node(const std::string& op, const std::vector<std::string>& inputs,
                   Arguments args = {}) {
    std::string result = Temporary(op);
    AddNode(OperatorDef(op, inputs, {result}, std::move(args)));
    return result;
  }
  // Adds the node whose result is the gradient of input i.
  void Give(int i, const std::string& op, const std::vector<std::string>& inputs,
            Arguments args = {}) {
    AddNode(OperatorDef(op, inputs, {GI(i)}, std::move(args)));
  }
  // Sets the gradient of input i to `factor` times `gradient`, summed to the shape of the input.
  // `gradient` has the shape of the output.
  void GiveSummed(int i, const std::string& gradient, float factor = 1) {
    Give(i, "SumToShape", {gradient, I(i)}, {{"factor", factor}});
  }

  // Returns the name of a scalar of the type of `like`.
  std::string Number(float value, const std::string& like) {
    return Node("CastLike", {Node("Constant", {}, {{"value_float", value}}), like});
  }
  // Returns the name of an int64 scalar, or of a list of int64.
  std::string Integer(int64_t value) { return Node("Constant", {}, {{"value_int", value}}); }
  std::string Integers(std::vector<int64_t> values) {
    return Node("Constant", {}, {{"value_ints", std::move(values)}});
  }
  // Returns the name of the rank of a tensor, which may be unknown until the run.
  std::string RankOf(const std::string& data) { return Node("Size", {Node("Shape", {data})}); }
  // Returns the name of the list of axes from `axis` on, negative ones from the last.
  std::string AxesFrom(int64_t axis, const std::string& data) {
    return Node("Range", {Integer(axis), axis < 0 ? Integer(0) : RankOf(data), Integer(1)});
  }
  // Returns the name of the list of all axes but 1, the axis of channels.
  std::string AxesBesideChannels(const std::string& data) {
    return Node("Concat", {Integers({0}), AxesFrom(2, data)}, {{"axis", 0}});
  }
  // Returns true if the node has input i.
  bool HasI(int i) const { return i < static_cast<int>(Def().inputs().size()) && !I(i).empty(); }
  // Returns true if the node has output o and something depends on it, so that GO(o) is a name.
  bool HasGO(int o) const {
    return o < static_cast<int>(Def().outputs().size()) && !GradOut(o).IsEmpty();
  }
  // Adds one node whose results are the gradients of the inputs `order`, as far as the node has
  // them. `op` reads the node's inputs, filled with empty names up to `inputs`, and behind them the
  // gradients of the outputs, an empty name for each that has none.
  void GiveTogether(const std::string& op, size_t inputs, const std::vector<int>& order,
                    Arguments args) {
    std::vector<std::string> from = Def().inputs(), to;
    from.resize(inputs);
    for (int o = 0; o < static_cast<int>(Def().outputs().size()); ++o)
      from.push_back(HasGO(o) ? GO(o) : std::string());
    for (const int i : order) to.push_back(HasI(i) ? GI(i) : std::string());
    while (from.back().empty()) from.pop_back();
    while (to.back().empty()) to.pop_back();
    AddNode(OperatorDef(op, std::move(from), std::move(to), std::move(args)));
  }
  // Returns the name of `gradient` where `mask` is true, and of 0 elsewhere.
  std::string Masked(const std::string& mask, const std::string& gradient) {
    return Node("Where", {mask, gradient, Number(0, gradient)});
  }

  // Throws kNotFound, with the header to include, if the program has no operator of that type.
  void AddNode(OperatorDef def) {
    if (!OpRegistry::Global().FindSchema(def.type()))
      Throw(ErrorCode::kNotFound, "the gradient of ", Def().type(), " uses operator ", def.type(),
            ", which is not in this program: include opkit/ops/all.hpp, or link opkit::ops");
    nodes_.push_back(std::move(def));
  }

 private:
  std::vector<OperatorDef> nodes_;
};

// Defines and registers the gradient of an operator. The block after the macro is the body of
// Make().
#define OPKIT_NODE_GRADIENT(op)                    \
  class op##Gradient final : public NodeGradient { \
    using NodeGradient::NodeGradient;              \
    void Make() override;                          \
  };                                               \
  OPKIT_REGISTER_GRADIENT(op, op##Gradient);       \
  inline void op##Gradient::Make()

// The gradient of a function of one element whose derivative stands in the table of
// math/scalar_function.hpp.
class DerivativeGradient final : public NodeGradient {
 public:
  using NodeGradient::NodeGradient;

 private:
  void Make() override {
    Arguments args = Def().args();
    args.Set("function", Def().type());
    Give(0, "ScalarFunctionGradient", {I(0), GO(0)}, std::move(args));
  }
};

// Sums X over the axes that broadcasting repeats. Y has the shape of `like`, which can be broadcast
// to the shape of X.
class SumToShapeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (factor_ == 1 && x.shape() == y->shape()) {
      if (y->raw_data() != x.raw_data() && x.nbytes() > 0)
        std::memcpy(y->raw_mutable_data(), x.raw_data(), static_cast<size_t>(x.nbytes()));
      return true;
    }
    FloatTypes::Visit(x.dtype(), [&]<class T>() { Sum(x.data<T>(), x.shape(), y); });
    return true;
  }

 private:
  // Sums in double, in the order of X's elements, on one thread. All of X is read before the first
  // write, so that `out` may share memory with `x`.
  template <class T>
  void Sum(const T* x, const Shape& shape, Tensor* out) {
    const BroadcastLoop loop(shape, {&out->shape()});
    const int64_t count = out->numel();
    auto* sums = static_cast<double*>(Scratch(count * static_cast<int64_t>(sizeof(double))));
    for (int64_t i = 0; i < count; ++i) sums[i] = 0;
    loop.Walk(0, loop.size(), [&](int64_t at, int64_t n, const int64_t* from) {
      double* sum = sums + from[0];
      if (loop.step(0) == 1) {
        for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<double>(x[at + i]);
      } else {
        double total = 0;
        for (int64_t i = 0; i < n; ++i) total += static_cast<double>(x[at + i]);
        *sum += total;
      }
    });
    T* y = out->mutable_data<T>();
    for (int64_t i = 0; i < count; ++i) y[i] = detail::ElementOfSum<T>(factor_ * sums[i]);
  }

  const double factor_ = GetSingleArgument<float>("factor");
};

OPKIT_NODE_GRADIENT(SumToShape) {
  const float factor = Def().args().Get<float>("factor", 1);
  const std::string slope = factor == 1 ? GO(0) : Node("Mul", {GO(0), Number(factor, GO(0))});
  Give(0, "Expand", {slope, Node("Shape", {I(0)})});
}

OPKIT_STANDARD_OPERATOR(SumToShape, kMaker, SumToShapeOp)
    .Private()
    .Doc(
        "Sums X over the axes along which `like` would be broadcast to the shape of X, times a "
        "factor: the gradient of a broadcast input.")
    .NumInputs(2)
    .Input(0, "X", "a gradient", FloatTypes::DTypes())
    .Input(1, "like", "a tensor whose shape can be broadcast to that of X")
    .Output(0, "Y", "of the type of X, of the shape of `like`")
    .Arg<float>("factor", "of the sums", 1.f)
    .Inplace({{0, 0}})
    .Cost([](auto&, auto& inputs, auto& outputs) {
      return TrafficCost(OpSchema::Elements(inputs[0]), {inputs[0]}, outputs);
    })
    .Infer([](InferenceContext& c) {
      const SymbolicShape &x = c.input_shape(0), &like = c.input_shape(1);
      if (x.has_rank() && like.has_rank() && !MayBroadcastTo(like, x))
        Throw(ErrorCode::kInvalidArgument, "SumToShape: X of shape ", ToString(x),
              " cannot be summed to the shape ", ToString(like));
      c.SetOutput(0, c.input_dtype(0), like);
    });

class ZerosLikeOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    if (y->nbytes() > 0) std::memset(y->raw_mutable_data(), 0, static_cast<size_t>(y->nbytes()));
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(ZerosLike, kNone, ZerosLikeOp)
    .Private()
    .InputsCanCrossDevices()
    .Doc("Zeros: the gradient of an output that nothing depends on.")
    .Input(0, "X", "a tensor; only its shape and type are read", FloatTypes::DTypes())
    .Output(0, "Y", "as X")
    .IdenticalTypeAndShape();

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_NODE_GRADIENT_HPP_
