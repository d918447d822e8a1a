#include "opkit/base/registry.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"

namespace registry_test {

struct Sound {
  virtual ~Sound() = default;
  virtual std::string Make() const = 0;
};
OPKIT_DEFINE_REGISTRY(Sounds, Sound, std::string, int)

class Repeated : public Sound {
 public:
  Repeated(std::string text, int times) : text_(std::move(text)), times_(times) {}
  std::string Make() const override {
    std::string out;
    for (int i = 0; i < times_; ++i) out += text_;
    return out;
  }

 private:
  std::string text_;
  int times_;
};
template <char kMark>
class Marked final : public Repeated {
 public:
  Marked(std::string text, int times) : Repeated(text + kMark, times) {}
};
std::unique_ptr<Sound> MakeOnce(std::string text, int) {
  return std::make_unique<Repeated>(std::move(text), 1);
}

OPKIT_REGISTER_CLASS(Sounds, "repeated", Repeated);
OPKIT_REGISTER_CLASS(Sounds, "loud", Marked<'!'>);
OPKIT_REGISTER_CREATOR(Sounds, "once", &MakeOnce);
OPKIT_REGISTER_CLASS(Sounds, "twice", Repeated);
OPKIT_REGISTER_CREATOR(Sounds, "twice", &MakeOnce);

struct Plain {
  int value = 7;
};
OPKIT_DEFINE_REGISTRY(Plains, Plain)
OPKIT_REGISTER_CLASS(Plains, "plain", Plain);

namespace {
using opkit::ErrorCode;

TEST_CASE("objects are made by the name that their class or creator was registered under") {
  CHECK(Sounds().Create("repeated", "ha", 2)->Make() == "haha");
  CHECK(Sounds().Create("loud", "ha", 2)->Make() == "ha!ha!");
  CHECK(Sounds().Create("once", "ha", 2)->Make() == "ha");
  CHECK(Plains().Create("plain")->value == 7);
  CHECK(Sounds().Has("loud"));
  CHECK_FALSE(Sounds().Has("plain"));
  CHECK(Sounds().Names() == std::vector<std::string>{"loud", "once", "repeated", "twice"});
}

TEST_CASE("a name that is not there is an Error with the nearest") {
  const auto error = ErrorOf([] { Sounds().Create("lod", "ha", 2); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "Sounds has no 'lod' (did you mean 'loud'?"));
}

TEST_CASE("a name registered at two places is an Error with both, when it is used") {
  const auto error = ErrorOf([] { Sounds().Create("twice", "ha", 2); });
  CHECK(error.code() == ErrorCode::kAlreadyExists);
  CHECK(Contains(error.message(), "'twice' is registered in Sounds at "));
  CHECK(Contains(error.message(), "registry_test.cpp:40 and at "));
}

TEST_CASE("the same line, registered by two units, is one registration") {
  opkit::Registry<Plain> registry("Local");
  const auto make = [] { return std::make_unique<Plain>(); };
  CHECK(registry.Register("one", make, "a.hpp", 3));
  CHECK(registry.Register("one", make, "a.hpp", 3));
  CHECK(registry.Create("one")->value == 7);
  CHECK(registry.Register("one", make, "a.hpp", 4));
  CHECK(ErrorOf([&] { registry.Create("one"); }).code() == ErrorCode::kAlreadyExists);
}

}  // namespace
}  // namespace registry_test
