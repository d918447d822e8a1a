// Attention of float32 for the "eigen" backend.
#ifndef OPKIT_BACKENDS_EIGEN_ATTENTION_HPP_
#define OPKIT_BACKENDS_EIGEN_ATTENTION_HPP_

#include "opkit/backends/eigen/support/gemm.hpp"
#include "opkit/backends/eigen/support/softmax_exp.hpp"
#include "opkit/backends/eigen/support/task_plan.hpp"
#include "opkit/ops/nn/attention.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A task computes a block of queries that share a head of keys: the products with all keys, the
// softmax of each row, and the products with all values. Keys and values are read where they lie,
// first those of the past and then the present ones.
class AttentionEigenOp final : public AttentionOpBase {
 public:
  using AttentionOpBase::AttentionOpBase;

  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    for (const size_t i : kFloatInputs)
      if (i < query.def.inputs().size() && !query.def.inputs()[i].empty())
        RequireDTypes(query, i, {DType::kFloat32});
    return {KernelConfig()};
  }
  bool RunOnDevice() override {
    for (const size_t i : kFloatInputs)
      if (HasInput(static_cast<int>(i)) && Input(static_cast<int>(i)).dtype() != DType::kFloat32)
        throw UnsupportedOperatorFeature(
            StrCat("the kernel of Attention for \"eigen\" computes float32, and input ", i, " is ",
                   Input(static_cast<int>(i))));
    const Problem problem = ReadProblem();
    Tensor* y = InferredOutput(0);
    WritePresents(problem);
    Tensor* shown = HasOutput(3) ? InferredOutput(3) : nullptr;
    if (y->numel() == 0 && !shown) return true;
    Run run{problem, ReadMask<float>(problem.total)};
    run.scale = static_cast<float>(ScaleFor(problem.query.size));
    run.y = y->mutable_data<float>();
    run.shown = shown ? shown->mutable_data<float>() : nullptr;
    run.q = DenseInput(0).data<float>();
    run.k = DenseInput(1).data<float>();
    run.v = DenseInput(2).data<float>();
    if (HasInput(4)) run.past_k = DenseInput(4).data<float>();
    if (HasInput(5)) run.past_v = DenseInput(5).data<float>();
    // Queries of neighbouring heads that share keys are rows of one matrix, unless other heads lie
    // between the steps.
    const Heads &query = problem.query, &key = problem.key;
    const int64_t sharing = key.heads > 0 ? query.heads / key.heads : 1;
    const int64_t joined = !query.packed || query.steps == 1 ? sharing : 1;  // heads of a matrix
    const int64_t side = joined > 1 || !query.packed ? 1 : query.heads;      // heads side by side
    run.row_step = side * query.size;
    run.result_step = side * problem.value.size;
    run.rows = joined * query.steps;
    run.sharing = sharing / joined;
    const int64_t most = (std::min)(run.rows, kRows), blocks = (run.rows + kRows - 1) / kRows;
    detail::TaskPlan plan;
    plan.tasks = query.batch * (query.heads / joined) * blocks;
    if (plan.tasks == 0) return true;
    const double flops = 4.0 * static_cast<double>(most) * static_cast<double>(problem.total) *
                         static_cast<double>(query.size);
    constexpr double kLeastFlops = 2.5e5;  // that are worth another thread
    plan.grain = static_cast<int64_t>(kLeastFlops / (flops + 1)) + 1;
    plan.slot_bytes =
        detail::ScratchSlots::RoundUp(most * problem.total * static_cast<int64_t>(sizeof(float)));
    const int threads = ThreadPool::Current().threads();
    plan.Run(Scratch(plan.ScratchBytes(threads)), threads,
             [&](int64_t begin, int64_t end, float* scores) {
               for (int64_t task = begin; task < end; ++task) {
                 const int64_t matrix = task / blocks, first = task % blocks * kRows;
                 RunBlock(run, matrix, first, (std::min)(kRows, run.rows - first), scores);
               }
             });
    return true;
  }

 private:
  static constexpr int64_t kRows = 64;  // queries of a block
  static constexpr size_t kFloatInputs[] = {0, 1, 2, 4, 5};

  struct Run {
    const Problem& problem;
    const Mask<float> mask;
    float scale = 1;
    const float *q = nullptr, *k = nullptr, *v = nullptr, *past_k = nullptr, *past_v = nullptr;
    float *y = nullptr, *shown = nullptr;
    // Elements from a row of a matrix of queries, or of results, to the next.
    int64_t row_step = 0, result_step = 0;
    int64_t rows = 0;     // of a matrix of queries
    int64_t sharing = 1;  // neighbouring matrices that have the same keys
  };
  // Rows of keys or values: [begin, end) of all steps.
  struct Segment {
    const float* data;
    int64_t step, begin, end;
  };
  using Row = Eigen::Map<Eigen::ArrayXf>;

  // Calls f for the past and the present rows of a head, up to row `columns`.
  template <class F>
  static void ForSegments(const Problem& problem, const Heads& heads, const float* past,
                          const float* now, int64_t batch, int64_t head, int64_t columns, F&& f) {
    const int64_t before = (std::min)(problem.past, columns);
    if (before > 0)
      f(Segment{past + (batch * heads.heads + head) * problem.past * heads.size, heads.size, 0,
                before});
    if (columns > before)
      f(Segment{now + heads.At(batch, head, 0), heads.RowStep(), before, columns});
  }

  void RunBlock(const Run& run, int64_t matrix, int64_t first, int64_t rows, float* scores) const {
    const auto& [query, key, value, past, total, lengths] = run.problem;
    const int64_t matrices = query.heads * query.steps / run.rows;  // of an element of the batch
    const int64_t batch = matrix / matrices, head = matrix % matrices * (run.rows / query.steps);
    const int64_t group = matrix % matrices / run.sharing;  // the head of the keys
    const auto step_of = [&](int64_t row) { return (first + row) % query.steps; };
    const auto head_of = [&](int64_t row) { return head + (first + row) / query.steps; };
    // Keys that no query of the block sees are not multiplied, unless all scores are an output.
    int64_t columns = total;
    if (!run.shown) {
      columns = (std::min)(run.mask.extent, lengths[detail::Index(batch)]);
      const bool whole = head_of(0) != head_of(rows - 1);
      const int64_t last = whole ? query.steps - 1 : step_of(rows - 1);
      if (causal_) columns = (std::min)(columns, past + last + 1);
    }
    ForSegments(run.problem, key, run.past_k, run.k, batch, group, columns, [&](const Segment& s) {
      Gemm<float>({rows, s.end - s.begin, query.size}, run.scale,
                  {run.q + query.At(batch, head, 0) + first * run.row_step, run.row_step},
                  {s.data, s.step, true}, {scores + s.begin, columns}, 1);
    });
    for (int64_t row = 0; row < rows && columns > 0; ++row) {
      Row weights(scores + row * columns, columns);
      const auto show = [&](int64_t mode) {
        if (run.shown && mode == mode_)
          Row(run.shown +
                  ((batch * query.heads + head_of(row)) * query.steps + step_of(row)) * total,
              total) = weights;
      };
      show(0);
      if (softcap_ > 0) {
        const auto cap = static_cast<float>(softcap_);
        weights = (weights / cap).tanh() * cap;
      }
      show(1);
      AddMask(run, batch, head_of(row), step_of(row), weights);
      show(2);
      const float largest = weights.maxCoeff();
      weights = (weights - largest).unaryExpr(detail::SoftmaxExp());
      weights *= 1 / weights.sum();
      show(3);
    }
    const int64_t y_step = run.result_step;
    float* y = run.y + query.OfSize(value.size).At(batch, head, 0) + first * y_step;
    float beta = 0;
    ForSegments(run.problem, value, run.past_v, run.v, batch, group, columns,
                [&](const Segment& s) {
                  Gemm<float>({rows, value.size, s.end - s.begin}, 1, {scores + s.begin, columns},
                              {s.data, s.step}, {y, y_step, beta}, 1);
                  beta = 1;
                });
    for (int64_t row = 0; row < rows; ++row) {
      Row result(y + row * y_step, value.size);
      if (columns == 0)
        result.setConstant(total > 0 ? std::numeric_limits<float>::quiet_NaN() : 0.f);
      else if (!result.allFinite())
        AddCounted(run, batch, group, columns, scores + row * columns, result);
    }
  }
  // Adds the mask to the scores of a query, and makes those that do not count -infinity.
  void AddMask(const Run& run, int64_t batch, int64_t head, int64_t step, Row& scores) const {
    constexpr auto kLow = -std::numeric_limits<float>::infinity();
    const int64_t columns = scores.size();
    if (run.mask.given) {
      const int64_t count = (std::min)(run.mask.extent, columns);
      scores.head(count) += detail::ConstFloatArray(run.mask.Row(batch, head, step), count);
      scores.tail(columns - count) += kLow;
    }
    int64_t end = run.problem.lengths[detail::Index(batch)];
    if (causal_) end = (std::min)(end, run.problem.past + step + 1);
    if (end < columns) scores.tail(columns - end) = kLow;
  }
  // Computes a result again without the values whose weight is 0, which may be anything.
  static void AddCounted(const Run& run, int64_t batch, int64_t group, int64_t columns,
                         const float* weights, Row& result) {
    result.setZero();
    ForSegments(run.problem, run.problem.value, run.past_v, run.v, batch, group, columns,
                [&](const Segment& s) {
                  for (int64_t j = s.begin; j < s.end; ++j)
                    if (weights[j] != 0)
                      result += weights[j] * detail::ConstFloatArray(
                                                 s.data + (j - s.begin) * s.step, result.size());
                });
  }
};

OPKIT_REGISTER_CPU_OPERATOR_WITH_ENGINE(Attention, eigen, AttentionEigenOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_EIGEN_ATTENTION_HPP_
