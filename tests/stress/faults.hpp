// Failures injected at random into allocation, operators and callbacks, and the books of what ran.
#ifndef OPKIT_TESTS_STRESS_FAULTS_HPP_
#define OPKIT_TESTS_STRESS_FAULTS_HPP_

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include "opkit/base/error.hpp"
#include "opkit/core/allocator.hpp"
#include "opkit/device/cpu_stream.hpp"

// The program's only way to say that the toolkit is wrong: the seed that shows it, and what it is.
inline std::atomic<uint64_t> g_seed{0};
inline std::atomic<const char*> g_doing{"nothing"};
inline std::string g_details;  // of the program that runs, set while it has no threads
inline void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr,
               "%s\nstress: %s: %s\nit is shown again by: stress --programs 1 --seed %llu\n",
               g_details.c_str(), g_doing.load(), what.c_str(),
               static_cast<unsigned long long>(g_seed.load()));
  std::abort();
}

// Splitmix64. A value: its copies go on alike.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, count).
  int Below(int count) { return static_cast<int>(Next() % static_cast<uint64_t>(count)); }
  // In [low, high].
  int Between(int low, int high) { return low + Below(high - low + 1); }
  bool OneIn(int count) { return Below(count) == 0; }

 private:
  uint64_t state_;
};

// Operators and closures that have run; the unit that a stress run is measured in.
inline std::atomic<int64_t> g_operators{0};
inline void CountOperator() {
  g_operators.fetch_add(1, std::memory_order_relaxed);  // only counted
}

// The chances of a failure, in one of so many; 0: none. Which call fails depends on the order of
// threads, and what is checked does not.
inline std::atomic<int> g_operator_faults{0}, g_memory_faults{0};
struct Faults {
  Faults(int operators, int memory) {
    g_operator_faults = operators;
    g_memory_faults = memory;
  }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
  ~Faults() { g_operator_faults = g_memory_faults = 0; }
};
inline bool Fails(const std::atomic<int>& faults) {
  const int one_in = faults.load(std::memory_order_relaxed);  // set before threads start
  if (one_in == 0) return false;
  static std::atomic<uint64_t> calls{0};
  const uint64_t call = calls.fetch_add(1, std::memory_order_relaxed);  // each call another number
  return Random(call ^ g_seed.load(std::memory_order_relaxed)).OneIn(one_in);
}

// Throws what an author's code may throw.
[[noreturn]] inline void ThrowInjected(uint64_t which) {
  switch (which % 4) {
    case 0:
      opkit::Throw(opkit::ErrorCode::kInvalidArgument, "injected as an Error");
    case 1:
      throw std::runtime_error("injected as a std::exception");
    case 2:
      throw std::bad_alloc();
    default:
      throw 7;
  }
}
inline void MayFail(uint64_t which) {
  if (Fails(g_operator_faults)) ThrowInjected(which);
}

// True if the exception is an Error about an injected failure, in itself or as its cause.
inline bool IsInjected(const opkit::Error& error) {
  if (error.code() == opkit::ErrorCode::kOutOfMemory) return true;
  if (std::string(error.what()).find("injected") != std::string::npos) return true;
  if (!error.cause()) return false;
  try {
    std::rethrow_exception(error.cause());
  } catch (int number) {
    return number == 7;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Has no memory at random, and throws at random instead of saying so.
class FaultyAllocator final : public opkit::Allocator {
 public:
  const char* name() const override { return "faulty"; }

 protected:
  void* DoAllocate(int64_t bytes) override {
    if (Fails(g_memory_faults)) {
      if (bytes % 128 == 0) throw std::bad_alloc();
      return nullptr;
    }
    return ::operator new(static_cast<size_t>(bytes), std::align_val_t{opkit::kAlignment});
  }
  void DoDeallocate(void* data, int64_t) noexcept override {
    ::operator delete(data, std::align_val_t{opkit::kAlignment});
  }
};

// Returns when the CPU's streams have run all that was issued.
inline void DrainStreams() {
  const opkit::Device device{opkit::DeviceType::kCPUStream, 0};
  for (int round = 0; round < 2; ++round) {  // one stream's work may issue on another
    for (int id = 0; id < 64; ++id) {
      opkit::detail::CPUStream* stream = opkit::detail::CPUStream::Find(device, id);
      if (!stream) continue;
      opkit::Event end(device);
      stream->Record(end);
      end.state()->Wait({});
    }
  }
}

#endif  // OPKIT_TESTS_STRESS_FAULTS_HPP_
