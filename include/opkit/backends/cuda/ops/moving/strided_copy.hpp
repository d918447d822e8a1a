// CopyStrided: copies elements between two orders in a device's memory, as StridedCopy does on the
// host. Operators that only move elements use it, and copies of strided tensors.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_STRIDED_COPY_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_STRIDED_COPY_HPP_

#include <limits>

#include "opkit/backends/cuda/ops/moving/tiled_copy.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// 16 bytes that the device reads and writes at once.
struct alignas(16) CUDABytes16 {
  uint64_t low, high;
};

// Returns the most bytes, 1 to 16, that divide all of these numbers.
inline int64_t CUDAVectorBytes(std::initializer_list<uint64_t> numbers) {
  uint64_t bits = 16;
  for (const uint64_t number : numbers) bits |= number;
  return static_cast<int64_t>(bits & (~bits + 1));
}
// Calls f with a value of the type of that many bytes: 1, 2, 4, 8 or 16.
template <class F>
void WithCUDAVector(int64_t bytes, F f) {
  if (bytes == 16) return f(CUDABytes16{});
  WithElementOfSize(bytes, f);
}

// Returns at / extent for numbers of at least 0. A division of 64 bits takes several times as long
// as one of 32 bits.
OPKIT_HOST_DEVICE inline int64_t DivideIndex(int64_t at, int64_t extent) {
  return at <= 0xffffffff && extent <= 0xffffffff
             ? static_cast<uint32_t>(at) / static_cast<uint32_t>(extent)
             : at / extent;
}

// Copies the element at position i of the axes, the last of which is innermost. The numbers are of
// type I.
template <class T, class I>
struct CUDAStridedLoop {
  static constexpr int kMaxAxes = 16;

  const T* from;
  T* to;
  int axes;
  I extents[kMaxAxes], from_steps[kMaxAxes], to_steps[kMaxAxes];

  OPKIT_DEVICE void operator()(int64_t i) const {
    using Unsigned = std::make_unsigned_t<I>;
    auto rest = static_cast<Unsigned>(i);
    I source = 0, target = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      Unsigned step = rest;
      if (axis > 0) {
        const auto extent = static_cast<Unsigned>(extents[axis]);
        rest = step / extent;
        step -= rest * extent;
      }
      source += static_cast<I>(step) * from_steps[axis];
      target += static_cast<I>(step) * to_steps[axis];
    }
    to[target] = from[source];
  }
};

// A copy that is ready to be launched.
class CUDAStridedLaunch {
 public:
  // Takes the axes of a copy that was prepared. Throws kUnsupported if they are too many.
  CUDAStridedLaunch(const StridedCopy& copy, const void* from, void* to)
      : axes_(copy.axes()), from_(from), to_(to) {
    constexpr int kMost = CUDAStridedLoop<uint8_t, int32_t>::kMaxAxes;
    uint64_t all = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
    const auto block = static_cast<uint64_t>(copy.block_bytes());
    for (const StridedCopy::CopyAxis& axis : axes_)
      all |= static_cast<uint64_t>(axis.from) | static_cast<uint64_t>(axis.to);
    width_ = CUDAVectorBytes({all, block});
    if (const int64_t vectors = copy.block_bytes() / width_; vectors > 1)
      axes_.push_back({vectors, width_, width_});
    if (axes_.size() > kMost)
      Throw(ErrorCode::kUnsupported, "a copy on CUDA has at most ", kMost,
            " axes that cannot be merged, and this one has ", axes_.size());
  }
  void Launch(int device, cudaStream_t stream) const {
    constexpr int64_t kMost = (std::numeric_limits<int32_t>::max)();
    int64_t size = 1, from_reach = 0, to_reach = 0;
    for (const StridedCopy::CopyAxis& axis : axes_) {
      size *= axis.extent;
      from_reach += (axis.extent - 1) * (axis.from < 0 ? -axis.from : axis.from) / width_;
      to_reach += (axis.extent - 1) * (axis.to < 0 ? -axis.to : axis.to) / width_;
    }
    const bool is_short = size <= kMost && from_reach <= kMost && to_reach <= kMost;
    WithCUDAVector(width_, [&]<class T>(T) {
      if constexpr (sizeof(T) <= 8)
        if (is_short && LaunchTiles<T>(device, stream, axes_, from_, to_)) return;
      is_short ? LaunchOf<T, int32_t>(device, stream, size)
               : LaunchOf<T, int64_t>(device, stream, size);
    });
  }

 private:
  template <class T, class I>
  void LaunchOf(int device, cudaStream_t stream, int64_t size) const {
    CUDAStridedLoop<T, I> loop;
    loop.from = static_cast<const T*>(from_);
    loop.to = static_cast<T*>(to_);
    loop.axes = static_cast<int>(axes_.size());
    for (size_t i = 0; i < axes_.size(); ++i) {
      loop.extents[i] = static_cast<I>(axes_[i].extent);
      loop.from_steps[i] = static_cast<I>(axes_[i].from / width_);
      loop.to_steps[i] = static_cast<I>(axes_[i].to / width_);
    }
    LaunchLoop(device, stream, size, loop);
  }

  std::vector<StridedCopy::CopyAxis> axes_;
  const void* from_;
  void* to_;
  int64_t width_ = 1;  // bytes that a thread copies
};

// Issues a copy whose axes were added. `from` and `to` point to the elements at index 0 of every
// axis; the memory that is read and the memory that is written must not overlap.
inline void LaunchStridedCopy(int device, cudaStream_t stream, StridedCopy& copy, const void* from,
                              void* to) {
  if (!copy.Prepare()) return;
  if (!copy.axes().empty()) return CUDAStridedLaunch(copy, from, to).Launch(device, stream);
  if (from != to)
    OPKIT_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(copy.block_bytes()),
                                     cudaMemcpyDeviceToDevice, stream));
}

}  // namespace detail

// Throws UnsupportedOperatorFeature unless input i has elements of whole bytes. For Propose.
inline void RequireWholeBytes(const KernelQuery& query, size_t i = 0) {
  const DType dtype = query.inputs[i].dtype;
  if (dtype != DType::kUndefined && !IsObject(dtype) && !IsPacked(dtype)) return;
  throw UnsupportedOperatorFeature(
      StrCat("it moves elements of whole bytes, and the type of input ", i, " is ",
             dtype == DType::kUndefined ? "not known" : ToString(dtype)));
}
// Throws UnsupportedOperatorFeature unless the rank of input i is known and at most `most`. For
// Propose.
inline void RequireRank(const KernelQuery& query, size_t i, int most) {
  const SymbolicShape& shape = query.inputs[i].shape;
  if (shape.has_rank() && shape.rank() <= most) return;
  throw UnsupportedOperatorFeature(StrCat("it moves tensors of a known rank of at most ", most,
                                          ", and input ", i, " is ", ToString(shape)));
}

// The most axes of a tensor that a strided copy moves, also if its elements of 16 bytes lie at
// multiples of 8 bytes.
inline constexpr int kCUDAMovedRank = detail::CUDAStridedLoop<uint8_t, int32_t>::kMaxAxes - 1;

// Returns one configuration, if the elements of input 0 can be moved. For Propose.
inline std::vector<KernelConfig> ProposeMoving(const KernelQuery& query) {
  LeaveShapesOnHost(query);
  RequireWholeBytes(query);
  RequireRank(query, 0, kCUDAMovedRank);
  return {KernelConfig()};
}

// The base of operators that move the elements of input 0; Base is a base of operators on
// CUDAContext.
template <class Base>
class CUDAMovingOperatorOn : public Base {
 public:
  using Base::Base;
  static constexpr auto& Propose = ProposeMoving;

 protected:
  // Returns a list of integers in the host's memory.
  Dims HostList(int i, std::string_view what) const {
    return IntegerList(this->Input(i, DeviceType::kCPU), what);
  }
  // Issues a copy whose axes were added.
  void Launch(StridedCopy& copy, const void* from, void* to) {
    detail::LaunchStridedCopy(this->device().index, this->context_.cuda_stream(), copy, from, to);
  }
};
using CUDAMovingOperator = CUDAMovingOperatorOn<CUDAStandardOperator>;

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_STRIDED_COPY_HPP_
