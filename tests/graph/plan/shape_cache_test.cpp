#include "opkit/graph/plan/shape_cache.hpp"

#include <doctest/doctest.h>

namespace shape_cache_test { namespace {

using opkit::DType;
using opkit::Shape;
using opkit::TensorInfo;
using opkit::detail::MakeIntrusive;
using opkit::detail::ShapeCache;

using Infos = std::vector<TensorInfo>;

struct Entry : opkit::detail::RefCounted {
  explicit Entry(Infos its_inputs) : list(std::move(its_inputs)) {}
  const Infos& inputs() const { return list; }
  Infos list;
};

Infos Of(int64_t extent, DType dtype = DType::kFloat32) {
  return {TensorInfo(dtype, Shape{extent})};
}

TEST_CASE("an entry is found by the dtypes and shapes of its inputs") {
  ShapeCache<Entry> cache(4);
  CHECK_FALSE(cache.latest());
  CHECK_FALSE(cache.Find(Of(1)));
  const auto one = MakeIntrusive<Entry>(Of(1)), two = MakeIntrusive<Entry>(Of(2));
  cache.Add(one);
  cache.Add(two);
  CHECK(cache.Find(Of(1)).get() == one.get());
  CHECK(cache.Find(Of(2)).get() == two.get());
  CHECK_FALSE(cache.Find(Of(1, DType::kFloat64)));
  CHECK_FALSE(cache.Find(Of(3)));
}

TEST_CASE("the entry that was used last is the latest, and the one used longest ago goes") {
  ShapeCache<Entry> cache(2);
  cache.Add(MakeIntrusive<Entry>(Of(1)));
  cache.Add(MakeIntrusive<Entry>(Of(2)));
  CHECK(cache.Find(Of(1)));
  CHECK(cache.latest()->list[0].shape == opkit::SymbolicShape{1});
  cache.Add(MakeIntrusive<Entry>(Of(3)));
  CHECK(cache.latest()->list[0].shape == opkit::SymbolicShape{3});
  CHECK_FALSE(cache.Find(Of(2)));
  CHECK(cache.Find(Of(1)));
  CHECK(cache.Find(Of(3)));
}

}  // namespace
}  // namespace shape_cache_test
