// LinearAttention: attention whose keys and values are added up in a state of fixed size, so that a
// step costs the same after any number of steps. Sources:
// https://onnx.ai/onnx/operators/onnx__LinearAttention.html, opset 27; Katharopoulos et al.,
// "Transformers are RNNs", 2020 (https://arxiv.org/abs/2006.16236); Yang et al., "Gated Delta
// Networks", 2024 (https://arxiv.org/abs/2412.06464).
#ifndef OPKIT_OPS_NN_LINEAR_ATTENTION_HPP_
#define OPKIT_OPS_NN_LINEAR_ATTENTION_HPP_

#include <cmath>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferLinearAttention(InferenceContext& c) {
  const auto query_heads = c.args().Get<int64_t>("q_num_heads", 0);
  const auto heads = c.args().Get<int64_t>("kv_num_heads", 0);
  const auto rule = c.args().Get<std::string>("update_rule", "gated_delta");
  const bool gated = rule.starts_with("gated"), delta = rule.ends_with("delta");
  auto fail = [&](const auto&... expected) {
    Throw(ErrorCode::kInvalidArgument, "LinearAttention: query ", ToString(c.input_shape(0)),
          ", key ", ToString(c.input_shape(1)), ", value ", ToString(c.input_shape(2)),
          ", q_num_heads ", query_heads, ", kv_num_heads ", heads, ", update_rule ", rule,
          ": expected ", expected...);
  };
  if (heads < 1 || query_heads < 1 || query_heads % heads != 0)
    fail("numbers of heads of 1 or more, q_num_heads a multiple of kv_num_heads");
  if (c.HasInput(4) != gated) fail(gated ? "an input decay" : "no input decay");
  if (c.HasInput(5) != delta) fail(delta ? "an input beta" : "no input beta");
  Dim batch, steps;
  // Checks that input i is [batch, steps, any], and returns the last extent.
  const auto last_extent = [&](int i) {
    if (!c.HasInput(i) || !c.input_shape(i).has_rank()) return Dim();
    const SymbolicShape& shape = c.input_shape(i);
    if (shape.rank() != 3 || !Dim::Compatible(shape[0], batch) || !Dim::Compatible(shape[1], steps))
      fail("inputs of shape [batch, steps, any], found ", ToString(shape));
    if (!batch.is_known()) batch = shape[0];
    if (!steps.is_known()) steps = shape[1];
    return shape[2];
  };
  const auto size_of_head = [&](int i, int64_t count) {
    const Dim all = last_extent(i);
    if (!all.is_known()) return Dim();
    if (all.value() % count != 0) fail("a last extent that is a multiple of the number of heads");
    return Dim(all.value() / count);
  };
  Dim size = size_of_head(0, query_heads);
  const Dim key_size = size_of_head(1, heads), value_size = size_of_head(2, heads);
  if (!Dim::Compatible(size, key_size)) fail("queries and keys of one size");
  if (!size.is_known()) size = key_size;
  const Dim decay = last_extent(4), beta = last_extent(5);
  if (decay.is_known() && size.is_known() && decay.value() != heads &&
      decay.value() != heads * size.value())
    fail("a decay for each head or for each element of the keys, found ", decay.value());
  if (beta.is_known() && beta.value() != heads && beta.value() != 1)
    fail("a beta for each head or for all, found ", beta.value());
  const SymbolicShape state{batch, heads, size, value_size};
  if (c.HasInput(3) && c.input_shape(3).has_rank()) {
    const SymbolicShape& past = c.input_shape(3);
    bool fits = past.rank() == 4;
    for (int i = 0; fits && i < 4; ++i) fits = Dim::Compatible(past[i], state[i]);
    if (!fits) fail("a past_state of shape ", ToString(state), ", found ", ToString(past));
  }
  Dim row;
  if (value_size.is_known()) row = query_heads * value_size.value();
  c.SetOutput(0, c.input_dtype(0), {batch, steps, row});
  if (c.num_outputs() > 1) c.SetOutput(1, c.input_dtype(c.HasInput(3) ? 3 : 0), state);
}

// The operator LinearAttentionGradient computes the gradients of all inputs together.
OPKIT_NODE_GRADIENT(LinearAttention) {
  GiveTogether("LinearAttentionGradient", 6, {0, 1, 2, 3, 4, 5}, Def().args());
}

inline void FillLinearAttentionAttributes(OpSchema& schema) {
  schema.Arg<int64_t>("chunk_size", "a hint for other implementations", 64)
      .RequiredArg<int64_t>("kv_num_heads", "the number of heads of keys and values")
      .RequiredArg<int64_t>("q_num_heads",
                            "the number of heads of queries, a multiple of kv_num_heads: "
                            "neighbouring heads share a state")
      .Arg<float>("scale", "the factor of the queries; 0: 1 / sqrt(size)", 0.f)
      .Arg("update_rule",
           "how a step changes the state: gated rules multiply it by exp(decay), delta rules first "
           "subtract beta times the value that it has for the key",
           {"gated_delta", "linear", "gated", "delta"});
}

}  // namespace detail

// Computes in float, step by step. Each thread computes whole heads of keys.
class LinearAttentionOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const std::vector<float> queries = Numbers(0), keys = Numbers(1), values = Numbers(2);
    const std::vector<float> decays = Numbers(4), betas = Numbers(5);
    const int64_t batch = Input(0).dim(0), steps = Input(0).dim(1);
    const int64_t size = Input(1).dim(2) / heads_, value_size = Input(2).dim(2) / heads_;
    const int64_t group = query_heads_ / heads_;
    const float scale = scale_ != 0 ? scale_ : 1 / std::sqrt(static_cast<float>(size));
    std::vector<float> states = Numbers(3);
    states.resize(detail::Index(batch * heads_ * size * value_size));
    std::vector<float> results(detail::Index(y->numel()));
    const int64_t decay_row = HasInput(4) ? Input(4).dim(2) : 0;
    const int64_t beta_row = HasInput(5) ? Input(5).dim(2) : 0;
    ParallelFor(batch * heads_, [&](int64_t at) {
      const int64_t head = at % heads_;
      float* state = states.data() + at * size * value_size;  // [size, value_size]
      std::vector<float> add(detail::Index(value_size));
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t token = at / heads_ * steps + step;
        const float* key = keys.data() + (token * heads_ + head) * size;
        const float* value = values.data() + (token * heads_ + head) * value_size;
        if (decay_row > 0) {
          const bool one = decay_row == heads_;  // for the head
          const float* decay = decays.data() + token * decay_row + head * (one ? 1 : size);
          for (int64_t d = 0; d < size; ++d)
            Scale(std::exp(decay[one ? 0 : d]), state + d * value_size, value_size);
        }
        std::copy(value, value + value_size, add.begin());
        if (beta_row > 0) {
          // Replaces what the state has for this key, instead of adding to it.
          for (int64_t d = 0; d < size; ++d)
            AddTimes(-key[d], state + d * value_size, value_size, add.data());
          Scale(betas[detail::Index(token * beta_row + (beta_row == heads_ ? head : 0))],
                add.data(), value_size);
        }
        for (int64_t d = 0; d < size; ++d)
          AddTimes(key[d], add.data(), value_size, state + d * value_size);
        for (int64_t q = head * group; q < (head + 1) * group; ++q) {
          const float* query = queries.data() + (token * query_heads_ + q) * size;
          float* result = results.data() + (token * query_heads_ + q) * value_size;
          for (int64_t d = 0; d < size; ++d)
            AddTimes(scale * query[d], state + d * value_size, value_size, result);
        }
      }
    });
    Write(results, y);
    if (HasOutput(1)) Write(states, InferredOutput(1));
    return true;
  }

 private:
  std::vector<float> Numbers(int i) {
    return HasInput(i) ? detail::NumbersOf<float>(Input(i)) : std::vector<float>();
  }
  static void Scale(float factor, float* x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) x[i] *= factor;
  }
  static void AddTimes(float factor, const float* x, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
  }
  static void Write(const std::vector<float>& numbers, Tensor* to) {
    FloatTypes::Visit(to->dtype(), [&]<class T>() {
      T* out = to->mutable_data<T>();
      for (const float number : numbers) *out++ = ConvertElement<T>(number);
    });
  }

  const int64_t query_heads_ = GetSingleArgument<int64_t>("q_num_heads");
  const int64_t heads_ = GetSingleArgument<int64_t>("kv_num_heads");
  const float scale_ = GetSingleArgument<float>("scale");
};

// Runs the steps again, keeps the state before each of them, and goes back. Computes in double.
// Each thread computes whole sequences, because heads may share a beta.
class LinearAttentionGradientOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Infer();
    for (int i = 0; i < kValues; ++i) {
      std::vector<double>& values = values_[detail::Index(i)];
      values.clear();
      if (i < InputSize() && HasInput(i)) values = detail::NumbersOf<double>(Input(i));
      if (i < 6) slopes_[detail::Index(i)].assign(values.size(), 0);
    }
    steps_ = Input(0).dim(1);
    size_ = Input(1).dim(2) / heads_;
    value_size_ = Input(2).dim(2) / heads_;
    decay_row_ = HasInput(4) ? Input(4).dim(2) : 0;
    beta_row_ = HasInput(5) ? Input(5).dim(2) : 0;
    scale_ = given_scale_ != 0 ? static_cast<double>(given_scale_)
                               : 1 / std::sqrt(static_cast<double>(size_));
    ParallelFor(Input(0).dim(0), [&](int64_t sequence) {
      for (int64_t head = 0; head < heads_; ++head) RunHead(sequence, head);
    });
    for (int o = 0; o < OutputSize(); ++o) {
      if (!HasOutput(o)) continue;
      Tensor* to = InferredOutput(o);
      FloatTypes::Visit(to->dtype(), [&]<class T>() {
        T* out = to->mutable_data<T>();
        for (const double slope : slopes_[detail::Index(o)]) *out++ = ConvertElement<T>(slope);
      });
    }
    return true;
  }

 private:
  static constexpr int kValues = 8;
  enum { kQuery, kKey, kValue, kState, kDecay, kBeta, kSlope, kStateSlope };
  using Numbers = std::vector<double>;

  // The offsets of one step of one head.
  struct Place {
    int64_t key, value, decay, beta;
  };
  Place PlaceOf(int64_t sequence, int64_t head, int64_t step) const {
    const int64_t token = sequence * steps_ + step;
    const bool one = decay_row_ == heads_;  // for the head
    return {(token * heads_ + head) * size_, (token * heads_ + head) * value_size_,
            token * decay_row_ + head * (one ? 1 : size_),
            token * beta_row_ + (beta_row_ == heads_ ? head : 0)};
  }
  double At(int which, int64_t i) const { return values_[which][detail::Index(i)]; }
  double& SlopeAt(int which, int64_t i) { return slopes_[which][detail::Index(i)]; }
  int64_t DecayOf(const Place& place, int64_t d) const {
    return place.decay + (decay_row_ == heads_ ? 0 : d);
  }

  // Multiplies the state by the decay.
  void Decay(const Place& place, Numbers& state) const {
    for (int64_t d = 0; decay_row_ > 0 && d < size_; ++d)
      for (int64_t j = 0; j < value_size_; ++j)
        state[detail::Index(d * value_size_ + j)] *= std::exp(At(kDecay, DecayOf(place, d)));
  }
  // Returns the value of a step, less the value that the state has for its key by a delta rule.
  Numbers Change(const Place& place, const Numbers& state) const {
    Numbers change(static_cast<size_t>(value_size_));
    for (int64_t j = 0; j < value_size_; ++j) {
      double& value = change[detail::Index(j)] = At(kValue, place.value + j);
      for (int64_t d = 0; beta_row_ > 0 && d < size_; ++d)
        value -= At(kKey, place.key + d) * state[detail::Index(d * value_size_ + j)];
    }
    return change;
  }
  double Beta(const Place& place) const { return beta_row_ > 0 ? At(kBeta, place.beta) : 1; }

  void RunHead(int64_t sequence, int64_t head) {
    const int64_t count = size_ * value_size_, first = (sequence * heads_ + head) * count;
    Numbers state(static_cast<size_t>(count)), slope = state;
    for (int64_t i = 0; i < count; ++i) {
      if (!values_[kState].empty()) state[detail::Index(i)] = At(kState, first + i);
      if (!values_[kStateSlope].empty()) slope[detail::Index(i)] = At(kStateSlope, first + i);
    }
    std::vector<Numbers> decayed;  // the states after the decay of each step
    for (int64_t step = 0; step < steps_; ++step) {
      const Place place = PlaceOf(sequence, head, step);
      Decay(place, state);
      decayed.push_back(state);
      Add(place, Change(place, state), state);
    }
    for (int64_t step = steps_; step-- > 0;)
      StepBack(sequence, head, step, decayed[detail::Index(step)], slope);
    for (int64_t i = 0; i < count && !values_[kState].empty(); ++i)
      SlopeAt(kState, first + i) = slope[detail::Index(i)];
  }
  // Adds the product of the key and of beta times the change.
  void Add(const Place& place, const Numbers& change, Numbers& state) const {
    for (int64_t d = 0; d < size_; ++d)
      for (int64_t j = 0; j < value_size_; ++j)
        state[detail::Index(d * value_size_ + j)] +=
            At(kKey, place.key + d) * Beta(place) * change[detail::Index(j)];
  }
  // Replaces the gradient of the state after a step by that of the state before it.
  void StepBack(int64_t sequence, int64_t head, int64_t step, const Numbers& decayed,
                Numbers& slope) {
    const Place place = PlaceOf(sequence, head, step);
    const Numbers change = Change(place, decayed);
    Numbers state = decayed;
    Add(place, change, state);
    const int64_t group = query_heads_ / heads_;
    for (int64_t q = head * group; q < (head + 1) * group && !values_[kSlope].empty(); ++q) {
      const int64_t row = (sequence * steps_ + step) * query_heads_ + q;
      for (int64_t d = 0; d < size_; ++d)
        for (int64_t j = 0; j < value_size_; ++j) {
          const double given = scale_ * At(kSlope, row * value_size_ + j);
          const size_t at = detail::Index(d * value_size_ + j);
          slope[at] += At(kQuery, row * size_ + d) * given;
          SlopeAt(kQuery, row * size_ + d) += state[at] * given;
        }
    }
    const double beta = Beta(place);
    for (int64_t j = 0; j < value_size_; ++j) {
      double added = 0;
      for (int64_t d = 0; d < size_; ++d) {
        const double of = slope[detail::Index(d * value_size_ + j)];
        added += At(kKey, place.key + d) * of;
        SlopeAt(kKey, place.key + d) += of * beta * change[detail::Index(j)];
      }
      SlopeAt(kValue, place.value + j) += beta * added;
      if (beta_row_ == 0) continue;
      SlopeAt(kBeta, place.beta) += added * change[detail::Index(j)];
      for (int64_t d = 0; d < size_; ++d) {
        const size_t at = detail::Index(d * value_size_ + j);
        slope[at] -= At(kKey, place.key + d) * beta * added;
        SlopeAt(kKey, place.key + d) -= decayed[at] * beta * added;
      }
    }
    for (int64_t d = 0; decay_row_ > 0 && d < size_; ++d)
      for (int64_t j = 0; j < value_size_; ++j) {
        const size_t at = detail::Index(d * value_size_ + j);
        SlopeAt(kDecay, DecayOf(place, d)) += slope[at] * decayed[at];
        slope[at] *= std::exp(At(kDecay, DecayOf(place, d)));
      }
  }

  const int64_t query_heads_ = GetSingleArgument<int64_t>("q_num_heads");
  const int64_t heads_ = GetSingleArgument<int64_t>("kv_num_heads");
  const float given_scale_ = GetSingleArgument<float>("scale");
  // The extents of this run, the numbers of its inputs, and the gradients.
  int64_t steps_ = 0, size_ = 0, value_size_ = 0, decay_row_ = 0, beta_row_ = 0;
  double scale_ = 1;
  Numbers values_[kValues], slopes_[6];
};

OPKIT_STANDARD_OPERATOR(LinearAttention, kMaker, LinearAttentionOp)
    .NumInputs(3, 6)
    .NumOutputs(1, 2)
    .Input(0, "query", "[batch, steps, q_num_heads * size]", FloatTypes::DTypes())
    .Input(1, "key", "[batch, steps, kv_num_heads * size]", FloatTypes::DTypes())
    .Input(2, "value", "[batch, steps, kv_num_heads * v_size]", FloatTypes::DTypes())
    .Input(3, "past_state", "[batch, kv_num_heads, size, v_size]: by default 0",
           FloatTypes::DTypes())
    .Input(4, "decay",
           "[batch, steps, kv_num_heads] or [batch, steps, kv_num_heads * size]: logarithms of "
           "the factors of the state, for the gated rules",
           FloatTypes::DTypes())
    .Input(5, "beta",
           "[batch, steps, kv_num_heads] or [batch, steps, 1]: how far a value replaces that of "
           "its key, for the delta rules",
           FloatTypes::DTypes())
    .Output(0, "output", "[batch, steps, q_num_heads * v_size]", FloatTypes::DTypes())
    .Output(1, "present_state",
            "[batch, kv_num_heads, size, v_size]: after the last step, of the type of past_state",
            FloatTypes::DTypes())
    .FillUsing(detail::FillLinearAttentionAttributes)
    .Flops([](auto& c) {
      const Shape values = c.input(2).shape.ToShape();
      return values.rank() < 3
                 ? 0
                 : 4 * OpSchema::Elements(c.input(0)) * static_cast<uint64_t>(values.dim(-1));
    })
    .Infer(detail::InferLinearAttention)
    .Doc(
        "A recurrence over steps: the state is a matrix to which each step adds the outer product "
        "of its key and value, and the output is the product of the query and the state. The plain "
        "kernel computes in float.");

OPKIT_STANDARD_OPERATOR(LinearAttentionGradient, kNotImplemented, LinearAttentionGradientOp)
    .Private()
    .NumInputs(7, 8)
    .NumOutputs(3, 6)
    .Input(0, "query", "of LinearAttention", FloatTypes::DTypes())
    .Input(1, "key", "of LinearAttention", FloatTypes::DTypes())
    .Input(2, "value", "of LinearAttention", FloatTypes::DTypes())
    .Input(3, "past_state", "of LinearAttention", FloatTypes::DTypes())
    .Input(4, "decay", "of LinearAttention", FloatTypes::DTypes())
    .Input(5, "beta", "of LinearAttention", FloatTypes::DTypes())
    .Input(6, "doutput", "of the first output; optional: 0", FloatTypes::DTypes())
    .Input(7, "dpresent_state", "of the second output; optional: 0", FloatTypes::DTypes())
    .Output(0, "dquery", "as the query")
    .Output(1, "dkey", "as the key")
    .Output(2, "dvalue", "as the value")
    .Output(3, "dpast_state", "as the past state, optional")
    .Output(4, "ddecay", "as the decay, optional")
    .Output(5, "dbeta", "as beta, optional")
    .FillUsing(detail::FillLinearAttentionAttributes)
    .PointwiseCost(100)
    .Infer([](InferenceContext& c) {
      for (int o = 0; o < c.num_outputs(); ++o)
        c.SetOutput(o, c.input_dtype(c.HasInput(o) ? o : 0), c.input_shape(o));
    })
    .Doc("The gradients of a LinearAttention, from those of its outputs.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_LINEAR_ATTENTION_HPP_
