// Identity and Dropout. When a model is not being trained, Dropout equals Identity. Source: the
// ONNX operator pages (https://onnx.ai/onnx/operators), opset 21.
#ifndef OPKIT_OPS_IDENTITY_HPP_
#define OPKIT_OPS_IDENTITY_HPP_

#include "opkit/op/random.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/support/node_gradient.hpp"
#include "opkit/ops/support/small_numbers.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

class IdentityOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    if (IsObject(x.dtype())) [[unlikely]]
      detail::CopyObjects(x.dtype(), y->raw_mutable_data(), x.raw_data(), x.numel());
    else
      CopyBytes(y->raw_mutable_data(), x.raw_data(), x.nbytes());
    return true;
  }
};

OPKIT_STANDARD_OPERATOR(Identity, kMaker, IdentityOp)
    .FillUsing(detail::UnarySchema("Y is X. In place nothing is done.", WithSmallDTypes(AnyDType()),
                                   0))
    .Infer([](InferenceContext& c) {
      c.SetOutput(0, c.input(0));
      c.SetInput(0, c.output(0).dtype, c.output(0).shape);
    });

namespace detail {

// The random generator MT19937 (Matsumoto, Nishimura, "Mersenne twister", 1998). Seeded and read
// like NumPy's RandomState, because RandomState made the masks in ONNX's conformance data.
class MersenneTwister {
 public:
  explicit MersenneTwister(uint32_t seed) {
    state_[0] = seed;
    for (uint32_t i = 1; i < kSize; ++i)
      state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
  // Returns a number in [0, 1) with 53 random bits.
  double Uniform() {
    const double high = static_cast<double>(Next() >> 5), low = static_cast<double>(Next() >> 6);
    return (high * 0x1p26 + low) * 0x1p-53;
  }

 private:
  static constexpr uint32_t kSize = 624, kMiddle = 397;

  uint32_t Next() {
    if (at_ == kSize) Twist();
    uint32_t x = state_[at_++];
    x ^= x >> 11;
    x ^= (x << 7) & 0x9d2c5680u;
    x ^= (x << 15) & 0xefc60000u;
    return x ^ (x >> 18);
  }
  void Twist() {
    for (uint32_t i = 0; i < kSize; ++i) {
      const uint32_t x = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
      state_[i] = state_[(i + kMiddle) % kSize] ^ (x >> 1) ^ (x & 1 ? 0x9908b0dfu : 0u);
    }
    at_ = 0;
  }

  uint32_t state_[kSize];
  uint32_t at_ = kSize;
};

OPKIT_NODE_GRADIENT(Identity) { SetDense(0, GO(0)); }
// Which elements a run has dropped is known only from its mask.
OPKIT_NODE_GRADIENT(Dropout) {
  if (!HasI(2)) return SetDense(0, GO(0));
  if (Def().outputs().size() < 2 || O(1).empty())
    Throw(ErrorCode::kUnsupported,
          "Dropout with training_mode has a gradient only if the node has its second output, the "
          "mask: name it");
  const std::string one = Number(1, GO(0));
  const std::string ratio = HasI(1) ? Node("CastLike", {I(1), GO(0)}) : Number(0.5f, GO(0));
  const std::string scale = Node("Reciprocal", {Node("Sub", {one, ratio})});
  const std::string slope = Node("Mul", {GO(0), Node("Where", {I(2), scale, one})});
  GiveSummed(0, Masked(O(1), slope));
}

}  // namespace detail

// In training, sets each element to 0 with probability `ratio` and scales the others by 1 / (1 -
// ratio). With the attribute `seed` every run drops the same elements. Without it the choice
// depends on SetSeed, on the name of the node's output and on the run's number.
class DropoutOp final : public StandardOperator {
 public:
  DropoutOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : StandardOperator(def, ws, config) {
    seeds_.SetKey(def.outputs()[0]);
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const double ratio = Ratio();
    Tensor* mask = HasOutput(1) ? InferredOutput(1) : nullptr;
    auto* kept = mask ? static_cast<uint8_t*>(mask->raw_mutable_data()) : nullptr;
    if (!Training() || ratio == 0) {
      CopyBytes(y->raw_mutable_data(), x.raw_data(), x.nbytes());
      if (x.numel() > 0 && kept) std::memset(kept, 1, static_cast<size_t>(x.numel()));
      return true;
    }
    FloatTypes::Visit(x.dtype(), [&]<class T>() {
      Drop(x.data<T>(), y->mutable_data<T>(), kept, x.numel(), ratio);
    });
    return true;
  }

 private:
  bool Training() const {
    return HasInput(2) && Input(2).numel() > 0 &&
           *static_cast<const uint8_t*>(Input(2).raw_data()) != 0;
  }
  double Ratio() const {
    double ratio = 0.5;
    if (HasInput(1) && Input(1).numel() > 0)
      FloatTypes::Visit(Input(1).dtype(), [&]<class T>() {
        ratio = static_cast<double>(static_cast<detail::ComputeType<T>>(*Input(1).data<T>()));
      });
    if (!(ratio >= 0 && ratio < 1))
      Throw(ErrorCode::kInvalidArgument, "Dropout: the ratio is ", ratio,
            ", expected 0 or more and less than 1");
    return ratio;
  }
  template <class T>
  void Drop(const T* x, T* y, uint8_t* kept, int64_t count, double ratio) {
    using C = detail::ComputeType<T>;
    detail::MersenneTwister random(has_seed_ ? static_cast<uint32_t>(seed_) : NextSeed());
    const C scale = static_cast<C>(1 / (1 - ratio));
    for (int64_t i = 0; i < count; ++i) {
      const bool keep = random.Uniform() >= ratio;
      y[i] = static_cast<T>(keep ? static_cast<C>(x[i]) * scale : C{0});
      if (kept) kept[i] = keep;
    }
  }
  uint32_t NextSeed() { return static_cast<uint32_t>(detail::MixBits(seeds_.Next()) >> 32); }

  const bool has_seed_ = HasArgument("seed");
  const int64_t seed_ = GetSingleArgument<int64_t>("seed", 0);
  detail::RunSeeds seeds_;
};

OPKIT_STANDARD_OPERATOR(Dropout, kMaker, DropoutOp)
    .Doc(
        "In inference the output is the data. In training elements are dropped at random, the "
        "others are scaled by 1 / (1 - ratio). With a seed every run drops the same ones.")
    .NumInputs(1, 3)
    .InputsOnHost({1, 2})
    .NumOutputs(1, 2)
    .Input(0, "data", "a tensor of any shape", FloatTypes::DTypes())
    .Input(1, "ratio", "a scalar: how likely an element is dropped; 0.5 where it is left out",
           FloatTypes::DTypes())
    .Input(2, "training_mode", "a scalar; false where it is left out", {DType::kBool})
    .Output(0, "output", "of the type and shape of the data", FloatTypes::DTypes())
    .Output(1, "mask", "whether an element was kept", {DType::kBool})
    .Arg<int64_t>("seed", "of the random numbers, as NumPy's RandomState takes it")
    .Inplace({{0, 0}})
    .InputsOnHost({1, 2})
    .Stateful()
    .PointwiseCost(1)
    .Infer([](InferenceContext& c) {
      detail::ExpectScalarsAfterFirst(c);
      c.SetOutput(0, c.input_dtype(0), c.input_shape(0));
      if (c.num_outputs() > 1) c.SetOutput(1, DType::kBool, c.input_shape(0));
    });

}}  // namespace opkit

#endif  // OPKIT_OPS_IDENTITY_HPP_
