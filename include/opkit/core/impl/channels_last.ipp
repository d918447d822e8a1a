// The conversions of "NHWC": a transpose of [channels, positions] for each image.
#ifndef OPKIT_CORE_IMPL_CHANNELS_LAST_IPP_
#define OPKIT_CORE_IMPL_CHANNELS_LAST_IPP_

#include <cstring>

#include "opkit/core/channels_last.hpp"
#include "opkit/core/layout_registry.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Transposes elements of one size, in tiles that fit the first-level cache.
template <class Element>
void TransposeElements(const void* in, void* out, int64_t rows, int64_t columns) {
  const auto* const from = static_cast<const Element*>(in);
  auto* const to = static_cast<Element*>(out);
  constexpr int64_t kTile = 32;
  for (int64_t r = 0; r < rows; r += kTile)
    for (int64_t c = 0; c < columns; c += kTile)
      for (int64_t i = r; i < (std::min)(r + kTile, rows); ++i)
        for (int64_t j = c; j < (std::min)(c + kTile, columns); ++j)
          to[j * rows + i] = from[i * columns + j];
}
// The bytes of a complex128.
struct TwoWords {
  uint64_t words[2];
};

template <bool kToChannelsLast>
void MoveChannels(const Tensor& from, Tensor& to) {
  const int64_t images = from.rank() < 2 ? 1 : from.dim(0);
  const int64_t channels = from.rank() < 2 ? 1 : from.dim(1);
  const int64_t size = ItemSize(from.dtype()), count = from.numel();
  if (count == 0) return;
  const int64_t positions = count / images / channels;
  const int64_t rows = kToChannelsLast ? channels : positions;
  const int64_t columns = kToChannelsLast ? positions : channels;
  const auto transpose = size == 1   ? &TransposeElements<uint8_t>
                         : size == 2 ? &TransposeElements<uint16_t>
                         : size == 4 ? &TransposeElements<uint32_t>
                         : size == 8 ? &TransposeElements<uint64_t>
                                     : &TransposeElements<TwoWords>;
  for (int64_t image = 0; image < images; ++image) {
    const int64_t begin = image * rows * columns * size;
    transpose(static_cast<const char*>(from.raw_data()) + begin,
              static_cast<char*>(to.raw_mutable_data()) + begin, rows, columns);
  }
}

}  // namespace detail

OPKIT_INLINE LayoutId ChannelsLast() {
  static const LayoutId id = RegisterLayout({.name = "NHWC",
                                             .to_standard = &detail::MoveChannels<false>,
                                             .from_standard = &detail::MoveChannels<true>});
  return id;
}

}}  // namespace opkit

#endif  // OPKIT_CORE_IMPL_CHANNELS_LAST_IPP_
