// The part of ONNX Runtime's C interface that opkit uses, in declarations of our own, so that
// neither its header nor its library is needed to compile. The interface is a table of functions
// that only grows at its end: a function is called by its place in the table.
#ifndef OPKIT_EXPORT_ONNXRUNTIME_ORT_API_HPP_
#define OPKIT_EXPORT_ONNXRUNTIME_ORT_API_HPP_

#include <cstdint>
#include <cstdlib>
#include <string>

#include "opkit/base/error.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The places of functions in struct OrtApi (onnxruntime_c_api.h). Those of the first table are in
// every version since 1.18; a later one has the version from which on it is there.
enum class OrtPlace {
  kCreateStatus = 0,
  kGetErrorMessage = 2,
  kCreateCustomOpDomain = 26,
  kCustomOpDomainAdd = 27,
  kAddCustomOpDomain = 28,
  kGetTensorMutableData = 51,
  kCreateTensorTypeAndShapeInfo = 57,
  kSetTensorElementType = 58,
  kSetDimensions = 59,
  kGetTensorElementType = 60,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetSymbolicDimensions = 63,
  kGetTensorTypeAndShape = 65,
  kMemoryInfoGetId = 72,
  kAllocatorFree = 76,
  kAllocatorGetInfo = 77,
  kGetAllocatorWithDefaultOptions = 78,
  kKernelInfoGetAttributeFloat = 85,
  kKernelInfoGetAttributeInt64 = 86,
  kKernelInfoGetAttributeString = 87,
  kKernelContextGetInput = 90,
  kKernelContextGetOutput = 91,
  kReleaseStatus = 93,
  kReleaseValue = 96,
  kReleaseTensorTypeAndShapeInfo = 99,
  kKernelInfoGetAttributeArrayFloat = 162,
  kKernelInfoGetAttributeArrayInt64 = 163,
  kKernelContextGetGpuComputeStream = 193,
  kKernelInfoGetInputCount = 230,
  kKernelInfoGetOutputCount = 231,
  kKernelInfoGetInputName = 232,
  kKernelInfoGetAttributeTensor = 236,
  kShapeInferContextGetInputCount = 267,
  kShapeInferContextGetInputTypeShape = 268,
  kShapeInferContextGetAttribute = 269,
  kShapeInferContextSetOutputTypeShape = 270,
  kSetSymbolicDimensions = 271,
  kReadOpAttr = 272,
  kKernelContextParallelFor = 274,
  kKernelInfoGetAllocator = 278,
  kGetTensorElementTypeAndShapeDataReference = 414,  // 1.24
  kKernelInfoGetAttributeArrayString = 417,          // 1.25
};

// struct OrtApiBase.
struct OrtApiBase {
  void* const* (*get_api)(uint32_t version);
  const char* (*get_version_string)();
};

// OrtErrorCode.
enum class OrtCode : int { kFail = 1, kInvalidArgument = 2, kNotImplemented = 9 };
// OrtOpAttrType.
enum class OrtAttribute : int { kInt = 1, kInts, kFloat, kFloats, kString, kStrings };
// OrtCustomOpInputOutputCharacteristic.
enum class OrtArity : int { kRequired, kOptional, kVariadic };

// struct OrtCustomOp, whose member `version` says up to which member the host reads it.
struct OrtCustomOp {
  static constexpr uint32_t kVersion = 18;
  uint32_t version = kVersion;
  void* (*create_kernel)(const OrtCustomOp*, const void* api, const void* info) = nullptr;
  const char* (*get_name)(const OrtCustomOp*) = nullptr;
  const char* (*get_execution_provider_type)(const OrtCustomOp*) = nullptr;
  int (*get_input_type)(const OrtCustomOp*, size_t index) = nullptr;
  size_t (*get_input_type_count)(const OrtCustomOp*) = nullptr;
  int (*get_output_type)(const OrtCustomOp*, size_t index) = nullptr;
  size_t (*get_output_type_count)(const OrtCustomOp*) = nullptr;
  void (*kernel_compute)(void* kernel, void* context) = nullptr;
  void (*kernel_destroy)(void* kernel) = nullptr;
  OrtArity (*get_input_characteristic)(const OrtCustomOp*, size_t index) = nullptr;
  OrtArity (*get_output_characteristic)(const OrtCustomOp*, size_t index) = nullptr;
  int (*get_input_memory_type)(const OrtCustomOp*, size_t index) = nullptr;
  int (*get_variadic_input_min_arity)(const OrtCustomOp*) = nullptr;
  int (*get_variadic_input_homogeneity)(const OrtCustomOp*) = nullptr;
  int (*get_variadic_output_min_arity)(const OrtCustomOp*) = nullptr;
  int (*get_variadic_output_homogeneity)(const OrtCustomOp*) = nullptr;
  void* (*create_kernel_v2)(const OrtCustomOp*, const void* api, const void* info,
                            void** kernel) = nullptr;
  void* (*kernel_compute_v2)(void* kernel, void* context) = nullptr;
  void* (*infer_output_shape)(const OrtCustomOp*, void* context) = nullptr;
  int (*get_start_version)(const OrtCustomOp*) = nullptr;
  int (*get_end_version)(const OrtCustomOp*) = nullptr;
  size_t (*get_may_inplace)(int** inputs, int** outputs) = nullptr;
  void (*release_may_inplace)(int* inputs, int* outputs) = nullptr;
  size_t (*get_alias_map)(int** inputs, int** outputs) = nullptr;
  void (*release_alias_map)(int* inputs, int* outputs) = nullptr;
};

// The table of functions of an ONNX Runtime in the process, and its version.
class OrtApi {
 public:
  // The version of an interface is the second number of the runtime's version: 20 for 1.20.1.
  static constexpr uint32_t kOldest = 18, kNewest = 25;

  // Takes the table of the newest version that this header knows. Throws kUnsupported for a runtime
  // before 1.18.
  explicit OrtApi(const OrtApiBase& base) {
    const char* const text = base.get_version_string();
    const char* const point =
        std::char_traits<char>::find(text, std::char_traits<char>::length(text), '.');
    const long minor = point ? std::strtol(point + 1, nullptr, 10) : 0;
    if (minor >= kOldest) {
      version_ = minor < kNewest ? static_cast<uint32_t>(minor) : kNewest;
      table_ = base.get_api(version_);
    }
    if (!table_)
      Throw(ErrorCode::kUnsupported, "ONNX Runtime ", text,
            " is too old for the operators of this library, which need 1.18 or later");
  }
  bool Has(uint32_t version) const { return version_ >= version; }

  template <class Result = void*, class... Args>
  Result Plain(OrtPlace place, Args... args) const {
    return reinterpret_cast<Result (*)(Args...)>(table_[static_cast<int>(place)])(args...);
  }
  // Calls a function that returns a status. Returns false if it fails.
  template <class... Args>
  bool Try(OrtPlace place, Args... args) const {
    void* const status = Plain(place, args...);
    if (status) [[unlikely]]
      Plain<void>(OrtPlace::kReleaseStatus, status);
    return !status;
  }
  // Like Try. Throws kOperatorFailed with the host's text if the function fails.
  template <class... Args>
  void Call(OrtPlace place, Args... args) const {
    if (void* const status = Plain(place, args...)) [[unlikely]]
      Fail(status);
  }
  // Returns a status, which the host owns.
  void* MakeStatus(OrtCode code, const char* text) const {
    return Plain(OrtPlace::kCreateStatus, static_cast<int>(code), text);
  }

 private:
  [[noreturn]] OPKIT_COLD void Fail(void* status) const {
    const std::string why =
        Plain<const char*>(OrtPlace::kGetErrorMessage, static_cast<const void*>(status));
    Plain<void>(OrtPlace::kReleaseStatus, status);
    Throw(ErrorCode::kOperatorFailed, "ONNX Runtime: ", why);
  }

  void* const* table_ = nullptr;
  uint32_t version_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_ONNXRUNTIME_ORT_API_HPP_
