// Random programs of an Engine. Those of one pusher are compared with a serial model, failures
// included; in those of many pushers every closure ends once, alone on what it writes.
#ifndef OPKIT_TESTS_STRESS_ENGINE_PROGRAMS_HPP_
#define OPKIT_TESTS_STRESS_ENGINE_PROGRAMS_HPP_

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "faults.hpp"
#include "opkit/device/cpu_stream.hpp"
#include "opkit/device/event.hpp"
#include "opkit/engine/engine.hpp"

namespace engine_programs {

using opkit::Completion;
using opkit::Device;
using opkit::DeviceType;
using opkit::Engine;
using opkit::Event;
using opkit::PushOptions;
using opkit::Var;

inline opkit::EngineOptions RandomEngine(Random& random, int most_threads) {
  return {.threads = random.Between(0, most_threads), .naive = random.OneIn(8)};
}

// A failure of an operation of the model.
struct Failure {
  int op;
};

// The number of the failed operation that a wait reports; -1 for no failure.
template <class F>
int Told(F&& wait) {
  try {
    wait();
    return -1;
  } catch (const Failure& failure) {
    return failure.op;
  } catch (const opkit::Error& error) {
    const std::string text = error.what();
    const size_t at = text.find("injected ");
    Require(at != text.npos, "a wait tells of a failure that nothing injected: " + text);
    return std::atoi(text.c_str() + at + 9);
  }
}

// Bytes that end with their closure, wherever it ends.
class Token {
 public:
  explicit Token(std::atomic<int>* alive) : alive_(alive) { alive_->fetch_add(1); }
  Token(Token&& other) noexcept : alive_(std::exchange(other.alive_, nullptr)) {}
  Token& operator=(Token&&) = delete;
  ~Token() {
    if (alive_) alive_->fetch_sub(1);
  }

 private:
  std::atomic<int>* alive_;
};

// A program with one pusher: the order of pushes decides which operations run, which values the
// cells hold and which failure a wait reports.
class ModelProgram {
 public:
  ModelProgram(Random random, int operations)
      : random_(random), operations_(operations), cells_(Index(random_.Between(2, 24))) {}

  void Run(int most_threads) {
    {
      Engine engine(RandomEngine(random_, most_threads));
      for (Cell& cell : cells_) cell.var = engine.NewVar();
      for (int op = 0; op < operations_; ++op) {
        if (random_.OneIn(40)) WaitForOne(engine);
        if (random_.OneIn(60)) Replace(engine);
        Push(engine, op);
      }
      for (size_t cell = 0; cell < cells_.size(); ++cell) WaitFor(engine, cell);
      // WaitForAll reports the first pushed failure that no Var holds.
      Require(Told([&] { engine.WaitForAll(); }) == unheld_, "WaitForAll tells of another failure");
      for (const Cell& cell : cells_) {
        Require(cell.value == cell.expected, "a cell holds another value than after serial pushes");
        Require(engine.Version(cell.var) == cell.writes, "a Var has another number of writes");
      }
    }
    Require(ran_ == expected_ran_, "another number of operations ran than after serial pushes");
    Require(alive_ == 0, "closures were left");
  }

 private:
  struct Cell {
    Var var;
    uint64_t value = 0, expected = 0;  // `value` is guarded by the Var
    int failed = -1;                   // in the model: the operation whose failure it holds
    uint64_t writes = 0;
  };
  static size_t Index(int i) { return static_cast<size_t>(i); }

  void Push(Engine& engine, int op) {
    std::vector<size_t> reads, writes;
    int reason = -1;  // at most one failed Var: with two, either failure may be the reported one
    for (size_t cell = 0; cell < cells_.size(); ++cell) {
      const int draw = random_.Below(static_cast<int>(cells_.size())), failed = cells_[cell].failed;
      if (draw > 2 || (failed >= 0 && reason >= 0 && failed != reason)) continue;
      reason = std::max(reason, failed);
      (draw == 0 ? writes : reads).push_back(cell);
    }
    const bool fails = random_.OneIn(30);
    const int how = random_.Below(8);
    PushOptions options;
    options.priority = random_.Below(5);
    options.update = random_.OneIn(3);
    if (random_.OneIn(5)) options.device = Device{DeviceType::kCPUStream};
    if (random_.OneIn(5)) options.kind = opkit::OpKind::kCopy;

    std::vector<Var> read_vars, write_vars;
    for (const size_t cell : reads) read_vars.push_back(cells_[cell].var);
    for (const size_t cell : writes) write_vars.push_back(cells_[cell].var);
    Predict(op, reads, writes, options.update, fails);
    auto body = [this, op, reads, writes, fails, token = Token(&alive_)] {
      CountOperator();
      ran_.fetch_add(1);
      if (fails && op % 2 == 0) throw Failure{op};
      if (fails) opkit::Throw(opkit::ErrorCode::kInvalidArgument, "injected ", op);
      const uint64_t sum = Sum(reads, op, [&](size_t cell) { return cells_[cell].value; });
      for (const size_t cell : writes) cells_[cell].value = cells_[cell].value * 31 + sum;
    };
    if (how < 2 && options.device == Device{})
      PushLater(engine, std::move(body), read_vars, write_vars, options, how == 0);
    else
      engine.Push(std::move(body), read_vars, write_vars, options);
  }
  // Completed on a stream of the CPU, or before it returns.
  template <class F>
  static void PushLater(Engine& engine, F body, const std::vector<Var>& reads,
                        const std::vector<Var>& writes, const PushOptions& options,
                        bool on_stream) {
    engine.PushAsync(
        [body = std::make_shared<F>(std::move(body)), on_stream](Completion done) mutable {
          auto run = [body = std::move(body), done = std::move(done)]() mutable {
            std::exception_ptr failure;
            try {
              (*body)();
            } catch (...) {
              failure = std::current_exception();
            }
            body.reset();
            done.SetFinishedWithException(failure);
          };
          if (on_stream)
            opkit::detail::CPUStream::Get({DeviceType::kCPUStream, 0}, 7).Launch(std::move(run));
          else
            run();
        },
        reads, writes, options);
  }
  template <class F>
  static uint64_t Sum(const std::vector<size_t>& reads, int op, F value) {
    uint64_t sum = static_cast<uint64_t>(op);
    for (const size_t cell : reads) sum = sum * 7 + value(cell);
    return sum;
  }
  void Predict(int op, const std::vector<size_t>& reads, const std::vector<size_t>& writes,
               bool update, bool fails) {
    int reason = -1;
    for (const size_t cell : reads) reason = std::max(reason, cells_[cell].failed);
    for (const size_t cell : writes)
      if (update) reason = std::max(reason, cells_[cell].failed);
    const bool runs = reason < 0;
    expected_ran_ += runs;
    if (fails && runs) reason = op;
    if (reason == op && writes.empty() && unheld_ < 0) unheld_ = op;
    const uint64_t sum = Sum(reads, op, [&](size_t cell) { return cells_[cell].expected; });
    for (const size_t cell : writes) {
      Cell& at = cells_[cell];
      ++at.writes;
      at.failed = reason;
      if (reason < 0) at.expected = at.expected * 31 + sum;
    }
  }
  void WaitForOne(Engine& engine) {
    WaitFor(engine, Index(random_.Below(static_cast<int>(cells_.size()))));
  }
  void WaitFor(Engine& engine, size_t cell) {
    const int told = Told([&] { engine.WaitForVar(cells_[cell].var); });
    Require(told == cells_[cell].failed, "a wait tells of failure " + std::to_string(told) +
                                             " instead of " + std::to_string(cells_[cell].failed));
    if (told < 0) return;
    for (Cell& other : cells_)
      if (other.failed == told) other.failed = -1;
    Require(cells_[cell].value == cells_[cell].expected, "a failed operation has written");
  }
  void Replace(Engine& engine) {
    const size_t place = Index(random_.Below(static_cast<int>(cells_.size())));
    WaitFor(engine, place);
    Cell& cell = cells_[place];
    engine.Push([] {}, {}, {cell.var});  // behind all that reads it
    engine.WaitForVar(cell.var);
    engine.DeleteVar(cell.var);
    cell.var = engine.NewVar();
    cell.writes = 0;
  }

  Random random_;
  const int operations_;
  std::vector<Cell> cells_;
  int unheld_ = -1;  // the first failure that no Var has ever held
  int expected_ran_ = 0;
  std::atomic<int> ran_{0}, alive_{0};
};

// Many pushers over the same Vars, which they delete and make, with pushes inside operations,
// failures, cancels, events and their callbacks.
class CrowdProgram {
 public:
  CrowdProgram(Random random, int operations)
      : random_(random),
        operations_(operations),
        cancels_(random_.OneIn(3)),
        later_(!random_.OneIn(3)),
        slots_(static_cast<size_t>(random_.Between(1, 12))) {}

  void Run(int most_threads) {
    const Faults faults(random_.OneIn(3) ? 0 : 40, 0);
    const int pushers = random_.Between(1, 4);
    {
      Engine engine(RandomEngine(random_, most_threads));
      for (CellPtr& slot : slots_) slot = std::make_shared<Cell>(engine.NewVar());
      std::vector<std::thread> threads;
      for (int i = 0; i < pushers; ++i)
        threads.emplace_back([this, &engine, own = Random(random_.Next()), pushers]() mutable {
          for (int op = 0; op < operations_ / pushers; ++op) Step(engine, own);
        });
      for (std::thread& thread : threads) thread.join();
      if (later_) {  // else the destructor waits
        Expected([&] { engine.WaitForAll(); });
        Require(cancels_ || alive_ == 0, "WaitForAll returned before operations had ended");
      }
      while (cancels_ && alive_ > 0) {  // streams run what was cancelled, which pushes
        DrainStreams();
        Expected([&] { engine.WaitForAll(); });
      }
    }
    DrainStreams();  // the threads that complete events let go of them
    Require(alive_ == 0, "closures were left when the engine had ended");
    Require(ran_ <= pushed_, "operations ran twice");
    Require(called_ == events_, "callbacks of events were lost, or called twice");
  }

 private:
  struct Cell {
    explicit Cell(Var its) : var(its) {}
    const Var var;
    std::atomic<int> readers{0}, writers{0};
  };
  using CellPtr = std::shared_ptr<Cell>;
  using Cells = std::vector<CellPtr>;

  // Runs a call in which a wait may throw: the exception of a closure, a cancellation, or the Error
  // of a Var that another thread has deleted.
  template <class F>
  static void Expected(F&& call) {
    try {
      call();
    } catch (...) {
      const opkit::Error error = opkit::CurrentError();
      Require(IsInjected(error) || error.code() == opkit::ErrorCode::kCancelled ||
                  error.code() == opkit::ErrorCode::kDeadlineExceeded ||
                  std::string(error.what()).find("DeleteVar") != std::string::npos,
              std::string("an unexpected failure: ") + error.what());
    }
  }

  void Step(Engine& engine, Random& random) {
    switch (random.Below(60)) {
      case 0:
        return Expected([&] { engine.WaitForVar(Draw(random)->var); });
      case 1:
        return Expected(
            [&] { engine.WaitForVar(Draw(random)->var, std::chrono::microseconds(10)); });
      case 2:
        return Replace(engine, random);
      case 3:
        return cancels_ ? engine.Cancel() : void();
      default:
        return Expected([&] { Push(engine, random, 2); });
    }
  }
  CellPtr Draw(Random& random) {
    const opkit::detail::MutexLock lock(mutex_);
    return slots_[static_cast<size_t>(random.Below(static_cast<int>(slots_.size())))];
  }
  void Replace(Engine& engine, Random& random) {
    CellPtr cell = std::make_shared<Cell>(engine.NewVar());
    {
      const opkit::detail::MutexLock lock(mutex_);
      slots_[static_cast<size_t>(random.Below(static_cast<int>(slots_.size())))].swap(cell);
    }
    engine.DeleteVar(cell->var);
  }

  void Push(Engine& engine, Random& random, int depth) {
    Cells reads, writes;
    std::vector<Var> read_vars, write_vars;
    {
      const opkit::detail::MutexLock lock(mutex_);
      for (const CellPtr& cell : slots_) {
        const int draw = random.Below(static_cast<int>(slots_.size()) + 2);
        if (draw == 0) writes.push_back(cell), write_vars.push_back(cell->var);
        if (draw == 1) reads.push_back(cell), read_vars.push_back(cell->var);
      }
    }
    PushOptions options;
    options.priority = random.Below(5);
    if (random.OneIn(6)) options.device = Device{DeviceType::kCPUStream};
    if (random.OneIn(6)) options.kind = opkit::OpKind::kCopy;
    const int how = random.Below(6);
    auto body = [this, &engine, reads = std::move(reads), writes = std::move(writes), depth,
                 own = Random(random.Next()),
                 token = Token(&alive_)]() mutable { Body(engine, reads, writes, own, depth); };
    pushed_.fetch_add(1);
    if (options.device != Device{} || how > 1 || !later_) {
      engine.Push(std::move(body), read_vars, write_vars, options);
    } else {
      engine.PushAsync(
          [this, how, body = std::make_shared<decltype(body)>(std::move(body))](
              Completion done) mutable { Later(how == 0, std::move(body), std::move(done)); },
          read_vars, write_vars, options);
    }
  }
  // Completed by a callback of an event, which a stream or this thread completes.
  template <class Body>
  void Later(bool on_stream, Body body, Completion done) {
    Event event{on_stream ? Device{DeviceType::kCPUStream} : Device{}};
    events_.fetch_add(1);
    event.SetCallback([this, state = event.state().get(), done = std::move(done)]() mutable {
      called_.fetch_add(1);
      done.SetFinishedWithException(state->exception());
    });
    auto run = [body = std::move(body)]() mutable {
      const Body own = std::move(body);  // ends before the event completes
      (*own)();
    };
    if (on_stream) {
      auto& stream = opkit::detail::CPUStream::Get({DeviceType::kCPUStream, 0}, 6);
      stream.Launch(std::move(run));
      return stream.Record(event);
    }
    try {
      run();
      event.SetFinished();
    } catch (...) {
      event.SetFinishedWithException(std::current_exception());
    }
  }
  void Body(Engine& engine, const Cells& reads, const Cells& writes, Random& random, int depth) {
    struct Inside {
      Inside(const Cells& r, const Cells& w, bool may_overlap) : reads(r), writes(w) {
        for (const CellPtr& cell : writes)
          Require((cell->writers.fetch_add(1) == 0 && cell->readers == 0) || may_overlap,
                  "an operation is not alone with what it writes");
        for (const CellPtr& cell : reads) {
          cell->readers.fetch_add(1);
          Require(cell->writers == 0 || may_overlap, "an operation reads what another one writes");
        }
      }
      ~Inside() {
        for (const CellPtr& cell : writes) cell->writers.fetch_sub(1);
        for (const CellPtr& cell : reads) cell->readers.fetch_sub(1);
      }
      const Cells &reads, &writes;
    };
    const Inside inside(reads, writes, cancels_);  // a cancelled one may still run on its stream
    CountOperator();
    ran_.fetch_add(1);
    if (depth > 0 && random.OneIn(10)) Push(engine, random, depth - 1);
    MayFail(random.Next());
  }

  Random random_;
  const int operations_;
  const bool cancels_, later_;  // with Cancel, with PushAsync
  opkit::detail::Mutex mutex_;
  Cells slots_;
  std::atomic<int> pushed_{0}, ran_{0}, alive_{0}, events_{0}, called_{0};
};

}  // namespace engine_programs

#endif  // OPKIT_TESTS_STRESS_ENGINE_PROGRAMS_HPP_
