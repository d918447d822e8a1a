// The loop of the elementwise operators on CUDA: each element of the output is a function of one
// element of each broadcast input. A thread computes the elements of 16 bytes, and reads and writes
// them at once where they lie side by side.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOOP_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ELEMENTWISE_LOOP_HPP_

#include <utility>

#include "opkit/backends/cuda/ops/broadcast_index.hpp"
#include "opkit/backends/cuda/ops/elementwise/steps.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// The numbers that arithmetic computes on the device. The CPU computes those of the other types,
// which models rarely have beside a device.
using CUDANumericTypes = ElementTypes<float, double, float16, bfloat16, int32_t, int64_t>;

namespace detail {

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

// An input of a loop. The elements that belong to a row of the output are neighbours, or the same
// one.
struct ElementSource {
  const char* data = nullptr;
  bool is_repeated = false, is_aligned = false;
};
// Returns kCount elements of a row, from element `from` of the input on. Where `count` is less than
// kCount, the last element is read again, so that functions get no other numbers.
template <class T, int kCount>
OPKIT_DEVICE CUDAVector<ComputeType<T>, kCount> LoadRow(const ElementSource& source, int64_t from,
                                                        int count) {
  const auto* data = reinterpret_cast<const StoredType<T>*>(source.data) + from;
  CUDAVector<StoredType<T>, kCount> stored;
  if (source.is_aligned && count == kCount)
    stored = *reinterpret_cast<const CUDAVector<StoredType<T>, kCount>*>(data);
  else
    for (int j = 0; j < kCount; ++j)
      stored.elements[j] = data[source.is_repeated ? 0 : j < count ? j : count - 1];
  CUDAVector<ComputeType<T>, kCount> out;
  for (int j = 0; j < kCount; ++j) out.elements[j] = LoadElement<T>(stored.elements[j]);
  return out;
}
// Writes `count` elements to `to`.
template <class T, int kCount>
OPKIT_DEVICE void StoreRow(const CUDAVector<T, kCount>& elements, T* to, bool is_aligned,
                           int count) {
  if (is_aligned && count == kCount)
    *reinterpret_cast<CUDAVector<T, kCount>*>(to) = elements;
  else
    for (int j = 0; j < kCount; ++j)
      if (j < count) to[j] = elements.elements[j];
}

// y = f(x…), with elements of type R and Ts. f is trivially copyable. With several inputs the index
// finds their elements.
template <class F, class R, class... Ts>
struct ElementwiseLoop {
  static constexpr int kInputs = sizeof...(Ts);
  static constexpr int kCount = VectorCount({sizeof(R), sizeof(Ts)...});
  static constexpr bool kBroadcasts = kInputs > 1;
  template <class T>
  using Vector = CUDAVector<T, kCount>;
  struct NoIndex {};

  F f;
  StoredType<R>* y = nullptr;
  uint32_t size = 0;        // elements of the output
  bool is_aligned = false;  // whether y can be written as vectors
  bool in_rows = false;     // whether the elements of a thread lie in one row of the output
  ElementSource x[kInputs == 0 ? 1 : kInputs] = {};
  std::conditional_t<kBroadcasts, BroadcastIndex, NoIndex> index = {};

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
      from[0][0] = x[0].is_repeated ? 0 : int64_t{first};
    }
    Compute(first, count, Load<Ts>(x[i], from, i, count)...);
  }
  template <class T, class From>
  OPKIT_DEVICE Vector<ComputeType<T>> Load(const ElementSource& source, const From& from, size_t i,
                                           int count) const {
    if (!kBroadcasts || in_rows) return LoadRow<T, kCount>(source, from[0][i], count);
    const auto* data = reinterpret_cast<const StoredType<T>*>(source.data);
    Vector<ComputeType<T>> out;
    for (int j = 0; j < kCount; ++j) out.elements[j] = LoadElement<T>(data[from[j][i]]);
    return out;
  }
  template <class... Vectors>
  OPKIT_DEVICE void Compute(uint32_t first, int count, const Vectors&... in) const {
    Vector<StoredType<R>> out;
    for (int j = 0; j < kCount; ++j)
      out.elements[j] = static_cast<StoredType<R>>(f(in.elements[j]...));
    StoreRow(out, y + first, is_aligned, count);
  }
};

// The memory of a loop, and where the elements lie in it.
struct ElementwiseWork {
  char* y = nullptr;
  int64_t y_item = 0;  // bytes of an element
  int inputs = 0;
  const char* x[BroadcastIndex::kMaxInputs] = {};
  int64_t x_items[BroadcastIndex::kMaxInputs] = {};
  BroadcastIndex index;

  // The inputs are dense and can be broadcast to y, or have one element.
  template <class Inputs>
  static ElementwiseWork Of(Tensor* y, const Inputs& inputs) {
    ElementwiseWork work;
    work.y = static_cast<char*>(y->raw_mutable_data());
    work.y_item = ItemSize(y->dtype());
    Dims strides[BroadcastIndex::kMaxInputs];
    for (const Tensor* input : inputs) {
      const int i = work.inputs++;
      work.x[i] = static_cast<const char*>(input->raw_data());
      work.x_items[i] = ItemSize(input->dtype());
      const bool is_whole = input->numel() == y->numel();
      strides[i] = BroadcastStrides(is_whole              ? y->shape()
                                    : input->numel() == 1 ? Shape()
                                                          : input->shape(),
                                    y->shape());
    }
    work.index = BroadcastIndex::Of(y->shape(), strides, work.inputs);
    return work;
  }
  // Returns the steps from `begin` to `end` of an axis, which must be the first with several.
  ElementwiseWork Part(int axis, int64_t begin, int64_t end) const {
    ElementwiseWork part = *this;
    part.y += begin * (index.size / index.extents[axis]) * y_item;
    for (int i = 0; i < inputs; ++i) part.x[i] += begin * index.strides[i][axis] * x_items[i];
    part.index.SetExtent(axis, end - begin);
    return part;
  }
};

// Issues a loop over the work, or several if it has `limit` elements or more.
template <class Loop>
void IssueLoop(CUDAContext& context, Loop loop, const ElementwiseWork& work,
               int64_t limit = BroadcastIndex::kLong) {
  const BroadcastIndex& index = work.index;
  if (index.size >= limit) {
    int axis = 0;
    while (index.extents[axis] == 1) ++axis;
    const int64_t extent = index.extents[axis], middle = extent / 2;
    IssueLoop(context, loop, work.Part(axis, 0, middle), limit);
    IssueLoop(context, loop, work.Part(axis, middle, extent), limit);
    return;
  }
  const auto is_aligned = [](const char* data, int64_t item) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(item * Loop::kCount) == 0;
  };
  const int last = index.axes - 1;
  loop.y = reinterpret_cast<decltype(loop.y)>(work.y);
  loop.size = static_cast<uint32_t>(index.size);
  loop.is_aligned = is_aligned(work.y, work.y_item);
  loop.in_rows = index.axes <= 1 || index.extents[last] % Loop::kCount == 0;
  // The second condition is always true, but without it g++ -O3 warns of writes past the array.
  for (int i = 0; i < work.inputs && i < static_cast<int>(std::size(loop.x)); ++i) {
    const bool is_repeated = last < 0 || index.strides[i][last] == 0;
    loop.x[i] = {work.x[i], is_repeated, !is_repeated && is_aligned(work.x[i], work.x_items[i])};
  }
  if constexpr (Loop::kBroadcasts) loop.index = index;
  ParallelFor(context, (index.size + Loop::kCount - 1) / Loop::kCount, loop);
}

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
    detail::IssueLoop(context_, detail::ElementwiseLoop<F, R, Ts...>{f},
                      detail::ElementwiseWork::Of(y, inputs));
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
  static constexpr auto& Fuse = detail::FuseElementwise;

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
  static constexpr auto& Fuse = detail::FuseElementwise;

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
