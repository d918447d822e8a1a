#include "opkit/export/foreign_tensor.hpp"

#include <cstring>
#include <vector>

#include <doctest/doctest.h>

namespace foreign_tensor_test { namespace {

using namespace opkit;
using opkit::detail::ForeignTensor;

TEST_CASE("ForeignTensor: a view moves to other memory of the same type without new storage") {
  std::vector<float> a = {1, 2, 3}, b = {4, 5, 6};
  const int64_t shape[] = {3};
  Tensor view;
  detail::ViewForeign({a.data(), DType::kFloat32, {}, 1, shape}, view);
  CHECK(view.data<float>() == a.data());
  const void* storage = view.storage().get();
  detail::EndView(view);
  CHECK(view.raw_data() == nullptr);
  detail::ViewForeign({b.data(), DType::kFloat32, {}, 1, shape}, view);
  CHECK(view.ToVector<float>() == b);
  CHECK(view.storage().get() == storage);
}

TEST_CASE("ForeignTensor: a view that an operator has kept does not move") {
  std::vector<float> a = {1, 2, 3}, b = {4, 5, 6};
  const int64_t shape[] = {3};
  Tensor view;
  detail::ViewForeign({a.data(), DType::kFloat32, {}, 1, shape}, view);
  const Tensor kept = view;
  detail::EndView(view);
  detail::ViewForeign({b.data(), DType::kFloat32, {}, 1, shape}, view);
  CHECK(kept.data<float>() == a.data());
  CHECK(view.data<float>() == b.data());
}

TEST_CASE("ForeignTensor: strides are viewed; negative strides and odd addresses are copied") {
  std::vector<float> a = {1, 2, 3, 4};
  const int64_t shape[] = {2}, two[] = {2}, back[] = {-1};
  Tensor view;
  detail::ViewForeign({a.data(), DType::kFloat32, {}, 1, shape, two}, view);
  CHECK(view.data<float>() == a.data());
  CHECK(view.ToVector<float>() == std::vector<float>{1, 3});
  detail::ViewForeign({a.data() + 3, DType::kFloat32, {}, 1, shape, back}, view);
  CHECK(view.ToVector<float>() == std::vector<float>{4, 3});
  std::vector<char> bytes(9);
  std::memcpy(bytes.data() + 1, a.data(), 8);
  detail::ViewForeign({bytes.data() + 1, DType::kFloat32, {}, 1, shape}, view);
  CHECK(view.ToVector<float>() == std::vector<float>{1, 2});

  CHECK_FALSE(detail::ViewForeignOutput({a.data(), DType::kFloat32, {}, 1, shape, two}, view));
  detail::CopyToForeign(Tensor::From<float>({2}, {7, 8}),
                        {a.data(), DType::kFloat32, {}, 1, shape, two});
  CHECK(a == std::vector<float>{7, 2, 8, 4});
  detail::CopyToForeign(Tensor::From<float>({2}, {5, 6}),
                        {a.data() + 3, DType::kFloat32, {}, 1, shape, back});
  CHECK(a == std::vector<float>{7, 2, 6, 5});
}

TEST_CASE("ForeignTensor: what is no tensor is an Error") {
  const int64_t shape[] = {3}, negative[] = {-3};
  float value = 0;
  Tensor view;
  CHECK_THROWS_WITH_AS(detail::ViewForeign({nullptr, DType::kFloat32, {}, 1, shape}, view),
                       doctest::Contains("has no data"), Error);
  CHECK_THROWS_AS(detail::ViewForeign({&value, DType::kFloat32, {}, 1, negative}, view), Error);
  CHECK_THROWS_WITH_AS(detail::DTypeOfDLPack(2, 8, 1), doctest::Contains("no dtype of opkit"),
                       Error);
  CHECK_THROWS_AS(detail::DTypeOfDLPack(2, 32, 4), Error);
  CHECK(detail::DTypeOfDLPack(4, 16, 1) == DType::kBFloat16);
}

}}  // namespace foreign_tensor_test
