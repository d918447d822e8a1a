// Attention of the backend "cublas": the products of queries and keys, the softmax of each row by a
// loop, and the products with the values.
#ifndef OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_ATTENTION_HPP_
#define OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_ATTENTION_HPP_

#include "opkit/backends/cuda/libraries/cublas.hpp"
#include "opkit/backends/cuda/ops/moving/index_fault.hpp"
#include "opkit/backends/cuda/ops/rows/reduction.hpp"
#include "opkit/ops/nn/attention.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Copies rows to rows that lie in another order, behind rows of the past. Thread i copies element i
// of [batch, heads, steps, size].
template <class T>
struct AttentionCopy {
  AttentionRows from, to;
  const T *now, *past;  // `now` is null for zeros
  int64_t before;       // rows of the past
  T* out;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t x = i % to.size, row = i / to.size, step = row % to.steps;
    const int64_t head = row / to.steps % to.heads, b = row / to.steps / to.heads;
    T value{};
    if (step < before)
      value = past[((b * to.heads + head) * before + step) * to.size + x];
    else if (now)
      value = now[from.At(b, head, step - before) + x];
    out[to.At(b, head, step) + x] = value;
  }
};

// Makes weights of the scaled products of a query and all keys.
template <class T>
struct AttentionWeights {
  using C = CUDASumType<T>;
  using Fold = ReduceAsLogSumExp<C, C>;
  C* scores;          // [batch, heads, steps, total]
  bool has_products;  // else all products are 0
  T* weights;         // may be `scores`
  T* shown;           // null: no output
  int64_t mode;       // of the scores in `shown`
  int64_t heads, steps, past, total;
  C softcap;
  bool causal;
  CUDAIndices lengths;
  bool has_mask;  // a mask without elements has no address
  const T* mask;  // null: none, or a mask of bool
  const uint8_t* bool_mask;
  AttentionMaskRows mask_rows;

  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    constexpr C kInfinity = std::numeric_limits<C>::infinity();
    const int64_t step = row % steps, head = row / steps % heads, batch = row / steps / heads;
    const int64_t length = lengths.Length(batch, total), first = row * total;
    const int64_t of_mask = mask_rows.At(batch, head, step);
    auto all = Fold::Start();
    team.Each(total, [&](int64_t j) {
      C score = has_products ? scores[first + j] : C{0};
      Show(0, first + j, score);
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      Show(1, first + j, score);
      if (has_mask) {
        if (j >= mask_rows.extent)
          score += -kInfinity;
        else if (mask)
          score += static_cast<C>(mask[of_mask + j]);
        else if (!bool_mask[of_mask + j])
          score += -kInfinity;
      }
      if (j >= length || (causal && j > past + step)) score = -kInfinity;
      Show(2, first + j, score);
      scores[first + j] = score;
      Fold::Add(all, score);
    });
    all = team.Combine(all, MergedBy<Fold>());
    // The difference is 0, or NaN if no key counts: then the row is NaN.
    const C sum = all.sum + (all.largest - all.largest);
    // Each thread reads the scores that it has written.
    team.Each(total, [&](int64_t j) {
      const C weight = std::exp(scores[first + j] - all.largest) / sum;
      Show(3, first + j, weight);
      weights[first + j] = ElementOfSum<T>(weight);
    });
  }

 private:
  OPKIT_DEVICE void Show(int64_t now, int64_t at, C value) const {
    if (shown && now == mode) shown[at] = ElementOfSum<T>(value);
  }
};

// Sums an element of the result that is NaN again, without the values whose weight is 0: their
// product with 0 is NaN if they are infinite or NaN.
template <class T>
struct AttentionSumAgain {
  using C = CUDASumType<T>;
  const T *weights, *values;  // [rows, total], and [groups, total, size] for the groups of rows
  int64_t group_rows, total, size;
  T* y;  // [rows, size]
  OPKIT_DEVICE void operator()(int64_t i) const {
    if (const C found = static_cast<C>(y[i]); found == found) return;
    const int64_t row = i / size, first = row / group_rows * total * size + i % size;
    C sum = 0;
    for (int64_t j = 0; j < total; ++j)
      if (const C weight = static_cast<C>(weights[row * total + j]); weight != 0)
        sum += weight * static_cast<C>(values[first + j * size]);
    y[i] = ElementOfSum<T>(sum);
  }
};

// How a node is computed: which rows are copied, and where the parts of the scratch memory begin.
struct AttentionSteps {
  CublasParts all;
  bool copies_q, copies_y, joins_k, joins_v;
  int64_t q = 0, k = 0, v = 0, scores = 0, weights = 0, y = 0;

  // The node may have outputs for the keys and the values.
  AttentionSteps(const AttentionExtents& e, DType dtype, bool gives_keys, bool gives_values)
      : copies_q(IsPacked(e.query)),
        copies_y(IsPacked(e.query)),
        joins_k(gives_keys || e.past > 0 || IsPacked(e.key)),
        joins_v(gives_values || e.past > 0 || IsPacked(e.value)) {
    const int64_t element = ItemSize(dtype), sum = element < 4 ? 4 : element;
    const int64_t rows = e.query.batch * e.query.heads * e.query.steps;
    const int64_t keys = e.key.batch * e.key.heads * e.total;
    if (copies_q) q = all.Add(rows * e.query.size * element);
    if (joins_k && !gives_keys) k = all.Add(keys * e.key.size * element);
    if (joins_v && !gives_values) v = all.Add(keys * e.value.size * element);
    scores = all.Add(rows * e.total * sum);
    weights = element == sum ? scores : all.Add(rows * e.total * element);
    if (copies_y) y = all.Add(rows * e.value.size * element);
  }

 private:
  static bool IsPacked(const AttentionRows& rows) { return rows.packed && rows.steps != 1; }
};

}  // namespace detail

class CublasAttentionOp final : public AttentionOn<CUDAIndexedOperator> {
 public:
  using AttentionOn::AttentionOn;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<FloatTypes>(query);
    const auto has = [&](size_t i) {
      return i < query.def.inputs().size() && !query.def.inputs()[i].empty();
    };
    const auto gives = [&](size_t o) {
      return o < query.def.outputs().size() && !query.def.outputs()[o].empty();
    };
    const DType dtype = query.inputs[0].dtype;
    for (const size_t i : {1, 2, 4, 5})
      if (has(i)) RequireDTypes(query, i, {dtype});
    if (has(3)) RequireDTypes(query, 3, {dtype, DType::kBool});
    KernelConfig config;
    config.scratch_bytes = detail::kCublasScratch;
    bool is_known = true;
    for (const size_t i : {0, 1, 2, 4})
      is_known = is_known && (!has(i) || query.inputs[i].shape.is_known());
    if (is_known) {
      const auto shape = [&](size_t i) { return query.inputs[i].shape.ToShape(); };
      const Shape past = has(4) ? shape(4) : Shape();
      const AttentionExtents extents(query.def.args(), shape(0), shape(1), shape(2),
                                     has(4) ? &past : nullptr);
      config.scratch_bytes = detail::AttentionSteps(extents, dtype, gives(1), gives(2)).all.size();
    }
    return {std::move(config)};
  }

 private:
  bool RunIndexed() override {
    const AttentionExtents extents = ExtentsNow();
    const DType dtype = Input(0).dtype();
    for (const int i : {1, 2, 3, 4, 5}) {
      if (!HasInput(i)) continue;
      const DType found = Input(i).dtype();
      if (found == dtype || (i == 3 && found == DType::kBool)) continue;
      throw UnsupportedOperatorFeature(
          StrCat("the kernel of Attention for \"cublas\" computes inputs of one dtype, and input ",
                 i, " is ", Input(i)));
    }
    return Visit<FloatTypes>([&]<class T>() { Run<T>(extents); });
  }

  template <class T>
  void Run(const AttentionExtents& e) {
    using C = detail::CUDASumType<T>;
    T *const y = Result<T>(0), *const present_k = Result<T>(1), *const present_v = Result<T>(2);
    T* const shown = Result<T>(3);
    const detail::AttentionSteps steps(e, kDTypeOf<T>, present_k, present_v);
    char* const scratch = detail::CublasParts::Begin(Scratch(steps.all.size()));
    const auto part = [scratch](int64_t at) { return reinterpret_cast<T*>(scratch + at); };

    const T* q = DenseInput(0).data<T>();
    if (steps.copies_q) q = Copied(e.query, InOrder(e.query), q, part(steps.q));
    const T* k = DenseInput(1).data<T>();
    if (steps.joins_k) {
      T* const out = present_k ? present_k : part(steps.k);
      k = Copied(e.key, Joined(e, e.key), k, out, Given<T>(4), e.past);
    }
    const T* v = DenseInput(2).data<T>();
    if (steps.joins_v) {
      T* const out = present_v ? present_v : part(steps.v);
      v = Copied(e.value, Joined(e, e.value), v, out, Given<T>(5), e.past);
    }
    const int64_t rows = e.query.batch * e.query.heads * e.query.steps;
    const AttentionRows result = e.query.OfSize(e.value.size);
    if (rows == 0) return;
    if (e.total == 0) {
      Copied<T>(result, result, nullptr, y);
      return;
    }
    // The queries of neighbouring heads that share keys are the rows of one matrix.
    const int64_t groups = e.key.batch * e.key.heads, group_rows = rows / groups;
    const auto multiply = [&](detail::CublasProduct& product, detail::CublasExtents extents,
                              const T* a, const T* b, void* to, double alpha) {
      extents.batch = groups;
      extents.stride_a = extents.m * extents.k, extents.stride_b = extents.n * extents.k;
      detail::CublasOperands operands{a, b, nullptr, to};
      operands.alpha = alpha;
      product.Run(context_, extents, operands, [scratch] { return scratch; });
    };
    C* const scores = reinterpret_cast<C*>(scratch + steps.scores);
    if (e.query.size > 0) {
      detail::CublasExtents extents{kDTypeOf<T>, group_rows, e.total, e.query.size, false, true};
      extents.is_wide = true;
      multiply(for_scores_, extents, q, k, scores, ScaleFor(e.query.size));
    }
    detail::AttentionWeights<T> weigh = {};
    weigh.scores = scores, weigh.has_products = e.query.size > 0;
    weigh.weights = part(steps.weights);
    weigh.shown = shown, weigh.mode = mode_;
    weigh.heads = e.query.heads, weigh.steps = e.query.steps;
    weigh.past = e.past, weigh.total = e.total;
    weigh.softcap = static_cast<C>(softcap_), weigh.causal = causal_;
    weigh.lengths = Lengths(6);
    weigh.has_mask = HasInput(3);
    if (weigh.has_mask) {
      const Tensor& mask = DenseInput(3);
      weigh.mask_rows = AttentionMaskRows(mask.shape(), e.total);
      if (mask.dtype() == DType::kBool)
        weigh.bool_mask = static_cast<const uint8_t*>(mask.raw_data());
      else
        weigh.mask = mask.data<T>();
    }
    ParallelForTeams(context_, rows, e.total, weigh);
    if (e.value.size == 0) return;
    T* const to = steps.copies_y ? part(steps.y) : y;
    multiply(for_y_, {kDTypeOf<T>, group_rows, e.value.size, e.total}, weigh.weights, v, to, 1);
    const bool leaves_out = HasInput(3) || HasInput(6) || (causal_ && e.key.steps > 1);
    if (leaves_out)
      ParallelFor(
          context_, rows * e.value.size,
          detail::AttentionSumAgain<T>{weigh.weights, v, group_rows, e.total, e.value.size, to});
    if (steps.copies_y) Copied(InOrder(result), result, to, y);
  }
  // Copies rows, and returns the copy.
  template <class T>
  const T* Copied(const AttentionRows& from, const AttentionRows& to, const T* now, T* out,
                  const T* past = nullptr, int64_t before = 0) {
    ParallelFor(context_, to.batch * to.heads * to.steps * to.size,
                detail::AttentionCopy<T>{from, to, now, past, before, out});
    return out;
  }
  static AttentionRows InOrder(AttentionRows rows) {
    rows.packed = false;
    return rows;
  }
  // Returns the rows of the past and of the present steps.
  static AttentionRows Joined(const AttentionExtents& e, AttentionRows rows) {
    rows.steps = e.total;
    return InOrder(rows);
  }
  template <class T>
  const T* Given(int i) {
    return HasInput(i) ? DenseInput(i).data<T>() : nullptr;
  }
  template <class T>
  T* Result(int o) {
    return HasOutput(o) ? InferredOutput(o)->mutable_data<T>() : nullptr;
  }

  detail::CublasProduct for_scores_, for_y_;
};

OPKIT_CUDA_OPERATOR_OF(kCublasBackend, Attention, CublasAttentionOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_LIBRARIES_CUBLAS_ATTENTION_HPP_
