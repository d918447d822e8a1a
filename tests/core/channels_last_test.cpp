#include "opkit/core/channels_last.hpp"

#include <doctest/doctest.h>

#include <complex>
#include <numeric>

#include "opkit/core/layout_registry.hpp"

namespace channels_last_test {
namespace {

using namespace opkit;

template <class T>
void CheckImages() {
  constexpr int64_t kN = 2, kC = 35, kH = 3, kW = 13;
  std::vector<T> values(kN * kC * kH * kW);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(static_cast<uint8_t>(i));
  const Tensor x = Tensor::From<T>({kN, kC, kH, kW}, values);
  const Tensor last = ConvertLayout(x, {ChannelsLast(), {}});
  const T* const data = static_cast<const T*>(last.raw_data());
  for (int64_t n = 0; n < kN; ++n)
    for (int64_t c = 0; c < kC; ++c)
      for (int64_t p = 0; p < kH * kW; ++p)
        REQUIRE(data[(n * kH * kW + p) * kC + c] ==
                values[static_cast<size_t>((n * kC + c) * kH * kW + p)]);
  CHECK(ConvertLayout(last, {}).template ToVector<T>() == values);
}

}  // namespace

TEST_CASE("channels lie together for every size of elements") {
  CheckImages<uint8_t>();
  CheckImages<int16_t>();
  CheckImages<float>();
  CheckImages<double>();
  CheckImages<std::complex<double>>();
  CHECK(FindLayout("NHWC") == ChannelsLast());
}

TEST_CASE("other ranks convert too, and nothing does") {
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{2, 3, 4}, Shape{0, 3, 4}}) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    std::iota(values.begin(), values.end(), 1.f);
    const Tensor x = Tensor::From<float>(shape, values);
    CHECK(ConvertLayout(ConvertLayout(x, {ChannelsLast(), {}}), {}).ToVector<float>() == values);
  }
}

}  // namespace channels_last_test
