#include "opkit/base/ref_counted.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace ref_counted_test { namespace {

using opkit::detail::IntrusivePtr;
using opkit::detail::MakeIntrusive;
using opkit::detail::RefCounted;

struct Counted : RefCounted {
  explicit Counted(int* deaths, int v = 0) : value(v), deaths_(deaths) {}
  ~Counted() override { ++*deaths_; }
  int value;

 private:
  int* deaths_;
};
struct Derived : Counted {
  using Counted::Counted;
};

TEST_CASE("the object dies with its last handle, once") {
  int deaths = 0;
  {
    auto first = MakeIntrusive<Counted>(&deaths, 7);
    CHECK(first.use_count() == 1);
    {
      IntrusivePtr<Counted> second = first;
      CHECK(first.use_count() == 2);
      CHECK(second->value == 7);
      CHECK(&*second == first.get());
    }
    CHECK(first.use_count() == 1);
    CHECK(deaths == 0);
  }
  CHECK(deaths == 1);
}

TEST_CASE("an empty handle is false, counts nothing and equals another one") {
  IntrusivePtr<Counted> empty;
  CHECK_FALSE(empty);
  CHECK(empty.get() == nullptr);
  CHECK(empty.use_count() == 0);
  CHECK(empty == IntrusivePtr<Counted>());
  CHECK(IntrusivePtr<Counted>(empty) == empty);
}

TEST_CASE("a move passes the object on without counting") {
  static_assert(std::is_nothrow_move_constructible_v<IntrusivePtr<Counted>>);
  int deaths = 0;
  auto first = MakeIntrusive<Counted>(&deaths);
  Counted* object = first.get();
  IntrusivePtr<Counted> second = std::move(first);
  CHECK_FALSE(first);
  CHECK(second.get() == object);
  CHECK(second.use_count() == 1);
  first = std::move(second);
  CHECK_FALSE(second);
  CHECK(first.use_count() == 1);
  CHECK(deaths == 0);
}

TEST_CASE("assignment releases the old object, and self-assignment releases nothing") {
  int deaths = 0;
  auto handle = MakeIntrusive<Counted>(&deaths, 1);
  auto& same = handle;
  handle = same;
  CHECK(deaths == 0);
  CHECK(handle.use_count() == 1);
  handle = MakeIntrusive<Counted>(&deaths, 2);
  CHECK(deaths == 1);
  CHECK(handle->value == 2);
  handle = {};
  CHECK(deaths == 2);
}

TEST_CASE("a handle converts to one of the base or of const, and deletes through it") {
  static_assert(!std::is_convertible_v<IntrusivePtr<Counted>, IntrusivePtr<Derived>>);
  static_assert(!std::is_convertible_v<IntrusivePtr<const Counted>, IntrusivePtr<Counted>>);
  int deaths = 0;
  {
    IntrusivePtr<const Counted> base = MakeIntrusive<Derived>(&deaths, 3);
    CHECK(base->value == 3);
    CHECK(base.use_count() == 1);
  }
  CHECK(deaths == 1);
}

TEST_CASE("a constructor that throws leaves nothing behind") {
  struct Throws : RefCounted {
    Throws() { throw std::runtime_error("no"); }
  };
  CHECK_THROWS_AS(MakeIntrusive<Throws>(), std::runtime_error);
}

TEST_CASE("copies on many threads: one death, after every thread's writes") {
  for (int threads : {1, 2, 8}) {
    int deaths = 0;
    std::vector<int> written(static_cast<size_t>(threads), 0);
    struct Reader : RefCounted {
      explicit Reader(std::vector<int>* w, int* d) : words(w), died(d) {}
      ~Reader() override {
        for (int word : *words) sum += word;
        *died += sum;
      }
      std::vector<int>* words;
      int* died;
      int sum = 0;
    };
    auto shared = MakeIntrusive<Reader>(&written, &deaths);
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&written, t, mine = shared]() mutable {
        for (int i = 0; i < 1000; ++i) IntrusivePtr<Reader> copy = mine;
        written[static_cast<size_t>(t)] = 1;
        mine = {};
      });
    shared = {};
    for (auto& worker : workers) worker.join();
    CHECK(deaths == threads);
  }
}

}  // namespace
}  // namespace ref_counted_test
