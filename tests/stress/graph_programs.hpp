// Random graphs under several executors at once, with changing shapes, cancels, deadlines and
// failures; and operators called by name. A run gives the results of plain loops over vectors, or
// fails with an Error that names an injected failure, a cancel or a deadline.
#ifndef OPKIT_TESTS_STRESS_GRAPH_PROGRAMS_HPP_
#define OPKIT_TESTS_STRESS_GRAPH_PROGRAMS_HPP_

#include <map>
#include <thread>

#include "opkit/graph/executor.hpp"
#include "opkit/graph/passes.hpp"
#include "stress_ops.hpp"

namespace graph_programs {

using namespace opkit;
using Values = std::vector<int64_t>;

inline Tensor TensorOf(const Values& values) {
  return Tensor::From<int64_t>({std::ssize(values)}, values);
}
inline Values RandomValues(Random& random, int64_t count) {
  Values out(detail::Index(count));
  for (int64_t& value : out) value = static_cast<int64_t>(random.Next());
  return out;
}

// How a call ended: with its result, or with an Error that it may end with.
template <class F>
bool Done(F&& call, bool may_be_ended) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    const bool ended =
        error.code() == ErrorCode::kCancelled || error.code() == ErrorCode::kDeadlineExceeded;
    const bool faulty = g_operator_faults != 0 || g_memory_faults != 0;
    Require((ended && may_be_ended) || (faulty && IsInjected(error)),
            std::string("an unexpected Error: ") + error.what());
    return false;
  } catch (const std::bad_alloc&) {
    Require(g_memory_faults != 0, "memory ran out, and nothing injected that");
    return false;
  }
}

// A graph, inputs of several shapes for it, and its outputs.
class RandomCase {
 public:
  explicit RandomCase(Random& random) : random_(random) {
    for (int64_t count : {1 + random.Below(4), 16 + random.Below(64), 300})
      sets_.emplace_back().count = count;
    const int inputs = random.Between(1, 3);
    for (int i = 0; i < inputs; ++i) {
      graph_.AddInput(StrCat("x", i), DType::kInt64, {Sym("N")});
      for (Set& set : sets_) set.inputs.push_back(RandomValues(random, set.count));
      AddValue(StrCat("x", i), [i](const Set& set) { return set.inputs[detail::Index(i)]; });
    }
    const Values constant = RandomValues(random, 5);
    graph_.AddConstant("w", TensorOf(constant));
    for (Set& set : sets_) set.values["w"] = constant;
    const int nodes = 1 << random.Between(1, 8);
    const int columns = random.Between(1, 12);
    synchronous_ = random.OneIn(3);
    const int shape = random.Below(3);  // a chain, a grid, any
    for (int i = 0; i < nodes; ++i) {
      std::vector<std::string> reads = {Earlier(shape == 2 ? 0 : 1)};
      if (shape == 1) reads.push_back(Earlier(columns));
      for (int more = shape == 2 ? random.Below(4) : 0; more > 0; --more)
        reads.push_back(random.OneIn(6) ? "w" : Earlier(0));
      AddNode(i, reads);
    }
    for (const std::string& name : names_)
      if (name[0] == 'v' && (name == names_.back() || random.OneIn(nodes / 4 + 1)))
        graph_.AddOutput(name);
  }

  struct Set {
    int64_t count = 0;
    std::vector<Values> inputs;
    std::map<std::string, Values> values;  // of all names of the graph
    std::vector<NamedTensor> tensors;
  };
  const Graph& graph() const { return graph_; }
  bool synchronous() const { return synchronous_; }  // every node has run when it returns
  // Before failures are injected.
  std::vector<Set>& sets() {
    for (Set& set : sets_)
      for (size_t i = 0; i < set.inputs.size(); ++i)
        set.tensors.push_back({StrCat("x", i), TensorOf(set.inputs[i])});
    return sets_;
  }
  static void Check(const NamedTensors& outputs, const Set& set) {
    for (const auto& [name, tensor] : outputs)
      Require(tensor.ToVector<int64_t>() == set.values.at(name),
              "output " + name + " is another one than that of plain loops");
  }

 private:
  template <class F>
  void AddValue(const std::string& name, F make) {
    names_.push_back(name);
    for (Set& set : sets_) set.values[name] = make(set);
  }
  // The `back`-th last value, or any.
  const std::string& Earlier(int back) {
    const int count = static_cast<int>(names_.size());
    return names_[detail::Index(back > 0 ? std::max(count - back, 0) : random_.Below(count))];
  }
  void AddNode(int i, const std::vector<std::string>& reads) {
    static constexpr const char* kTypes[] = {"StressMix",   "StressMix",    "StressMix",
                                             "StressSplit", "StressInvoke", "StressLater"};
    const std::string type = kTypes[random_.Below(synchronous_ ? 5 : 6)];
    const int64_t salt = random_.Below(1000);
    const int outputs = type == "StressSplit" ? 2 : 1;
    OperatorDef def(type, reads, {}, {{"salt", salt}});
    def.Name(StrCat("n", i));
    if ((type == "StressMix" || type == "StressSplit") && !synchronous_ && random_.OneIn(3))
      def.Device(DeviceType::kCPUStream);
    if (i > 0 && random_.OneIn(10)) def.ControlInput(StrCat("n", random_.Below(i)));
    for (int o = 0; o < outputs; ++o) {
      const std::string name = StrCat("v", i, "_", o);
      def.Output(name);
      AddValue(name, [&](const Set& set) {
        std::vector<const Values*> inputs;
        for (const std::string& read : reads) inputs.push_back(&set.values.at(read));
        return stress_ops::Expected(inputs, salt, o);
      });
    }
    graph_.AddNode(std::move(def));
  }

  Random& random_;
  bool synchronous_ = false;
  Graph graph_;
  std::vector<std::string> names_;
  std::vector<Set> sets_;
};

class ExecutorProgram {
 public:
  explicit ExecutorProgram(Random random) : random_(random), case_(random_), sets_(case_.sets()) {}

  void Run(int most_threads) {
    const bool faulty = random_.OneIn(2);
    const int chance = 20 + 2 * case_.graph().num_nodes();
    std::optional<Plan> shared;
    if (random_.OneIn(2)) shared = Compile(case_.graph(), Options(random_, most_threads));
    const Faults faults(faulty ? chance : 0, faulty ? chance * random_.Between(1, 4) : 0);
    std::vector<std::thread> threads;
    for (int i = random_.Between(1, 4); i > 0; --i)
      threads.emplace_back([&, own = Random(random_.Next())]() mutable {
        Done(
            [&] {
              Use(shared ? *shared : Compile(case_.graph(), Options(own, most_threads)), own);
            },
            false);
      });
    for (std::thread& thread : threads) thread.join();
    while (ended_ < begun_) std::this_thread::yield();  // waiters are woken before callbacks
    Require(ended_ == begun_, "callbacks of asynchronous runs were called twice");
  }

 private:
  PlanOptions Options(Random& random, int most_threads) {
    PlanOptions options;
    options.threads = random.Below(most_threads + 1);
    options.schedule.deterministic = random.OneIn(4);
    constexpr ReplayMode kModes[] = {ReplayMode::kAuto, ReplayMode::kCounters, ReplayMode::kLevels,
                                     ReplayMode::kWalk};
    options.schedule.mode = kModes[random.Below(!case_.synchronous()             ? 2
                                                : options.schedule.deterministic ? 2
                                                                                 : 4)];
    options.memory.verify = true;
    options.memory.search.max_steps = 0;
    options.max_shapes = random.Between(1, 3);
    static const PassList none;
    if (random.OneIn(2)) options.passes = &none;
    return options;
  }

  void Use(const Plan& plan, Random& random) {
    Executor executor(plan);
    NamedTensors held;
    const RandomCase::Set* held_set = nullptr;
    for (int run = random.Between(1, 12); run > 0; --run) {
      const RandomCase::Set& set = sets_[detail::Index(random.Below(3))];
      Done([&] { RunOnce(executor, set, random, &held, &held_set); }, true);
      if (held_set) RandomCase::Check(held, *held_set);  // later runs write elsewhere
      for (const NamedTensor& input : set.tensors) executor.Bind(input.name, {});
    }
    if (!random.OneIn(4)) return;
    const RandomCase::Set& set = sets_[0];  // ended by the destructor
    for (const NamedTensor& input : set.tensors) executor.Bind(input.name, input.tensor);
    Done([&] { Start(executor); }, false);
  }
  // An asynchronous run whose end is counted.
  Event Start(Executor& executor) {
    Event done = executor.RunAsync();
    begun_.fetch_add(1);
    done.SetCallback([this] { ended_.fetch_add(1); });
    return done;
  }
  void RunOnce(Executor& executor, const RandomCase::Set& set, Random& random, NamedTensors* held,
               const RandomCase::Set** held_set) {
    const int how = random.Below(8);
    if (how > 1)
      for (const NamedTensor& input : set.tensors) executor.Bind(input.name, input.tensor);
    switch (how) {
      case 0:
        RandomCase::Check(executor.Run(set.tensors), set);
        break;
      case 1:
        *held_set = nullptr;
        *held = executor.Run(set.tensors);
        *held_set = &set;
        break;
      case 2:
      case 3:
        executor.Run();
        break;
      case 4:
        executor.Run(std::chrono::microseconds(random.Below(50)));
        break;
      case 5:
        Start(executor).Finish();
        break;
      case 6: {
        const Event done = Start(executor);
        executor.Cancel();
        done.Finish();
        break;
      }
      default: {
        std::thread other([&] { executor.Cancel(); });
        const bool ran = Done([&] { executor.Run(); }, true);
        other.join();
        if (!ran) return;
      }
    }
    if (how > 1) RandomCase::Check(executor.outputs(), set);
  }

  Random random_;
  RandomCase case_;
  std::vector<RandomCase::Set>& sets_;
  std::atomic<int> begun_{0}, ended_{0};
};

// Threads that call operators by name, and resolved ones of their own again and again.
class InvokeProgram {
 public:
  InvokeProgram(Random random, int calls) : random_(random), calls_(calls) {}

  void Run(int most_threads) {
    const Faults faults(random_.OneIn(2) ? 30 : 0, random_.OneIn(2) ? 60 : 0);
    std::vector<std::thread> threads;
    for (int i = random_.Between(1, most_threads); i > 0; --i)
      threads.emplace_back([this, own = Random(random_.Next())]() mutable {
        for (int call = 0; call < calls_ / 10; ++call) Done([&] { Call(own); }, false);
      });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static void Call(Random& random) {
    const int count = random.Between(1, 4);
    std::vector<Values> values;
    std::vector<Tensor> inputs;
    std::vector<const Values*> pointers;
    const int64_t size = random.Between(1, 40);
    for (int i = 0; i < count; ++i) values.push_back(RandomValues(random, size));
    for (const Values& value : values)
      inputs.push_back(TensorOf(value)), pointers.push_back(&value);
    const int64_t salt = random.Below(1000);
    static constexpr const char* kTypes[] = {"StressMix", "StressSplit", "StressInvoke",
                                             "StressLater"};
    const int type = random.Below(4);
    InvokeOptions options;
    if (type < 2 && random.OneIn(3)) options.device = Device{DeviceType::kCPUStream};
    const auto check = [&](const std::vector<Tensor>& outputs) {
      for (int o = 0; o < static_cast<int>(outputs.size()); ++o)
        Require(outputs[detail::Index(o)].ToVector<int64_t>() ==
                    stress_ops::Expected(pointers, salt, o),
                StrCat(kTypes[type], " called by name gives another result than plain loops"));
    };
    if (random.OneIn(2)) return check(Invoke(kTypes[type], inputs, {{"salt", salt}}, options));
    ResolvedOperator resolved(kTypes[type], count, {{"salt", salt}}, options);
    for (int again = 0; again < 4; ++again) Done([&] { check(resolved(inputs)); }, false);
  }

  Random random_;
  const int calls_;
};

}  // namespace graph_programs

#endif  // OPKIT_TESTS_STRESS_GRAPH_PROGRAMS_HPP_
