// Caffe2's further spellings, for ported operators. This header replaces caffe2/core/context.h and
// operator.h; the source keeps its `namespace caffe2`. Caffe2's setters of OpSchema and its
// REGISTER macros are in opkit/opkit.hpp. From caffe2/utils/math.h this header has the functions
// that the tutorials call, as plain loops on the host.
#ifndef OPKIT_COMPAT_CAFFE2_HPP_
#define OPKIT_COMPAT_CAFFE2_HPP_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "opkit/compat/dispatch_helper.hpp"
#include "opkit/graph.hpp"
#include "opkit/graph/simple_net.hpp"
#include "opkit/op/gradient/gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

using EnginePref = detail::BackendPreference;

// Caffe2's spelling of OpRegistry::SetPreference.
inline void SetGlobalEnginePref(DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetPreference(device, std::move(engines));
}
inline void SetOpEnginePref(const std::string& op, DeviceType device, EnginePref engines) {
  OpRegistry::Global().SetPreference(op, device, std::move(engines));
}
// Sets preferences from maps: device types to backends, or device types to operators and their
// backends. Changes nothing if one entry is wrong.
template <class EnginesByDevice>
void SetGlobalEnginePref(const EnginesByDevice& pref) {
  for (const auto& [device, engines] : pref) OpRegistry::Global().CheckPreference(device, engines);
  for (const auto& [device, engines] : pref) OpRegistry::Global().SetPreference(device, engines);
}
template <class EnginesByDevice>
void SetOpEnginePref(const std::string& op, const EnginesByDevice& pref) {
  for (const auto& entry : pref) OpRegistry::Global().CheckPreference(op, entry.first);
  for (const auto& [device, engines] : pref)
    OpRegistry::Global().SetPreference(op, device, engines);
}
template <class OpsByDevice>
void SetPerOpEnginePref(const OpsByDevice& pref) {
  for (const auto& [device, ops] : pref)
    for (const auto& entry : ops) OpRegistry::Global().CheckPreference(entry.first, device);
  for (const auto& [device, ops] : pref)
    for (const auto& [op, engines] : ops) OpRegistry::Global().SetPreference(op, device, engines);
}

}}  // namespace opkit

namespace at {
// The dtype of an output: Output(0, {m, n}, at::dtype<float>()).
template <class T>
constexpr ::opkit::DType dtype() {
  return ::opkit::kDTypeOf<T>;
}
}  // namespace at

// Caffe2's sources use the toolkit's names without a qualifier. The classes here hide the toolkit's
// classes of the same name.
namespace caffe2 {
using namespace ::opkit;
using std::map;
using std::string;
using std::unique_ptr;
using std::vector;
using TIndex = int64_t;
inline constexpr DeviceType CPU = DeviceType::kCPU;
class DefaultEngine {};

// Return an axis counted from the front, and products of extents: before `k`, from `k` on, and
// between axes `k` and `l` without both. Throw kOutOfRange for an axis that the extents lack.
inline int canonical_axis_index_(int axis, int rank) {
  if (axis < -rank || axis >= rank)
    Throw(ErrorCode::kOutOfRange, "expected an axis of ", rank, ", found ", axis);
  return axis < 0 ? axis + rank : axis;
}
inline int64_t size_to_dim_(int k, std::span<const int64_t> dims) {
  if (k < 0 || detail::Index(k) > dims.size())
    Throw(ErrorCode::kOutOfRange, "expected a number from 0 to ", dims.size(), ", found ", k);
  int64_t size = 1;
  for (const int64_t extent : dims.first(detail::Index(k))) size *= extent;
  return size;
}
inline int64_t size_from_dim_(int k, std::span<const int64_t> dims) {
  const int rank = static_cast<int>(dims.size());
  if (k < 0 || k > rank)
    Throw(ErrorCode::kOutOfRange, "expected a number from 0 to ", rank, ", found ", k);
  return size_to_dim_(rank - k, dims.subspan(detail::Index(k)));
}
inline int64_t size_between_dim_(int k, int l, std::span<const int64_t> dims) {
  const int begin = (std::min)(k, l), end = (std::max)(k, l), rank = static_cast<int>(dims.size());
  if (begin < 0 || end >= rank)
    Throw(ErrorCode::kOutOfRange, "expected two axes of ", rank, ", found ", k, " and ", l);
  return k == l ? 1 : size_to_dim_(end - begin - 1, dims.subspan(detail::Index(begin + 1)));
}

// The extents of a tensor; valid until its shape changes.
class IntArrayRef : public std::span<const int64_t> {
 public:
  explicit IntArrayRef(const Shape& shape) : span(shape.data(), detail::Index(shape.rank())) {}
  auto cbegin() const { return begin(); }
  auto cend() const { return end(); }
  vector<int64_t> vec() const { return {begin(), end()}; }
  operator vector<int64_t>() const { return vec(); }
  operator Shape() const { return Shape(data(), size()); }
  friend bool operator==(IntArrayRef a, IntArrayRef b) { return Shape(a) == Shape(b); }
  friend std::string ToString(IntArrayRef dims) { return StrCat(Shape(dims)); }
};

// A tensor with Caffe2's members. It owns its tensor, or refers to an input or output of an
// operator. It converts to opkit::Tensor, so that the toolkit's functions accept it.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(DeviceType type) : own_(Device{type}) {}
  // Makes this object refer to a tensor, which must outlive this object and its copies.
  void Bind(::opkit::Tensor* to) { bound_ = to; }
  operator ::opkit::Tensor&() { return tensor(); }
  operator const ::opkit::Tensor&() const { return tensor(); }

  IntArrayRef sizes() const { return IntArrayRef(tensor().shape()); }
  IntArrayRef dims() const { return sizes(); }
  int64_t size(int axis) const { return dim(axis); }
  int64_t dim(int axis) const { return tensor().dim(axis); }
  int dim32(int axis) const { return static_cast<int>(dim(axis)); }
  int dim() const { return tensor().rank(); }
  int ndim() const { return dim(); }
  int64_t size() const { return numel(); }
  int64_t numel() const { return tensor().numel(); }
  int64_t nbytes() const { return tensor().nbytes(); }
  int64_t itemsize() const { return ItemSize(dtype()); }
  DType dtype() const { return tensor().dtype(); }
  DeviceType GetDeviceType() const { return tensor().device().type; }
  int canonical_axis_index(int axis) const { return canonical_axis_index_(axis, dim()); }
  int64_t size_to_dim(int k) const { return size_to_dim_(k, sizes()); }
  int64_t size_from_dim(int k) const { return size_from_dim_(k, sizes()); }
  int64_t size_between_dim(int k, int l) const { return size_between_dim_(k, l, sizes()); }
  template <class T>
  bool IsType() const {
    return dtype() == kDTypeOf<T>;
  }

  const void* raw_data() const { return tensor().raw_data(); }
  template <class T>
  const T* data() const {
    return tensor().template data<T>();
  }
  // Gives the tensor another dtype if it has one.
  template <class T>
  T* mutable_data() {
    if (!IsType<T>()) tensor().Resize(tensor().shape(), kDTypeOf<T>);
    return tensor().template mutable_data<T>();
  }

  template <std::integral... Extents>
  void Resize(Extents... extents) {
    tensor().Resize(Shape{static_cast<int64_t>(extents)...});
  }
  template <class Dims>
    requires(!std::integral<Dims>)
  void Resize(const Dims& dims) {
    tensor().Resize(Shape(vector<int64_t>(dims.begin(), dims.end())));
  }
  void ResizeLike(const Tensor& other) { tensor().Resize(other.tensor().shape()); }
  void Reshape(const vector<int64_t>& dims) { tensor() = tensor().View(dims); }
  void CopyFrom(const Tensor& source) { tensor().CopyFrom(source); }
  void ShareData(const Tensor& source) { tensor().ShareData(source); }

 private:
  ::opkit::Tensor& tensor() { return bound_ ? *bound_ : own_; }
  const ::opkit::Tensor& tensor() const { return bound_ ? *bound_ : own_; }

  ::opkit::Tensor own_;
  ::opkit::Tensor* bound_ = nullptr;
};
using TensorCPU = Tensor;

// The toolkit's class, whose inputs and outputs have Caffe2's members. Input and Output store a
// tensor's address and copy no tensor.
template <class Context>
class Operator : public ::opkit::Operator<Context> {
  using Base = ::opkit::Operator<Context>;

 public:
  // Takes a configuration too, for a class that passes all arguments of its constructor to this
  // one.
  Operator(const OperatorDef& def, Workspace* ws, const KernelConfig* config = nullptr)
      : Base(def, ws, config),
        inputs_(detail::Index(Base::InputSize())),
        outputs_(detail::Index(Base::OutputSize())) {}

  const Tensor& Input(int i) const { return Bind(inputs_, i, Base::Input(i)); }
  const Tensor& Input(int i, DeviceType type) const {
    return Bind(inputs_, i, Base::Input(i, type));
  }
  template <class T>
  const T& Input(int i) const {
    if constexpr (std::is_same_v<T, Tensor>)
      return Input(i);
    else
      return Base::template Input<T>(i);
  }
  template <class T>
  const T& Input(int i, DeviceType type) const {
    static_assert(std::is_same_v<T, Tensor>, "only a Tensor is on a device");
    return Input(i, type);
  }
  Tensor* Output(int i) { return &Bind(outputs_, i, *Base::Output(i)); }
  Tensor* Output(int i, const Shape& shape, DType dtype) {
    return &Bind(outputs_, i, *Base::Output(i, shape, dtype));
  }
  Tensor* Output(int i, DeviceType type) { return &Bind(outputs_, i, *Base::Output(i, type)); }
  template <class T>
  auto* Output(int i) {
    if constexpr (std::is_same_v<T, Tensor>)
      return Output(i);
    else
      return Base::template Output<T>(i);
  }
  // Returns the output as a value, which refers to the operator's output.
  Tensor XOutput(int i, const Shape& shape, DType dtype) { return *Output(i, shape, dtype); }

 private:
  static Tensor& Bind(vector<Tensor>& tensors, int i, const ::opkit::Tensor& to) {
    Tensor& tensor = tensors[detail::Index(i)];
    tensor.Bind(const_cast<::opkit::Tensor*>(&to));
    return tensor;
  }

  mutable vector<Tensor> inputs_;  // handed out as const
  vector<Tensor> outputs_;
};

// The toolkit's class, whose node is a member.
class GradientMakerBase : public ::opkit::GradientMakerBase {
 public:
  using ::opkit::GradientMakerBase::GradientMakerBase;

 protected:
  const OperatorDef& def_ = Def();
};

// Names the element types in inference.
struct TensorProto {
  using DataType = DType;
  static constexpr DType FLOAT = DType::kFloat32, DOUBLE = DType::kFloat64,
                         FLOAT16 = DType::kFloat16, INT32 = DType::kInt32, INT64 = DType::kInt64,
                         INT8 = DType::kInt8, UINT8 = DType::kUInt8, BOOL = DType::kBool;
};
using TensorProto_DataType = DType;
inline constexpr DType TensorProto_DataType_FLOAT = TensorProto::FLOAT,
                       TensorProto_DataType_DOUBLE = TensorProto::DOUBLE,
                       TensorProto_DataType_FLOAT16 = TensorProto::FLOAT16,
                       TensorProto_DataType_INT32 = TensorProto::INT32,
                       TensorProto_DataType_INT64 = TensorProto::INT64,
                       TensorProto_DataType_INT8 = TensorProto::INT8,
                       TensorProto_DataType_UINT8 = TensorProto::UINT8,
                       TensorProto_DataType_BOOL = TensorProto::BOOL;

// The dtype and the extents of a value in Caffe2's form of inference.
class TensorShape {
 public:
  const vector<int64_t>& dims() const { return dims_; }
  int64_t dims(int axis) const { return dims_.at(detail::Index(axis)); }
  int dims_size() const { return static_cast<int>(dims_.size()); }
  void add_dims(int64_t extent) { dims_.push_back(extent); }
  void set_dims(int axis, int64_t extent) { dims_.at(detail::Index(axis)) = extent; }
  DType data_type() const { return dtype_; }
  void set_data_type(DType dtype) { dtype_ = dtype; }
  bool unknown_shape() const { return unknown_; }
  void set_unknown_shape(bool unknown) { unknown_ = unknown; }

 private:
  vector<int64_t> dims_;
  DType dtype_ = DType::kUndefined;
  bool unknown_ = false;
};
template <class Extent>
TensorShape CreateTensorShape(const vector<Extent>& dims, DType dtype) {
  TensorShape out;
  for (const Extent extent : dims) out.add_dims(extent);
  out.set_data_type(dtype);
  return out;
}
inline vector<int64_t> GetDimsVector(const TensorShape& shape) { return shape.dims(); }

// Reads the arguments of a node, in inference and gradients.
class ArgumentHelper {
 public:
  explicit ArgumentHelper(const OperatorDef& def) : args_(def.args()) {}
  bool HasArgument(const string& name) const { return args_.Has(name); }
  template <class T>
  T GetSingleArgument(const string& name, const T& fallback) const {
    return args_.Get<T>(name, fallback);
  }
  template <class T>
  vector<T> GetRepeatedArgument(const string& name, const vector<T>& fallback = {}) const {
    return args_.Get<vector<T>>(name, fallback);
  }

 private:
  Arguments args_;
};

enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 };

namespace math {

template <class T, class Context>
void Set(int64_t count, T value, T* y, Context*) {
  std::fill_n(y, count, value);
}
// y = alpha * x + beta * y. With beta 0 the old y has no effect, even if it has NaNs.
template <class T, class Context>
void Axpby(int64_t count, float alpha, const T* x, float beta, T* y, Context*) {
  for (int64_t i = 0; i < count; ++i) y[i] = alpha * x[i] + (beta == 0 ? 0 : beta * y[i]);
}
// C = alpha * A * B + beta * C, for row-major matrices of m * k, k * n and m * n elements, or
// the transposed ones. One thread, without blocking: for a large product call the operator MatMul.
template <class T, class Context, class Engine = DefaultEngine>
void Gemm(CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int64_t m, int64_t n, int64_t k,
          float alpha, const T* a, const T* b, float beta, T* c, Context* context,
          DType = kDTypeOf<T>) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += a[trans_a == CblasTrans ? p * m + i : i * k + p] *
               b[trans_b == CblasTrans ? j * k + p : p * n + j];
      Axpby(1, alpha, &sum, beta, &c[i * n + j], context);
    }
}
// y = alpha * A * x + beta * y, for a row-major matrix of m * n elements, or its transpose.
template <class T, class Context, class Engine = DefaultEngine>
void Gemv(CBLAS_TRANSPOSE trans, int64_t m, int64_t n, float alpha, const T* a, const T* x,
          float beta, T* y, Context* context, DType = kDTypeOf<T>) {
  const bool transposed = trans == CblasTrans;
  Gemm<T, Context, Engine>(trans, CblasNoTrans, transposed ? n : m, 1, transposed ? m : n, alpha, a,
                           x, beta, y, context);
}

}  // namespace math

using TensorInferenceFunctionType =
    std::function<vector<TensorShape>(const OperatorDef&, const vector<TensorShape>&)>;

}  // namespace caffe2

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Makes OpSchema::TensorInferenceFunction accept Caffe2's form. The function runs once all input
// shapes are known.
template <std::convertible_to<caffe2::TensorInferenceFunctionType> F>
OpSchema::InferenceFunction AdaptInference(F infer, AncestorForm) {
  return [infer = caffe2::TensorInferenceFunctionType(std::move(infer))](InferenceContext& c) {
    std::vector<caffe2::TensorShape> inputs;
    for (const TensorInfo& input : c.inputs()) {
      if (!input.shape.is_known()) return;
      const Shape shape = input.shape.ToShape();
      inputs.push_back(caffe2::CreateTensorShape(caffe2::IntArrayRef(shape).vec(), input.dtype));
    }
    const std::vector<caffe2::TensorShape> outputs = infer(c.def(), inputs);
    for (int o = 0; o < c.num_outputs() && Index(o) < outputs.size(); ++o) {
      const caffe2::TensorShape& output = outputs[Index(o)];
      // The extents of an unknown shape may be no numbers of elements, such as -1.
      c.SetOutput(o, output.data_type(),
                  output.unknown_shape() ? SymbolicShape() : SymbolicShape(Shape(output.dims())));
    }
  };
}

}}}  // namespace opkit::detail

#ifndef OPKIT_NO_SHORT_MACROS
// Makes names of the base usable without `this->` in a class template.
#define USE_OPERATOR_CONTEXT_FUNCTIONS            \
  using ::caffe2::Operator<Context>::HasArgument; \
  using ::caffe2::Operator<Context>::HasInput;    \
  using ::caffe2::Operator<Context>::HasOutput;   \
  using ::caffe2::Operator<Context>::Input;       \
  using ::caffe2::Operator<Context>::InputSize;   \
  using ::caffe2::Operator<Context>::Output;      \
  using ::caffe2::Operator<Context>::OutputSize;  \
  using ::caffe2::Operator<Context>::XOutput;     \
  using ::caffe2::Operator<Context>::context_;    \
  using ::caffe2::Operator<Context>::debug_def;   \
  using ::caffe2::Operator<Context>::type
#define USE_SIMPLE_CTOR_DTOR(name) \
  name(const ::opkit::OperatorDef& def, ::opkit::Workspace* ws) : Operator<Context>(def, ws) {}
#define REGISTER_CPU_GRADIENT_OPERATOR(...) OPKIT_REGISTER_CPU_OPERATOR(__VA_ARGS__)
#define GRADIENT_OPERATOR_SCHEMA(name) OPKIT_OPERATOR_SCHEMA(name)
// Initialises a member from an argument of the node.
#define OP_SINGLE_ARG(type, name, variable, fallback) \
  variable(this->template GetSingleArgument<type>(name, (fallback)))

#define CAFFE_THROW(...) ::opkit::Throw(::opkit::ErrorCode::kInvalidArgument, __VA_ARGS__)
#define CAFFE_ENFORCE(condition, ...) OPKIT_ENFORCE(condition __VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_EQ(a, b, ...) OPKIT_ENFORCE((a) == (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_NE(a, b, ...) OPKIT_ENFORCE((a) != (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_LT(a, b, ...) OPKIT_ENFORCE((a) < (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_LE(a, b, ...) OPKIT_ENFORCE((a) <= (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_GT(a, b, ...) OPKIT_ENFORCE((a) > (b)__VA_OPT__(, ) __VA_ARGS__)
#define CAFFE_ENFORCE_GE(a, b, ...) OPKIT_ENFORCE((a) >= (b)__VA_OPT__(, ) __VA_ARGS__)
#ifndef DCHECK_EQ  // glog also has these
#define DCHECK_EQ(a, b) CAFFE_ENFORCE_EQ(a, b)
#define DCHECK_NE(a, b) CAFFE_ENFORCE_NE(a, b)
#define DCHECK_LT(a, b) CAFFE_ENFORCE_LT(a, b)
#define DCHECK_LE(a, b) CAFFE_ENFORCE_LE(a, b)
#define DCHECK_GT(a, b) CAFFE_ENFORCE_GT(a, b)
#define DCHECK_GE(a, b) CAFFE_ENFORCE_GE(a, b)
#endif
#endif  // OPKIT_NO_SHORT_MACROS

#endif  // OPKIT_COMPAT_CAFFE2_HPP_
