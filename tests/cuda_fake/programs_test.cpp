// Random programs of allocations, kernels, copies, events and frees on four devices and the host.
// Their results must equal those of the same program run serially, in every order in which CUDA may
// run the streams.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "fake_runtime.hpp"
#include "opkit/backends/cuda/dlpack.hpp"
#include "opkit/backends/cuda/parallel_for.hpp"
#include "support/sanitizers.hpp"

namespace programs_test {
using namespace opkit;

namespace {

constexpr int kElements = 8, kStreams = 2, kHostSlots = 4, kSlotsOfDevice = 3;
constexpr int kSlots = kHostSlots + fake::kDevices * kSlotsOfDevice;
using Values = std::array<int32_t, kElements>;

// Slots 0 and 1 are tensors on the host, 2 and 3 in pinned memory, the others on the devices.
Device DeviceOfSlot(int slot) {
  if (slot < 2) return {};
  if (slot < kHostSlots) return {DeviceType::kCUDAHost, 0};
  return {DeviceType::kCUDA, (slot - kHostSlots) / kSlotsOfDevice};
}
bool IsOnCUDA(int slot) { return slot >= kHostSlots; }

enum class Kind {
  kAllocate,
  kFree,
  kKernel,
  kPeer,
  kCopyAsync,
  kCopy,
  kCheck,
  kFinish,
  kCallback,
  kExport,
  kImport,
  kCount
};
constexpr const char* kNames[] = {"allocate",   "free",   "kernel", "peer kernel",
                                  "copy async", "copy",   "check",  "finish",
                                  "callback",   "export", "import"};
constexpr unsigned kWeights[] = {6, 3, 8, 3, 6, 3, 2, 1, 1, 1, 1};

// Reads slots a and b, writes slot c. An operation on an empty slot does nothing, so that a part of
// a program is a program.
struct Op {
  Kind kind;
  int a, b, c;
  int stream;
  int32_t value;
  bool fresh;    // the result has new memory
  bool in_run;   // an operator's run issues it
  bool foreign;  // on the program's own stream
  bool keeps;    // the event keeps the memory; else the program keeps it as long as it must
  bool moves;    // the context waits on another stream first
};
std::string ToString(const Op& op) {
  return StrCat(kNames[static_cast<int>(op.kind)], " ", op.a, ", ", op.b, " -> ", op.c, " stream ",
                op.stream, " value ", op.value, op.fresh ? " fresh" : "", op.in_run ? " run" : "",
                op.foreign ? " foreign" : "", op.keeps ? " keeps" : "", op.moves ? " moves" : "");
}

struct Random {
  uint64_t state;
  uint64_t Draw() {  // splitmix64
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int Below(int n) { return static_cast<int>(Draw() % static_cast<uint64_t>(n)); }
};

std::vector<Op> MakeProgram(uint64_t seed) {
  Random random{seed};
  unsigned all = 0;
  for (unsigned weight : kWeights) all += weight;
  // Few slots, so that operations meet.
  std::array<int, 6> slots;
  slots[0] = random.Below(kHostSlots);
  for (size_t i = 1; i < slots.size(); ++i)
    slots[i] = kHostSlots + random.Below(kSlots - kHostSlots);
  const auto slot = [&] { return slots[random.Draw() % slots.size()]; };
  std::vector<Op> ops;
  for (int taken : slots)
    ops.push_back({Kind::kAllocate, 0, 0, taken, 0, taken, true, true, false, true, false});
  const int count = 6 + random.Below(14);
  for (int i = 0; i < count; ++i) {
    auto at = static_cast<unsigned>(random.Draw() % all);
    int kind = 0;
    while (at >= kWeights[kind]) at -= kWeights[kind++];
    ops.push_back({static_cast<Kind>(kind), slot(), slot(), slot(), random.Below(kStreams),
                   random.Below(100), random.Below(2) == 0, random.Below(2) == 0,
                   random.Below(8) == 0, random.Below(2) == 0, random.Below(4) == 0});
  }
  return ops;
}

// A stream of the program for each device, which does not exist outside of its scopes. Each thread
// has its own.
cudaStream_t ForeignStream(int device) {
  thread_local cudaStream_t streams[fake::kDevices] = {};
  if (!streams[device]) {
    const CUDADeviceGuard guard(device);
    OPKIT_CUDA_CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
  } else {
    fake::SetDestroyed(streams[device], false);
  }
  return streams[device];
}

class Runner {
 public:
  // `schedule` is null if the streams run by themselves.
  explicit Runner(fake::Schedule* schedule) : schedule_(schedule) {
    for (int device = 0; device < fake::kDevices; ++device)
      for (int stream = 0; stream < kStreams; ++stream)
        contexts_.emplace_back(Device{DeviceType::kCUDA, device});
    for (CUDAContext& context : contexts_) context.SwitchToDevice(0);  // as in a new thread
  }

  // Returns what was wrong; empty if nothing was.
  std::string Run(const std::vector<Op>& ops) {
    for (const Op& op : ops) {
      const void* const before = At(op.c).tensor.raw_data();
      try {
        Do(op);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kOutOfMemory)
          return StrCat(ToString(op), ": ", error.what());
        if (At(op.c).live && At(op.c).tensor.raw_data() != before)
          return StrCat(ToString(op), ": changed its result without memory");
      }
      if (schedule_) schedule_->Advance();
      if (!wrong_.empty()) return StrCat("after ", ToString(op), ": ", wrong_);
    }
    for (int slot = 0; slot < kSlots; ++slot) {
      if (At(slot).live) Check(slot);
      Drop(slot);
    }
    if (schedule_) {
      schedule_->RunAll();
      if (wrong_.empty() && told_->called != asked_)
        wrong_ = StrCat(told_->called.load(), " callbacks ran of ", asked_);
    } else {
      fake::Await([&] { return told_->called == asked_; });
    }
    if (const int64_t bad = fake::bad_accesses(); std::exchange(bad_accesses_, bad) != bad)
      wrong_ = "a kernel or a copy used memory that was freed, or of a device without peer access";
    if (wrong_.empty() && told_->read_wrong) wrong_ = "another library read wrong values";
    return wrong_;
  }

 private:
  // Work that uses a slot.
  struct Use {
    Event event;
    CUDAStream* stream;  // null: of the program, which opkit does not wait for
  };
  struct Slot {
    bool live = false;
    Tensor tensor;
    Values expected{};
    std::optional<Use> writer;
    std::vector<Use> readers;
    CUDAStream* allocated = nullptr;  // null: for any stream, or on one of the program
    std::vector<Use> unkept;          // uses whose events do not keep the memory
    bool kept = false;                // an event keeps the memory
  };

  static size_t Index(int i) { return static_cast<size_t>(i); }
  Slot& At(int slot) { return slots_[Index(slot)]; }
  CUDAContext& ContextOf(int device, int stream) {
    return contexts_[Index(device * kStreams + stream)];
  }
  static int32_t* DataOf(const Tensor& tensor) {
    return static_cast<int32_t*>(tensor.raw_mutable_data());
  }
  static void HostWait(const Event& event) {
    while (event.Query() == EventStatus::kScheduled) std::this_thread::yield();
    event.Finish();
  }

  // Gives up the slot's tensor. The allocator waits for the stream of the allocation, and for the
  // current stream if no event releases the memory on another thread. The program waits for the
  // others.
  void Drop(int slot) {
    const CUDAStream* const current =
        IsOnCUDA(slot) && !At(slot).kept ? CUDAStream::Current(DeviceOfSlot(slot).index) : nullptr;
    for (const Use& use : At(slot).unkept)
      if (!use.stream || (use.stream != At(slot).allocated && use.stream != current))
        HostWait(use.event);
    At(slot) = {};
  }
  // Issues issue(context, result) on a stream of the device after everything that it depends on,
  // and notes its event.
  template <class F>
  void Issue(const Op& op, int device, std::initializer_list<int> reads, int write, F issue) {
    CUDAContext& context = ContextOf(device, op.stream);
    std::optional<CUDAStreamScope> scope;
    cudaStream_t foreign = nullptr;
    if (op.foreign) foreign = ForeignStream(device);
    struct Destroy {
      ~Destroy() {
        if (stream) fake::SetDestroyed(stream, true);
      }
      cudaStream_t stream;
    };
    const Destroy destroy{foreign};
    struct End {
      ~End() { scope.reset(); }
      std::optional<CUDAStreamScope>& scope;
    };
    const End end{scope};
    if (op.foreign) scope.emplace(Device{DeviceType::kCUDA, device}, foreign);
    const detail::IssueScope run(op.in_run);
    context.SwitchToDevice(op.moves ? (op.stream + 1) % kStreams : op.stream);
    const auto wait = [&](const Use& use) { context.WaitEvent(use.event); };
    for (int slot : reads)
      if (At(slot).writer) wait(*At(slot).writer);
    if (At(write).writer) wait(*At(write).writer);
    for (const Use& use : At(write).readers) wait(use);
    if (op.moves) context.SwitchToDevice(op.stream);
    Tensor result = At(write).tensor;
    issue(context, result);
    Event event(Device{DeviceType::kCUDA, device});
    if (op.value % 3 == 0) event.state()->DeferCompletion();
    if (op.keeps) {
      for (int slot : reads) event.state()->retained.push_back(At(slot).tensor.storage());
      event.state()->retained.push_back(result.storage());
    }
    context.Record(event);
    const Use use{event, op.foreign ? nullptr : &context.stream()};
    for (int slot : reads) {
      At(slot).readers.push_back(use);
      if (!op.keeps) At(slot).unkept.push_back(use);
      At(slot).kept |= op.keeps;
    }
    if (At(write).tensor.raw_data() != result.raw_data()) {
      // The program's own stream is the current one here.
      const bool reads_it = std::find(reads.begin(), reads.end(), write) != reads.end();
      if (reads_it && op.foreign && !At(write).kept) At(write).unkept.pop_back();
      Drop(write);
      const bool by_run = op.in_run && DeviceOfSlot(write) == context.device();
      At(write).allocated = by_run ? use.stream : nullptr;
    }
    At(write).tensor = std::move(result);
    At(write).writer = use;
    At(write).readers.clear();
    if (!op.keeps) At(write).unkept.push_back(use);
    At(write).kept |= op.keeps;
    At(write).live = true;
  }
  // Waits on the host for the uses of the slot that a Copy does not wait for by itself: it waits
  // for the current streams of the devices in `devices`.
  void WaitBeforeCopy(int slot, bool writes, std::initializer_list<int> devices) {
    const auto wait = [&](const Use& use) {
      for (int device : devices)
        if (use.stream && use.stream == CUDAStream::Current(device)) return;
      HostWait(use.event);
    };
    if (At(slot).writer) wait(*At(slot).writer);
    if (writes)
      for (const Use& use : At(slot).readers) wait(use);
  }
  Tensor NewTensor(int slot) { return Tensor({kElements}, DType::kInt32, DeviceOfSlot(slot)); }

  void Do(const Op& op) {
    switch (op.kind) {
      case Kind::kAllocate:
        if (!At(op.c).live) Allocate(op);
        break;
      case Kind::kFree:
        Drop(op.a);
        break;
      case Kind::kKernel:
      case Kind::kPeer:
        Kernel(op);
        break;
      case Kind::kCopyAsync:
        CopyOnStream(op);
        break;
      case Kind::kCopy:
        CopyNow(op);
        break;
      case Kind::kCheck:
        if (At(op.a).live) Check(op.a);
        break;
      case Kind::kFinish:
        if (IsOnCUDA(op.a))
          ContextOf(DeviceOfSlot(op.a).index, op.stream).FinishDeviceComputation();
        break;
      case Kind::kCallback:
        if (!At(op.a).writer) break;
        ++asked_;
        At(op.a).writer->event.SetCallback([told = told_] { ++told->called; });
        break;
      case Kind::kExport:
        Export(op);
        break;
      case Kind::kImport:
        Import(op);
        break;
      case Kind::kCount:
        break;
    }
  }

  void Allocate(const Op& op) {
    Values values;
    values.fill(op.value);
    if (!IsOnCUDA(op.c)) {
      At(op.c).tensor = NewTensor(op.c);
      std::memcpy(DataOf(At(op.c).tensor), values.data(), sizeof(values));
      At(op.c).live = true;
    } else {
      const Device device = DeviceOfSlot(op.c);
      Tensor before;
      if (!op.in_run) before = NewTensor(op.c);
      Issue(op, device.index, {}, op.c, [&](CUDAContext& context, Tensor& result) {
        result = op.in_run ? NewTensor(op.c) : before;
        int32_t* const to = DataOf(result);
        ParallelFor(context, kElements, [to, value = op.value, device = device.index](int64_t i) {
          if (fake::Use(device, to)) to[i] = value;
        });
      });
    }
    At(op.c).expected = values;
  }
  // c = 3 a + b + value, where c is on the device that computes, and b too.
  void Kernel(const Op& op) {
    if (!IsOnCUDA(op.a) || !IsOnCUDA(op.b) || !IsOnCUDA(op.c)) return;
    const Device device = DeviceOfSlot(op.c);
    int b = op.b;
    if (DeviceOfSlot(b) != device) b = op.c;
    if (!At(op.a).live || !At(b).live || !At(op.c).live) return;
    if (DeviceOfSlot(op.a) != device &&
        (op.kind != Kind::kPeer || !ConnectCUDADevices(device, DeviceOfSlot(op.a))))
      return;
    const Values &x = At(op.a).expected, &y = At(b).expected;
    Values expected;
    for (size_t i = 0; i < kElements; ++i) expected[i] = (3 * x[i] + y[i] + op.value) % 1'000'000;
    Issue(op, device.index, {op.a, b}, op.c, [&](CUDAContext& context, Tensor& result) {
      if (op.fresh) result = NewTensor(op.c);
      const int32_t *const of_a = DataOf(At(op.a).tensor), *const of_b = DataOf(At(b).tensor);
      int32_t* const to = DataOf(result);
      ParallelFor(context, kElements,
                  [of_a, of_b, to, value = op.value, device = device.index](int64_t i) {
                    if (fake::Use(device, of_a) && fake::Use(device, of_b) && fake::Use(device, to))
                      to[i] = (3 * of_a[i] + of_b[i] + value) % 1'000'000;
                  });
    });
    At(op.c).expected = expected;
  }
  void CopyOnStream(const Op& op) {
    if (op.a == op.c || !At(op.a).live || !(IsOnCUDA(op.a) || IsOnCUDA(op.c))) return;
    const int on = IsOnCUDA(op.c) && (op.value % 2 == 0 || !IsOnCUDA(op.a)) ? op.c : op.a;
    Issue(op, DeviceOfSlot(on).index, {op.a}, op.c, [&](CUDAContext& context, Tensor& result) {
      if (op.fresh || !result.initialized()) result = Tensor(DeviceOfSlot(op.c));
      CopyAsync(context, At(op.a).tensor, &result);
    });
    At(op.c).expected = At(op.a).expected;
  }
  void CopyNow(const Op& op) {
    if (op.a == op.c || !At(op.a).live) return;
    const int from = IsOnCUDA(op.a) ? DeviceOfSlot(op.a).index : -1;
    const int to = IsOnCUDA(op.c) ? DeviceOfSlot(op.c).index : -1;
    // From device to device it waits for both; between host memories for all that pinned memory may
    // be used by.
    const bool on_host = from < 0 && to < 0;
    for (const bool writes : {false, true}) {
      const int slot = writes ? op.c : op.a;
      if (on_host && DeviceOfSlot(op.a).type == DeviceType::kCPU &&
          DeviceOfSlot(op.c).type == DeviceType::kCPU)
        WaitBeforeCopy(slot, writes, {});
      else if (on_host)
        WaitBeforeCopy(slot, writes, {0, 1, 2, 3});
      else if (from >= 0 && to >= 0)
        WaitBeforeCopy(slot, writes, {from, to});
      else
        WaitBeforeCopy(slot, writes, {from >= 0 ? from : to});
    }
    Tensor target = op.fresh || !At(op.c).live ? Tensor(DeviceOfSlot(op.c)) : At(op.c).tensor;
    Copy(At(op.a).tensor, &target);
    if (target.raw_data() != At(op.c).tensor.raw_data()) Drop(op.c);
    At(op.c).tensor = std::move(target);
    At(op.c).expected = At(op.a).expected;
    At(op.c).writer.reset();
    At(op.c).readers.clear();
    At(op.c).live = true;
  }
  void Check(int slot) {
    WaitBeforeCopy(slot, false, {});
    Tensor copy;
    const Tensor* on_host = &At(slot).tensor;
    if (IsOnCUDA(slot)) {
      Copy(*on_host, &copy);
      on_host = &copy;
    }
    const auto* found = static_cast<const int32_t*>(on_host->raw_data());
    for (size_t i = 0; i < kElements; ++i)
      if (found[i] != At(slot).expected[i] && wrong_.empty())
        wrong_ = StrCat("element ", i, " of slot ", slot, " is ", found[i], ", expected ",
                        At(slot).expected[i]);
  }
  // Gives the slot to another library, which reads it on its stream and calls the deleter at once.
  void Export(const Op& op) {
    if (!IsOnCUDA(op.a) || !At(op.a).live) return;
    const int device = DeviceOfSlot(op.a).index;
    CUDAContext& context = ContextOf(device, op.stream);
    context.SwitchToDevice(op.stream);
    if (At(op.a).writer) context.WaitEvent(At(op.a).writer->event);
    const cudaStream_t consumer = ForeignStream(device);
    auto* managed = ToDLPackOnStream(At(op.a).tensor, consumer);
    const auto* data = static_cast<const int32_t*>(managed->dl_tensor.data);
    fake::Enqueue(consumer, [told = told_, data, expected = At(op.a).expected] {
      for (size_t i = 0; i < kElements; ++i)
        if (data[i] != expected[i]) told->read_wrong = true;
    });
    Drop(op.a);
    managed->deleter(managed);
    fake::SetDestroyed(consumer, true);
  }
  // Takes memory that another library writes on its stream.
  void Import(const Op& op) {
    if (!IsOnCUDA(op.c) || At(op.c).live) return;
    const int device = DeviceOfSlot(op.c).index;
    CUDAContext& context = ContextOf(device, op.stream);
    context.SwitchToDevice(op.stream);
    const Tensor theirs = NewTensor(op.c);
    const cudaStream_t producer = ForeignStream(device);
    fake::Enqueue(producer, [to = DataOf(theirs), value = op.value] {
      for (int i = 0; i < kElements; ++i) to[i] = value;
    });
    At(op.c).tensor = FromDLPackOnStream(ToDLPack(theirs), producer);
    fake::SetDestroyed(producer, true);
    Event event(Device{DeviceType::kCUDA, device});
    context.Record(event);
    At(op.c).writer = Use{event, &context.stream()};
    At(op.c).allocated = &context.stream();
    At(op.c).live = true;
    At(op.c).expected.fill(op.value);
  }

  fake::Schedule* const schedule_;
  int64_t bad_accesses_ = fake::bad_accesses();
  std::vector<CUDAContext> contexts_;
  std::array<Slot, kSlots> slots_;
  int asked_ = 0;  // callbacks
  // Written by other threads.
  struct Told {
    std::atomic<int> called{0};
    std::atomic<bool> read_wrong{false};
  };
  std::shared_ptr<Told> told_ = std::make_shared<Told>();
  std::string wrong_;
};

// Runs the operations in the order of streams that the seed draws. Every eighth program runs out of
// memory now and then.
std::string RunScheduled(uint64_t seed, const std::vector<Op>& ops) {
  fake::Schedule schedule(seed, seed % 8 == 0 ? 24 : 0,
                          [] { detail::CUDACompletions::Global().WaitUntilIdle(); });
  std::string wrong = Runner(&schedule).Run(ops);
  schedule.RunAll();
  const int64_t left = GetAllocator(DeviceType::kCUDA).live_bytes();
  if (wrong.empty() && left != 0) wrong = StrCat(left, " bytes of devices were not freed");
  return wrong;
}

// Returns the failure with the fewest operations that still fail.
std::string Shrunk(uint64_t seed, std::vector<Op> ops, std::string wrong) {
  for (size_t i = ops.size(); i-- > 0;) {
    std::vector<Op> fewer = ops;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (std::string still = RunScheduled(seed, fewer); !still.empty()) {
      ops = std::move(fewer);
      wrong = std::move(still);
    }
  }
  std::string out = StrCat("program ", seed, ": ", wrong, "; OPKIT_TEST_CUDA_PROGRAM=", seed,
                           " repeats it. Its operations:");
  for (const Op& op : ops) out += "\n  " + ToString(op);
  return out;
}

}  // namespace

TEST_CASE("random programs on four devices compute what they compute serially, in any order") {
  uint64_t first = 1, last = Rounds(uint64_t{100'000});
  if (const char* given = std::getenv("OPKIT_TEST_CUDA_PROGRAM"))
    first = last = std::strtoull(given, nullptr, 10);
  fake::Await([] { return GetAllocator(DeviceType::kCUDA).live_bytes() == 0; });
  for (uint64_t seed = first; seed <= last; ++seed) {
    INFO("program ", seed);  // in case it crashes
    const std::vector<Op> ops = MakeProgram(seed);
    const std::string wrong = RunScheduled(seed, ops);
    if (!wrong.empty()) FAIL(Shrunk(seed, ops, wrong));
  }
}

TEST_CASE("random programs on two threads compute the same on streams that run by themselves") {
  std::array<std::string, 2> wrong;
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < wrong.size(); ++thread)
      threads.emplace_back([&, thread] {
        for (uint64_t seed = thread; seed < Rounds(uint64_t{1000}) && wrong[thread].empty();
             seed += 2) {
          wrong[thread] = Runner(nullptr).Run(MakeProgram(seed));
          if (!wrong[thread].empty()) wrong[thread] = StrCat("program ", seed, ": ", wrong[thread]);
        }
      });
  }
  for (const std::string& of_thread : wrong) CHECK(of_thread == "");
}

}  // namespace programs_test
