#include "opkit/core/layout.hpp"

#include <doctest/doctest.h>

#include <string>

namespace layout_test { namespace {

using opkit::Layout;
using opkit::detail::MakeIntrusive;

class Blocked final : public Layout::Descriptor {
 public:
  explicit Blocked(int block) : block_(block) {}
  bool Equals(const Layout::Descriptor& other) const override {
    const auto* blocked = dynamic_cast<const Blocked*>(&other);
    return blocked && blocked->block_ == block_;
  }
  std::string Describe() const override { return "nChw" + std::to_string(block_) + "c"; }

 private:
  int block_;
};

TEST_CASE("a layout is standard by default") {
  CHECK(Layout{}.is_standard());
  CHECK(ToString(Layout{}) == "standard");
  CHECK(Layout{} == Layout{});
}

TEST_CASE("layouts are equal when ids are and their descriptors describe the same") {
  const Layout eight{903, MakeIntrusive<Blocked>(8)};
  CHECK_FALSE(eight.is_standard());
  CHECK(eight == eight);
  CHECK(eight == Layout{903, MakeIntrusive<Blocked>(8)});
  CHECK(eight != Layout{903, MakeIntrusive<Blocked>(16)});
  CHECK(eight != Layout{904, MakeIntrusive<Blocked>(8)});
  CHECK(eight != Layout{903, {}});
  CHECK(Layout{903, {}} != eight);
  CHECK(eight != Layout{});
}

TEST_CASE("a layout prints its id and its descriptor's text") {
  CHECK(ToString(Layout{903, MakeIntrusive<Blocked>(8)}) == "layout 903 nChw8c");
  CHECK(ToString(Layout{905, {}}) == "layout 905");
}

}  // namespace
}  // namespace layout_test
