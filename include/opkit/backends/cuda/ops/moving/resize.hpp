// Resize on CUDA. The host computes the indices and weights of each axis, as for the CPU; the
// device keeps them for the next run of the same extents. One loop computes each element of the
// output as the sum over all axes at once.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_RESIZE_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_RESIZE_HPP_

#include "opkit/backends/cuda/ops/moving/strided_copy.hpp"
#include "opkit/ops/nn/resize.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// The table of one axis. Element o of the output is made of `taps` elements of the input, whose
// indices and weights are in the tables at begin + o * taps. Without a table (0 taps) it is element
// o.
struct CUDAResizeAxis {
  int64_t extent = 1, stride = 1, taps = 0, begin = 0;  // extent of the output, stride of the input
};

// The axes and their tables in the device's memory. Trivially copyable.
struct CUDAResizeTables {
  static constexpr int kMaxAxes = 8;

  const int64_t* index = nullptr;  // negative: the output element lies outside the input
  const double* weight = nullptr;
  int axes = 0;
  CUDAResizeAxis axis[kMaxAxes];

  // Sets first[axis] to the place of the first tap of each axis with a table, for element `at` of
  // the output. Returns the offset in the input without these axes; -1 if the element lies outside.
  OPKIT_DEVICE int64_t Find(int64_t at, int64_t* first) const {
    int64_t offset = 0;
    bool is_outside = false;
    for (int a = axes - 1; a >= 0; --a) {
      const int64_t next = DivideIndex(at, axis[a].extent), o = at - next * axis[a].extent;
      at = next;
      if (axis[a].taps == 0) {
        offset += o * axis[a].stride;
        continue;
      }
      first[a] = axis[a].begin + o * axis[a].taps;
      is_outside |= index[first[a]] < 0;
    }
    return is_outside ? -1 : offset;
  }
};

template <class T>
struct CUDANearestLoop {
  const T* x;
  T* y;
  T fill;
  CUDAResizeTables tables;

  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t first[CUDAResizeTables::kMaxAxes];
    int64_t place = tables.Find(i, first);
    for (int a = 0; a < tables.axes && place >= 0; ++a)
      if (tables.axis[a].taps > 0) place += tables.index[first[a]] * tables.axis[a].stride;
    y[i] = place < 0 ? fill : x[place];
  }
};

// Sums in Wide.
template <class T, class Wide>
struct CUDAResizeLoop {
  const T* x;
  T* y;
  T fill;
  CUDAResizeTables tables;

  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t first[CUDAResizeTables::kMaxAxes];
    const int64_t offset = tables.Find(i, first);
    y[i] = offset < 0 ? fill : Sum(offset, first);
  }

 private:
  OPKIT_DEVICE T Sum(int64_t offset, const int64_t* first) const {
    int64_t tap[CUDAResizeTables::kMaxAxes] = {};
    Wide sum = 0;
    for (int a = tables.axes; a >= 0;) {
      Wide weight = 1;
      int64_t place = offset;
      for (a = 0; a < tables.axes; ++a) {
        if (tables.axis[a].taps == 0) continue;
        weight *= static_cast<Wide>(tables.weight[first[a] + tap[a]]);
        place += tables.index[first[a] + tap[a]] * tables.axis[a].stride;
      }
      if (weight != 0) sum += weight * static_cast<Wide>(x[place]);
      // The next combination of taps; the last axis changes first. Without one, a becomes -1.
      for (a = tables.axes - 1; a >= 0; --a) {
        if (++tap[a] < tables.axis[a].taps) break;
        tap[a] = 0;
      }
    }
    return FromWide<T>(sum);
  }
};

}  // namespace detail

class CUDAResizeOp final : public ResizeOpBase<CUDAContext> {
 public:
  using SummedTypes =
      ElementTypes<float, double, float16, bfloat16, int8_t, uint8_t, int32_t, int64_t>;

  using ResizeOpBase::ResizeOpBase;
  ~CUDAResizeOp() override { FinishWork(); }
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireRank(query, 0, detail::CUDAResizeTables::kMaxAxes);
    RequireTypes<PlainTypes>(query);
    if (query.def.args().Get<std::string>("mode", "nearest") != "nearest")
      RequireTypes<SummedTypes>(query);
    return {KernelConfig()};
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    std::vector<ResizeAxis> axes = FindAxes();
    if (y->numel() == 0) return true;
    if (axes != axes_) {
      axes_.clear();
      MakeTables(axes, x.shape());
      axes_ = std::move(axes);
    }
    Tensor fill(Shape{}, x.dtype());
    PlainTypes::Visit(x.dtype(), [&]<class T>() {
      *fill.mutable_data<T>() = detail::FromWide<T>(static_cast<double>(rules_.extrapolation));
    });
    if (rules_.mode == ResizeMode::kNearest)
      detail::WithElementOfSize(ItemSize(x.dtype()), [&]<class T>(T value) {
        std::memcpy(&value, fill.raw_data(), sizeof(T));
        Launch<detail::CUDANearestLoop<T>>(x, *y, value);
      });
    else
      SummedTypes::Visit(x.dtype(), [&]<class T>() {
        using Wide = std::conditional_t<
            std::is_same_v<T, double> || (std::is_integral_v<T> && sizeof(T) > 2), double, float>;
        Launch<detail::CUDAResizeLoop<T, Wide>>(x, *y, *fill.data<T>());
      });
    return true;
  }

 private:
  template <class Loop, class T>
  void Launch(const Tensor& x, Tensor& y, T fill) {
    ParallelFor(context_, y.numel(),
                Loop{static_cast<const T*>(x.raw_data()), static_cast<T*>(y.raw_mutable_data()),
                     fill, tables_});
  }
  // Computes the tables on the host and issues their copies to the device.
  void MakeTables(const std::vector<ResizeAxis>& axes, const Shape& input) {
    std::vector<int64_t> index;
    std::vector<double> weight;
    const Dims strides = input.DenseStrides();
    tables_ = {};
    bool was_same = false;
    for (size_t i = 0; i < axes.size(); ++i) {
      detail::CUDAResizeAxis axis{axes[i].output, strides[static_cast<int>(i)], 0,
                                  static_cast<int64_t>(index.size())};
      const bool is_same = AddTables(axes[i], index, weight);
      if (is_same && was_same)  // two axes without tables are one
        axis.extent *= tables_.axis[--tables_.axes].extent;
      else if (!is_same)
        axis.taps = (static_cast<int64_t>(index.size()) - axis.begin) / axis.extent;
      tables_.axis[tables_.axes++] = axis;
      was_same = is_same;
    }
    const auto count = static_cast<int64_t>(index.size());
    Copy(Tensor::From<int64_t>({count}, index), &index_);
    Copy(Tensor::From<double>({count}, weight), &weight_);
    tables_.index = index_.data<int64_t>();
    tables_.weight = weight_.data<double>();
  }
  // Adds the taps of an axis to the tables. Adds nothing and returns true if the output's elements
  // are those of the input.
  bool AddTables(const ResizeAxis& axis, std::vector<int64_t>& index,
                 std::vector<double>& weight) const {
    if (rules_.mode != ResizeMode::kNearest) {
      const ResizeWeights weights(rules_, axis);
      if (weights.IsIdentity(axis)) return true;
      weight.insert(weight.end(), weights.weight.begin(), weights.weight.end());
      for (size_t i = 0; i < weights.index.size(); ++i)
        index.push_back(weights.outside[i / static_cast<size_t>(weights.taps)] ? -1
                                                                               : weights.index[i]);
      return false;
    }
    bool is_same = axis.input == axis.output;
    for (int64_t o = 0; o < axis.output; ++o) {
      index.push_back(axis.NearestOrOutside(rules_, o));
      is_same &= index.back() == o;
    }
    if (is_same) index.resize(index.size() - static_cast<size_t>(axis.output));
    weight.resize(index.size());
    return is_same;
  }

  std::vector<ResizeAxis> axes_;  // of the tables
  detail::CUDAResizeTables tables_;
  Tensor index_{Device{DeviceType::kCUDA, device().index}};
  Tensor weight_{Device{DeviceType::kCUDA, device().index}};
};

OPKIT_CUDA_OPERATOR(Resize, CUDAResizeOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_RESIZE_HPP_
