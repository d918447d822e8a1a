// StridedCopy: copies elements between two orders in memory. Transpose, Slice, Split, Concat,
// Expand and Tile are this copy with different strides.
#ifndef OPKIT_OPS_SUPPORT_STRIDED_COPY_HPP_
#define OPKIT_OPS_SUPPORT_STRIDED_COPY_HPP_

#include <algorithm>

#include "opkit/base/index.hpp"
#include "opkit/core/shape.hpp"
#include "opkit/engine/parallel_for.hpp"
#include "opkit/ops/support/element_size.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Bytes that one thread copies at a time.
inline constexpr int64_t kCopyChunkBytes = int64_t{128} << 10;

}  // namespace detail

// Copies bytes on the threads of the current pool. Does nothing if `to` equals `from`.
inline void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0 || to == from) return;
  ParallelForRange(bytes, detail::kCopyChunkBytes, [=](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

// Copies a tensor of any rank and strides. An operator keeps one object and reuses it, so that only
// the first run allocates.
//
//   copy.Start(ItemSize(x.dtype()));
//   for (int i = 0; i < rank; ++i) copy.Axis(extent[i], from_stride[i], to_stride[i]);
//   copy.Run(x.raw_data(), y->raw_mutable_data());
class StridedCopy {
 public:
  struct CopyAxis {
    int64_t extent, from, to;  // strides in bytes
  };

  // Begins a new copy, of elements of `item_bytes` bytes.
  void Start(int64_t item_bytes) {
    item_ = element_ = item_bytes;
    empty_ = false;
    axes_.clear();
  }
  // Adds an axis; the order of axes does not matter. Strides are in elements: a source stride may
  // be 0 or negative, a target stride negative.
  void Axis(int64_t extent, int64_t from_stride, int64_t to_stride) {
    if (extent == 0) empty_ = true;
    if (extent > 1) axes_.push_back({extent, from_stride * item_, to_stride * item_});
  }
  // Merges the axes and returns false if there is nothing to copy. For a kernel that does the copy
  // by itself: axes() are then in the order of the target, and each of their positions has
  // block_bytes() bytes that lie together.
  bool Prepare() {
    if (!empty_) Normalize();
    return !empty_;
  }
  const std::vector<CopyAxis>& axes() const { return axes_; }
  int64_t block_bytes() const { return element_; }

  // Copies. `from` and `to` point to the elements at index 0 of every axis; the memory that is read
  // and the memory that is written must not overlap.
  void Run(const void* from, void* to) {
    if (empty_) return;
    Normalize();
    const auto* source = static_cast<const char*>(from);
    auto* target = static_cast<char*>(to);
    constexpr int64_t kLargeBlock = 2048;
    if (axes_.empty()) return CopyBytes(to, from, element_);
    if (element_ >= kLargeBlock) return RunBlocks(source, target);
    const int transposed = TransposedAxis();
    const bool fixed = detail::WithElementOfSize(element_, [&](auto element) {
      using T = decltype(element);
      if (transposed >= 0 && RunInterleaved<T>(source, target, transposed)) return;
      if (transposed >= 0) return RunTiles<T>(source, target, transposed);
      RunRows(source, target, sizeof(T),
              [](char* row_to, int64_t to_step, const char* row_from, int64_t from_step,
                 int64_t n) { MoveRow<T>(row_to, to_step, row_from, from_step, n); });
    });
    if (fixed) return;
    const auto block = static_cast<size_t>(element_);
    RunRows(
        source, target, element_,
        [block](char* row_to, int64_t to_step, const char* row_from, int64_t from_step, int64_t n) {
          for (int64_t i = 0; i < n; ++i)
            std::memcpy(row_to + i * to_step, row_from + i * from_step, block);
        });
  }
  // Copies a tensor of `shape` with these strides, in elements.
  void Copy(const Shape& shape, int64_t item_bytes, const void* from, const Dims& from_strides,
            void* to, const Dims& to_strides) {
    Start(item_bytes);
    for (int i = 0; i < shape.rank(); ++i) Axis(shape[i], from_strides[i], to_strides[i]);
    Run(from, to);
  }
  // Writes `count` copies of the element at `from`, without gaps.
  void Repeat(int64_t count, int64_t item_bytes, const void* from, void* to) {
    Start(item_bytes);
    Axis(count, 0, 1);
    Run(from, to);
  }

 private:
  static int64_t Size(int64_t stride) { return stride < 0 ? -stride : stride; }

  // Sorts the axes by the target's strides and merges neighbours that are contiguous in both
  // tensors. If the innermost axis is contiguous in both, makes it part of the element.
  void Normalize() {
    std::sort(axes_.begin(), axes_.end(),
              [](const CopyAxis& a, const CopyAxis& b) { return Size(a.to) > Size(b.to); });
    size_t kept = 0;
    for (size_t i = 1; i < axes_.size(); ++i) {
      CopyAxis& outer = axes_[kept];
      const CopyAxis& inner = axes_[i];
      if (outer.from == inner.extent * inner.from && outer.to == inner.extent * inner.to)
        outer = {outer.extent * inner.extent, inner.from, inner.to};
      else
        axes_[++kept] = inner;
    }
    if (axes_.empty()) return;
    axes_.resize(kept + 1);
    const CopyAxis& last = axes_.back();
    if (last.from == element_ && last.to == element_) {
      element_ *= last.extent;
      axes_.pop_back();
    }
  }
  // Returns the axis that is contiguous in the source if a different axis is contiguous in the
  // target, else -1. With such an axis a copy row by row would use one element of each cache line
  // that it reads.
  int TransposedAxis() const {
    if (axes_.back().to != element_) return -1;
    for (size_t i = 0; i + 1 < axes_.size(); ++i)
      if (axes_[i].from == element_) return static_cast<int>(i);
    return -1;
  }

  // An iterator over all positions of the first `count` axes, without axis `skipped`: their byte
  // offsets in the source and the target.
  class Position {
   public:
    Position(const std::vector<CopyAxis>& axes, int count, int skipped, int64_t at)
        : axes_(axes), count_(count), skipped_(skipped), index_(Indices(count)) {
      for (int i = count - 1; i >= 0; --i) {
        if (i == skipped) continue;
        const CopyAxis& axis = axes[detail::Index(i)];
        index_[i] = at % axis.extent;
        at /= axis.extent;
        from += index_[i] * axis.from;
        to += index_[i] * axis.to;
      }
    }
    void Next() {
      for (int i = count_ - 1; i >= 0; --i) {
        if (i == skipped_) continue;
        const CopyAxis& axis = axes_[detail::Index(i)];
        from += axis.from;
        to += axis.to;
        if (++index_[i] < axis.extent) return;
        index_[i] = 0;
        from -= axis.extent * axis.from;
        to -= axis.extent * axis.to;
      }
    }
    int64_t from = 0, to = 0;

   private:
    static Dims Indices(int count) {
      constexpr int64_t kZeros[Dims::kInline] = {};
      return count <= Dims::kInline ? Dims(kZeros, static_cast<size_t>(count))
                                    : Dims(std::vector<int64_t>(static_cast<size_t>(count), 0));
    }
    const std::vector<CopyAxis>& axes_;
    const int count_, skipped_;
    Dims index_;
  };
  int64_t Count(int axes, int skipped = -1) const {
    int64_t count = 1;
    for (int i = 0; i < axes; ++i)
      if (i != skipped) count *= axes_[detail::Index(i)].extent;
    return count;
  }
  // Calls f(position, piece) for each piece in [0, pieces) at each position of the first `axes`
  // axes without axis `skipped`. Runs on the threads of the current pool.
  template <class F>
  void ForPieces(int axes, int skipped, int64_t pieces, int64_t piece_bytes, F f) const {
    const int64_t grain = (std::max)(int64_t{1}, detail::kCopyChunkBytes / piece_bytes);
    ParallelForRange(Count(axes, skipped) * pieces, grain, [&](int64_t begin, int64_t end) {
      Position position(axes_, axes, skipped, begin / pieces);
      for (int64_t unit = begin, piece = begin % pieces; unit < end; ++unit) {
        f(position, piece);
        if (++piece < pieces) continue;
        piece = 0;
        position.Next();
      }
    });
  }

  // Copies elements of 2 KiB or more by memcpy, in pieces.
  void RunBlocks(const char* from, char* to) const {
    const int64_t pieces = (element_ - 1) / detail::kCopyChunkBytes + 1;
    const int64_t bytes = (std::min)(element_, detail::kCopyChunkBytes);
    ForPieces(static_cast<int>(axes_.size()), -1, pieces, bytes,
              [&](const Position& at, int64_t piece) {
                const int64_t begin = piece * bytes;
                std::memcpy(to + at.to + begin, from + at.from + begin,
                            static_cast<size_t>((std::min)(bytes, element_ - begin)));
              });
  }
  // Copies along the innermost axis: calls `row` for pieces of this axis, at each position of the
  // other axes.
  template <class Row>
  void RunRows(const char* from, char* to, int64_t element, Row row) const {
    const CopyAxis& inner = axes_.back();
    const int64_t piece = (std::max)(int64_t{1}, detail::kCopyChunkBytes / element);
    const int64_t pieces = (inner.extent - 1) / piece + 1;
    ForPieces(static_cast<int>(axes_.size()) - 1, -1, pieces,
              (std::min)(piece, inner.extent) * element, [&](const Position& at, int64_t k) {
                const int64_t begin = k * piece;
                row(to + at.to + begin * inner.to, inner.to, from + at.from + begin * inner.from,
                    inner.from, (std::min)(piece, inner.extent - begin));
              });
  }
  template <class T>
  static void MoveRow(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n) {
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    if (from_step == 0 && to_step == kItem) {
      T value;
      std::memcpy(&value, from, sizeof(T));
      for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * kItem, &value, sizeof(T));
    } else if (to_step == kItem) {
      for (int64_t i = 0; i < n; ++i) detail::MoveElement<T>(to + i * kItem, from + i * from_step);
    } else {
      for (int64_t i = 0; i < n; ++i)
        detail::MoveElement<T>(to + i * to_step, from + i * from_step);
    }
  }

  // Interleaves two to four planes, such as the channels of an image, or separates them, in loops
  // that the compiler vectorizes. Returns false, without a copy, if the two axes allow neither.
  template <class T>
  bool RunInterleaved(const char* from, char* to, int across_axis) const {
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    const CopyAxis& across = axes_[detail::Index(across_axis)];  // contiguous in the source
    const CopyAxis& along = axes_.back();                        // contiguous in the target
    if (along.extent <= 4 && across.to == along.extent * kItem)
      RunPlanes<T, true>(from, to, across_axis, across.extent, along.extent, along.from);
    else if (across.extent <= 4 && along.from == across.extent * kItem)
      RunPlanes<T, false>(from, to, across_axis, along.extent, across.extent, across.to);
    else
      return false;
    return true;
  }
  // Copies `n` elements of each of `planes` planes, which are `plane_bytes` apart. kJoin:
  // interleaves them; else separates them.
  template <class T, bool kJoin>
  void RunPlanes(const char* from, char* to, int skipped, int64_t n, int64_t planes,
                 int64_t plane_bytes) const {
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    const int64_t piece = detail::kCopyChunkBytes / (planes * kItem);
    ForPieces(static_cast<int>(axes_.size()) - 1, skipped, (n - 1) / piece + 1,
              (std::min)(piece, n) * planes * kItem, [&](const Position& at, int64_t k) {
                const int64_t begin = k * piece, count = (std::min)(piece, n - begin);
                const char* source = from + at.from + begin * kItem * (kJoin ? 1 : planes);
                char* target = to + at.to + begin * kItem * (kJoin ? planes : 1);
                if (planes == 2) MovePlanes<T, kJoin, 2>(target, source, count, plane_bytes);
                if (planes == 3) MovePlanes<T, kJoin, 3>(target, source, count, plane_bytes);
                if (planes == 4) MovePlanes<T, kJoin, 4>(target, source, count, plane_bytes);
              });
  }
  template <class T, bool kJoin, int kPlanes>
  static void MovePlanes(char* to, const char* from, int64_t n, int64_t plane_bytes) {
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < n; ++i)
      for (int plane = 0; plane < kPlanes; ++plane) {
        const int64_t joined = (i * kPlanes + plane) * kItem;
        const int64_t apart = plane * plane_bytes + i * kItem;
        detail::MoveElement<T>(to + (kJoin ? joined : apart), from + (kJoin ? apart : joined));
      }
  }

  // Copies tiles that are a few cache lines wide in both tensors.
  template <class T>
  void RunTiles(const char* from, char* to, int across_axis) const {
    const CopyAxis& across = axes_[detail::Index(across_axis)];  // contiguous in the source
    const CopyAxis& along = axes_.back();                        // contiguous in the target
    constexpr int64_t kTile = sizeof(T) >= 8 ? 16 : 32;
    constexpr int64_t kLong = 16 * kTile;
    const int64_t wide = along.extent < kTile ? kLong : kTile;
    const int64_t high = across.extent < kTile ? kLong : kTile;
    constexpr int64_t kStrip = 8 * kLong;  // elements of `along` for one thread
    const int64_t strips = (along.extent - 1) / kStrip + 1;
    const int64_t pieces = ((across.extent - 1) / wide + 1) * strips;
    const int64_t piece_bytes = (std::min)(wide, across.extent) * (std::min)(kStrip, along.extent) *
                                static_cast<int64_t>(sizeof(T));
    ForPieces(static_cast<int>(axes_.size()) - 1, across_axis, pieces, piece_bytes,
              [&](const Position& at, int64_t piece) {
                const int64_t a = piece / strips * wide, na = (std::min)(wide, across.extent - a);
                const int64_t begin = piece % strips * kStrip;
                const int64_t end = (std::min)(begin + kStrip, along.extent);
                for (int64_t l = begin; l < end; l += high)
                  MoveTile<T>(to + at.to + a * across.to + l * along.to, across.to,
                              from + at.from + a * across.from + l * along.from, along.from, na,
                              (std::min)(high, end - l));
              });
  }
  // Transposes a tile: to[a][l] = from[l][a], with rows `to_row` and `from_row` bytes apart.
  template <class T>
  static void MoveTile(char* to, int64_t to_row, const char* from, int64_t from_row, int64_t na,
                       int64_t nl) {
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    int64_t a = 0;
    if constexpr (sizeof(T) == 4) {
      for (; a + 4 <= na; a += 4) {
        int64_t l = 0;
        for (; l + 4 <= nl; l += 4)
          Move4x4(to + a * to_row + l * kItem, to_row, from + l * from_row + a * kItem, from_row);
        for (; l < nl; ++l)
          for (int64_t k = a; k < a + 4; ++k)
            detail::MoveElement<T>(to + k * to_row + l * kItem, from + l * from_row + k * kItem);
      }
    }
    for (; a < na; ++a)
      for (int64_t l = 0; l < nl; ++l)
        detail::MoveElement<T>(to + a * to_row + l * kItem, from + l * from_row + a * kItem);
  }
  static void Move4x4(char* to, int64_t to_row, const char* from, int64_t from_row) {
    typedef uint32_t Vector __attribute__((vector_size(16)));
    Vector row[4];
    for (int i = 0; i < 4; ++i) std::memcpy(&row[i], from + i * from_row, sizeof(Vector));
    const Vector ab_low = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const Vector ab_high = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const Vector cd_low = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const Vector cd_high = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const Vector column[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                              __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                              __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                              __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
    for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_row, &column[i], sizeof(Vector));
  }

  int64_t item_ = 1;     // bytes of an element of the tensors
  int64_t element_ = 1;  // bytes that are moved as one element
  bool empty_ = false;
  std::vector<CopyAxis> axes_;
};

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_STRIDED_COPY_HPP_
