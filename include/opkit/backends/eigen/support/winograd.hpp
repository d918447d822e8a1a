// Winograd: convolutions of 3 by 3 windows with a quarter of the multiplications, F(4 x 4, 3 x 3)
// of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. A variant of Conv
// of the "eigen" backend: the rounding error is two to three times that of direct sums. A pixel
// that is infinite or NaN makes whole patches of 4 by 4 outputs NaN, and sums overflow earlier:
// outputs are NaN for pixels of about 1e37.
#ifndef OPKIT_BACKENDS_EIGEN_SUPPORT_WINOGRAD_HPP_
#define OPKIT_BACKENDS_EIGEN_SUPPORT_WINOGRAD_HPP_

#include "opkit/backends/eigen/support/task_plan.hpp"
#include "opkit/backends/eigen/support/tile.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/ops/nn/conv.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The weights of the algorithm. For each pair of an output and a channel, the 3 by 3 taps are
// transformed to 36 numbers, the points. Weights [outputs, channels, 3, 3] in the layout "winograd"
// are the points [36, outputs, channels], followed by the weights in the standard layout: points
// are rounded and would not give the weights back.
class WinogradWeights {
 public:
  static constexpr int64_t kSide = 6, kPoints = kSide * kSide, kTaps = 9;
  // The polynomials are evaluated at 0, +-a, +-b and infinity. With these numbers results have a
  // third of the error that the usual 1 and 2 give.
  static constexpr float kA = 0.75f, kB = 1.5f, kA2 = kA * kA, kB2 = kB * kB;

  WinogradWeights(int64_t outputs, int64_t channels) : outputs_(outputs), channels_(channels) {}
  int64_t PointBytes() const { return kPoints * WeightBytes() / kTaps; }
  int64_t WeightBytes() const { return kTaps * outputs_ * channels_ * int64_t{sizeof(float)}; }

  // Writes the points of all weights.
  void Transform(const float* w, float* points) const {
    constexpr int64_t kGrain = 2000;  // weights that take about 10 us
    const int64_t grain = kGrain / (std::max)(channels_, int64_t{1}) + 1;
    ParallelForRange(outputs_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) TransformOutput(w, o, points);
    });
  }
  static LayoutId Id() {
    static const LayoutId id = [] {
      const auto of = [](const Shape& shape) { return WinogradWeights(shape[0], shape[1]); };
      return RegisterLayout(
          {.name = "winograd",
           .to_standard =
               [of](const Tensor& from, Tensor& to) {
                 if (to.numel() == 0) return;  // memcpy takes no null pointer
                 const WinogradWeights weights = of(from.shape());
                 std::memcpy(to.raw_mutable_data(),
                             static_cast<const char*>(from.raw_data()) + weights.PointBytes(),
                             static_cast<size_t>(weights.WeightBytes()));
               },
           .from_standard =
               [of](const Tensor& from, Tensor& to) {
                 if (from.numel() == 0) return;
                 const WinogradWeights weights = of(from.shape());
                 auto* points = static_cast<char*>(to.raw_mutable_data());
                 weights.Transform(from.data<float>(), reinterpret_cast<float*>(points));
                 std::memcpy(points + weights.PointBytes(), from.raw_data(),
                             static_cast<size_t>(weights.WeightBytes()));
               },
           .bytes =
               [of](const Shape& shape, DType dtype) {
                 if (dtype != DType::kFloat32 || shape.rank() != 4 || shape[2] != 3 ||
                     shape[3] != 3)
                   Throw(
                       ErrorCode::kInvalidArgument,
                       "the layout winograd has weights of float32 [outputs, channels, 3, 3], not ",
                       ToString(dtype), ToString(shape));
                 return of(shape).PointBytes() + of(shape).WeightBytes();
               }});
    }();
    return id;
  }

 private:
  void TransformOutput(const float* w, int64_t o, float* weights) const {
    for (int64_t c = 0; c < channels_; c += kLanes) {
      const int64_t count = (std::min)(channels_ - c, int64_t{kLanes});
      alignas(64) float taps[kTaps][kLanes] = {};
      for (int64_t i = 0; i < count; ++i)
        for (int64_t k = 0; k < kTaps; ++k) taps[k][i] = w[(o * channels_ + c + i) * kTaps + k];
      Lanes half[3][kSide];  // of each column of the kernel
      for (int64_t j = 0; j < 3; ++j) {
        Lanes top, middle, bottom;
        Load(taps[j], top);
        Load(taps[3 + j], middle);
        Load(taps[6 + j], bottom);
        Points(top, middle, bottom, half[j]);
      }
      for (int64_t i = 0; i < kSide; ++i) {
        Lanes points[kSide];
        Points(half[0][i], half[1][i], half[2][i], points);
        for (int64_t j = 0; j < kSide; ++j)
          StorePart(points[j], count, weights + ((i * kSide + j) * outputs_ + o) * channels_ + c);
      }
    }
  }
  __attribute__((always_inline)) static void Points(const Lanes& a, const Lanes& b, const Lanes& c,
                                                    Lanes* points) {
    constexpr float kOfA = 1 / (2 * kA2 * (kA2 - kB2)), kOfB = 1 / (2 * kB2 * (kB2 - kA2));
    const Lanes even = (a + kA2 * c) * kOfA, odd = b * (kA * kOfA);
    const Lanes even2 = (a + kB2 * c) * kOfB, odd2 = b * (kB * kOfB);
    points[0] = a * (1 / (kA2 * kB2));
    points[1] = even + odd;
    points[2] = even - odd;
    points[3] = even2 + odd2;
    points[4] = even2 - odd2;
    points[5] = c;
  }

  int64_t outputs_, channels_;
};

// A convolution of known sizes. The output of an image is cut into patches of 4 by 4 pixels. A
// patch depends on 6 by 6 pixels of each channel, which are transformed to points like the weights.
// For each point, the sums over the channels are a matrix product [outputs, channels] by [channels,
// patches]. A task computes a band: patches of some rows and columns of one image.
class Winograd {
 public:
  // `has_points`: the weights are in the layout "winograd". Otherwise each run transforms them.
  Winograd(const ConvSizes& sizes, bool has_points)
      : has_points_(has_points),
        batch_(sizes.batch),
        channels_(sizes.channels),
        outputs_(sizes.outputs),
        rows_(sizes.axes[0]),
        columns_(sizes.axes[1]),
        patch_rows_((rows_.output + kStep - 1) / kStep),
        patch_columns_((columns_.output + kStep - 1) / kStep) {
    // The patches of a band fill the largest tile.
    constexpr int64_t kPatches = kTileVectors * kLanes;
    band_columns_ = (std::min)(patch_columns_, kPatches);
    band_rows_ = std::clamp<int64_t>(kPatches / patch_columns_, 1, patch_rows_);
    row_bands_ = (patch_rows_ + band_rows_ - 1) / band_rows_;
    column_bands_ = (patch_columns_ + band_columns_ - 1) / band_columns_;
    line_ = RoundUpToLanes(band_rows_ * band_columns_) + kLanes;
    block_ = kPoints * line_ + kLanes;  // no multiple of the caches' page
    plan_.tasks = batch_ * row_bands_ * column_bands_;
    plan_.slot_bytes =
        ScratchSlots::RoundUp((channels_ + outputs_) * block_ * int64_t{sizeof(float)});
  }
  // True if the algorithm can compute the convolution, and might be faster than direct sums: there
  // are enough channels to transform pixels for, and enough pixels to read the points of the
  // weights for, or even to transform the weights for. Measured on a Zen 5.
  static bool IsPromising(const ConvSizes& sizes, int64_t groups, bool has_points) {
    constexpr int64_t kLeastChannels = 16, kLeastTogether = 48;
    const int64_t least_pixels = has_points ? 150 : 400;
    if (groups != 1 || sizes.axes.size() != 2 || sizes.batch == 0 ||
        sizes.channels < kLeastChannels || sizes.outputs < kLeastChannels ||
        sizes.channels + sizes.outputs < kLeastTogether || sizes.output_pixels < least_pixels)
      return false;
    for (const WindowAxis& axis : sizes.axes)
      if (axis.kernel != 3 || axis.stride != 1 || axis.dilation != 1) return false;
    return true;
  }
  int64_t ScratchBytes(int threads) const { return WeightBytes() + plan_.ScratchBytes(threads); }
  void MakeTables() {
    for (int64_t c = 0; c < channels_; ++c) offsets_.push_back(c * block_);
  }
  // Runs the convolution. `scratch` must have ScratchBytes(threads) bytes.
  void Run(const ConvData<float>& data, void* scratch, int threads) const {
    const float* weights = data.w;
    if (!has_points_) {
      WinogradWeights(outputs_, channels_).Transform(data.w, static_cast<float*>(scratch));
      weights = static_cast<float*>(scratch);
    }
    plan_.Run(static_cast<char*>(scratch) + WeightBytes(), threads,
              [&](int64_t begin, int64_t end, float* memory) {
                for (int64_t task = begin; task < end; ++task) RunTask(data, weights, task, memory);
              });
  }

 private:
  static constexpr int64_t kStep = 4, kSide = WinogradWeights::kSide,
                           kPoints = WinogradWeights::kPoints;
  // Patches of a row that are transformed at once, and the pixels under them.
  static constexpr int64_t kChunk = kLanes, kChunkPixels = kStep * kLanes;
  static constexpr float kA = WinogradWeights::kA, kB = WinogradWeights::kB, kA2 = kA * kA,
                         kB2 = kB * kB;

  int64_t WeightBytes() const {
    return has_points_ ? 0
                       : ScratchSlots::RoundUp(WinogradWeights(outputs_, channels_).PointBytes());
  }

  __attribute__((always_inline)) static void ImagePoints(const Lanes* d, Lanes* points) {
    const Lanes even = d[4] - kB2 * d[2], odd = kA * (d[3] - kB2 * d[1]);
    const Lanes even2 = d[4] - kA2 * d[2], odd2 = kB * (d[3] - kA2 * d[1]);
    points[0] = kA2 * kB2 * d[0] - (kA2 + kB2) * d[2] + d[4];
    points[1] = even + odd;
    points[2] = even - odd;
    points[3] = even2 + odd2;
    points[4] = even2 - odd2;
    points[5] = kA2 * kB2 * d[1] - (kA2 + kB2) * d[3] + d[5];
  }
  __attribute__((always_inline)) static void OutputPixels(const Lanes* m, Lanes* pixels) {
    const Lanes sum = m[1] + m[2], difference = m[1] - m[2];
    const Lanes sum2 = m[3] + m[4], difference2 = m[3] - m[4];
    pixels[0] = m[0] + sum + sum2;
    pixels[1] = kA * difference + kB * difference2;
    pixels[2] = kA2 * sum + kB2 * sum2;
    pixels[3] = kA * kA2 * difference + kB * kB2 * difference2 + m[5];
  }
  // Separates the elements at even and odd places of two vectors; Zip joins them again.
  __attribute__((always_inline)) static void Unzip(Lanes& low, Lanes& high) {
    [&]<int... kAt>(std::integer_sequence<int, kAt...>) {
      const Lanes even = __builtin_shufflevector(low, high, 2 * kAt...);
      high = __builtin_shufflevector(low, high, (2 * kAt + 1)...);
      low = even;
    }(std::make_integer_sequence<int, kLanes>());
  }
  __attribute__((always_inline)) static void Zip(Lanes& even, Lanes& odd) {
    [&]<int... kAt>(std::integer_sequence<int, kAt...>) {
      const Lanes low = __builtin_shufflevector(even, odd, (kAt / 2 + kAt % 2 * kLanes)...);
      odd = __builtin_shufflevector(even, odd, (kLanes / 2 + kAt / 2 + kAt % 2 * kLanes)...);
      even = low;
    }(std::make_integer_sequence<int, kLanes>());
  }

  // Some patches of a row of patches.
  struct Patches {
    int64_t row, column, count;
  };
  void RunTask(const ConvData<float>& data, const float* weights, int64_t task,
               float* memory) const {
    const int64_t column = task % column_bands_ * band_columns_;
    const int64_t row = task / column_bands_ % row_bands_ * band_rows_;
    const int64_t image = task / column_bands_ / row_bands_;
    const int64_t rows = (std::min)(band_rows_, patch_rows_ - row);
    const int64_t count = (std::min)(band_columns_, patch_columns_ - column);
    float* sums = memory + channels_ * block_;
    for (int64_t c = 0; c < channels_; ++c)
      for (int64_t i = 0; i < rows; ++i)
        TransformRow(data.x + (image * channels_ + c) * rows_.input * columns_.input,
                     {row + i, column, count}, memory + c * block_ + i * count);
    Multiply(weights, memory, rows * count, sums);
    for (int64_t o = 0; o < outputs_; ++o)
      for (int64_t i = 0; i < rows; ++i)
        WriteRow(sums + o * block_ + i * count, {row + i, column, count},
                 data.bias ? data.bias[o] : 0.f,
                 data.y + (image * outputs_ + o) * rows_.output * columns_.output);
  }
  // Writes the points of patches of one channel: points[point, patch], `line_` elements between
  // points. Writes whole vectors, so that the next row overwrites the surplus.
  void TransformRow(const float* plane, const Patches& patches, float* points) const {
    for (int64_t at = 0; at < patches.count; at += kChunk) {
      // Six lines of pixels, with the first pixels of the next chunk.
      alignas(64) float lines[kSide][kChunkPixels + kLanes];
      const int64_t column = (patches.column + at) * kStep - columns_.pad_begin;
      for (int64_t i = 0; i < kSide; ++i)
        CopyLine(plane, patches.row * kStep + i - rows_.pad_begin, column, lines[i]);
      alignas(64) float phases[kSide][kStep][2 * kLanes];
      for (int64_t part = 0; part < kStep + 1; ++part) {
        Lanes d[kSide], made[kSide];
        for (int64_t i = 0; i < kSide; ++i) Load(lines[i] + part * kLanes, d[i]);
        ImagePoints(d, made);
        for (int64_t i = 0; i < kSide; ++i) Store(made[i], lines[i] + part * kLanes);
      }
      for (int64_t i = 0; i < kSide; ++i) {
        Lanes p[kStep];
        for (int64_t k = 0; k < kStep; ++k) Load(lines[i] + k * kLanes, p[k]);
        // By twos, and by twos again: p[k] gets the pixels k, k + 4, k + 8 …
        Unzip(p[0], p[1]);
        Unzip(p[2], p[3]);
        Unzip(p[0], p[2]);
        Unzip(p[1], p[3]);
        for (int64_t k = 0; k < kStep; ++k) {
          Store(p[k], phases[i][k]);
          phases[i][k][kLanes] = lines[i][kChunkPixels + k];
        }
      }
      for (int64_t i = 0; i < kSide; ++i) {
        Lanes d[kSide], made[kSide];
        for (int64_t k = 0; k < kStep; ++k) Load(phases[i][k], d[k]);
        Load(phases[i][0] + 1, d[4]);
        Load(phases[i][1] + 1, d[5]);
        ImagePoints(d, made);
        for (int64_t j = 0; j < kSide; ++j) Store(made[j], points + (i * kSide + j) * line_ + at);
      }
    }
  }
  // Copies the pixels of a chunk from column `first` of a line; pads are 0.
  void CopyLine(const float* plane, int64_t row, int64_t first, float* to) const {
    constexpr int64_t kCount = kChunkPixels + kLanes;
    const bool is_pad = row < 0 || row >= rows_.input;
    const int64_t begin = is_pad ? kCount : std::clamp<int64_t>(-first, 0, kCount);
    const int64_t end = std::clamp<int64_t>(columns_.input - first, begin, kCount);
    std::fill(to, to + begin, 0.f);
    if (end > begin)
      std::memcpy(to + begin, plane + row * columns_.input + first + begin,
                  static_cast<size_t>(end - begin) * sizeof(float));
    std::fill(to + end, to + kCount, 0.f);
  }
  // Computes sums[output, point, patch] of points[channel, point, patch].
  void Multiply(const float* weights, const float* points, int64_t patches, float* sums) const {
    Tile tile;
    tile.depth = channels_;
    tile.offsets = offsets_.data();
    tile.weight_row = channels_;
    tile.output_row = block_;
    for (int64_t point = 0; point < kPoints; ++point)
      for (int64_t row = 0; row < outputs_;) {
        const int rows = NextTileRows(outputs_ - row);
        tile.weights = weights + (point * outputs_ + row) * channels_;
        ForEachTile(patches, kTileVectors, [&](int64_t patch, int vectors, int64_t last) {
          tile.input = points + point * line_ + patch;
          tile.output = sums + row * block_ + point * line_ + patch;
          tile.last = last;
          FindTile(rows, vectors)(tile);
        });
        row += rows;
      }
  }
  // Writes the pixels of patches of one output.
  void WriteRow(const float* sums, const Patches& patches, float bias, float* plane) const {
    const int64_t first_row = patches.row * kStep;
    const int64_t rows = (std::min)(kStep, rows_.output - first_row);
    for (int64_t at = 0; at < patches.count; at += kChunk) {
      Lanes half[kStep][kSide];
      for (int64_t j = 0; j < kSide; ++j) {
        Lanes m[kSide], made[kStep];
        for (int64_t i = 0; i < kSide; ++i) Load(sums + (i * kSide + j) * line_ + at, m[i]);
        OutputPixels(m, made);
        for (int64_t i = 0; i < kStep; ++i) half[i][j] = made[i];
      }
      const int64_t column = (patches.column + at) * kStep;
      const int64_t count = (std::min)(kChunkPixels, columns_.output - column);
      for (int64_t i = 0; i < rows; ++i) {
        Lanes p[kStep];
        OutputPixels(half[i], p);
        for (Lanes& pixels : p) pixels += bias;
        Zip(p[0], p[2]);
        Zip(p[1], p[3]);
        Zip(p[0], p[1]);
        Zip(p[2], p[3]);
        float* to = plane + (first_row + i) * columns_.output + column;
        for (int64_t k = 0; k * kLanes < count; ++k) {
          const int64_t part = (std::min)(count - k * kLanes, int64_t{kLanes});
          part == kLanes ? Store(p[k], to + k * kLanes) : StorePart(p[k], part, to + k * kLanes);
        }
      }
    }
  }

  const bool has_points_;
  const int64_t batch_, channels_, outputs_;
  const WindowAxis rows_, columns_;
  const int64_t patch_rows_, patch_columns_;  // of an image
  int64_t band_rows_ = 1, band_columns_ = 1;  // patches of a task
  int64_t row_bands_ = 1, column_bands_ = 1;
  int64_t line_ = 0, block_ = 0;  // elements between two points, and between two channels
  TaskPlan plan_;
  std::vector<int64_t> offsets_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_EIGEN_SUPPORT_WINOGRAD_HPP_
