// CUDAIndexFault: how a kernel reports an index outside its axis to the host. A kernel cannot
// throw, and a run that waited for its indices would stop the device.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_INDEX_FAULT_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_INDEX_FAULT_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/device/deferred_failure.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Indices of int64 or int32 in the device's memory. Trivially copyable.
struct CUDAIndices {
  const void* data = nullptr;
  bool is_wide = true;
  int64_t* fault = nullptr;  // two numbers: 1 after a wrong index, and that index

  CUDAIndices() = default;
  CUDAIndices(const Tensor& indices, int64_t* faults)
      : data(indices.raw_data()), is_wide(indices.dtype() == DType::kInt64), fault(faults) {}

  // Returns index i; negative ones count from the end of an axis of `extent`. Returns -1 for an
  // index outside the axis, and notes it.
  OPKIT_DEVICE int64_t At(int64_t i, int64_t extent) const {
    const int64_t given =
        is_wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
    const int64_t index = given < 0 ? given + extent : given;
    if (index >= 0 && index < extent) return index;
    Note(given);
    return -1;
  }
  // Threads may write at once: one of the wrong indices is kept.
  OPKIT_DEVICE void Note(int64_t given) const {
    fault[1] = given;
    fault[0] = 1;
  }
};

}}}  // namespace opkit::detail

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The base of operators whose kernels read indices. For a wrong index a kernel reads and writes no
// memory outside its tensors. An executor's run then fails at its end with kOutOfRange. Without an
// executor a later run of the operator throws it, once the host knows of it.
class CUDAIndexedOperator : public CUDAStandardOperator, public DefersFailures {
 public:
  CUDAIndexedOperator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : CUDAStandardOperator(def, ws, config),
        fault_({2}, DType::kInt64, Device{DeviceType::kCUDAHost, 0}) {
    fault()[0] = fault()[1] = 0;
  }
  ~CUDAIndexedOperator() override { FinishWork(); }

  bool RunOnDevice() final {
    // An Error would only end a recording; the run that records reports the index at its end.
    if (!detail::t_cuda_recording && TakeFault()) [[unlikely]]
      Throw(ErrorCode::kOutOfRange, type(), ": an earlier run had the index ", fault()[1],
            ", which is outside its axis");
    return RunIndexed();
  }
  void ThrowDeferred() final {
    if (!TakeFault()) [[likely]]
      return;
    try {
      Throw(ErrorCode::kOutOfRange, type(), ": the index ", fault()[1], " is outside its axis");
    } catch (...) {
      RethrowWithContext();
    }
  }

 protected:
  virtual bool RunIndexed() = 0;
  // Returns the indices in input i, for a loop.
  detail::CUDAIndices Indices(int i) { return {DenseInput(i), fault()}; }

 private:
  // Returns true, once, after a launch has found a wrong index.
  bool TakeFault() { return __atomic_exchange_n(fault(), int64_t{0}, __ATOMIC_ACQUIRE) != 0; }
  // Page-locked memory, which the device writes.
  int64_t* fault() { return static_cast<int64_t*>(fault_.raw_mutable_data()); }

  Tensor fault_;
};

}}  // namespace opkit

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_INDEX_FAULT_HPP_
