// OPKIT_CUDA_CHECK: throws failures of CUDA calls as opkit::Error. The backend wraps every call of
// the CUDA runtime in it. The base of the CUDA backend; a host compiler can compile it, too.
#ifndef OPKIT_BACKENDS_CUDA_ERROR_HPP_
#define OPKIT_BACKENDS_CUDA_ERROR_HPP_

#include <cuda_runtime_api.h>

#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline ErrorCode CUDAErrorCode(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::kOutOfMemory;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotSupported:
      return ErrorCode::kUnsupported;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kOperatorFailed;
  }
}
inline const char* CUDAErrorHint(cudaError_t status) {
  switch (status) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return "; check that nvidia-smi finds a GPU and that the driver is not older than the "
             "toolkit";
    case cudaErrorNoKernelImageForDevice:
      return "; compile for this GPU's architecture (nvcc -arch=native)";
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
      return "; check the grid, block and shared memory sizes of the launch";
    case cudaErrorUnsupportedPtxVersion:
      return "; the driver is older than the toolkit that made this PTX: update it, or compile for "
             "this GPU's architecture (nvcc -arch=native)";
    case cudaErrorInitializationError:
      return "; a process that was forked cannot use the CUDA of its parent: start a new one";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
    case cudaErrorAssert:
      return "; the process can use CUDA no more; compute-sanitizer finds the kernel at fault";
    default:
      return "";
  }
}
// Returns an Error with the message "<what> failed: <text> (<name>)<hint>".
inline Error CUDAError(cudaError_t status, std::string_view what) {
  return Error(CUDAErrorCode(status), StrCat(what, " failed: ", cudaGetErrorString(status), " (",
                                             cudaGetErrorName(status), ")", CUDAErrorHint(status)));
}
[[noreturn]] OPKIT_COLD inline void ThrowCUDAError(cudaError_t status, const char* call,
                                                   const char* file, int line) {
  cudaGetLastError();  // so that the next launch does not report it again
  throw CUDAError(status, StrCat(call, " at ", file, ":", line));
}
// Returns the Error for a status that a kernel launch or an unchecked call left on this thread.
inline Error CUDALaunchError(cudaError_t status) {
  Error error = CUDAError(status, "a kernel launch or an unchecked CUDA call on this thread");
  // A launch with too large a block fails with this status.
  if (status != cudaErrorInvalidValue) return error;
  return Error(error.code(), StrCat(error.message(), CUDAErrorHint(cudaErrorInvalidConfiguration)));
}
// Clears the thread's last error if it is "not ready", which a query of unfinished work leaves.
inline void ForgetNotReady() {
  if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
}
// Throws the error that launches and unchecked CUDA calls left on this thread.
inline void CheckCUDALaunches() {
  if (cudaPeekAtLastError() == cudaSuccess) [[likely]]
    return;
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess && status != cudaErrorNotReady) throw CUDALaunchError(status);
}

}}}  // namespace opkit::detail

// Throws an Error with the call's text, its source line and CUDA's explanation unless the call
// returns cudaSuccess. Codes: kOutOfMemory, kUnsupported (no device, driver or code for it),
// kInvalidArgument, and kOperatorFailed for all others, such as a kernel's failure.
#define OPKIT_CUDA_CHECK(...)                                                                     \
  do {                                                                                            \
    if (const cudaError_t opkit_status = (__VA_ARGS__); opkit_status != cudaSuccess) [[unlikely]] \
      ::opkit::detail::ThrowCUDAError(opkit_status, #__VA_ARGS__, __FILE__, __LINE__);            \
  } while (0)

#endif  // OPKIT_BACKENDS_CUDA_ERROR_HPP_
