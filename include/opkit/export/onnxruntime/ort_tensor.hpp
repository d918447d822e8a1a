// OrtTensor: a tensor of ONNX Runtime as plain data.
#ifndef OPKIT_EXPORT_ONNXRUNTIME_ORT_TENSOR_HPP_
#define OPKIT_EXPORT_ONNXRUNTIME_ORT_TENSOR_HPP_

#include <vector>

#include "opkit/export/foreign_tensor.hpp"
#include "opkit/export/onnxruntime/ort_api.hpp"
#include "opkit/ops/support/convert.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The extents are in the host's memory, or, for a host before 1.24, in this object.
class OPKIT_IMAGE_LOCAL OrtTensor : public ForeignTensor {
 public:
  // Throws kUnsupported for elements that are not plain.
  OrtTensor(const OrtApi& api, const void* value, Device on) {
    int type = 0;
    size_t extents = 0;
    if (api.Has(24)) [[likely]] {
      api.Call(OrtPlace::kGetTensorElementTypeAndShapeDataReference, value, &type, &shape,
               &extents);
    } else {
      void* owned = nullptr;
      api.Call(OrtPlace::kGetTensorTypeAndShape, value, &owned);
      const void* const info = owned;
      const bool read =
          api.Try(OrtPlace::kGetTensorElementType, info, &type) &&
          api.Try(OrtPlace::kGetDimensionsCount, info, &extents) &&
          (extents_.resize(extents), true) &&
          (extents == 0 || api.Try(OrtPlace::kGetDimensions, info, extents_.data(), extents));
      api.Plain<void>(OrtPlace::kReleaseTensorTypeAndShapeInfo, owned);
      if (!read) Throw(ErrorCode::kOperatorFailed, "ONNX Runtime does not tell a tensor's shape");
      shape = extents_.data();
    }
    api.Call(OrtPlace::kGetTensorMutableData, const_cast<void*>(value), &data);
    dtype = OnnxDType(type);
    device = on;
    rank = static_cast<int>(extents);
    if (!IsPlain(dtype)) [[unlikely]]
      Throw(ErrorCode::kUnsupported, "a tensor of ONNX Runtime has the element type ", type,
            " of TensorProto.DataType, which exported operators do not take");
  }
  OrtTensor(OrtTensor&&) = delete;

 private:
  std::vector<int64_t> extents_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_ONNXRUNTIME_ORT_TENSOR_HPP_
