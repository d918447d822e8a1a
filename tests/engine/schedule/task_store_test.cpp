#include "opkit/engine/schedule/task_store.hpp"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace task_store_test { namespace {

using opkit::detail::TaskRecord;
using opkit::detail::TaskStore;

TEST_CASE("a small trivial function lies in its record, and outlives the store") {
  int calls = 0, bytes = -1;
  TaskRecord record;
  {
    TaskStore store;
    record = store.Store([&calls] { ++calls; }, &bytes);
  }
  CHECK(bytes == sizeof(void*));
  record.call(record.bytes);
  TaskRecord copy = record;
  copy.call(copy.bytes);
  CHECK(calls == 2);
}

TEST_CASE("a function without state uses no bytes") {
  TaskStore store;
  int bytes = -1;
  TaskRecord record = store.Store([] {}, &bytes);
  CHECK(bytes == 0);
  record.call(record.bytes);
}

TEST_CASE("other functions are owned, called in place and destroyed once, the last one first") {
  std::string ended;
  struct Task {
    Task(std::string& its_ended, char its_name) : ended(&its_ended), name(its_name) {}
    Task(Task&& other) noexcept : ended(std::exchange(other.ended, nullptr)), name(other.name) {}
    ~Task() {
      if (ended) *ended += name;
    }
    void operator()() { ++calls; }
    std::string* ended;
    char name;
    int calls = 0;
  };
  {
    TaskStore store;
    int bytes = 0;
    for (const char name : {'a', 'b', 'c'}) {
      TaskRecord record = store.Store(Task(ended, name), &bytes);
      CHECK(bytes == sizeof(void*));
      record.call(record.bytes);
    }
    CHECK(ended.empty());
  }
  CHECK(ended == "cba");
}

TEST_CASE("functions of any size and alignment lie where they may, and keep their bytes") {
  TaskStore store;
  int bytes = 0;
  int64_t sum = 0;
  std::vector<TaskRecord> records;
  for (int64_t i = 0; i < 300; ++i) {
    struct alignas(256) Wide {
      std::array<int64_t, 40> numbers;
    };
    Wide wide{};
    wide.numbers[39] = i;
    records.push_back(store.Store(
        [wide, &sum] {
          if (reinterpret_cast<uintptr_t>(&wide) % 256 == 0) sum += wide.numbers[39];
        },
        &bytes));
    std::array<int64_t, 2000> large{};
    large[1999] = 1000 * i;
    records.push_back(store.Store([large, &sum] { sum += large[1999]; }, &bytes));
    records.push_back(
        store.Store([small = std::make_unique<int64_t>(i), &sum] { sum += *small; }, &bytes));
  }
  for (TaskRecord& record : records) record.call(record.bytes);
  CHECK(sum == 1002 * 299 * 300 / 2);
}

}  // namespace
}  // namespace task_store_test
