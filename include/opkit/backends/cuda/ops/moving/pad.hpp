// Operators on CUDA that copy elements and write others beside them: Pad, Trilu, ReverseSequence.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_PAD_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_PAD_HPP_

#include "opkit/backends/cuda/ops/moving/index_fault.hpp"
#include "opkit/backends/cuda/ops/moving/strided_copy.hpp"
#include "opkit/ops/indexing/reverse_sequence.hpp"
#include "opkit/ops/pad.hpp"
#include "opkit/ops/trilu.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// y[o0, o1, …] = x[source of o0, source of o1, …], or the constant.
template <class T>
struct CUDAPadLoop {
  static constexpr int kMaxAxes = 8;

  const T *x, *fill;  // no `fill`: zeros
  T* y;
  PadMode mode;
  int axes = 0;
  int64_t extents[kMaxAxes];  // of y
  int64_t strides[kMaxAxes];  // of x
  PadAxis pads[kMaxAxes];

  OPKIT_DEVICE void operator()(int64_t i) const {
    int64_t rest = i, source = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const int64_t next = DivideIndex(rest, extents[axis]);
      const int64_t index = pads[axis].Source(mode, rest - next * extents[axis]);
      rest = next;
      if (index < 0) {
        y[i] = fill ? *fill : T{};
        return;
      }
      source += index * strides[axis];
    }
    y[i] = x[source];
  }
};

// Keeps the elements of rows of matrices at and right of the diagonal k, or at and left of it.
template <class T>
struct CUDATriluLoop {
  const T* x;
  T* y;
  int64_t rows, columns, k;
  bool upper;

  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t row = DivideIndex(i, columns), column = i - row * columns;
    const int64_t diagonal = row - DivideIndex(row, rows) * rows + k;
    y[i] = (upper ? column >= diagonal : column <= diagonal) ? x[i] : T{};
  }
};

// Reverses the first steps of each sequence; the elements are [first, second, inner], and one of
// the first two axes is that of the sequences.
template <class T>
struct CUDAReverseLoop {
  const T* x;
  T* y;
  CUDAIndices lengths;
  int64_t second, steps, inner;
  bool batch_first;

  OPKIT_DEVICE void operator()(int64_t i) const {
    const int64_t place = DivideIndex(i, inner), first = DivideIndex(place, second);
    const int64_t other = place - first * second;
    const int64_t sequence = batch_first ? first : other, step = batch_first ? other : first;
    const auto length = static_cast<const int64_t*>(lengths.data)[sequence];
    if (length < 0 || length > steps) {
      lengths.Note(length);
      y[i] = T{};
      return;
    }
    const int64_t moved = step < length ? length - 1 - 2 * step : 0;  // steps to the source
    y[i] = x[i + moved * (batch_first ? inner : second * inner)];
  }
};

}  // namespace detail

class CUDAPadOp final : public CUDAMovingOperator {
 public:
  using CUDAMovingOperator::CUDAMovingOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireRank(query, 0, detail::CUDAPadLoop<uint8_t>::kMaxAxes);
    return ProposeMoving(query);
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    const int rank = x.rank();
    const Dims pads = HostList(1, "pads"), axes = HasInput(3) ? HostList(3, "axes") : Dims();
    const Dims all = detail::PadsOfAllAxes(pads, HasInput(3) ? &axes : nullptr, rank);
    if (HasInput(2)) detail::CheckPadValue(Input(2), x.dtype());
    if (y->numel() == 0) return true;
    const Dims strides = x.shape().DenseStrides();
    detail::WithElementOfSize(ItemSize(x.dtype()), [&]<class T>(T) {
      detail::CUDAPadLoop<T> loop{};
      bool was_kept = false;
      loop.x = static_cast<const T*>(x.raw_data());
      loop.fill = HasInput(2) ? static_cast<const T*>(Input(2).raw_data()) : nullptr;
      loop.y = static_cast<T*>(y->raw_mutable_data());
      loop.mode = mode_;
      for (int i = 0; i < rank; ++i) {
        const auto pad = detail::PadAxis::Of(mode_, i, x.dim(i), all[i], y->dim(i));
        const bool is_kept = all[i] == 0 && all[rank + i] == 0;
        const int last = loop.axes - 1;
        if (is_kept && was_kept) {  // two axes that stay are one
          loop.extents[last] *= y->dim(i);
          loop.pads[last].left = loop.extents[last];
          loop.strides[last] = strides[i];
          continue;
        }
        was_kept = is_kept;
        loop.extents[loop.axes] = y->dim(i);
        loop.strides[loop.axes] = strides[i];
        loop.pads[loop.axes++] = pad;
      }
      ParallelFor(context_, y->numel(), loop);
    });
    return true;
  }

 private:
  const detail::PadMode mode_ = EnumeratorOf<detail::PadMode>("Pad", def().args(), "mode");
};

class CUDATriluOp final : public CUDAMovingOperator {
 public:
  using CUDAMovingOperator::CUDAMovingOperator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    RequireWholeBytes(query);
    KernelConfig config;
    config.inplace = {{0, 0}};
    return {std::move(config)};
  }

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    const int64_t k = HasInput(1) ? detail::TriluDiagonal(Input(1, DeviceType::kCPU)) : 0;
    Tensor* y = InferredOutput(0);
    detail::WithElementOfSize(ItemSize(x.dtype()), [&]<class T>(T) {
      ParallelFor(context_, x.numel(),
                  detail::CUDATriluLoop<T>{static_cast<const T*>(x.raw_data()),
                                           static_cast<T*>(y->raw_mutable_data()), x.dim(-2),
                                           x.dim(-1), k, upper_});
    });
    return true;
  }

 private:
  const bool upper_ = GetSingleArgument<int64_t>("upper") != 0;
};

class CUDAReverseSequenceOp final : public CUDAIndexedOperator {
 public:
  using CUDAIndexedOperator::CUDAIndexedOperator;
  static constexpr auto& Propose = ProposeMoving;

 protected:
  bool RunIndexed() override {
    const Tensor& x = DenseInput(0);
    const auto lengths = Indices(1);
    Tensor* y = InferredOutput(0);
    const bool batch_first = GetSingleArgument<int64_t>("batch_axis") == 0;
    detail::WithElementOfSize(ItemSize(x.dtype()), [&]<class T>(T) {
      ParallelFor(context_, x.numel(),
                  detail::CUDAReverseLoop<T>{static_cast<const T*>(x.raw_data()),
                                             static_cast<T*>(y->raw_mutable_data()), lengths,
                                             x.dim(1), x.dim(batch_first ? 1 : 0),
                                             x.shape().NumelBetween(2, x.rank()), batch_first});
    });
    return true;
  }
};

OPKIT_CUDA_OPERATOR(Pad, CUDAPadOp);
OPKIT_CUDA_OPERATOR(Trilu, CUDATriluOp);
OPKIT_CUDA_OPERATOR(ReverseSequence, CUDAReverseSequenceOp);

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_PAD_HPP_
