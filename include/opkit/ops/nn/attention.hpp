// Attention: scaled dot products of queries and keys weigh values. Sources:
// https://onnx.ai/onnx/operators/onnx__Attention.html, opset 24; Vaswani et al., "Attention Is All
// You Need", 2017 (https://arxiv.org/abs/1706.03762).
#ifndef OPKIT_OPS_NN_ATTENTION_HPP_
#define OPKIT_OPS_NN_ATTENTION_HPP_

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The extents of one of Q, K and V: rows of `size` numbers for each step of each head.
struct AttentionHeads {
  Dim batch, heads, steps, size;

  // Reads [batch, heads, steps, size], or [batch, steps, heads * size] with the number of heads in
  // `attribute`. Throws kInvalidArgument for other shapes.
  static AttentionHeads Of(const SymbolicShape& shape, const Arguments& args,
                           const char* attribute) {
    if (!shape.has_rank()) return {};
    if (shape.rank() == 4) return {shape[0], shape[1], shape[2], shape[3]};
    const auto heads = args.Get<int64_t>(attribute, 0);
    if (shape.rank() != 3 || heads <= 0)
      Throw(ErrorCode::kInvalidArgument, "Attention: an input has shape ", ToString(shape),
            ", and ", attribute, " is ", heads,
            "; expected rank 4, or rank 3 and a number of heads");
    Dim size;
    if (shape[2].is_known()) {
      if (shape[2].value() % heads != 0)
        Throw(ErrorCode::kInvalidArgument, "Attention: the last extent of ", ToString(shape),
              " is no multiple of ", attribute, "=", heads);
      size = shape[2].value() / heads;
    }
    return {shape[0], heads, shape[1], size};
  }
};

inline void InferAttention(InferenceContext& c) {
  const SymbolicShape &shape_q = c.input_shape(0), &shape_k = c.input_shape(1);
  const SymbolicShape& shape_v = c.input_shape(2);
  if (c.Arg<int64_t>("qk_matmul_output_mode") < 0 || c.Arg<int64_t>("qk_matmul_output_mode") > 3)
    Throw(ErrorCode::kInvalidArgument, "Attention: qk_matmul_output_mode is ",
          c.Arg<int64_t>("qk_matmul_output_mode"), ", expected 0 to 3");
  auto fail = [&](const char* expected) {
    Throw(ErrorCode::kInvalidArgument, "Attention: Q ", ToString(shape_q), ", K ",
          ToString(shape_k), ", V ", ToString(shape_v), ": expected ", expected);
  };
  const bool has_past = c.HasInput(4);
  if (has_past != c.HasInput(5)) fail("past_key and past_value, or neither");
  if (has_past && c.HasInput(6)) fail("no nonpad_kv_seqlen beside past_key");
  if (shape_q.has_rank() && shape_k.has_rank() && shape_q.rank() != shape_k.rank())
    fail("one rank");
  if (shape_q.has_rank() && shape_v.has_rank() && shape_q.rank() != shape_v.rank())
    fail("one rank");
  const auto q = AttentionHeads::Of(shape_q, c.args(), "q_num_heads");
  const auto k = AttentionHeads::Of(shape_k, c.args(), "kv_num_heads");
  const auto v = AttentionHeads::Of(shape_v, c.args(), "kv_num_heads");
  if (!Dim::Compatible(q.batch, k.batch) || !Dim::Compatible(q.batch, v.batch)) fail("one batch");
  if (!Dim::Compatible(q.size, k.size)) fail("queries and keys of one size");
  if (!Dim::Compatible(k.heads, v.heads) || !Dim::Compatible(k.steps, v.steps))
    fail("as many values as keys");
  if (q.heads.is_known() && k.heads.is_known() &&
      (k.heads.value() == 0 || q.heads.value() % k.heads.value() != 0))
    fail("a number of query heads that is a multiple of the number of key heads");
  Dim total = has_past ? Dim() : k.steps;
  if (has_past) {
    const SymbolicShape &past_k = c.input_shape(4), &past_v = c.input_shape(5);
    auto expect = [&](const SymbolicShape& past, const AttentionHeads& now, const char* name) {
      if (!past.has_rank()) return;
      if (past.rank() != 4 || !Dim::Compatible(past[0], now.batch) ||
          !Dim::Compatible(past[1], now.heads) || !Dim::Compatible(past[3], now.size))
        Throw(ErrorCode::kInvalidArgument, "Attention: ", name, " has shape ", ToString(past),
              ", expected [", ToString(now.batch), ", ", ToString(now.heads), ", any, ",
              ToString(now.size), "]");
    };
    expect(past_k, k, "past_key");
    expect(past_v, v, "past_value");
    if (past_k.has_rank() && past_v.has_rank() && !Dim::Compatible(past_k[2], past_v[2]))
      fail("past_key and past_value of one length");
    if (past_k.has_rank() && past_k[2].is_known() && k.steps.is_known())
      total = past_k[2].value() + k.steps.value();
  }
  const SymbolicShape scores({q.batch, q.heads, q.steps, total});
  if (c.HasInput(3) && c.input_shape(3).has_rank()) {
    const SymbolicShape& mask = c.input_shape(3);
    bool fits = mask.rank() >= 1 && mask.rank() <= 4;
    for (int i = 1; fits && i <= mask.rank(); ++i) {
      const Dim have = mask[-i], want = scores[4 - i];
      if (!have.is_known() || !want.is_known()) continue;
      fits = i == 1 ? have.value() <= want.value() : have.value() == 1 || have == want;
    }
    if (!fits)
      Throw(ErrorCode::kInvalidArgument, "Attention: attn_mask has shape ", ToString(mask),
            ", which cannot be broadcast to ", ToString(scores));
  }
  if (c.HasInput(6) && c.input_shape(6).has_rank() &&
      (c.input_shape(6).rank() != 1 || !Dim::Compatible(c.input_shape(6)[0], q.batch)))
    fail("one nonpad_kv_seqlen for each element of the batch");

  SymbolicShape y;
  if (shape_q.has_rank() && shape_q.rank() == 4) y = {q.batch, q.heads, q.steps, v.size};
  if (shape_q.has_rank() && shape_q.rank() == 3) {
    Dim size;
    if (v.size.is_known()) size = q.heads.value() * v.size.value();
    y = {q.batch, q.steps, size};
  }
  c.SetOutput(0, c.input_dtype(0), y);
  if (c.num_outputs() > 1) c.SetOutput(1, c.input_dtype(1), {k.batch, k.heads, total, k.size});
  if (c.num_outputs() > 2) c.SetOutput(2, c.input_dtype(2), {v.batch, v.heads, total, v.size});
  if (c.num_outputs() > 3) c.SetOutput(3, c.input_dtype(0), scores);
}

}  // namespace detail

// Where the rows of a dense tensor of queries, keys or values lie.
struct AttentionRows {
  int64_t batch = 0, heads = 0, steps = 0, size = 0;
  bool packed = false;  // rank 3: the heads of a step are neighbours

  OPKIT_HOST_DEVICE int64_t At(int64_t b, int64_t head, int64_t step) const {
    return (packed ? (b * steps + step) * heads + head : (b * heads + head) * steps + step) * size;
  }
  // Returns the elements from a row to that of the next step.
  int64_t RowStep() const { return packed ? heads * size : size; }
  // Returns the same rows with another size, such as those of Y, which lie as those of Q.
  AttentionRows OfSize(int64_t other) const { return {batch, heads, steps, other, packed}; }
};
// The rows of the inputs of a node.
struct AttentionExtents {
  AttentionRows query, key, value;
  int64_t past, total;  // keys before K, and all keys

  // `past_key` is null without a past. The shapes must have passed inference.
  AttentionExtents(const Arguments& args, const Shape& q, const Shape& k, const Shape& v,
                   const Shape* past_key)
      : query(Rows(q, args, "q_num_heads")),
        key(Rows(k, args, "kv_num_heads")),
        value(Rows(v, args, "kv_num_heads")),
        past(past_key ? (*past_key)[2] : 0),
        total(past + key.steps) {}

 private:
  static AttentionRows Rows(const Shape& x, const Arguments& args, const char* attribute) {
    const auto found = detail::AttentionHeads::Of(x, args, attribute);
    return {found.batch.value(), found.heads.value(), found.steps.value(), found.size.value(),
            x.rank() == 3};
  }
};

// Where the numbers of a mask lie for the scores of a query.
struct AttentionMaskRows {
  int64_t extent = 0;           // keys from here on do not count
  int64_t rows[3] = {0, 0, 0};  // steps of the axes before the last one

  AttentionMaskRows() = default;
  AttentionMaskRows(const Shape& mask, int64_t total)
      : extent(mask.dim(-1) < total ? mask.dim(-1) : total) {
    int64_t step = mask.dim(-1);
    for (int i = 2; i <= mask.rank(); ++i) {
      if (mask.dim(-i) != 1) rows[4 - i] = step;
      step *= mask.dim(-i);
    }
  }
  OPKIT_HOST_DEVICE int64_t At(int64_t batch, int64_t head, int64_t step) const {
    return batch * rows[0] + head * rows[1] + step * rows[2];
  }
};

// The attributes and the extents of a node. Base is a StandardOperator of some device.
template <class Base>
class AttentionOn : public Base {
 public:
  using Base::Base;

 protected:
  AttentionExtents ExtentsNow() {
    this->Infer();  // refuses inputs whose shapes do not fit
    return AttentionExtents(this->def().args(), this->Input(0).shape(), this->Input(1).shape(),
                            this->Input(2).shape(),
                            this->HasInput(4) ? &this->Input(4).shape() : nullptr);
  }
  double ScaleFor(int64_t size) const {
    return this->HasArgument("scale")
               ? static_cast<double>(this->template GetSingleArgument<float>("scale", 1))
               : 1 / std::sqrt(static_cast<double>(size));
  }

  const bool causal_ = this->template GetSingleArgument<int64_t>("is_causal") != 0;
  const int64_t mode_ = this->template GetSingleArgument<int64_t>("qk_matmul_output_mode");
  const double softcap_ = static_cast<double>(this->template GetSingleArgument<float>("softcap"));
};

// The base of the kernels of Attention on the CPU.
class AttentionOpBase : public AttentionOn<StandardOperator> {
 public:
  using AttentionOn::AttentionOn;

 protected:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using Heads = AttentionRows;

  // A mask as numbers to add to the scores.
  template <class C>
  struct Mask : AttentionMaskRows {
    std::vector<C> numbers;
    bool given = false;

    // Returns the numbers for the scores of a query.
    const C* Row(int64_t batch, int64_t head, int64_t step) const {
      return numbers.data() + At(batch, head, step);
    }
  };
  // The extents of the inputs of a run, and how many keys count.
  struct Problem {
    Heads query, key, value;
    int64_t past, total;
    std::vector<int64_t> lengths;  // of each element of the batch: its first keys, which count
  };

  Problem ReadProblem() {
    const AttentionExtents extents = ExtentsNow();
    Problem problem{extents.query, extents.key, extents.value, extents.past, extents.total, {}};
    problem.lengths.assign(detail::Index(problem.query.batch), problem.total);
    if (!HasInput(6)) return problem;
    problem.lengths = IntegersOf(Input(6));
    for (const int64_t length : problem.lengths)
      if (length < 0 || length > problem.total)
        Throw(ErrorCode::kOutOfRange, "Attention: nonpad_kv_seqlen has ", length,
              ", expected 0 to ", problem.total);
    return problem;
  }
  template <class C>
  Mask<C> ReadMask(int64_t total) {
    Mask<C> mask;
    mask.extent = total;
    if (!HasInput(3)) return mask;
    const Tensor& x = DenseInput(3);
    mask.given = true;
    static_cast<AttentionMaskRows&>(mask) = AttentionMaskRows(x.shape(), total);
    mask.numbers.resize(detail::Index(x.numel()));
    C* out = mask.numbers.data();
    PlainTypes::Visit(x.dtype(), [&]<class T>() {
      const T* in = static_cast<const T*>(x.raw_data());
      for (int64_t i = 0; i < x.numel(); ++i)
        if constexpr (std::is_same_v<T, bool>)
          out[i] = static_cast<C>(in[i] ? 0 : -kInfinity);
        else
          out[i] = static_cast<C>(in[i]);
    });
    return mask;
  }
  // Copies the past and the present steps to outputs 1 and 2, if the node has them.
  void WritePresents(const Problem& problem) {
    if (HasOutput(1)) WritePresent(4, DenseInput(1), problem.key, InferredOutput(1));
    if (HasOutput(2)) WritePresent(5, DenseInput(2), problem.value, InferredOutput(2));
  }

  // Computes the weights of all keys for a query `from`, in double. `keys` are those of its head,
  // [size, total]. Calls show(0), show(1) and so on when `scores` are what qk_matmul_output_mode
  // says.
  template <class F>
  void WeighKeys(const Problem& problem, const Mask<double>& mask, const double* from,
                 const double* keys, const std::array<int64_t, 3>& place,
                 std::vector<double>* scores, F&& show) const {
    const auto [batch, head, step] = place;
    const double scale = ScaleFor(problem.query.size);
    scores->assign(detail::Index(problem.total), 0);
    for (int64_t i = 0; i < problem.query.size; ++i) {
      const double* line = keys + i * problem.total;
      for (int64_t j = 0; j < problem.total; ++j)
        (*scores)[detail::Index(j)] += from[i] * scale * line[j];
    }
    show(0);
    if (softcap_ > 0)
      for (double& score : *scores) score = softcap_ * std::tanh(score / softcap_);
    show(1);
    const double* added = mask.Row(batch, head, step);
    const int64_t length = problem.lengths[detail::Index(batch)];
    for (int64_t j = 0; j < problem.total; ++j) {
      double& score = (*scores)[detail::Index(j)];
      if (mask.given) score += j < mask.extent ? added[j] : -kInfinity;
      if (j >= length || (causal_ && j > problem.past + step)) score = -kInfinity;
    }
    show(2);
    Softmax(scores);
    show(3);
  }
  // Returns the past and the present steps as [batch, heads, steps, size], or with the last two
  // axes transposed.
  std::vector<double> Joined(int past_input, const Tensor& now, const Heads& at, bool transposed) {
    const std::vector<double> fresh = detail::NumbersOf<double>(now);
    std::vector<double> old;
    if (HasInput(past_input)) old = detail::NumbersOf<double>(DenseInput(past_input));
    const int64_t before = HasInput(past_input) ? Input(past_input).dim(2) : 0;
    const int64_t total = before + at.steps;
    std::vector<double> all(detail::Index(at.batch * at.heads * total * at.size));
    for (int64_t head = 0; head < at.batch * at.heads; ++head)
      for (int64_t step = 0; step < total; ++step) {
        const double* from =
            step < before ? old.data() + (head * before + step) * at.size
                          : fresh.data() + at.At(head / at.heads, head % at.heads, step - before);
        double* to = all.data() + head * total * at.size + step * (transposed ? 1 : at.size);
        for (int64_t i = 0; i < at.size; ++i) to[i * (transposed ? total : 1)] = from[i];
      }
    return all;
  }
  static void Softmax(std::vector<double>* scores) {
    double largest = -kInfinity, sum = 0;
    for (const double score : *scores) largest = largest < score ? score : largest;
    for (double& score : *scores) sum += score = std::exp(score - largest);
    for (double& score : *scores) score /= sum;
  }
  static void Write(const std::vector<double>& numbers, Tensor* to) {
    FloatTypes::Visit(to->dtype(), [&]<class T>() {
      T* out = to->mutable_data<T>();
      for (const double number : numbers) *out++ = ConvertElement<T>(number);
    });
  }

 private:
  void WritePresent(int past_input, const Tensor& now, const Heads& at, Tensor* to) {
    const Tensor* past = HasInput(past_input) ? &DenseInput(past_input) : nullptr;
    const int64_t row = at.size * ItemSize(now.dtype());
    const int64_t before = past ? past->dim(2) : 0;
    if (to->numel() == 0) return;
    const auto copy = [](char* out, const Tensor& from, int64_t offset, int64_t bytes) {
      std::memcpy(out, static_cast<const char*>(from.raw_data()) + offset,
                  static_cast<size_t>(bytes));
    };
    ParallelFor(at.batch * at.heads, [&](int64_t head) {
      char* out = static_cast<char*>(to->raw_mutable_data()) + head * (before + at.steps) * row;
      if (before > 0) copy(out, *past, head * before * row, before * row);
      out += before * row;
      for (int64_t step = 0; step < at.steps; ++step, out += row)
        copy(out, now, at.At(head / at.heads, head % at.heads, step) * ItemSize(now.dtype()), row);
    });
  }
};

// Computes in double. Each thread computes whole rows of the scores.
class AttentionOp final : public AttentionOpBase {
 public:
  using AttentionOpBase::AttentionOpBase;
  bool RunOnDevice() override {
    const Problem problem = ReadProblem();
    const Heads &query = problem.query, &key = problem.key, &value = problem.value;
    const int64_t total = problem.total;
    const Mask mask = ReadMask<double>(total);
    Tensor* y = InferredOutput(0);
    WritePresents(problem);
    Tensor* shown = HasOutput(3) ? InferredOutput(3) : nullptr;

    const std::vector<double> queries = detail::NumbersOf<double>(DenseInput(0));
    const std::vector<double> keys = Joined(4, DenseInput(1), key, true);
    const std::vector<double> values = Joined(5, DenseInput(2), value, false);
    std::vector<double> results(detail::Index(y->numel()));
    std::vector<double> shown_scores(shown ? detail::Index(shown->numel()) : 0);
    ParallelFor(query.batch * query.heads * query.steps, [&](int64_t row) {
      const int64_t step = row % query.steps, head = row / query.steps % query.heads;
      const int64_t batch = row / (query.steps * query.heads);
      const int64_t group = batch * key.heads + head / (query.heads / key.heads);
      std::vector<double> scores;
      WeighKeys(problem, mask, queries.data() + query.At(batch, head, step),
                keys.data() + group * query.size * total, {batch, head, step}, &scores,
                [&](int64_t mode) {
                  if (shown && mode == mode_)
                    std::copy(scores.begin(), scores.end(), shown_scores.begin() + row * total);
                });
      double* to = results.data() + query.OfSize(value.size).At(batch, head, step);
      for (int64_t j = 0; j < total; ++j) {
        const double weight = scores[detail::Index(j)];
        if (weight == 0) continue;  // behind the end of a sequence the values may be anything
        const double* line = values.data() + (group * total + j) * value.size;
        for (int64_t i = 0; i < value.size; ++i) to[i] += weight * line[i];
      }
    });
    Write(results, y);
    if (shown) Write(shown_scores, shown);
    return true;
  }
};

// Computes the weights again, in double. Its inputs are those of Attention, and then the gradients
// of its outputs.
class AttentionGradientOp final : public AttentionOpBase {
 public:
  using AttentionOpBase::AttentionOpBase;
  bool RunOnDevice() override {
    const Problem problem = ReadProblem();
    const Heads &query = problem.query, &key = problem.key, &value = problem.value;
    const int64_t total = problem.total, sharing = query.heads / key.heads;
    const Mask mask = ReadMask<double>(total);
    const int64_t groups = query.batch * key.heads;
    const double scale = ScaleFor(query.size);
    const std::vector<double> queries = detail::NumbersOf<double>(DenseInput(0));
    const std::vector<double> across = Joined(4, DenseInput(1), key, true);
    const std::vector<double> keys = Joined(4, DenseInput(1), key, false);
    const std::vector<double> values = Joined(5, DenseInput(2), value, false);
    const std::vector<double> dy = Given(7, query.batch * query.heads * query.steps * value.size);
    const std::vector<double> dscores = Given(10, query.batch * query.heads * query.steps * total);
    std::vector<double> dq(queries.size()), dk = Given(8, groups * total * key.size);
    std::vector<double> dv = Given(9, groups * total * value.size), dmask(mask.numbers.size());
    // Heads share a mask, so a single thread sums its gradient over them.
    const int64_t grain = HasOutput(3) ? groups : 1;
    ParallelForRange(groups, grain, [&](int64_t begin, int64_t end) {
      std::vector<double> weights, slopes(detail::Index(total), 1);
      for (int64_t i = begin * sharing * query.steps; i < end * sharing * query.steps; ++i) {
        const int64_t group = i / (sharing * query.steps), batch = group / key.heads;
        const int64_t head = i / query.steps % query.heads, step = i % query.steps;
        const int64_t at = query.At(batch, head, step);
        WeighKeys(problem, mask, queries.data() + at, across.data() + group * query.size * total,
                  {batch, head, step}, &weights, [&](int64_t mode) {
                    for (int64_t j = 0; mode == 1 && softcap_ > 0 && j < total; ++j) {
                      const double part = weights[detail::Index(j)] / softcap_;
                      slopes[detail::Index(j)] = 1 - part * part;
                    }
                  });
        const double* from = dy.data() + query.OfSize(value.size).At(batch, head, step);
        const double* shown = dscores.data() + i * total;
        std::vector<double> products(detail::Index(total), 0);
        double mean = 0;
        for (int64_t j = 0; j < total; ++j) {
          const double weight = weights[detail::Index(j)];
          double& product = products[detail::Index(j)];
          if (mode_ == 3) product = shown[j];
          const int64_t row = (group * total + j) * value.size;
          for (int64_t n = 0; weight != 0 && n < value.size; ++n) {
            product += from[n] * values[detail::Index(row + n)];
            dv[detail::Index(row + n)] += weight * from[n];
          }
          mean += weight * product;
        }
        for (int64_t j = 0; j < total; ++j) {
          // From the weight backwards: the softmax, the mask, softcap and the scale.
          const double weight = weights[detail::Index(j)];
          double slope = weight == 0 ? 0 : weight * (products[detail::Index(j)] - mean);
          if (mode_ == 2 && weight != 0) slope += shown[j];
          if (mask.given && j < mask.extent)
            dmask[detail::Index(mask.Row(batch, head, step) - mask.numbers.data() + j)] += slope;
          if (mode_ == 1) slope += shown[j];
          slope *= slopes[detail::Index(j)];
          if (mode_ == 0) slope += shown[j];
          if (slope == 0) continue;  // behind the end of a sequence the keys may be anything
          const int64_t row = (group * total + j) * key.size;
          for (int64_t n = 0; n < key.size; ++n) {
            dq[detail::Index(at + n)] += slope * scale * keys[detail::Index(row + n)];
            dk[detail::Index(row + n)] += slope * scale * queries[detail::Index(at + n)];
          }
        }
      }
    });
    if (HasOutput(0)) Write(dq, InferredOutput(0));
    if (HasOutput(3)) Write(dmask, InferredOutput(3));
    WriteParts(dk, key, problem.past, 1, 4);
    WriteParts(dv, value, problem.past, 2, 5);
    return true;
  }

 private:
  // Returns the gradient of an output in input i; zeros if there is none.
  std::vector<double> Given(int i, int64_t size) {
    if (HasInput(i)) return detail::NumbersOf<double>(DenseInput(i));
    return std::vector<double>(detail::Index(size));
  }
  // Writes the gradients of the steps of the past, and of the present ones.
  void WriteParts(const std::vector<double>& all, const Heads& at, int64_t past, int now_output,
                  int past_output) {
    std::vector<double> old, now(detail::Index(at.batch * at.heads * at.steps * at.size));
    for (int64_t head = 0; head < at.batch * at.heads; ++head)
      for (int64_t step = 0; step < past + at.steps; ++step) {
        const double* from = all.data() + (head * (past + at.steps) + step) * at.size;
        if (step < past)
          old.insert(old.end(), from, from + at.size);
        else
          std::copy(from, from + at.size,
                    now.begin() + at.At(head / at.heads, head % at.heads, step - past));
      }
    if (HasOutput(now_output)) Write(now, InferredOutput(now_output));
    if (HasOutput(past_output)) Write(old, InferredOutput(past_output));
  }
};

namespace detail {

OPKIT_NODE_GRADIENT(Attention) {
  Arguments args = Def().args();
  args.Remove("softmax_precision");
  GiveTogether("AttentionGradient", 7, {0, 1, 2, 3, 4, 5}, std::move(args));
}

}  // namespace detail

OPKIT_STANDARD_OPERATOR(Attention, kMaker, AttentionOp)
    .NumInputs(3, 7)
    .NumOutputs(1, 4)
    .Input(0, "Q", "[batch, q_heads, q_steps, size] or [batch, q_steps, q_heads * size]: queries",
           FloatTypes::DTypes())
    .Input(1, "K", "[batch, kv_heads, steps, size] or [batch, steps, kv_heads * size]: keys",
           FloatTypes::DTypes())
    .Input(2, "V", "[batch, kv_heads, steps, v_size] or [batch, steps, kv_heads * v_size]: values",
           FloatTypes::DTypes())
    .Input(3, "attn_mask",
           "can be broadcast to the scores, but a shorter last axis means that the keys behind it "
           "do not count; bool: which keys count; numbers are added to the scores",
           PlainTypes::DTypes())
    .Input(4, "past_key", "[batch, kv_heads, past, size]: keys before K", FloatTypes::DTypes())
    .Input(5, "past_value", "[batch, kv_heads, past, v_size]: values before V",
           FloatTypes::DTypes())
    .Input(6, "nonpad_kv_seqlen", "[batch]: the number of first keys that count", {DType::kInt64})
    .Output(0, "Y", "[batch, q_heads, q_steps, v_size] or [batch, q_steps, q_heads * v_size]",
            FloatTypes::DTypes())
    .Output(1, "present_key", "[batch, kv_heads, past + steps, size]: past_key and K",
            FloatTypes::DTypes())
    .Output(2, "present_value", "[batch, kv_heads, past + steps, v_size]: past_value and V",
            FloatTypes::DTypes())
    .Output(3, "qk_matmul_output", "[batch, q_heads, q_steps, past + steps]: the scores",
            FloatTypes::DTypes())
    .Arg<int64_t>("is_causal", "1: query i sees the past and the first i + 1 keys", 0)
    .Arg<int64_t>("kv_num_heads", "the number of heads of K and V of rank 3")
    .Arg<int64_t>("q_num_heads",
                  "the number of heads of Q of rank 3; a multiple of that of K: neighbouring heads "
                  "share a head of K and V")
    .Arg<int64_t>("qk_matmul_output_mode",
                  "which scores are an output: 0: the scaled products; 1: after softcap; 2: after "
                  "the masks; 3: after the softmax",
                  0)
    .Arg<float>("scale", "the factor of the products; by default 1 / sqrt(size)")
    .Arg<float>("softcap", "above 0: scores are softcap * tanh(score / softcap)", 0.f)
    .Arg<int64_t>("softmax_precision",
                  "ONNX's number of the type of the softmax; opkit computes in double anyway")
    .Flops([](auto& c) {
      const Shape keys = c.input(1).shape.ToShape();
      return keys.rank() < 2
                 ? 0
                 : 4 * OpSchema::Elements(c.input(0)) * static_cast<uint64_t>(keys.dim(-2));
    })
    .Infer(detail::InferAttention)
    .Doc(
        "The sum of values that the softmax of the scaled products of queries and keys weighs. A "
        "query that sees no key gives NaN.");

OPKIT_STANDARD_OPERATOR(AttentionGradient, kNotImplemented, AttentionGradientOp)
    .NumInputs(7, 11)
    .NumOutputs(1, 6)
    .Private()
    .Arg<int64_t>("is_causal", "of Attention", 0)
    .Arg<int64_t>("kv_num_heads", "of Attention")
    .Arg<int64_t>("q_num_heads", "of Attention")
    .Arg<int64_t>("qk_matmul_output_mode", "of Attention", 0)
    .Arg<float>("scale", "of Attention")
    .Arg<float>("softcap", "of Attention", 0.f)
    .Infer([](InferenceContext& c) {
      for (int i = 0; i < c.num_outputs(); ++i)
        if (c.HasInput(i))
          c.SetOutput(i, FloatTypes::Has(c.input_dtype(i)) ? c.input_dtype(i) : c.input_dtype(0),
                      c.input_shape(i));
    })
    .Doc("The gradients of the inputs of Attention, its first six.");

}}  // namespace opkit

#endif  // OPKIT_OPS_NN_ATTENTION_HPP_
