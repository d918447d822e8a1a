// ElementwiseOperator: the base of operators that compute each element of their output from one
// element of each broadcast input. Such an operator has one kernel for each dtype, which computes a
// run of neighbouring elements. Backends replace the kernels and keep the rest.
#ifndef OPKIT_OPS_SUPPORT_ELEMENTWISE_HPP_
#define OPKIT_OPS_SUPPORT_ELEMENTWISE_HPP_

#include "opkit/op/random.hpp"
#include "opkit/ops/support/broadcast_loop.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The work of one kernel call: `n` neighbouring elements of the output. The elements of input i
// begin at in[i]; step[i] is 1, or 0 if one element is used for all. The output may be an input.
// `attributes` are the numbers given to SetAttribute.
struct ElementRun {
  void* out;
  const void* in[BroadcastLoop::kMaxInputs];
  int64_t step[BroadcastLoop::kMaxInputs];
  int64_t n;
  const float* attributes;
};
using ElementKernel = void (*)(const ElementRun&);

// Broadcasts its inputs and calls a kernel for runs of elements, on the threads of the current
// pool.
class ElementwiseOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    Tensor* out = InferredOutput(0);
    if (planned_for_ != inference().version()) [[unlikely]]
      Prepare(*out);
    ElementRun all = {};
    all.out = out->raw_mutable_data();
    all.attributes = attributes_;
    int64_t item[BroadcastLoop::kMaxInputs] = {};
    const int64_t out_item = ItemSize(out->dtype());
    for (int i = 0; i < BroadcastLoop::kMaxInputs; ++i) {
      const Tensor* input = HasInput(i) ? &InputBeside(i, *out) : nullptr;
      all.in[i] = input ? input->raw_data() : left_out_[i];
      all.step[i] = loop_.step(i);
      item[i] = input ? ItemSize(input->dtype()) : 0;
    }
    if (!narrow_.empty()) {
      RunNarrow(all, item, out_item);
    } else {
      loop_.Run(grain_, [&](int64_t at, int64_t n, const int64_t* from) {
        kernel_(Part(all, item, out_item, at, n, from));
      });
    }
    return true;
  }

 protected:
  // Returns the kernel for the present dtypes of the inputs; null if no kernel computes them.
  virtual ElementKernel FindKernel() const = 0;
  // Returns the element to use in place of an optional input that the node leaves out.
  virtual const void* LeftOut(int) const { return nullptr; }

  // Sets number i (0 or 1) of ElementRun::attributes.
  void SetAttribute(int i, float value) { attributes_[i] = value; }
  // Sets the number of elements for one thread.
  void SetGrain(int64_t grain) { grain_ = grain; }

 private:
  static constexpr int64_t kNarrow =
      32;  // for rows of fewer elements, a kernel call costs more than its work
  static constexpr int64_t kBlockBytes = 4096;

  static ElementRun Part(const ElementRun& all, const int64_t* item, int64_t out_item, int64_t at,
                         int64_t n, const int64_t* from) {
    ElementRun run = all;
    run.out = static_cast<char*>(all.out) + at * out_item;
    for (int i = 0; i < BroadcastLoop::kMaxInputs; ++i)
      run.in[i] = static_cast<const char*>(all.in[i]) + from[i] * item[i];
    run.n = n;
    return run;
  }
  // Runs loops with short rows: copies the broadcast inputs into blocks without gaps and calls the
  // kernel once for each block.
  void RunNarrow(const ElementRun& all, const int64_t* item, int64_t out_item) const {
    int64_t largest = 1;
    for (size_t i = 0; i < narrow_.size(); ++i) largest = item[i] > largest ? item[i] : largest;
    const int64_t size = kBlockBytes / largest;
    ParallelForRange(loop_.size(), grain_, [&](int64_t begin, int64_t end) {
      alignas(64) char blocks[BroadcastLoop::kMaxInputs][kBlockBytes];
      for (int64_t at = begin; at < end; at += size) {
        const int64_t n = end - at < size ? end - at : size;
        const int64_t first[BroadcastLoop::kMaxInputs] = {};
        ElementRun run = Part(all, item, out_item, at, n, first);
        for (size_t i = 0; i < narrow_.size(); ++i) {
          const BroadcastLoop& loop = narrow_[i];
          run.step[i] = 1;
          if (loop.width() < loop.size()) {
            loop.Gather(at, at + n, all.in[i], item[i], blocks[i]);
            run.in[i] = blocks[i];
          } else if (loop.step(0) == 1) {
            run.in[i] = static_cast<const char*>(all.in[i]) + at * item[i];
          } else {
            run.step[i] = 0;
          }
        }
        kernel_(run);
      }
    });
  }
  OPKIT_COLD void Prepare(const Tensor& out) {
    std::vector<const Shape*> shapes;
    const Shape scalar;  // inputs of one element may have any rank, such as Clip's limits
    for (int i = 0; i < BroadcastLoop::kMaxInputs; ++i) {
      shapes.push_back(HasInput(i) && Input(i).numel() != 1 ? &Input(i).shape() : &scalar);
      left_out_[i] = HasInput(i) ? nullptr : LeftOut(i);
    }
    loop_ = BroadcastLoop(out.shape(), shapes);
    narrow_.clear();
    for (int i = 0; i < InputSize() && loop_.width() < kNarrow && loop_.width() < loop_.size(); ++i)
      narrow_.push_back(BroadcastLoop(out.shape(), {shapes[detail::Index(i)]}));
    kernel_ = FindKernel();
    if (!kernel_)
      Throw(ErrorCode::kTypeMismatch, type(), " has no kernel for ",
            ToString(Input(InputSize() - 1)));
    planned_for_ = inference().version();
  }

  uint64_t planned_for_ = 0;
  BroadcastLoop loop_;
  std::vector<BroadcastLoop> narrow_;  // one for each input; empty unless rows are short
  ElementKernel kernel_ = nullptr;
  const void* left_out_[BroadcastLoop::kMaxInputs] = {};
  int64_t grain_ = BroadcastLoop::kGrain;
  float attributes_[2] = {};
};

namespace detail {

// Computes y = F::Apply(x, attributes) for each element, x and y of type T.
template <class F, class T>
void RunUnary(const ElementRun& run) {
  const auto* x = static_cast<const StoredType<T>*>(run.in[0]);
  auto* y = static_cast<StoredType<T>*>(run.out);
  for (int64_t i = 0; i < run.n; ++i)
    y[i] = static_cast<StoredType<T>>(F::Apply(LoadElement<T>(x[i]), run.attributes));
}
// Computes y = F::Apply(a, b) for each element, a and b of type T, y of type R.
template <class F, class T, class R = T>
void RunBinary(const ElementRun& run) {
  const auto* a = static_cast<const StoredType<T>*>(run.in[0]);
  const auto* b = static_cast<const StoredType<T>*>(run.in[1]);
  auto* y = static_cast<StoredType<R>*>(run.out);
  const int64_t step_a = run.step[0], step_b = run.step[1];
  for (int64_t i = 0; i < run.n; ++i)
    y[i] = static_cast<StoredType<R>>(
        F::Apply(LoadElement<T>(a[i * step_a]), LoadElement<T>(b[i * step_b])));
}

// An operator on one input, of one of Types, computed by F. Its schema may declare up to two
// attributes, which are numbers.
template <class F, class Types>
class UnaryOperator : public ElementwiseOperator {
 public:
  UnaryOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : ElementwiseOperator(def, ws, config) {
    for (int i = 0; const AttributeSchema& attribute : schema().attributes())
      SetAttribute(i++, Arg<float>(attribute.name));
  }

 protected:
  ElementKernel FindKernel() const override {
    return Types::template Find<ElementKernel>(Input(0).dtype(),
                                               []<class T>() { return &RunUnary<F, T>; });
  }
};
// An operator on two inputs of one type. The output is of type Result; void stands for the inputs'
// type.
template <class F, class Types, class Result = void>
class BinaryOperator : public ElementwiseOperator {
 public:
  using ElementwiseOperator::ElementwiseOperator;

 protected:
  ElementKernel FindKernel() const override {
    return Types::template Find<ElementKernel>(Input(0).dtype(), []<class T>() {
      return &RunBinary<F, T, std::conditional_t<std::is_void_v<Result>, T, Result>>;
    });
  }
};

// Returns the shape that inputs [0, count) are broadcast to.
inline SymbolicShape BroadcastInputs(const InferenceContext& c, int count) {
  SymbolicShape shape = c.input_shape(0);
  for (int i = 1; i < count; ++i) shape = BroadcastShape(shape, c.input_shape(i));
  return shape;
}

// Throws kInvalidArgument if an input after the first has a known shape of more or fewer elements
// than one.
inline void ExpectScalarsAfterFirst(const InferenceContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.HasInput(i) || !c.input_shape(i).is_known()) continue;
    if (const Shape shape = c.input_shape(i).ToShape(); shape.numel() != 1)
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": input ", i, " '",
            OpRegistry::Global().GetSchema(c.def().type()).inputs()[Index(i)].name, "' has shape ",
            ToString(shape), ", expected a scalar");
  }
}

// Makes test inputs of these shapes with random numbers from `low` to `high`; bools are random.
inline std::vector<Tensor> MakeTestInputs(const std::vector<Shape>& shapes, DType dtype,
                                          uint64_t seed, double low, double high) {
  RandomGenerator random(seed);
  std::vector<Tensor> inputs;
  for (const Shape& shape : shapes) {
    Tensor& input = inputs.emplace_back(shape, dtype);
    PlainTypes::Visit(dtype, [&]<class T>() {
      auto* data = static_cast<StoredType<T>*>(input.raw_mutable_data());
      for (int64_t i = 0; i < shape.numel(); ++i) {
        const double number = low + (high - low) * random.uniform();
        if constexpr (std::is_same_v<T, bool>)
          data[i] = random() & 1;
        else
          data[i] = static_cast<T>(static_cast<ComputeType<T>>(number));
      }
    });
  }
  return inputs;
}
// Returns the shapes of two test inputs. The seed selects how they are broadcast.
inline std::vector<Shape> BroadcastTestShapes(uint64_t seed) {
  if (seed % 3 == 0) return {Shape{2, 3, 4}, Shape{3, 1}};
  if (seed % 3 == 1) return {Shape{5}, Shape{2, 1, 5}};
  return {Shape{7, 3}, Shape{7, 3}};
}

// Returns a function that fills the schema of an operator with one input X and one output Y of the
// same type and shape. Y may be computed in place.
inline auto UnarySchema(const char* doc, std::vector<DType> dtypes, uint64_t flops) {
  return [=](OpSchema& schema) {
    schema.Doc(doc)
        .Input(0, "X", "a tensor of any shape", dtypes)
        .Output(0, "Y", "of the type and shape of X", dtypes)
        .Inplace({{0, 0}})
        .PointwiseCost(flops)
        .IdenticalTypeAndShape();
  };
}
// Registers an operator of one input, which detail::<name>Function computes for each of Types, and
// begins its schema.
#define OPKIT_UNARY_OPERATOR(name, gradient, Types, flops, doc)          \
  using name##Op = detail::UnaryOperator<detail::name##Function, Types>; \
  OPKIT_STANDARD_OPERATOR(name, gradient, name##Op)                      \
      .FillUsing(::opkit::detail::UnarySchema(doc, Types::DTypes(), flops))

// Fills the schema of an operator with two inputs A and B of one type, which are broadcast to the
// shape of the output C.
inline void DescribeBinary(OpSchema& schema, const std::string& doc,
                           const std::vector<DType>& dtypes, uint64_t flops) {
  schema.Doc(doc + " Inputs are broadcast as in NumPy.")
      .NumInputs(2)
      .Input(0, "A", "first operand", dtypes)
      .Input(1, "B", "second operand, of the type of A", dtypes)
      .Output(0, "C", "of the type of A, of the shape that A and B are broadcast to", dtypes)
      .Inplace({{0, 0}, {1, 0}})
      .PointwiseCost(flops)
      .TestInputs([](DType dtype, uint64_t seed) {
        return MakeTestInputs(BroadcastTestShapes(seed), dtype, seed, 1, 5);
      })
      .Infer([](InferenceContext& c) {
        const DType dtype = ExpectSameDType(c);
        c.SetOutput(0, dtype, BroadcastInputs(c, 2));
      });
}
// Fills the schema of an operator with two inputs A and B of one type and an output C of bool. C
// may be in place only if the inputs are bool, too.
inline void DescribePredicate(OpSchema& schema, const std::string& doc,
                              const std::vector<DType>& dtypes) {
  DescribeBinary(schema, doc, dtypes, 1);
  const bool in_place = dtypes == std::vector<DType>{DType::kBool};
  schema.Output(0, "C", "of the shape that A and B are broadcast to", {DType::kBool})
      .Inplace([in_place](int, int) { return in_place; })
      .Infer([](InferenceContext& c) {
        ExpectSameDType(c);
        c.SetOutput(0, DType::kBool, BroadcastInputs(c, 2));
      });
}

}  // namespace detail
}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_ELEMENTWISE_HPP_
