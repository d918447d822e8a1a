// Tile: the innermost loop of the convolutions of the "eigen" backend. A block of sums stays in
// registers during one pass over the depth. The offsets of its inputs are in a table, so that the
// same loop serves images, padded copies and packed copies.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_TILE_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_TILE_HPP_

#include <algorithm>
#include <utility>

#include "opkit/backends/eigen/support/lanes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The operands of output[r, l, j] = start + sum over k < depth of weights[r, k] * input[offsets[k],
// l, j]. Here r is an output channel, l a line of the image, and j a pixel of the line. `start` is
// the channel's bias, or the present value of the output.
struct Tile {
  int64_t depth = 0;
  const float* weights = nullptr;  // [rows, depth]
  int64_t weight_row = 0;          // elements between rows
  const float* input = nullptr;    // read in whole vectors
  const int64_t* offsets = nullptr;
  int64_t input_line = 0;
  float* output = nullptr;
  int64_t output_row = 0, output_line = 0;
  int64_t last = kLanes;        // pixels in the last vector of a line; others are not written
  const float* bias = nullptr;  // null: none
  bool add = false;             // start from the present values of the output
};

// Computes a tile of kRows output channels, kLines lines and kVectors vectors in each line.
template <int kRows, int kLines, int kVectors>
void RunTile(const Tile& tile) {
  constexpr int kPixels = kLines * kVectors;  // vectors of a row
  [&]<size_t... kSums>(std::index_sequence<kSums...>) {
    auto output = [&](size_t sum) {
      const auto i = static_cast<int64_t>(sum);
      return tile.output + i / kPixels * tile.output_row +
             i % kPixels / kVectors * tile.output_line + i % kVectors * kLanes;
    };
    auto is_part = [&](size_t sum) { return sum % kVectors == kVectors - 1 && tile.last < kLanes; };
    Lanes sums[kRows * kPixels] = {};
    if (tile.add) {
      ((is_part(kSums) ? LoadPart(output(kSums), tile.last, sums[kSums])
                       : Load(output(kSums), sums[kSums])),
       ...);
    } else if (tile.bias) {
      ((sums[kSums] = Lanes{} + tile.bias[kSums / kPixels]), ...);
    }
    const float *weights = tile.weights, *input = tile.input;
    const int64_t weight_row = tile.weight_row, input_line = tile.input_line, depth = tile.depth;
    const int64_t* offsets = tile.offsets;
    for (int64_t k = 0; k < depth; ++k) {
      const float* at = input + offsets[k];
      Lanes pixels[kPixels];
      [&]<size_t... kLoads>(std::index_sequence<kLoads...>) {
        (Load(at + static_cast<int64_t>(kLoads) / kVectors * input_line +
                  static_cast<int64_t>(kLoads) % kVectors * kLanes,
              pixels[kLoads]),
         ...);
      }(std::make_index_sequence<kPixels>());
      ((sums[kSums] +=
        pixels[kSums % kPixels] * weights[static_cast<int64_t>(kSums) / kPixels * weight_row + k]),
       ...);
    }
    // A fused activation would belong here, where all outputs are written.
    ((is_part(kSums) ? StorePart(sums[kSums], tile.last, output(kSums))
                     : Store(sums[kSums], output(kSums))),
     ...);
  }(std::make_index_sequence<kRows * kPixels>());
}

using TileFunction = void (*)(const Tile&);

// The largest tile of several output channels ("rows") and one line. When fewer rows are left, they
// are divided into tiles of 4, 2 or 1 rows.
inline constexpr int kTileVectors = 3;
inline constexpr int kTileRows = kSumRegisters / kTileVectors;

// Returns the number of rows of the next tile, if `left` rows are left.
inline int NextTileRows(int64_t left) {
  int rows = kTileRows;
  while (rows > left) rows /= 2;
  return rows;
}
// Returns the function for a tile of `rows` rows (from NextTileRows) and 1 to kTileVectors vectors.
inline TileFunction FindTile(int rows, int vectors) {
  static constexpr TileFunction kTiles[4][kTileVectors] = {
      {&RunTile<1, 1, 1>, &RunTile<1, 1, 2>, &RunTile<1, 1, 3>},
      {&RunTile<2, 1, 1>, &RunTile<2, 1, 2>, &RunTile<2, 1, 3>},
      {&RunTile<4, 1, 1>, &RunTile<4, 1, 2>, &RunTile<4, 1, 3>},
      {&RunTile<kTileRows, 1, 1>, &RunTile<kTileRows, 1, 2>, &RunTile<kTileRows, 1, 3>},
  };
  return kTiles[rows == 1 ? 0 : rows == 2 ? 1 : rows == 4 ? 2 : 3][vectors - 1];
}

// Tiles for one output channel (depthwise convolutions) have several lines, so that enough
// independent sums hide the latency of an addition.
inline constexpr int kLineVectors = 6;

inline int NextTileLines(int64_t left, int vectors) {
  int lines = vectors == 1 ? 8 : vectors == 2 ? 4 : vectors <= 4 ? 2 : 1;
  while (lines > left) lines /= 2;
  return lines;
}
// Returns the function for a tile of `lines` lines (from NextTileLines) and 1 to kLineVectors
// vectors.
inline TileFunction FindLineTile(int lines, int vectors) {
  static constexpr TileFunction kTiles[4][kLineVectors] = {
      {&RunTile<1, 1, 1>, &RunTile<1, 1, 2>, &RunTile<1, 1, 3>, &RunTile<1, 1, 4>,
       &RunTile<1, 1, 5>, &RunTile<1, 1, 6>},
      {&RunTile<1, 2, 1>, &RunTile<1, 2, 2>, &RunTile<1, 2, 3>, &RunTile<1, 2, 4>},
      {&RunTile<1, 4, 1>, &RunTile<1, 4, 2>},
      {&RunTile<1, 8, 1>},
  };
  return kTiles[lines == 1 ? 0 : lines == 2 ? 1 : lines == 4 ? 2 : 3][vectors - 1];
}

// Cuts `count` pixels of a line evenly into tiles of at most `most` vectors and calls f(first
// pixel, vectors, pixels in the last vector) for each.
template <class F>
void ForEachTile(int64_t count, int most, F f) {
  int64_t vectors = (count + kLanes - 1) / kLanes;
  for (int64_t at = 0; vectors > 0;) {
    const int64_t tiles = (vectors + most - 1) / most;
    const int64_t now = (vectors + tiles - 1) / tiles;
    const int64_t end = (std::min)(count, at + now * kLanes);
    f(at, static_cast<int>(now), end - at - (now - 1) * kLanes);
    at = end;
    vectors -= now;
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_TILE_HPP_
