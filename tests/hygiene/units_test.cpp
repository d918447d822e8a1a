// Two translation units that include everything make one program with one toolkit in it.
#include <doctest/doctest.h>

#include "units.hpp"

TEST_CASE("two units share the allocators and the thread's invocation") {
  CHECK(SeenByA().allocator == SeenByB().allocator);
  CHECK(SeenByA().invocation == SeenByB().invocation);
}

TEST_CASE("an error thrown in another unit is caught by its type") {
  CHECK_THROWS_WITH_AS(SeenByA().fail(), "from unit a", opkit::Error);
  CHECK_THROWS_WITH_AS(SeenByB().fail(), "from unit b", opkit::Error);
}
