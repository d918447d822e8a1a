// ArgMax, ArgMin and TopK on CUDA: find the first elements of rows in their order.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_ORDER_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_ORDER_HPP_

#include "opkit/backends/cuda/ops/rows/row_sort.hpp"
#include "opkit/ops/math/arg.hpp"
#include "opkit/ops/support/elementwise.hpp"
#include "opkit/ops/topk.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// An element of a row and its place; -1 for none.
template <class T>
struct RowElement {
  ComputeType<T> value;
  int64_t place;
};
// Finds the element of a row that comes first: the largest or the smallest, by ArgMax's rules or,
// with kSorts, by TopK's, under which a NaN is above every number.
template <bool kSorts, class T>
struct RowOrder {
  bool largest;
  bool last;  // of equal elements the last one, else the first one
  OPKIT_DEVICE bool ComesBefore(RowElement<T> a, RowElement<T> b) const {
    if (a.place < 0 || b.place < 0) return b.place < 0;
    if (Wins(a.value, b.value)) return true;
    if (Wins(b.value, a.value)) return false;
    return last ? a.place > b.place : a.place < b.place;
  }
  OPKIT_DEVICE RowElement<T> operator()(RowElement<T> a, RowElement<T> b) const {
    return ComesBefore(b, a) ? b : a;
  }
  // Returns the first of the elements that come after `before`, or of all if that is no element.
  template <class Team>
  OPKIT_DEVICE RowElement<T> First(const Team& team, const T* row, const AxisSplit& split,
                                   RowElement<T> before) const {
    RowElement<T> best{{}, -1};
    team.Each(split.extent, [&](int64_t i) {
      const RowElement<T> element{static_cast<ComputeType<T>>(row[i * split.inner]), i};
      if (before.place >= 0 && !ComesBefore(before, element)) return;
      if (ComesBefore(element, best)) best = element;
    });
    return team.Combine(best, *this);
  }

 private:
  OPKIT_DEVICE bool Wins(ComputeType<T> a, ComputeType<T> b) const {
    if constexpr (kSorts)
      return largest ? IsAbove(a, b) : IsAbove(b, a);
    else
      return largest ? WinsOver<true>(a, b) : WinsOver<false>(a, b);
  }
};

template <class T>
struct CUDAArgLoop {
  const T* x;
  int64_t* y;
  AxisSplit split;
  RowOrder<false, T> order;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const auto best = order.First(team, x + split.Begin(row), split, {{}, -1});
    if (team.is_first()) y[row] = best.place;
  }
};
// Takes the K best elements one after the other.
template <class T>
struct CUDATopKLoop {
  const T* x;
  T* values;
  int64_t* places;
  AxisSplit from, to;
  bool largest;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t row, const Team& team) const {
    const RowOrder<true, T> order{largest, false};
    const T* in = x + from.Begin(row);
    RowElement<T> best{{}, -1};
    for (int64_t k = 0; k < to.extent; ++k) {
      best = order.First(team, in, from, best);
      if (!team.is_first()) continue;
      const int64_t at = to.Begin(row) + k * to.inner;
      values[at] = in[best.place * from.inner];
      places[at] = best.place;
    }
  }
};
// The elements of all rows for a sort. Behind the end of a row there is no element.
template <class T>
struct CUDATopKLoad {
  const T* x;
  RowElement<ComputeType<T>>* elements;
  AxisSplit from;
  int64_t extent;  // of a row of `elements`
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / extent, place = i % extent;
    elements[i] = {{}, -1};
    if (place < from.extent)
      elements[i] = {static_cast<ComputeType<T>>(x[from.Begin(row) + place * from.inner]), place};
  }
};
// Copies the first elements of sorted rows.
template <class T>
struct CUDATopKStore {
  const RowElement<ComputeType<T>>* elements;
  T* values;
  int64_t* places;
  AxisSplit to;
  int64_t extent;
  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / to.extent, k = i % to.extent;
    const auto& found = elements[row * extent + k];
    const int64_t at = to.Begin(row) + k * to.inner;
    values[at] = static_cast<T>(found.value);
    places[at] = found.place;
  }
};

}  // namespace detail

using CUDAOrderTypes = ElementTypes<float, double, float16, bfloat16, int32_t, int64_t>;

// ArgMax and ArgMin.
template <bool kMax>
class CUDAArgOperator final : public AxisOperatorOn<CUDAContext> {
 public:
  using AxisOperatorOn<CUDAContext>::AxisOperatorOn;
  static constexpr auto& Propose = ProposeTypes<CUDAOrderTypes>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor& x = DenseInput(0);
    const AxisSplit split(x.shape(), Axis(x.rank()));
    return Visit<CUDAOrderTypes>([&]<class T>() {
      ParallelForRows(
          context_, split.rows(), split.extent, split.inner,
          detail::CUDAArgLoop<T>{x.data<T>(), y->mutable_data<int64_t>(), split, {kMax, last_}});
    });
  }

 private:
  const bool last_ = GetSingleArgument<int64_t>("select_last_index") != 0;
};

using CUDATopKTypes = ElementTypes<float, double, float16, bfloat16, int32_t, int64_t, uint64_t>;

// A few elements are taken one after the other. For more elements the rows are sorted.
class CUDATopKOperator final : public AxisOperatorOn<CUDAContext> {
 public:
  using AxisOperatorOn<CUDAContext>::AxisOperatorOn;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireTypes<CUDATopKTypes>(query);
    KernelConfig config;
    const SymbolicShape &x = query.inputs[0].shape, &values = query.outputs[0].shape;
    if (x.is_known() && values.is_known()) {
      const int axis = NormalizeAxis(query.def.args().Get<int64_t>("axis", -1), x.rank(), "TopK");
      const AxisSplit from(x.ToShape(), axis);
      if (values.ToShape()[axis] > kMostTaken) config.scratch_bytes = SortBytes(from);
    }
    return {std::move(config)};
  }

  bool RunOnDevice() override {
    Tensor* values = InferredOutput(0);
    Tensor* places = InferredOutput(1);
    const Tensor& x = DenseInput(0);
    const int axis = Axis(x.rank());
    const AxisSplit from(x.shape(), axis), to(values->shape(), axis);
    if (values->numel() == 0) return true;
    return Visit<CUDATopKTypes>([&]<class T>() {
      const T* in = x.data<T>();
      T* best = values->mutable_data<T>();
      int64_t* where = places->mutable_data<int64_t>();
      if (to.extent <= kMostTaken)
        return ParallelForTeams(context_, from.rows(), from.extent,
                                detail::CUDATopKLoop<T>{in, best, where, from, to, largest_});
      using Element = detail::RowElement<detail::ComputeType<T>>;
      auto* elements = static_cast<Element*>(Scratch(SortBytes(from)));
      const int64_t extent = detail::SortedExtent(from.extent);
      ParallelFor(context_, from.rows() * extent,
                  detail::CUDATopKLoad<T>{in, elements, from, extent});
      detail::SortRows(context_, elements, from.rows(), extent,
                       detail::RowOrder<true, detail::ComputeType<T>>{largest_, false});
      ParallelFor(context_, values->numel(),
                  detail::CUDATopKStore<T>{elements, best, where, to, extent});
    });
  }

 private:
  static constexpr int64_t kMostTaken = 64;

  static int64_t SortBytes(const AxisSplit& from) {
    static_assert(sizeof(detail::RowElement<double>) == sizeof(detail::RowElement<float>));
    return from.rows() * detail::SortedExtent(from.extent) *
           static_cast<int64_t>(sizeof(detail::RowElement<double>));
  }

  const bool largest_ = GetSingleArgument<int64_t>("largest") != 0;
};

OPKIT_CUDA_OPERATOR(ArgMax, CUDAArgOperator<true>);
OPKIT_CUDA_OPERATOR(ArgMin, CUDAArgOperator<false>);
OPKIT_CUDA_OPERATOR(TopK, CUDATopKOperator);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_ORDER_HPP_
