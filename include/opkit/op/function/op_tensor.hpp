// OpTensor and Status: the arguments of a function operator and its result. They wrap the plain
// structs of opkit_abi.h, so that the same function serves the program and a shared library.
#ifndef OPKIT_OP_FUNCTION_OP_TENSOR_HPP_
#define OPKIT_OP_FUNCTION_OP_TENSOR_HPP_

#include <span>

#include "opkit/abi/opkit_abi.h"
#include "opkit/base/index.hpp"
#include "opkit/core/tensor.hpp"
#include "opkit/op/boundary/host/program_host.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// A view of extents or strides: a span with a checked index, which may count from the end.
class DimsView : public std::span<const int64_t> {
 public:
  DimsView(const int64_t* values, int size) : span(values, static_cast<size_t>(size)) {}
  int64_t operator[](int64_t i) const {
    return data()[detail::CheckedIndex(i, data(), static_cast<int>(size()))];
  }
};

// The values that a function may return instead of a Status.
enum ReturnValue : int { FAIL = 0, SUCCESS = 1 };

// Success, or a failure with its text. One pointer, which is null for a success.
class [[nodiscard]] OpStatus {
 public:
  OpStatus() = default;
  OpStatus(ReturnValue value) {  // NOLINT: `return SUCCESS;`
    if (value != SUCCESS) [[unlikely]]
      Fail({});
  }
  template <class... Parts>
  static OpStatus Failure(const Parts&... parts) {
    OpStatus status;
    status.Fail(StrCat(parts...));
    return status;
  }
  bool ok() const { return !message_; }
  // Returns the text of the failure; empty for a success.
  std::string message() const { return message_ ? message_->value : std::string(); }

 private:
  OPKIT_COLD void Fail(std::string text) {
    message_ = detail::IntrusivePtr<Message>(new Message(std::move(text)));
  }
  using Message = detail::Shared<std::string>;
  detail::IntrusivePtr<Message> message_;
};
#ifndef Status  // X11 has a macro Status for int; functions may return int too
using Status = OpStatus;
#endif

// Adds to the text that explains a FAIL: OPKIT_ERROR_MSG << "k is " << k; return FAIL; Every thread
// has its own text, empty at the start of every call. The host keeps the text, because a
// thread-local string of a library would keep the library in the process.
class OPKIT_IMAGE_LOCAL ErrorMessageStream {
 public:
  template <class T>
  const ErrorMessageStream& operator<<(const T& value) const {
    if (const opkit_host* host = detail::HostOfErrors()) {
      const std::string text = StrCat(value);
      host->add_error(text.data(), text.size());
    }
    return *this;
  }
};
inline ErrorMessageStream ErrorMessage() { return {}; }

// How a function must store a result.
enum class OpReq : uint8_t {
  kNone = OPKIT_REQ_NONE,        // do not compute the result: it has no memory
  kWrite = OPKIT_REQ_WRITE,      //
  kInplace = OPKIT_REQ_INPLACE,  // the memory is that of an input; the schema allows it
  kAdd = OPKIT_REQ_ADD,          // add to the present elements; only with acceptsAdd()
};
inline const char* ToString(OpReq req) {
  constexpr const char* kNames[] = {"none", "write", "in-place", "add"};
  return kNames[static_cast<int>(req)];
}

// A tensor as the argument of a function: a view that may be copied, valid until its operator runs
// again. A left-out input or output has no dtype and no data.
class OpTensor {
 public:
  OpTensor() = default;
  // Views memory, which must outlive the view, as must `shape` and `strides` (in elements).
  OpTensor(void* data, DType dtype, std::span<const int64_t> shape,
           std::span<const int64_t> strides, Device device = {}, OpReq req = OpReq::kWrite)
      : OpTensor(data, dtype, shape.data(), strides.data(), static_cast<int>(shape.size()), device,
                 req) {}
  OpTensor(void* data, DType dtype, const int64_t* shape, const int64_t* strides, int rank,
           Device device = {}, OpReq req = OpReq::kWrite) {
    if (IsObject(dtype)) [[unlikely]]
      Throw(ErrorCode::kUnsupported, "functions and libraries take no tensors of ",
            ToString(dtype));
    view_.data = data;
    view_.shape = shape;
    view_.strides = strides;
    view_.rank = rank;
    view_.dtype = static_cast<int32_t>(dtype);
    view_.device_type = static_cast<int32_t>(device.type);
    view_.device_index = device.index;
    view_.req = static_cast<int32_t>(req);
  }
  // Copies the members that exist in the ABI version of `view`.
  explicit OpTensor(const opkit_tensor& view) {
    std::memcpy(&view_, &view, view.size < sizeof view_ ? view.size : sizeof view_);
    view_.size = sizeof view_;
  }

  // Returns the first element; element (i, j, …) is at data[i * strides[0] + j * strides[1] + …].
  // Writable in outputs and in mutated inputs. Throws kTypeMismatch for another T.
  template <Element T>
  T* data() const {
    if (dtype() != kDTypeOf<T>) [[unlikely]]
      WrongType(kDTypeOf<T>);
    return static_cast<T*>(view_.data);
  }
  void* raw_data() const { return view_.data; }
  bool has_value() const { return view_.dtype != OPKIT_UNDEFINED; }

  // Returns the shape or an extent; negative axes count from the end. Throws kOutOfRange for an
  // axis that the tensor does not have.
  DimsView shape() const { return {view_.shape, view_.rank}; }
  int64_t dim(int axis) const { return shape()[axis]; }
  // Returns the strides, in elements.
  DimsView strides() const { return {view_.strides, view_.rank}; }
  int64_t stride(int axis) const { return strides()[axis]; }
  int rank() const { return view_.rank; }
  // Returns the number of elements; `size` is MXNet's name for it.
  int64_t numel() const {
    int64_t count = 1;
    for (int i = 0; i < view_.rank; ++i) count *= view_.shape[i];
    return count;
  }
  int64_t size() const { return numel(); }
  int64_t nbytes() const { return size() * ItemSize(dtype()); }
  bool is_dense() const {
    int64_t step = 1;
    for (int i = view_.rank - 1; i >= 0; --i) {
      if (view_.shape[i] != 1 && view_.strides[i] != step) return false;
      step *= view_.shape[i] > 0 ? view_.shape[i] : 1;
    }
    return true;
  }
  DType dtype() const { return static_cast<DType>(view_.dtype); }
  Device device() const { return {static_cast<DeviceType>(view_.device_type), view_.device_index}; }
  OpReq req() const { return static_cast<OpReq>(view_.req); }

  friend std::string ToString(const OpTensor& tensor) {
    if (!tensor.has_value()) return "(none)";
    const opkit_tensor& view = tensor.view_;
    return StrCat(tensor.dtype(), std::vector<int64_t>(view.shape, view.shape + view.rank), " on ",
                  tensor.device());
  }

  // Returns the viewed Tensor, for the toolkit; null if the view was not made from a Tensor.
  const Tensor* tensor() const { return static_cast<const Tensor*>(view_.host); }
  void Bind(const Tensor* tensor) { view_.host = tensor; }
  const opkit_tensor& view() const { return view_; }

 private:
  [[noreturn]] OPKIT_COLD void WrongType(DType wanted) const {
    if (!has_value() && req() == OpReq::kWrite)
      Throw(ErrorCode::kUninitialized, "an output that the operator makes itself is accessed as ",
            wanted, " before it is there; call allocate_output first");
    if (!has_value())
      Throw(ErrorCode::kUninitialized, "a tensor that the node leaves out is accessed as ", wanted,
            "; ask has_value() first");
    Throw(ErrorCode::kTypeMismatch, "tensor ", *this, " is accessed as ", wanted);
  }

  opkit_tensor view_{
      sizeof(opkit_tensor), nullptr, nullptr, nullptr, nullptr, 0, 0, 1, 0, 0, 0, nullptr};
};
static_assert(sizeof(OpTensor) == sizeof(opkit_tensor), "arrays of one are arrays of the other");

}}  // namespace opkit

// Explains the FAIL that follows: OPKIT_ERROR_MSG << "expected 2 axes, found " << rank;
#define OPKIT_ERROR_MSG ::opkit::ErrorMessage()

#endif  // OPKIT_OP_FUNCTION_OP_TENSOR_HPP_
