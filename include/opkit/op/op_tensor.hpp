// OpTensor and Status: what a function operator is called with and what it answers. Plain views
// that cost nothing to make, so that the same function serves the program and a shared library.
#ifndef OPKIT_OP_OP_TENSOR_HPP_
#define OPKIT_OP_OP_TENSOR_HPP_

#include <span>

#include "opkit/core/tensor.hpp"

namespace opkit::inline OPKIT_ABI {

// What a function may answer instead of a Status.
enum ReturnValue : int { FAIL = 0, SUCCESS = 1 };
using MXReturnValue = ReturnValue;

// Success, or a failure with its text. Making a success costs nothing.
class [[nodiscard]] OpStatus {
 public:
  OpStatus() = default;
  OpStatus(ReturnValue value) : ok_(value == SUCCESS) {}  // NOLINT: `return SUCCESS;`
  template <class... Parts>
  static OpStatus Failure(const Parts&... parts) {
    OpStatus status(FAIL);
    status.message_ = StrCat(parts...);
    return status;
  }
  bool ok() const { return ok_; }
  const std::string& message() const { return message_; }

 private:
  bool ok_ = true;
  std::string message_;
};
#ifndef Status  // X11 makes it a macro for int, which functions may return as well
using Status = OpStatus;
#endif

// Text that explains a FAIL, one for each thread: OPKIT_ERROR_MSG << "k is " << k; return FAIL;
// It is empty at the start of every call.
class ErrorMessageStream {
 public:
  template <class T>
  ErrorMessageStream& operator<<(const T& value) {
    text_ += StrCat(value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  friend class ErrorMessageScope;
  std::string text_;
};
inline ErrorMessageStream& ErrorMessage() {
  static thread_local ErrorMessageStream stream;
  return stream;
}
// An empty message for the scope's life; the one before returns with its end.
class ErrorMessageScope {
 public:
  ErrorMessageScope() : saved_(std::exchange(ErrorMessage().text_, {})) {}
  ErrorMessageScope(const ErrorMessageScope&) = delete;
  ErrorMessageScope& operator=(const ErrorMessageScope&) = delete;
  ~ErrorMessageScope() { ErrorMessage().text_ = std::move(saved_); }

 private:
  std::string saved_;
};

// How a result is to be stored.
enum class OpReq : uint8_t {
  kNone,     // nobody wants it: there is no memory
  kWrite,    //
  kInplace,  // the memory is that of an input, which the schema allows
  kAdd,      // onto what is there; only for operators with setAcceptAdd()
};
inline const char* ToString(OpReq req) {
  constexpr const char* kNames[] = {"none", "write", "in-place", "add"};
  return kNames[static_cast<int>(req)];
}

// A tensor as a function sees it: a view, copied freely, valid until its operator runs again. An
// input or output that the node leaves out has no dtype and no data.
class OpTensor {
 public:
  OpTensor() = default;
  // Views memory that outlives it; `shape` and `strides` (in elements) too.
  OpTensor(void* data, DType dtype, std::span<const int64_t> shape,
           std::span<const int64_t> strides, Device device = {}, OpReq req = OpReq::kWrite)
      : OpTensor(data, dtype, shape.data(), strides.data(), static_cast<int>(shape.size()), device,
                 req) {}
  OpTensor(void* data, DType dtype, const int64_t* shape, const int64_t* strides, int rank,
           Device device = {}, OpReq req = OpReq::kWrite)
      : data_(data),
        dims_(shape),
        strides_(strides),
        rank_(rank),
        device_(device),
        dtype_(dtype),
        req_(req) {}

  // The first element; element (i, j, …) is at data[i * strides[0] + j * strides[1] + …]. Writable
  // in outputs and in mutated inputs. Error (kTypeMismatch) for another T.
  template <Element T>
  T* data() const {
    if (dtype_ != kDTypeOf<T>) [[unlikely]]
      WrongType(kDTypeOf<T>);
    return static_cast<T*>(data_);
  }
  void* raw_data() const { return data_; }
  bool has_value() const { return dtype_ != DType::kUndefined; }

  // Templates, so that the first std::span, a dear one, is made by who asks for it.
  template <class Extents = std::span<const int64_t>>
  Extents shape() const {
    return Extents(dims_, static_cast<size_t>(rank_));
  }
  // In elements.
  template <class Extents = std::span<const int64_t>>
  Extents strides() const {
    return Extents(strides_, static_cast<size_t>(rank_));
  }
  int64_t stride(int axis) const { return strides_[axis < 0 ? axis + rank_ : axis]; }
  int rank() const { return rank_; }
  int64_t dim(int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  // Number of elements.
  int64_t size() const {
    int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= dims_[i];
    return count;
  }
  int64_t nbytes() const { return size() * ItemSize(dtype_); }
  bool is_dense() const {
    int64_t step = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      if (dims_[i] != 1 && strides_[i] != step) return false;
      step *= dims_[i] > 0 ? dims_[i] : 1;
    }
    return true;
  }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  OpReq req() const { return req_; }

  friend std::string ToString(const OpTensor& tensor) {
    if (!tensor.has_value()) return "(none)";
    return StrCat(tensor.dtype_, std::vector<int64_t>(tensor.dims_, tensor.dims_ + tensor.rank_),
                  " on ", tensor.device_);
  }

  // For the toolkit: the tensor that is viewed, where there is one.
  const Tensor* tensor() const { return tensor_; }
  void Bind(const Tensor* tensor) { tensor_ = tensor; }

 private:
  [[noreturn]] OPKIT_COLD void WrongType(DType wanted) const {
    if (!has_value())
      Throw(ErrorCode::kUninitialized, "a tensor that the node leaves out is accessed as ", wanted,
            "; ask has_value() first");
    Throw(ErrorCode::kTypeMismatch, "tensor ", *this, " is accessed as ", wanted);
  }

  void* data_ = nullptr;
  const int64_t* dims_ = nullptr;
  const int64_t* strides_ = nullptr;
  int32_t rank_ = 0;
  Device device_;
  DType dtype_ = DType::kUndefined;
  OpReq req_ = OpReq::kNone;
  const Tensor* tensor_ = nullptr;
};
using MXTensor = OpTensor;

}  // namespace opkit

// Explains the FAIL that follows: OPKIT_ERROR_MSG << "expected 2 axes, found " << rank;
#define OPKIT_ERROR_MSG ::opkit::ErrorMessage()

#endif  // OPKIT_OP_OP_TENSOR_HPP_
