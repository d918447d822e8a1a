// CUDAIndexFault: how a kernel reports an index or a length outside its axis to the host. A kernel
// cannot throw, and a run that waited for its indices would stop the device.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_INDEX_FAULT_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_INDEX_FAULT_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/device/deferred_failure.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Indices of int64 or int32 in the device's memory. Trivially copyable.
struct CUDAIndices {
  const void* data = nullptr;
  bool is_wide = true;
  // Two numbers: 0, or kWrongIndex or kWrongLength and the wrong number.
  int64_t* fault = nullptr;
  static constexpr int64_t kWrongIndex = 1, kWrongLength = 2;

  CUDAIndices() = default;
  CUDAIndices(const Tensor& indices, int64_t* faults)
      : data(indices.raw_data()), is_wide(indices.dtype() == DType::kInt64), fault(faults) {}

  // Returns index i; negative ones count from the end of an axis of `extent`. Returns -1 for an
  // index outside the axis, and notes it.
  OPKIT_DEVICE int64_t At(int64_t i, int64_t extent) const {
    const int64_t given = Given(i);
    return Checked(given, given < 0 ? given + extent : given, extent);
  }
  // The same where negative indices are wrong.
  OPKIT_DEVICE int64_t FromStart(int64_t i, int64_t extent) const {
    const int64_t given = Given(i);
    return Checked(given, given, extent);
  }
  // Returns number i, a length of 0 to `most`; `most` if the input is left out. Returns 0 for
  // another number, and notes it.
  OPKIT_DEVICE int64_t Length(int64_t i, int64_t most) const {
    if (!data) return most;
    const int64_t given = Given(i);
    if (given >= 0 && given <= most) return given;
    Note(given, kWrongLength);
    return 0;
  }
  // Threads may write at once: one of the wrong indices is kept.
  OPKIT_DEVICE void Note(int64_t given, int64_t kind = kWrongIndex) const {
    fault[1] = given;
    fault[0] = kind;
  }

 private:
  OPKIT_DEVICE int64_t Given(int64_t i) const {
    return is_wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
  OPKIT_DEVICE int64_t Checked(int64_t given, int64_t index, int64_t extent) const {
    if (index >= 0 && index < extent) return index;
    Note(given);
    return -1;
  }
};

}}}  // namespace opkit::detail

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The base of operators whose kernels read indices. For a wrong index a kernel reads and writes no
// memory outside its tensors. An executor's run then fails at its end with kOutOfRange. Without an
// executor a later run of the operator throws it, once the host knows of it.
class CUDAIndexedOperator : public CUDAStandardOperator, public DefersFailures {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;
  ~CUDAIndexedOperator() override { FinishWork(); }

  bool RunOnDevice() final {
    // An Error would only end a recording; the run that records reports the index at its end.
    if (const int64_t wrong = detail::t_cuda_recording ? 0 : TakeFault(); wrong != 0) [[unlikely]]
      Throw(ErrorCode::kOutOfRange, type(), ": an earlier run had the ", Found(wrong),
            ", which is outside its axis");
    return RunIndexed();
  }
  void ThrowDeferred() final {
    const int64_t wrong = TakeFault();
    if (wrong == 0) [[likely]]
      return;
    try {
      Throw(ErrorCode::kOutOfRange, type(), ": the ", Found(wrong), " is outside its axis");
    } catch (...) {
      RethrowWithContext();
    }
  }
  void DiscardDeferred() final {
    TakeFault();
    if (!fault_.storage()) return;
    detail::RefCountedList written{fault_.storage()};
    try {
      // The work of the ended run is on this stream, or in a recording, which keeps the memory,
      // too.
      context_.stream().Keep(written);
      fault_ = Tensor();  // the next run gets other memory
    } catch (const std::exception&) {
      // The device accepts no work, and so runs none that would write to this memory.
    }
  }

 protected:
  virtual bool RunIndexed() = 0;
  // Returns the indices in input i, for a loop.
  detail::CUDAIndices Indices(int i) {
    if (!fault_.storage()) {
      fault_ = Tensor({2}, DType::kInt64, Device{DeviceType::kCUDAHost, 0});
      fault()[0] = fault()[1] = 0;
    }
    // A launch may be under way when the operator gets other memory.
    if (detail::t_cuda_recording) detail::t_cuda_recording->kept.push_back(fault_.storage());
    return {DenseInput(i), fault()};
  }
  // Returns the lengths in input i, which may be left out.
  detail::CUDAIndices Lengths(int i) { return HasInput(i) ? Indices(i) : detail::CUDAIndices(); }

 private:
  // Returns, once, the kind of wrong number that a launch has found; 0 if it found none.
  int64_t TakeFault() {
    return fault_.storage() ? __atomic_exchange_n(fault(), int64_t{0}, __ATOMIC_ACQUIRE) : 0;
  }
  std::string Found(int64_t kind) {
    return StrCat(kind == detail::CUDAIndices::kWrongIndex ? "index " : "length ", fault()[1]);
  }
  int64_t* fault() { return static_cast<int64_t*>(fault_.raw_mutable_data()); }

  Tensor fault_;  // page-locked memory, which the device writes; none before the first run
};

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_INDEX_FAULT_HPP_
