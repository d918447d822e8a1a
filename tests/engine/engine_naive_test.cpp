#include "opkit/engine/engine.hpp"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "engine_kinds.hpp"
#include "support/error_of.hpp"

namespace engine_naive_test { namespace {

using opkit::Engine;
using opkit::Error;
using opkit::ErrorCode;
using opkit::NaiveEngine;
using opkit::Var;

class Environment {
 public:
  explicit Environment(const char* value) { setenv("OPKIT_ENGINE", value, 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { unsetenv("OPKIT_ENGINE"); }
};

TEST_CASE("a naive engine has run an operation when Push returns, here and in push order") {
  NaiveEngine engine;
  CHECK(engine.naive());
  const Var v = engine.NewVar();
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) {
    engine.Push(
        [&, i, here = std::this_thread::get_id()] {
          CHECK(std::this_thread::get_id() == here);
          order.push_back(i);
        },
        {}, {}, {.priority = i});
    CHECK(order.size() == static_cast<size_t>(i + 1));
  }
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(engine.Version(v) == 0);
}

TEST_CASE("an operation that a naive operation pushes runs after it, with any dependencies") {
  NaiveEngine engine;
  const Var v = engine.NewVar();
  std::string log;
  engine.Push(
      [&] {
        engine.Push([&] { log += 'b'; }, {}, {});
        engine.Push([&] { log += 'c'; }, {v}, {});
        log += 'a';
      },
      {}, {v});
  CHECK(log == "abc");
}

TEST_CASE(
    "an operation on a stream that pushes more work there, or completes some, waits for none") {
  Watchdog watchdog;
  Engine engine({.naive = true});
  const opkit::PushOptions on_stream = {.device = opkit::Device{opkit::DeviceType::kCPUStream}};
  const Var v = engine.NewVar();
  Handles handles;
  std::string log;
  engine.PushAsync(handles.Keep(), {}, {v});
  engine.Push([&] { log += 'c'; }, {v}, {}, on_stream);
  engine.Push(
      [&] {
        engine.Push([&] { log += 'b'; }, {}, {}, on_stream);
        handles.Await().SetFinished();
        log += 'a';
      },
      {}, {}, on_stream);
  engine.WaitForAll();
  CHECK((log == "abc" || log == "acb"));
}

TEST_CASE("operations behind an asynchronous one run on the completing thread, in push order") {
  NaiveEngine engine;
  const Var v = engine.NewVar(), w = engine.NewVar();
  Handles handles;
  std::string log;
  engine.PushAsync(handles.Keep(), {}, {v});
  engine.Push([&] { log += 'a'; }, {v}, {w});
  engine.Push([&] { log += 'b'; }, {w}, {});
  engine.Push([&] { log += 'c'; }, {v}, {});
  engine.Push([&] { log += 'x'; }, {}, {});
  CHECK(log == "x");
  handles.Await().SetFinished();
  CHECK(log == "xabc");
}

TEST_CASE("a naive engine inside an operation of another one runs its own at once") {
  NaiveEngine outer, inner;
  std::string log;
  outer.Push(
      [&] {
        outer.Push([&] { log += 'c'; }, {}, {});
        inner.Push([&] { log += 'a'; }, {}, {});
        log += 'b';
      },
      {}, {});
  CHECK(log == "abc");
}

TEST_CASE("OPKIT_ENGINE chooses for every engine of the program, and must be known") {
  {
    Environment naive("naive");
    CHECK(Engine({.threads = 2}).naive());
    CHECK(Engine().naive());
  }
  {
    Environment threaded("threaded");
    CHECK_FALSE(Engine().naive());
    CHECK(NaiveEngine().naive());
  }
  CHECK_FALSE(Engine().naive());
  Environment wrong("fast");
  const Error error = ErrorOf([] { Engine engine; });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "expected the environment variable OPKIT_ENGINE to be naive or threaded, found \"fast\"; "
        "correct it or unset it");
}

}  // namespace
}  // namespace engine_naive_test
