// The loop of the elementwise operators on CUDA: each element of the output is a function of one
// element of each broadcast input. A thread computes the elements of 16 bytes, and reads and writes
// them at once where they lie side by side.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOOP_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOOP_HPP_

#include <utility>

#include "opkit/backends/cuda/ops/broadcast_index.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The numbers that arithmetic computes on the device. The CPU computes those of the other types,
// which models rarely have beside a device.
using CUDANumericTypes = ElementTypes<float, double, float16, bfloat16, int32_t, int64_t>;

namespace detail {

// Returns an element in the type in which it is computed. The device has instructions for the
// conversions of float16 and bfloat16.
template <class T>
OPKIT_DEVICE ComputeType<T> LoadOnDevice(const StoredType<T>& stored) {
#ifdef OPKIT_DEVICE_PASS
  if constexpr (std::is_same_v<T, float16>) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(stored.bits));
    return number;
  }
#endif
  return LoadElement<T>(stored);
}
template <class T, class Computed>
OPKIT_DEVICE StoredType<T> StoredOnDevice(Computed number) {
#ifdef OPKIT_DEVICE_PASS
  if constexpr (std::is_same_v<T, float16> && std::is_same_v<Computed, float>) {
    float16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(number));
    return half;
  }
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<Computed, float>) {
    bfloat16 half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(number));
    return half;
  }
#endif
#endif
  return static_cast<StoredType<T>>(number);
}

// Neighbouring elements, which the device reads or writes by one instruction.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) CUDAVector {
  T elements[kCount];
};
// Returns the number of elements that a thread computes: 16 bytes of the largest type, at most 8.
constexpr int VectorCount(std::initializer_list<size_t> sizes) {
  size_t largest = 2;
  for (const size_t size : sizes) largest = size > largest ? size : largest;
  return static_cast<int>(16 / largest);
}

// y = f(x…), with elements of type R and Ts. f is trivially copyable. kBroadcasts: the index finds
// the elements of the inputs. Otherwise an input has one element, or as many as the output.
template <bool kBroadcasts, class F, class R, class... Ts>
struct ElementwiseLoop {
  static constexpr int kInputs = sizeof...(Ts);
  static constexpr int kCount = VectorCount({sizeof(R), sizeof(Ts)...});
  template <class T>
  using Vector = CUDAVector<T, kCount>;
  // An input. The elements that belong to a row of the output are neighbours, or the same one.
  struct Source {
    const char* data;
    bool is_repeated, is_aligned;
  };
  struct NoIndex {};

  F f;
  StoredType<R>* y;
  uint32_t size;    // elements of the output
  bool is_aligned;  // whether y can be written as vectors
  bool in_rows;     // whether the elements of a thread lie in one row of the output
  Source x[kInputs == 0 ? 1 : kInputs];
  std::conditional_t<kBroadcasts, BroadcastIndex, NoIndex> index;

  int64_t threads() const { return (int64_t{size} + kCount - 1) / kCount; }
  OPKIT_DEVICE void operator()(int64_t thread) const {
    Run(static_cast<uint32_t>(thread) * kCount, std::make_index_sequence<kInputs>());
  }

 private:
  template <size_t... i>
  OPKIT_DEVICE void Run(uint32_t first, std::index_sequence<i...>) const {
    const int count = size - first < kCount ? static_cast<int>(size - first) : kCount;
    int64_t from[kCount][kInputs == 0 ? 1 : kInputs];
    if constexpr (kBroadcasts) {
      index.template FindShort<kInputs>(first, from[0]);
      if (!in_rows)
        for (int j = 1; j < kCount; ++j)
          index.template FindShort<kInputs>(
              first + static_cast<uint32_t>(j < count ? j : count - 1), from[j]);
    } else {
      for (int k = 0; k < kInputs; ++k) from[0][k] = x[k].is_repeated ? 0 : int64_t{first};
    }
    Compute(first, count, Load<Ts>(x[i], from, i, count)...);
  }
  // Reads the elements of an input. Where `count` is less than kCount, the last element is read
  // again, so that f gets no other number.
  template <class T, class From>
  OPKIT_DEVICE Vector<ComputeType<T>> Load(const Source& source, const From& from, size_t i,
                                           int count) const {
    Vector<ComputeType<T>> out;
    const auto* data = reinterpret_cast<const StoredType<T>*>(source.data);
    if (kBroadcasts && !in_rows) {
      for (int j = 0; j < kCount; ++j) out.elements[j] = LoadOnDevice<T>(data[from[j][i]]);
      return out;
    }
    data += from[0][i];
    Vector<StoredType<T>> stored;
    if (source.is_aligned && count == kCount)
      stored = *reinterpret_cast<const Vector<StoredType<T>>*>(data);
    else
      for (int j = 0; j < kCount; ++j)
        stored.elements[j] = data[source.is_repeated ? 0 : j < count ? j : count - 1];
    for (int j = 0; j < kCount; ++j) out.elements[j] = LoadOnDevice<T>(stored.elements[j]);
    return out;
  }
  template <class... Vectors>
  OPKIT_DEVICE void Compute(uint32_t first, int count, const Vectors&... in) const {
    Vector<StoredType<R>> out;
    for (int j = 0; j < kCount; ++j) out.elements[j] = StoredOnDevice<R>(f(in.elements[j]...));
    StoredType<R>* const to = y + first;
    if (is_aligned && count == kCount)
      *reinterpret_cast<Vector<StoredType<R>>*>(to) = out;
    else
      for (int j = 0; j < kCount; ++j)
        if (j < count) to[j] = out.elements[j];
  }
};

// A loop before its launch: the memory and the index of all elements.
struct ElementwiseWork {
  char* y;
  const char* x[BroadcastIndex::kMaxInputs];
  BroadcastIndex index;

  // Returns the steps from `begin` to `end` of the first axis that has several.
  ElementwiseWork Part(int64_t begin, int64_t end, int64_t y_item, const size_t* items,
                       int inputs) const {
    ElementwiseWork part = *this;
    int axis = 0;
    while (index.extents[axis] == 1) ++axis;
    const int64_t step = index.size / index.extents[axis];
    part.y += begin * step * y_item;
    for (int i = 0; i < inputs; ++i)
      part.x[i] += begin * index.strides[i][axis] * static_cast<int64_t>(items[i]);
    part.index.SetExtent(axis, end - begin);
    return part;
  }
};

// Issues loops of less than `limit` elements each for the work.
template <bool kBroadcasts, class R, class... Ts, class F>
void IssueElementwise(CUDAContext& context, F f, const ElementwiseWork& work,
                      int64_t limit = BroadcastIndex::kLong) {
  using Loop = ElementwiseLoop<kBroadcasts, F, R, Ts...>;
  constexpr int kInputs = Loop::kInputs;
  constexpr size_t kItems[] = {sizeof(Ts)..., 1};
  const BroadcastIndex& index = work.index;
  if (index.size >= limit) {
    int axis = 0;
    while (index.extents[axis] == 1) ++axis;
    const int64_t extent = index.extents[axis], middle = extent / 2;
    for (const auto& [begin, end] : {std::pair{int64_t{0}, middle}, {middle, extent}})
      IssueElementwise<kBroadcasts, R, Ts...>(
          context, f, work.Part(begin, end, sizeof(R), kItems, kInputs), limit);
    return;
  }
  const auto is_aligned = [](const char* data, size_t item) {
    return reinterpret_cast<uintptr_t>(data) % (item * Loop::kCount) == 0;
  };
  const int last = index.axes - 1;
  Loop loop = {f,
               reinterpret_cast<StoredType<R>*>(work.y),
               static_cast<uint32_t>(index.size),
               is_aligned(work.y, sizeof(R)),
               index.axes <= 1 || index.extents[last] % Loop::kCount == 0,
               {},
               {}};
  for (int i = 0; i < kInputs; ++i) {
    const bool is_repeated = last < 0 || index.strides[i][last] == 0;
    loop.x[i] = {work.x[i], is_repeated, !is_repeated && is_aligned(work.x[i], kItems[i])};
  }
  if constexpr (kBroadcasts) loop.index = index;
  ParallelFor(context, loop.threads(), loop);
}

// The numbers of an operator's attributes, which launches copy to the device.
struct ElementAttributes {
  float numbers[2] = {};

  // Reads the attributes of a node of type `op` that are numbers, in the order of the schema.
  static ElementAttributes Of(std::string_view op, const Arguments& args) {
    ElementAttributes out;
    for (int i = 0;
         const AttributeSchema& attribute : OpRegistry::Global().GetSchema(op).attributes()) {
      if (!attribute.default_value) continue;
      if (attribute.default_value->Is<float>())
        out.numbers[i++] = args.Get<float>(attribute.name, attribute.default_value->Get<float>());
      else if (attribute.default_value->Is<int64_t>())
        out.numbers[i++] =
            args.Get<int64_t>(attribute.name, attribute.default_value->Get<int64_t>()) != 0;
    }
    return out;
  }
};

// The functions of math/element_functions.hpp as the body of a loop.
template <class F>
struct UnaryElement {
  ElementAttributes attributes;
  template <class C>
  OPKIT_DEVICE auto operator()(C x) const {
    return F::Apply(x, attributes.numbers);
  }
};
template <class F>
struct BinaryElement {
  template <class C>
  OPKIT_DEVICE auto operator()(C a, C b) const {
    return F::Apply(a, b);
  }
};

}  // namespace detail

// The base of the elementwise operators.
class CUDAElementwiseOperator : public CUDAStandardOperator {
 public:
  using CUDAStandardOperator::CUDAStandardOperator;

 protected:
  // Issues y = f(inputs…), with elements of type R and Ts. The inputs are dense and can be
  // broadcast to y, or have one element.
  template <class R, class... Ts, class F>
  void Issue(F f, Tensor* y, std::initializer_list<const Tensor*> inputs) {
    constexpr size_t kInputs = sizeof...(Ts);
    detail::ElementwiseWork work = {static_cast<char*>(y->raw_mutable_data()), {}, {}};
    Dims strides[kInputs + 1];
    for (size_t i = 0; const Tensor* input : inputs) {
      work.x[i] = static_cast<const char*>(input->raw_data());
      const bool is_whole = input->numel() == y->numel();
      strides[i++] = BroadcastStrides(is_whole              ? y->shape()
                                      : input->numel() == 1 ? Shape()
                                                            : input->shape(),
                                      y->shape());
    }
    work.index = detail::BroadcastIndex::Of(y->shape(), strides, static_cast<int>(kInputs));
    detail::IssueElementwise<(kInputs > 1), R, Ts...>(context_, f, work);
  }
  // Copies the bytes of a dense tensor. Does nothing if `y` is in the memory of `x`.
  void Copy(const Tensor& x, Tensor* y) {
    const void* from = x.raw_data();
    void* to = y->raw_mutable_data();
    if (from != to && x.nbytes() > 0)
      OPKIT_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(x.nbytes()),
                                       cudaMemcpyDeviceToDevice, context_.cuda_stream()));
  }
};

// An operator on one input, of one of Types, computed by F. The output is of type Result; void
// stands for the input's type.
template <class F, class Types, class Result = void>
class CUDAUnaryOperator final : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  static constexpr auto& Propose = ProposeTypes<Types>;

  bool RunOnDevice() override {
    const Tensor& x = DenseInput(0);
    Tensor* y = InferredOutput(0);
    return Visit<Types>([&]<class T>() {
      using R = std::conditional_t<std::is_void_v<Result>, T, Result>;
      Issue<R, T>(function_, y, {&x});
    });
  }

 private:
  const detail::UnaryElement<F> function_{detail::ElementAttributes::Of(type(), def().args())};
};

// An operator on two inputs of one type.
template <class F, class Types, class Result = void>
class CUDABinaryOperator : public CUDAElementwiseOperator {
 public:
  using CUDAElementwiseOperator::CUDAElementwiseOperator;
  static constexpr auto& Propose = ProposeTypes<Types>;

  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const Tensor &a = InputBeside(0, *y), &b = InputBeside(1, *y);
    return Visit<Types>([&]<class T>() {
      using R = std::conditional_t<std::is_void_v<Result>, T, Result>;
      Issue<R, T, T>(detail::BinaryElement<F>(), y, {&a, &b});
    });
  }
};

}}  // namespace opkit

// Registers an operator of one input, or of two, that detail::<name>Function computes.
#define OPKIT_CUDA_UNARY(name, ...) \
  OPKIT_CUDA_OPERATOR(name, CUDAUnaryOperator<detail::name##Function, __VA_ARGS__>)
#define OPKIT_CUDA_BINARY(name, ...) \
  OPKIT_CUDA_OPERATOR(name, CUDABinaryOperator<detail::name##Function, __VA_ARGS__>)

#endif  // OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOOP_HPP_
