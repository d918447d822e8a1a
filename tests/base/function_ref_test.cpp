#include "opkit/base/function_ref.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <type_traits>

namespace function_ref_test { namespace {

using opkit::FunctionRef;

int Twice(int x) { return 2 * x; }

int Apply(FunctionRef<int(int)> f, int x) { return f(x); }

TEST_CASE("FunctionRef calls lambdas, functions and function pointers") {
  int calls = 0;
  auto counting = [&](int x) { return ++calls + x; };
  CHECK(Apply(counting, 10) == 11);
  CHECK(Apply(counting, 10) == 12);
  CHECK(Apply([](int x) { return -x; }, 3) == -3);
  CHECK(Apply(Twice, 4) == 8);
  CHECK(Apply(&Twice, 4) == 8);
}

TEST_CASE("FunctionRef refers to the callable itself and copies function pointers") {
  struct Counter {
    int value = 0;
    void operator()() { ++value; }
  } counter;
  FunctionRef<void()> ref = counter;
  const FunctionRef<void()> copy = ref;
  ref();
  copy();
  CHECK(counter.value == 2);

  int (*pointer)(int) = Twice;
  FunctionRef<int(int)> to_function = pointer;
  pointer = nullptr;
  CHECK(to_function(21) == 42);
}

TEST_CASE("FunctionRef forwards references and move-only arguments, and may drop the result") {
  std::string text;
  auto append = [&](std::string& out, std::unique_ptr<int> n) { return out += std::to_string(*n); };
  FunctionRef<void(std::string&, std::unique_ptr<int>)> ref = append;
  ref(text, std::make_unique<int>(7));
  ref(text, std::make_unique<int>(8));
  CHECK(text == "78");
}

TEST_CASE("FunctionRef calls a const callable through its const operator") {
  struct Both {
    int operator()() { return 1; }
    int operator()() const { return 2; }
  };
  Both both;
  const Both constant;
  CHECK(FunctionRef<int()>(both)() == 1);
  CHECK(FunctionRef<int()>(constant)() == 2);
}

TEST_CASE("FunctionRef is two words, trivially copyable, and only made of what it can call") {
  using Ref = FunctionRef<int(int)>;
  CHECK(sizeof(Ref) == 2 * sizeof(void*));
  CHECK(std::is_trivially_copyable_v<Ref>);
  CHECK_FALSE(std::is_default_constructible_v<Ref>);
  CHECK_FALSE(std::is_constructible_v<Ref, std::string>);
  CHECK_FALSE(std::is_constructible_v<Ref, void (*)(int)>);
}

}  // namespace
}  // namespace function_ref_test
