// Unique: keeps one of equal elements, or of equal slices along an axis. The output's shape depends
// on the data. Source: https://onnx.ai/onnx/operators/onnx__Unique.html, opset 11.
#ifndef OPKIT_OPS_INDEXING_UNIQUE_HPP_
#define OPKIT_OPS_INDEXING_UNIQUE_HPP_

#include <algorithm>

#include "opkit/op/invoke.hpp"
#include "opkit/ops/support/axes.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/table_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferUnique(InferenceContext& c) {
  std::vector<DType> dtypes = PlainTypes::DTypes();
  dtypes.push_back(DType::kString);
  ExpectDType(c, 0, dtypes);
  const SymbolicShape& x = c.input_shape(0);
  SymbolicShape y = SymbolicShape::OfRank(1);
  Dim all = x.Elements();
  if (c.args().Has("axis")) {
    y = x;
    all = Dim();
    if (x.has_rank()) {
      const int axis = NormalizeAxis(c.Arg<int64_t>("axis"), x.rank(), "Unique");
      all = x[axis];
      y[axis] = Dim::AtMost(all);
    }
  } else {
    y[0] = Dim::AtMost(all);
  }
  c.SetOutput(0, c.input_dtype(0), y);
  const Dim count = Dim::AtMost(all);
  for (int o = 1; o < c.num_outputs(); ++o) c.SetOutput(o, DType::kInt64, {o == 2 ? all : count});
}

// Compares two lists of `count` elements in lexicographic order. A NaN is above every number, and
// equal to every NaN. Returns a negative number, 0 or a positive number.
template <class T>
int CompareLists(const void* a, const void* b, int64_t count) {
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] == y[i]) continue;
    const bool x_is_nan = x[i] != x[i], y_is_nan = y[i] != y[i];
    if (x_is_nan && y_is_nan) continue;
    return y_is_nan || x[i] < y[i] ? -1 : 1;
  }
  return 0;
}

}  // namespace detail

class UniqueOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor& x = DenseInput(0);
    if (x.dtype() == DType::kString) return RunOnStrings(x);
    const bool flat = !HasArgument("axis");
    const int axis =
        flat ? 0 : NormalizeAxis(GetSingleArgument<int64_t>("axis", 0), x.rank(), type());
    const int64_t extent = flat ? x.numel() : x.dim(axis);
    const int64_t outer = flat ? 1 : x.shape().NumelBetween(0, axis);
    const int64_t inner = flat ? 1 : x.shape().NumelBetween(axis + 1, x.rank());
    FindGroups(x, extent, outer, inner);

    Dims dims(std::vector<int64_t>(flat ? 1 : static_cast<size_t>(x.rank()), 0));
    for (int i = 0; i < x.rank() && !flat; ++i) dims[i] = x.dim(i);
    dims[axis] = static_cast<int64_t>(groups_.size());
    copy_.Start(ItemSize(x.dtype()));
    copy_.Keep(outer);
    std::vector<int64_t>& table = copy_.Axis(extent);
    for (const Group& group : groups_) table.push_back(group.first);
    copy_.Keep(inner);
    copy_.Run(x.raw_data(), Output(0, Shape(dims), x.dtype())->raw_mutable_data());
    WriteIntegers(1, [](const Group& group) { return group.first; });
    if (HasOutput(2)) {
      int64_t* inverse = Output(2, Shape{extent}, DType::kInt64)->mutable_data<int64_t>();
      std::copy(group_of_.begin(), group_of_.end(), inverse);
    }
    WriteIntegers(3, [](const Group& group) { return group.count; });
    return true;
  }

 private:
  // Runs this operator on the places of the strings in their sorted list.
  bool RunOnStrings(const Tensor& x) {
    const auto* first = x.data<std::string>();
    const std::vector<std::string> given(first, first + x.numel());
    std::vector<std::string> sorted = given;
    std::sort(sorted.begin(), sorted.end());
    Tensor places(x.shape(), DType::kInt64);
    for (size_t i = 0; i < given.size(); ++i)
      places.mutable_data<int64_t>()[i] =
          std::lower_bound(sorted.begin(), sorted.end(), given[i]) - sorted.begin();
    const std::vector<Tensor> found =
        Invoke(type(), {places}, def().args(),
               {.backends = kReferenceBackend, .num_outputs = OutputSize()});
    Tensor* y = Output(0, found[0].shape(), DType::kString);
    for (int64_t i = 0; i < y->numel(); ++i)
      y->mutable_data<std::string>()[i] = sorted[detail::Index(found[0].data<int64_t>()[i])];
    for (int o = 1; o < OutputSize(); ++o)
      if (HasOutput(o))
        CopyBytes(Output(o, found[detail::Index(o)].shape(), DType::kInt64)->raw_mutable_data(),
                  found[detail::Index(o)].raw_data(), found[detail::Index(o)].nbytes());
    return true;
  }

  // Slices that are equal.
  struct Group {
    int64_t first = 0, count = 0;  // the index of the first slice, and the number of slices
  };

  // Sets groups_, in the order of the output, and group_of_, the index of each slice's group.
  void FindGroups(const Tensor& x, int64_t extent, int64_t outer, int64_t inner) {
    const int64_t size = outer * inner, item = ItemSize(x.dtype());
    const auto* slices = static_cast<const char*>(x.raw_data());
    if (outer > 1) slices = MoveAxisFirst(x, extent, outer, inner);
    auto* const compare = PlainTypes::Find<int (*)(const void*, const void*, int64_t)>(
        x.dtype(), []<class T>() { return &detail::CompareLists<T>; });
    auto order_of = [&](int64_t a, int64_t b) {
      return compare(slices + a * size * item, slices + b * size * item, size);
    };
    std::vector<int64_t> order(static_cast<size_t>(extent));
    for (int64_t i = 0; i < extent; ++i) order[detail::Index(i)] = i;
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const int sign = order_of(a, b);
      return sign != 0 ? sign < 0 : a < b;
    });
    groups_.clear();
    group_of_.assign(order.size(), 0);
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || order_of(order[i - 1], order[i]) != 0) groups_.push_back({order[i], 0});
      ++groups_.back().count;
      group_of_[detail::Index(order[i])] = static_cast<int64_t>(groups_.size()) - 1;
    }
    if (!sorted_) OrderByOccurrence();
  }
  // Orders the groups by their first slices.
  void OrderByOccurrence() {
    std::vector<int64_t> place(groups_.size(), -1);
    std::vector<Group> ordered;
    for (int64_t& group : group_of_) {
      int64_t& at = place[detail::Index(group)];
      if (at < 0) {
        at = static_cast<int64_t>(ordered.size());
        ordered.push_back(groups_[detail::Index(group)]);
      }
      group = at;
    }
    groups_ = std::move(ordered);
  }
  // Returns the elements in the order [extent, outer, inner], in slices_.
  const char* MoveAxisFirst(const Tensor& x, int64_t extent, int64_t outer, int64_t inner) {
    const int64_t bytes = inner * ItemSize(x.dtype());
    slices_.resize(static_cast<size_t>(x.nbytes()));
    const auto* from = static_cast<const char*>(x.raw_data());
    for (int64_t o = 0; o < outer && bytes > 0; ++o)
      for (int64_t i = 0; i < extent; ++i)
        std::memcpy(slices_.data() + (i * outer + o) * bytes, from + (o * extent + i) * bytes,
                    static_cast<size_t>(bytes));
    return slices_.data();
  }
  // Writes one number of each group to output o, if the node has that output.
  template <class F>
  void WriteIntegers(int o, F number) {
    if (!HasOutput(o)) return;
    const auto count = static_cast<int64_t>(groups_.size());
    int64_t* out = Output(o, Shape{count}, DType::kInt64)->mutable_data<int64_t>();
    for (const Group& group : groups_) *out++ = number(group);
  }

  const bool sorted_ = GetSingleArgument<int64_t>("sorted") != 0;
  std::vector<Group> groups_;
  std::vector<int64_t> group_of_;
  std::vector<char> slices_;
  TableCopy copy_;
};

OPKIT_STANDARD_OPERATOR(Unique, kNone, UniqueOp)
    .NumOutputs(1, 4)
    .TakesStrings()
    .Input(0, "X", "any tensor of numbers, bool or strings")
    .Output(0, "Y", "one of each group of equal slices; of rank 1 without `axis`")
    .Output(1, "indices", "of each slice of Y: the index of the first equal slice of X",
            {DType::kInt64})
    .Output(2, "inverse_indices", "of each slice of X: the index of the equal slice of Y",
            {DType::kInt64})
    .Output(3, "counts", "of each slice of Y: the number of equal slices of X", {DType::kInt64})
    .Arg<int64_t>("axis",
                  "along which the slices lie, negative ones count from the end; left out: the "
                  "input is taken as a list of its elements")
    .Arg<int64_t>("sorted", "1: in ascending order; 0: in the order of the first ones in X", 1)
    .PointwiseCost(20)
    .Infer(detail::InferUnique)
    .Doc(
        "The different elements of a tensor, or its different slices along an axis. A NaN counts "
        "as larger than every number, and as equal to other NaNs.");

}}  // namespace opkit

#endif  // OPKIT_OPS_INDEXING_UNIQUE_HPP_
