// RandomNormal, RandomUniform, their Like forms, Bernoulli and Multinomial: tensors of random
// numbers. Source: the ONNX operator pages (https://onnx.ai/onnx/operators), opset 22.
#ifndef OPKIT_OPS_RANDOM_RANDOM_TENSOR_HPP_
#define OPKIT_OPS_RANDOM_RANDOM_TENSOR_HPP_

#include <algorithm>
#include <cmath>

#include "opkit/op/random.hpp"
#include "opkit/ops/random/philox.hpp"
#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the type that the attribute `dtype` names; without the attribute, `otherwise`. Throws
// kUnsupported for a type outside Types.
template <class Types>
DType RandomDType(const InferenceContext& c, DType otherwise) {
  if (!c.args().Has("dtype")) return otherwise;
  const auto number = c.args().Get<int64_t>("dtype");
  const DType dtype = OnnxDType(number);
  if (!Types::Has(dtype))
    Throw(ErrorCode::kUnsupported, c.def().type(), ": dtype=", number,
          " is not the number of one of ", Types::DTypes());
  return dtype;
}

inline void InferRandom(InferenceContext& c) {
  const auto extents = c.args().Get<std::vector<int64_t>>("shape");
  for (const int64_t extent : extents)
    if (extent < 0)
      Throw(ErrorCode::kInvalidArgument, c.def().type(), ": shape is ", extents,
            ", expected extents of 0 or more");
  c.SetOutput(0, RandomDType<FloatTypes>(c, DType::kFloat32), Shape(Dims(extents)));
}
inline void InferRandomLike(InferenceContext& c) {
  const DType dtype = RandomDType<FloatTypes>(c, c.input_dtype(0));
  if (dtype != DType::kUndefined && !FloatTypes::Has(dtype))
    Throw(ErrorCode::kTypeMismatch, c.def().type(), ": the input is ", ToString(c.input(0)),
          ", expected one of ", FloatTypes::DTypes(), ", or the attribute 'dtype'");
  c.SetOutput(0, dtype, c.input_shape(0));
}
inline void InferBernoulli(InferenceContext& c) {
  c.SetOutput(0, RandomDType<PlainTypes>(c, c.input_dtype(0)), c.input_shape(0));
}
inline void InferMultinomial(InferenceContext& c) {
  const SymbolicShape& x = c.input_shape(0);
  const auto count = c.Arg<int64_t>("sample_size");
  if (count < 0)
    Throw(ErrorCode::kInvalidArgument, "Multinomial: sample_size is ", count,
          ", expected 0 or more");
  if (x.has_rank() && x.rank() != 2)
    Throw(ErrorCode::kInvalidArgument, "Multinomial: the input has shape ", ToString(x),
          ", expected [batch, classes]");
  c.SetOutput(0, RandomDType<IndexTypes>(c, DType::kInt32), {x.has_rank() ? x[0] : Dim(), count});
}

}  // namespace detail

// The base of operators that draw random numbers. Element i of the output gets the numbers at
// position i of Philox. With the attribute `seed` every run gets the same numbers. Without it they
// depend on SetSeed, on the name of the node's output and on the run's number.
template <class Context>
class RandomOperatorOn : public StandardOperatorOn<Context> {
 public:
  RandomOperatorOn(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperatorOn<Context>(def, ws, config) {
    seeds_.SetKey(def.outputs()[0]);
  }

 protected:
  // Returns the random numbers of the next run.
  Philox NextRun() { return Philox(has_seed_ ? std::bit_cast<uint32_t>(seed_) : seeds_.Next()); }

 private:
  const bool has_seed_ = this->HasArgument("seed");
  const float seed_ = this->template GetSingleArgument<float>("seed", 0);
  detail::RunSeeds seeds_;
};

class RandomOperator : public RandomOperatorOn<CPUContext> {
 public:
  using RandomOperatorOn::RandomOperatorOn;

 protected:
  // Sets each element i of `y`, of one of Types, to number(random bits, i).
  template <class Types, class F>
  void Fill(Tensor* y, F number) {
    const Philox random = NextRun();
    Types::Visit(y->dtype(), [&]<class T>() {
      T* out = y->mutable_data<T>();
      ParallelForRange(y->numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          out[i] = ConvertElement<T>(number(random.At(static_cast<uint64_t>(i)), i));
      });
    });
  }

 private:
  static constexpr int64_t kGrain = 1024;  // elements for one thread: 10 microseconds or more
};

class RandomNormalOp final : public RandomOperator {
 public:
  using RandomOperator::RandomOperator;
  bool RunOnDevice() override {
    Fill<FloatTypes>(InferredOutput(0), [this](const Philox::Bits& bits, int64_t) {
      return mean_ + scale_ * bits.Normal();
    });
    return true;
  }

 private:
  const double mean_ = static_cast<double>(GetSingleArgument<float>("mean"));
  const double scale_ = static_cast<double>(GetSingleArgument<float>("scale"));
};

class RandomUniformOp final : public RandomOperator {
 public:
  using RandomOperator::RandomOperator;
  bool RunOnDevice() override {
    Fill<FloatTypes>(InferredOutput(0), [this](const Philox::Bits& bits, int64_t) {
      return low_ + (high_ - low_) * bits.Uniform();
    });
    return true;
  }

 private:
  const double low_ = static_cast<double>(GetSingleArgument<float>("low"));
  const double high_ = static_cast<double>(GetSingleArgument<float>("high"));
};

class BernoulliOp final : public RandomOperator {
 public:
  using RandomOperator::RandomOperator;
  bool RunOnDevice() override {
    const std::vector<double> chances = detail::NumbersOf<double>(DenseInput(0));
    for (const double chance : chances)
      if (!(chance >= 0 && chance <= 1))
        Throw(ErrorCode::kInvalidArgument, "Bernoulli: a probability is ", chance,
              ", expected 0 to 1");
    Fill<PlainTypes>(InferredOutput(0), [&](const Philox::Bits& bits, int64_t i) {
      return bits.Uniform() < chances[detail::Index(i)] ? 1. : 0.;
    });
    return true;
  }
};

class MultinomialOp final : public RandomOperator {
 public:
  using RandomOperator::RandomOperator;
  bool RunOnDevice() override {
    const std::vector<double> logs = detail::NumbersOf<double>(DenseInput(0));
    Tensor* y = InferredOutput(0);
    const int64_t classes = Input(0).dim(1), samples = y->dim(1);
    if (y->numel() == 0) return true;
    // For each class of a row, the sum of the probabilities up to this class, times a factor.
    std::vector<double> sums(logs.size());
    for (int64_t row = 0; row < y->dim(0); ++row)
      AddUp(logs.data() + row * classes, sums.data() + row * classes, classes);
    Fill<IndexTypes>(y, [&](const Philox::Bits& bits, int64_t i) {
      const double* first = sums.data() + i / samples * classes;
      const double* last = first + classes;
      return static_cast<int64_t>(std::upper_bound(first, last, bits.Uniform() * last[-1]) - first);
    });
    return true;
  }

 private:
  // Throws kInvalidArgument if a row has no finite largest element.
  static void AddUp(const double* logs, double* sums, int64_t classes) {
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < classes; ++i) largest = largest < logs[i] ? logs[i] : largest;
    for (int64_t i = 0; i < classes; ++i) sums[i] = sum += std::exp(logs[i] - largest);
    if (!(std::isfinite(largest) && std::isfinite(sum)))
      Throw(ErrorCode::kInvalidArgument,
            "Multinomial: a row has no class of a finite log-probability, or holds a NaN");
  }
};

namespace detail {

inline constexpr const char* kRandomDTypeDoc =
    "the output's type, as a number of ONNX's enumeration TensorProto.DataType";
inline void FillRandomSchema(OpSchema& schema) {
  schema.Stateful().PointwiseCost(30).Arg<float>(
      "seed",
      "every run draws the same numbers; left out: others in every run, the same again after "
      "SetSeed");
}
inline void FillNormalSchema(OpSchema& schema) {
  FillRandomSchema(schema);
  schema.Arg<float>("mean", "of the numbers", 0.f)
      .Arg<float>("scale", "the standard deviation", 1.f)
      .Doc("Random numbers of a normal distribution.");
}
inline void FillUniformSchema(OpSchema& schema) {
  FillRandomSchema(schema);
  schema.Arg<float>("low", "the least number", 0.f)
      .Arg<float>("high", "the numbers are below it, except where rounding to the type reaches it",
                  1.f)
      .Doc("Random numbers of a uniform distribution.");
}
inline void FillRandomShapeSchema(OpSchema& schema) {
  schema.NumInputs(0)
      .Output(0, "output", "of the shape and type that the attributes name", FloatTypes::DTypes())
      .Arg<int64_t>("dtype", StrCat(kRandomDTypeDoc, "; by default float32"))
      .RequiredArg<std::vector<int64_t>>("shape", "of the output")
      .Infer(InferRandom);
}
inline void FillRandomLikeSchema(OpSchema& schema) {
  schema.InputsCanCrossDevices()
      .Input(0, "input", "any tensor; only its shape and type are read")
      .Output(0, "output", "of the shape of the input", FloatTypes::DTypes())
      .Arg<int64_t>("dtype", StrCat(kRandomDTypeDoc, "; by default the input's type"))
      .Infer(InferRandomLike);
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(RandomNormal, kNone, RandomNormalOp)
    .FillUsing(detail::FillRandomShapeSchema)
    .FillUsing(detail::FillNormalSchema);
OPKIT_STANDARD_OPERATOR(RandomNormalLike, kNone, RandomNormalOp)
    .FillUsing(detail::FillRandomLikeSchema)
    .FillUsing(detail::FillNormalSchema);
OPKIT_STANDARD_OPERATOR(RandomUniform, kNone, RandomUniformOp)
    .FillUsing(detail::FillRandomShapeSchema)
    .FillUsing(detail::FillUniformSchema);
OPKIT_STANDARD_OPERATOR(RandomUniformLike, kNone, RandomUniformOp)
    .FillUsing(detail::FillRandomLikeSchema)
    .FillUsing(detail::FillUniformSchema);

OPKIT_STANDARD_OPERATOR(Bernoulli, kNone, BernoulliOp)
    .FillUsing(detail::FillRandomSchema)
    .Input(0, "input", "probabilities, from 0 to 1", FloatTypes::DTypes())
    .Output(0, "output", "of the shape of the input", PlainTypes::DTypes())
    .Arg<int64_t>("dtype", StrCat(detail::kRandomDTypeDoc, "; by default the input's type"))
    .Infer(detail::InferBernoulli)
    .TestInputs([](DType dtype, uint64_t seed) {
      return detail::MakeTestInputs({detail::BroadcastTestShapes(seed)[0]}, dtype, seed, 0, 1);
    })
    .Doc("1 with the probability that the input gives for each element, else 0.");

OPKIT_STANDARD_OPERATOR(Multinomial, kNone, MultinomialOp)
    .FillUsing(detail::FillRandomSchema)
    .Input(
        0, "input",
        "[batch, classes]: the logarithms of the classes' probabilities, or of multiples of them",
        FloatTypes::DTypes())
    .Output(0, "output", "[batch, sample_size]: numbers of classes", IndexTypes::DTypes())
    .Arg<int64_t>("dtype", StrCat(detail::kRandomDTypeDoc, ", int32 or int64; by default int32"))
    .Arg<int64_t>("sample_size", "the number of classes drawn for each row", 1)
    .Infer(detail::InferMultinomial)
    .Doc("Classes drawn at random by their probabilities, independent of each other.");

}}  // namespace opkit

#endif  // OPKIT_OPS_RANDOM_RANDOM_TENSOR_HPP_
