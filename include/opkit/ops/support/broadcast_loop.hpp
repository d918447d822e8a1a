// BroadcastLoop: the order in which elementwise operators with broadcasting visit memory. It merges
// axes that are contiguous in every input. The innermost axis that remains is the row. Along it an
// input either advances with the output or stays at one element, so that kernels are plain loops
// over a row.
#ifndef OPKIT_OPS_SUPPORT_BROADCAST_LOOP_HPP_
#define OPKIT_OPS_SUPPORT_BROADCAST_LOOP_HPP_

#include "opkit/base/function_ref.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/ops/support/broadcast.hpp"
#include "opkit/ops/support/element_size.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

//   BroadcastLoop loop(out.shape(), {&a.shape(), &b.shape()});
//   loop.Run(BroadcastLoop::kGrain, [&](int64_t at, int64_t n, const int64_t* from) {
//     for (int64_t i = 0; i < n; ++i)
//       out[at + i] = a[from[0] + i * loop.step(0)] + b[from[1] + i * loop.step(1)];
//   });
//
// Construct a loop once for a set of shapes. Runs with up to six axes allocate nothing. All tensors
// must be dense.
class BroadcastLoop {
 public:
  static constexpr int kMaxInputs = 3;
  static constexpr int64_t kGrain = 16384;  // elements for one thread, for cheap arithmetic

  // Computes elements [at, at + n) of the output. The elements of input i begin at its element
  // number from[i].
  using Body = FunctionRef<void(int64_t at, int64_t n, const int64_t* from)>;

  BroadcastLoop() = default;
  // Throws kInvalidArgument if an input's shape cannot be broadcast to the output's.
  BroadcastLoop(const Shape& out, std::initializer_list<const Shape*> inputs) {
    for (const Shape* input : inputs) AddInput(*input, out);
    SetOutput(out);
  }
  template <class Pointers>
  BroadcastLoop(const Shape& out, const Pointers& inputs) {
    for (const Shape* input : inputs) AddInput(*input, out);
    SetOutput(out);
  }

  int64_t size() const { return size_; }
  int64_t width() const { return width_; }  // elements of a row
  // The step in input i from one element of a row to the next: 1, or 0 if the element is repeated.
  int64_t step(int i) const { return step_[i]; }

  // Calls body for pieces of rows that together cover the output, on the threads of the current
  // pool. The pieces depend on `grain`, not on the number of threads.
  void Run(int64_t grain, Body body) const {
    ParallelForRange(size_, grain, [&](int64_t begin, int64_t end) { Walk(begin, end, body); });
  }
  // Copies the elements of input 0 for elements [begin, end) of the output to `to`, without gaps.
  // An element has `item` bytes: 1, 2, 4, 8 or 16.
  void Gather(int64_t begin, int64_t end, const void* from, int64_t item, void* to) const {
    Walk(begin, end, [&](int64_t at, int64_t n, const int64_t* first) {
      const char* source = static_cast<const char*>(from) + first[0] * item;
      char* target = static_cast<char*>(to) + (at - begin) * item;
      [[maybe_unused]] const bool known = detail::WithElementOfSize(item, [&](auto element) {
        using Word = decltype(element);
        const auto* words = reinterpret_cast<const Word*>(source);
        auto* to_words = reinterpret_cast<Word*>(target);
        for (int64_t i = 0; i < n; ++i) to_words[i] = words[i * step_[0]];
      });
      OPKIT_ASSERT(known);
    });
  }
  // Calls body for elements [begin, end) of the output, row by row in order, on this thread.
  void Walk(int64_t begin, int64_t end, Body body) const {
    if (begin >= end) return;
    int64_t column = begin % width_, row = begin / width_;
    int64_t base[kMaxInputs] = {}, from[kMaxInputs] = {};
    Dims index = extents_;
    for (int axis = extents_.size() - 1; axis >= 0; --axis) {
      index[axis] = row % extents_[axis];
      row /= extents_[axis];
      for (int i = 0; i < inputs_; ++i) base[i] += index[axis] * strides_[i][axis];
    }
    for (int64_t at = begin;;) {
      const int64_t n = end - at < width_ - column ? end - at : width_ - column;
      for (int i = 0; i < inputs_; ++i) from[i] = base[i] + column * step_[i];
      body(at, n, from);
      at += n;
      if (at == end) return;
      column = 0;
      for (int axis = extents_.size() - 1; axis >= 0; --axis) {
        const bool carry = ++index[axis] == extents_[axis];
        for (int i = 0; i < inputs_; ++i)
          base[i] += carry ? strides_[i][axis] * (1 - extents_[axis]) : strides_[i][axis];
        if (!carry) break;
        index[axis] = 0;
      }
    }
  }

 private:
  OPKIT_COLD void AddInput(const Shape& input, const Shape& out) {
    OPKIT_ASSERT(inputs_ < kMaxInputs);
    strides_[inputs_++] = BroadcastStrides(input, out);
  }
  // Merges axes and makes the last of them the row.
  OPKIT_COLD void SetOutput(const Shape& out) {
    size_ = out.numel();
    std::vector<int64_t> extents;
    std::vector<int64_t> strides[kMaxInputs];
    for (int axis = 0; axis < out.rank() && size_ > 0; ++axis) {
      if (out[axis] == 1) continue;
      bool merges = !extents.empty();
      for (int i = 0; i < inputs_ && merges; ++i)
        merges = strides[i].back() == strides_[i][axis] * out[axis];
      if (merges)
        extents.back() *= out[axis];
      else
        extents.push_back(out[axis]);
      for (int i = 0; i < inputs_; ++i) {
        if (!merges) strides[i].push_back(0);
        strides[i].back() = strides_[i][axis];
      }
    }
    if (!extents.empty()) {
      width_ = extents.back();
      extents.pop_back();
    }
    for (int i = 0; i < inputs_; ++i) {
      if (!strides[i].empty()) {
        step_[i] = strides[i].back();
        strides[i].pop_back();
      }
      strides_[i] = Dims(strides[i]);
    }
    extents_ = Dims(extents);
  }

  int inputs_ = 0;
  int64_t size_ = 0, width_ = 1;
  int64_t step_[kMaxInputs] = {};
  Dims extents_;              // extents of the axes outside the row
  Dims strides_[kMaxInputs];  // strides of the inputs along those axes, in elements
};

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_BROADCAST_LOOP_HPP_
