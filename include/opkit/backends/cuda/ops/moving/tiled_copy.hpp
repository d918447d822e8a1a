// CUDATileLoop: a strided copy whose source and target are contiguous along different axes, such as
// a transposed matrix. Each thread turns a small square of elements in its registers, so that it
// reads and writes several neighbouring elements at once.
#ifndef OPKIT_BACKENDS_CUDA_OPS_MOVING_TILED_COPY_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_MOVING_TILED_COPY_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Neighbouring elements that the device reads or writes at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) CUDAElements {
  T at[kCount];
};

// Element (r, c) lies at r * from_step + c in the source and at r + c * to_step in the target. The
// other axes have extents and steps. A thread copies kTile rows of kTile columns.
template <class T>
struct CUDATileLoop {
  static constexpr int kMaxAxes = 8, kTile = sizeof(T) == 8 ? 2 : 4;

  const T* from;
  T* to;
  uint32_t row_tiles, column_tiles;
  uint32_t group;  // tiles of rows that neighbouring threads copy: a divisor of row_tiles
  int32_t from_step, to_step;
  int axes = 0;
  uint32_t extents[kMaxAxes];
  int32_t from_steps[kMaxAxes], to_steps[kMaxAxes];

  OPKIT_DEVICE void operator()(int64_t i) const {
    auto rest = static_cast<uint32_t>(i);
    const uint32_t in_group = Take(rest, group), column_tile = Take(rest, column_tiles);
    const uint32_t row_tile = Take(rest, row_tiles / group) * group + in_group;
    const auto row = static_cast<int32_t>(row_tile) * kTile;
    const auto column = static_cast<int32_t>(column_tile) * kTile;
    int32_t source = row * from_step + column, target = row + column * to_step;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const auto index = static_cast<int32_t>(Take(rest, extents[axis]));
      source += index * from_steps[axis];
      target += index * to_steps[axis];
    }
    using Elements = CUDAElements<T, kTile>;
    Elements rows[kTile];
    for (int r = 0; r < kTile; ++r)
      rows[r] = *reinterpret_cast<const Elements*>(from + source + r * from_step);
    for (int c = 0; c < kTile; ++c) {
      Elements turned;
      for (int r = 0; r < kTile; ++r) turned.at[r] = rows[r].at[c];
      *reinterpret_cast<Elements*>(to + target + c * to_step) = turned;
    }
  }

 private:
  // Returns the rest of a division of `rest` by `extent`, and sets `rest` to the quotient.
  OPKIT_DEVICE static uint32_t Take(uint32_t& rest, uint32_t extent) {
    const uint32_t quotient = rest / extent, index = rest - quotient * extent;
    rest = quotient;
    return index;
  }
};

// Issues the copy by tiles of elements of type T. Returns false if the
// axes or addresses do not allow it. `axes` are those of a prepared StridedCopy, and 32 bits must
// hold all their numbers.
template <class T>
bool LaunchTiles(int device, cudaStream_t stream, const std::vector<StridedCopy::CopyAxis>& axes,
                 const void* from, void* to) {
  using Loop = CUDATileLoop<T>;
  constexpr int64_t kWidth = sizeof(T), kVector = kWidth * Loop::kTile;
  const size_t last = axes.size() - 1;
  if (axes[last].to != kWidth) return false;
  size_t column = 0;
  while (column < last && axes[column].from != kWidth) ++column;
  if (column == last || axes.size() > Loop::kMaxAxes) return false;
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % kVector == 0;
  };
  bool fits = is_aligned(from) && is_aligned(to) && axes[last].from % kVector == 0 &&
              axes[column].to % kVector == 0 && axes[last].extent % Loop::kTile == 0 &&
              axes[column].extent % Loop::kTile == 0;
  Loop loop{};
  int64_t count = 1;
  for (size_t i = 0; i < last; ++i) {
    if (i == column) continue;
    fits &= axes[i].from % kVector == 0 && axes[i].to % kVector == 0;
    loop.extents[loop.axes] = static_cast<uint32_t>(axes[i].extent);
    loop.from_steps[loop.axes] = static_cast<int32_t>(axes[i].from / kWidth);
    loop.to_steps[loop.axes++] = static_cast<int32_t>(axes[i].to / kWidth);
    count *= axes[i].extent;
  }
  if (!fits) return false;
  loop.from = static_cast<const T*>(from);
  loop.to = static_cast<T*>(to);
  loop.row_tiles = static_cast<uint32_t>(axes[last].extent / Loop::kTile);
  loop.column_tiles = static_cast<uint32_t>(axes[column].extent / Loop::kTile);
  loop.group = loop.row_tiles % 4 == 0 ? 4 : loop.row_tiles % 2 == 0 ? 2 : 1;
  loop.from_step = static_cast<int32_t>(axes[last].from / kWidth);
  loop.to_step = static_cast<int32_t>(axes[column].to / kWidth);
  LaunchLoop(device, stream, count * loop.row_tiles * loop.column_tiles, loop);
  return true;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_OPS_MOVING_TILED_COPY_HPP_
