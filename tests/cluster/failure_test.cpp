// Failures on one process while the others are anywhere in their runs: every process gets an Error
// that names the process and the cause, and none waits for ever.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

#include "cluster/local_runs.hpp"
#include "opkit/cluster/local.hpp"
#include "opkit/cluster/process_parts.hpp"
#include "opkit/graph.hpp"
#include "support/error_of.hpp"
#include "support/watchdog.hpp"

namespace failure_test { namespace {

using namespace opkit;

PlanOptions With(const CommunicatorPtr& communicator, int threads) {
  PlanOptions options = ::With(communicator);
  options.threads = threads;
  return options;
}
Tensor X() { return Tensor::From<float>({2}, {1, 2}); }
Tensor I(int64_t i) { return Tensor::From<int64_t>({1}, {i}); }

// Messages in both directions and collectives, around a Gather on each process, which fails for an
// index past the end. Each process reads all inputs.
Graph Busy(int processes) {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("i", DType::kInt64, {1});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"s0"}));
  std::string last = "s0";
  for (int p = 0; p < processes; ++p) {
    const std::string gathered = StrCat("g", p), sum = StrCat("t", p);
    graph.AddNode(OperatorDef("Gather", {"x", "i"}, {gathered}).Process(p));
    graph.AddNode(OperatorDef("Add", {last, gathered}, {sum}).Process((p + 1) % processes));
    last = sum;
  }
  graph.AddNode(OperatorDef("Neg", {last}, {"n"}));
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"n"}, {"y"}));
  return graph.AddOutput("y");
}
std::vector<NamedTensor> Inputs(int64_t i) { return {{"x", X()}, {"i", I(i)}}; }

TEST_CASE("an operator fails on any process of three, in any run") {
  const Watchdog watchdog(100);
  const Graph graph = Busy(3);
  for (const int threads : {1, 2, 8})
    for (int failing = 0; failing < 3; ++failing)
      for (int good_runs = 0; good_runs < 2; ++good_runs) {
        CAPTURE(threads);
        CAPTURE(failing);
        CAPTURE(good_runs);
        LocalCluster cluster(3);
        cluster.Run([&](const CommunicatorPtr& communicator) {
          const int p = communicator->process();
          Executor exec(Compile(graph, With(communicator, threads)));
          for (int run = 0; run < good_runs; ++run)
            CHECK(exec.Run(Inputs(1)).Get("y").numel() == 2);
          const Error error = ErrorOf([&] { exec.Run(Inputs(p == failing ? 7 : 1)); });
          CHECK(Contains(error.what(), "Gather"));
          CHECK(Contains(error.what(), "7"));
          // The node that fails, once, and no node that communicates.
          const std::string text = error.what(), node = "in operator Gather";
          CHECK(Contains(text, node));
          CHECK(text.find(node) == text.rfind(node));
          CHECK(!Contains(text, "opkit.cluster"));
          const std::string ended = StrCat("process ", failing, " ended the run");
          if (p != failing)
            CHECK(text.starts_with(ended));
          else
            CHECK(text.ends_with(StrCat("\n  on process ", p)));
          // Later runs say the same.
          const std::string later = ErrorOf([&] { exec.Run(Inputs(1)); }).what();
          CHECK(later.starts_with(
              StrCat("an earlier run of the plan failed; compile the graph again on every process ",
                     "to go on. ", ended)));
          CHECK(Contains(later, node));
          CHECK(!Contains(later, "opkit.cluster"));
          // All processes may compile again.
          Executor again(Compile(graph, With(communicator, threads)));
          CHECK(again.Run(Inputs(0)).Get("y").numel() == 2);
        });
      }
}

// A graph on two processes in which process 1 waits for process 0.
Graph Waiting() {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Neg", {"x"}, {"a"}).Process(0));
  graph.AddNode(OperatorDef("Exp", {"a"}, {"b"}).Process(1));
  return graph.AddOutput("b");
}

TEST_CASE("a run that is refused on one process before it begins ends on all") {
  const Watchdog watchdog(100);
  const std::pair<const char*, std::function<void(Executor&)>> attempts[] = {
      {"has no tensor",
       [](Executor& exec) {
         exec.Run({{"x", X()}});
       }},
      {"no input",
       [](Executor& exec) {
         exec.Run({{"z", X()}});
       }},
      {"int64",
       [](Executor& exec) {
         exec.Run({{"x", X()}, {"i", X()}});
       }},
      {"has no tensor", [](Executor& exec) { exec.Run(); }},
      {"has no tensor", [](Executor& exec) { exec.RunAsync().Finish(); }}};
  for (const auto& [message, attempt] : attempts) {
    CAPTURE(message);
    LocalCluster cluster(3);
    cluster.Run([&](const CommunicatorPtr& communicator) {
      const bool is_refused = communicator->process() == 1;
      Executor exec(Compile(Busy(3), With(communicator, 1)));
      const Error error = ErrorOf([&] {
        if (is_refused) return attempt(exec);
        exec.Run(Inputs(1));
      });
      CHECK(Contains(error.what(), message));
      if (!is_refused) CHECK(Contains(error.what(), "process 1 ended the run"));
      CHECK(Contains(ErrorOf([&] { exec.Run(Inputs(1)); }).what(), message));
    });
  }
}

TEST_CASE("an Error of a name says which process has it") {
  const Watchdog watchdog(60);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2}).AddInput("i", DType::kInt64, {1});
  graph.AddInput("unused", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("Gather", {"x", "i"}, {"a"}).Process(1));
  graph.AddNode(OperatorDef("Neg", {"x"}, {"b"}).Process(2));
  graph.AddOutput("a").AddOutput("b");
  LocalCluster(3).Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(graph, With(communicator, 1)));
    const auto message = [&](const char* name) {
      const Error error = ErrorOf([&] { exec.Bind(name, X()); });
      CHECK(error.code() == ErrorCode::kNotFound);
      return error.message();
    };
    switch (communicator->process()) {
      case 0:
        CHECK(message("x") ==
              "the part of process 0 has no input 'x', which the processes 1, 2 read");
        CHECK(message("i") == "the part of process 0 has no input 'i', which process 1 reads");
        CHECK(message("unused") ==
              "the part of process 0 has no input 'unused', which no process reads");
        CHECK(ErrorOf([&] { exec.output("b"); }).message() ==
              "the part of process 0 has no output 'b', which process 2 makes");
        break;
      case 1:
        CHECK(Contains(message("j"), "the graph has no input or output 'j' ("));
        break;
      default:
        CHECK(message("a") == "the part of process 2 has no output 'a', which process 1 makes");
    }
  });
}

TEST_CASE("a call during a run is refused, and the run goes on") {
  const Watchdog watchdog(60);
  LocalCluster cluster(2);
  std::atomic<bool> is_refused = false;
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Executor exec(Compile(Waiting(), With(communicator, 1)));
    if (communicator->process() == 1) {
      Event event = exec.RunAsync();
      CHECK(ErrorOf([&] { exec.Run(); }).code() == ErrorCode::kFailedPrecondition);
      is_refused = true;
      is_refused.notify_all();
      event.Finish();
      CHECK(exec.outputs().size() == 1);
    } else {
      is_refused.wait(false);
      exec.Run({{"x", X()}});
    }
  });
}

TEST_CASE("an executor does not run while another one runs the plan") {
  const Watchdog watchdog(60);
  LocalCluster cluster(2);
  std::atomic<bool> is_refused = false;
  cluster.Run([&](const CommunicatorPtr& communicator) {
    const Plan plan = Compile(Waiting(), With(communicator, 1));
    Executor first(plan), second(plan);
    for (Executor* exec : {&first, &second, &first}) exec->Run(InputsOf(*exec, {{"x", X()}}));
    if (communicator->process() == 1) {
      Event event = first.RunAsync();
      const Error error = ErrorOf([&] { second.Run(); });
      CHECK(error.code() == ErrorCode::kFailedPrecondition);
      CHECK(Contains(error.what(), "two executors of a plan of several processes run at once"));
      CHECK(Contains(ErrorOf([&] { event.Finish(); }).what(), "two executors of a plan"));
      is_refused = true;
      is_refused.notify_all();
    } else {
      is_refused.wait(false);
      CHECK(Contains(ErrorOf([&] {
                       first.Run({{"x", X()}});
                     }).what(),
                     "process 1 ended the run: two executors of a plan"));
    }
  });
}

TEST_CASE("a callback of a run's event starts the next run of the plan") {
  const Watchdog watchdog(60);
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"x"}, {"y"}));
  graph.AddOutput("y");
  for (int round = 0; round < 50; ++round)
    LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
      const Plan plan = Compile(graph, With(communicator, 1));
      Executor first(plan), second(plan);
      for (Executor* exec : {&first, &second}) exec->Bind("x", X());
      Event next;
      std::atomic<bool> is_called = false;
      first.RunAsync().SetCallback([&] {
        next = second.RunAsync();
        is_called = true;
        is_called.notify_all();
      });
      is_called.wait(false);
      next.Finish();
      CHECK(second.output("y").ToVector<float>() == std::vector<float>{2, 4});
    });
}

// Process 1 comes last to a barrier. So its thread also calls the callback of process 0.
TEST_CASE("a callback that a communication calls does not wait for a run") {
  LocalCluster cluster(2);
  const auto event = detail::MakeIntrusive<EventState>();
  int calls = 0;
  event->AddCallback([&] {
    ++calls;
    const CommunicatorPtr& own = cluster.communicator(0);
    const Error error = ErrorOf([&] { own->BeginRun(true); });
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(error.what(), "a callback of an event waits for a run of several processes"));
    own->BeginRun(false);
    own->EndRun();
  });
  for (int process = 0; process < 2; ++process) {
    CHECK(calls == 0);
    const auto barrier = detail::MakeIntrusive<Communication>(CommunicationPlan{}, "a barrier");
    barrier->Begin(process == 0 ? event : detail::IntrusivePtr<EventState>());
    cluster.communicator(process)->Start(barrier);
  }
  CHECK(calls == 1);
  cluster.communicator(0)->BeginRun(true);  // the callback has ended
}

TEST_CASE("a failed run of one process leaves its communicator whole") {
  LocalCluster cluster(1);
  const CommunicatorPtr& communicator = cluster.communicator(0);
  Executor exec(Compile(Waiting(), With(communicator, 1)));
  CHECK(Contains(ErrorOf([&] { exec.Run(); }).what(), "has no tensor"));
  CHECK(communicator->broken().empty());
}

TEST_CASE("Cancel, and a timeout, end a run that waits for another process") {
  const Watchdog watchdog(60);
  for (const int threads : {1, 2, 8})
    for (const bool cancels : {true, false}) {
      CAPTURE(threads);
      CAPTURE(cancels);
      LocalCluster cluster(2);
      std::atomic<bool> is_over = false;
      cluster.Run([&](const CommunicatorPtr& communicator) {
        Executor exec(Compile(Waiting(), With(communicator, threads)));
        if (communicator->process() == 1) {
          Error error = ErrorOf([&] {
            if (!cancels) return exec.Run({}, std::chrono::milliseconds(1)), void();
            Event event = exec.RunAsync();
            exec.Cancel();
            event.Finish();
          });
          CHECK(error.code() == (cancels ? ErrorCode::kCancelled : ErrorCode::kDeadlineExceeded));
          is_over = true;
          is_over.notify_all();
        } else {
          is_over.wait(false);
          const Error error = ErrorOf([&] { exec.Run({{"x", X()}}); });
          CHECK(Contains(error.what(), "process 1 ended the run"));
        }
      });
    }
}

TEST_CASE("an executor, or a plan that never ran, is destroyed while another process waits") {
  const Watchdog watchdog(60);
  for (const int threads : {1, 2, 8})
    for (const bool runs : {true, false}) {
      CAPTURE(threads);
      LocalCluster cluster(2);
      cluster.Run([&](const CommunicatorPtr& communicator) {
        std::optional<Plan> plan = Compile(Waiting(), With(communicator, threads));
        if (communicator->process() == 0) {
          if (runs) Executor(*plan).Run({{"x", X()}});
          plan.reset();
          return;
        }
        Executor exec(*plan);
        if (runs) exec.Run(std::vector<NamedTensor>{});
        const Error error = ErrorOf([&] { exec.Run(std::vector<NamedTensor>{}); });
        CHECK(Contains(error.what(), "process 0 has left"));
        CHECK(Contains(error.what(), "Recv"));
      });
    }
}

TEST_CASE("an executor is destroyed in its asynchronous run, which ends") {
  const Watchdog watchdog(60);
  for (const int threads : {1, 2, 8}) {
    LocalCluster cluster(2);
    cluster.Run([&](const CommunicatorPtr& communicator) {
      std::optional<Executor> exec(Compile(Waiting(), With(communicator, threads)));
      if (communicator->process() == 1) {
        const Event event = exec->RunAsync();
        exec.reset();
        CHECK(event.Query() >= EventStatus::kSuccess);  // it may have ended before
      } else {
        const Error error = ErrorOf([&] {
          for (;;) exec->Run({{"x", X()}});  // a run may succeed before
        });
        CHECK(Contains(error.what(), "process 1"));
      }
    });
  }
}

TEST_CASE("the caller's exception between runs ends the runs of the others") {
  const Watchdog watchdog(60);
  for (const bool is_early : {true, false}) {
    LocalCluster cluster(3);
    std::optional<Executor> kept;  // an executor that outlives the exception
    const auto body = [&](const CommunicatorPtr& communicator) {
      if (communicator->process() == 0 && is_early) throw std::runtime_error("the file is gone");
      const Plan plan = Compile(Busy(3), With(communicator, 1));
      if (communicator->process() == 0) {
        kept.emplace(plan);
        throw std::runtime_error("the file is gone");
      }
      Executor(plan).Run(Inputs(0));
    };
    std::string message;
    try {
      cluster.Run(body);
    } catch (const std::exception& error) {
      message = error.what();
    }
    CHECK(message == "the file is gone");
    // The cluster stays broken, and says so.
    for (int p = 0; p < 3; ++p)
      CHECK(Contains(ErrorOf([&] { Compile(Busy(3), With(cluster.communicator(p), 1)); }).what(),
                     "the file is gone"));
  }
}

TEST_CASE("processes that compile different graphs are told the first difference") {
  const Watchdog watchdog(60);
  LocalCluster cluster(3);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    Graph graph = Waiting();
    if (communicator->process() == 2) graph.AddOutput("a");
    const Error error = ErrorOf([&] { Compile(graph, With(communicator, 1)); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.what(), "process 0 has 'no more outputs', process 2 has 'output a'"));
    Executor exec(Compile(Waiting(), With(communicator, 1)));  // the next graph is the same
  });
}

TEST_CASE("a graph that constants change on one process is a difference") {
  const Watchdog watchdog(60);
  // The constant is the shape of `a`, which all processes reduce, or which crosses.
  const auto reduced = [](const std::vector<int64_t>& shape) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {12});
    graph.AddConstant("s", Tensor::From<int64_t>({2}, shape));
    graph.AddNode(OperatorDef("Reshape", {"x", "s"}, {"a"}));
    graph.AddNode(OperatorDef("opkit.cluster.AllReduce", {"a"}, {"y"}));
    return graph.AddOutput("y");
  };
  const auto crossing = [](const std::vector<int64_t>& shape) {
    Graph graph;
    graph.AddInput("x", DType::kFloat32, {12});
    graph.AddConstant("s", Tensor::From<int64_t>({2}, shape));
    graph.AddNode(OperatorDef("Reshape", {"x", "s"}, {"a"}).Process(1));
    graph.AddNode(OperatorDef("Neg", {"a"}, {"y"}).Process(0));
    return graph.AddOutput("y");
  };
  const auto error_of = [&](auto make, const std::vector<int64_t>& other, std::string expected) {
    LocalCluster cluster(2);
    cluster.Run([&](const CommunicatorPtr& communicator) {
      const bool is_other = communicator->process() == 1;
      const std::vector<int64_t> shape = is_other ? other : std::vector<int64_t>{3, 4};
      const Error error = ErrorOf([&] { Compile(make(shape), With(communicator, 1)); });
      CHECK(error.code() == ErrorCode::kInvalidArgument);
      CHECK(Contains(error.what(), "process 0 has 'value a float32"));
      CHECK(Contains(error.what(), expected));
    });
  };
  error_of(reduced, {2, 6}, "process 1 has 'value a float32");
  error_of(crossing, {2, 6}, "process 1 has 'value a float32");
  // A graph that is refused on one process is a difference too.
  error_of(reduced, {5, 5}, "process 1 has 'an Error: ");
}

TEST_CASE("Compile fails on one process after the graphs were compared") {
  const Watchdog watchdog(60);
  LocalCluster cluster(2);
  cluster.Run([&](const CommunicatorPtr& communicator) {
    PlanOptions options = With(communicator, 1);
    if (communicator->process() == 0) {
      options.threads = -5;
      CHECK(ErrorOf([&] { Compile(Waiting(), options); }).code() == ErrorCode::kInvalidArgument);
    } else {
      const Error error = ErrorOf([&] {
        Executor exec(Compile(Waiting(), options));
        exec.Run(std::vector<NamedTensor>{});
      });
      CHECK(Contains(error.what(), "process 0 ended the run"));
      CHECK(Contains(error.what(), "-5"));
    }
  });
}

TEST_CASE("a plan of several processes is not measured") {
  const Watchdog watchdog(60);
  LocalCluster(2).Run([&](const CommunicatorPtr& communicator) {
    PlanOptions options = With(communicator, 1);
    options.tuning.use = PlanOptions::TuningOptions::Use::kMeasure;
    const Error error = ErrorOf([&] { Compile(Waiting(), options); });
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(Contains(error.what(), "PlanOptions::tuning.use is kMeasure"));
  });
}

TEST_CASE("Compile ends when another process returns without it") {
  const Watchdog watchdog(60);
  LocalCluster cluster(3);
  for (const bool exchanges : {false, true})
    cluster.Run([&](const CommunicatorPtr& communicator) {
      if (communicator->process() == 1) return;
      const Error error = ErrorOf([&] {
        if (exchanges)
          communicator->Exchange("stale");
        else
          Compile(Waiting(), With(communicator, 1));
      });
      CHECK(error.code() == ErrorCode::kCancelled);
      CHECK(Contains(error.what(), "process 1 has returned"));
    });
  // The cluster is as before: the next texts are those of this round.
  cluster.Run([&](const CommunicatorPtr& communicator) {
    CHECK(communicator->Exchange(StrCat(communicator->process())) ==
          std::vector<std::string>{"0", "1", "2"});
    Executor exec(Compile(Busy(3), With(communicator, 1)));
    CHECK(exec.Run(Inputs(1)).Get("y").numel() == 2);
  });
}

TEST_CASE("communicators may be destroyed in any order") {
  const Watchdog watchdog(60);
  for (int order = 0; order < 6; ++order) {
    std::optional<LocalCluster> cluster(std::in_place, 3);
    std::vector<CommunicatorPtr> own;
    for (int p = 0; p < 3; ++p) own.push_back(cluster->communicator(p)->Duplicate());
    if (order % 2 == 0) cluster.reset();  // before or after those that were duplicated
    own[order % 3] = {};
    for (int p = 0; p < 3; ++p)
      if (own[p])
        CHECK(Contains(ErrorOf([&] { own[p]->Exchange("here"); }).what(),
                       StrCat("process ", order % 3, " has left")));
    own[(order + 1) % 3] = {};
  }
}

TEST_CASE("Exchange ends on a communicator that was broken before or meanwhile") {
  const Watchdog watchdog(60);
  for (int round = 0; round < 20; ++round) {
    LocalCluster cluster(2);
    std::thread waiter([&] {
      const Error error = ErrorOf([&] { cluster.communicator(1)->Exchange("here"); });
      CHECK(Contains(error.what(), "process 0 ended the run: no more"));
    });
    cluster.communicator(0)->Break("no more");
    CHECK(Contains(ErrorOf([&] { cluster.communicator(0)->Exchange("here"); }).what(), "no more"));
    waiter.join();
  }
}

// The communicator breaks while other threads start communications: each of them ends.
TEST_CASE("communications that start while the communicator breaks end") {
  const Watchdog watchdog(60);
  for (int round = 0; round < 300; ++round) {
    LocalCluster cluster(2);
    const CommunicatorPtr& communicator = cluster.communicator(0);
    std::thread breaker([&] { cluster.communicator(1)->Break("enough"); });
    for (int i = 0; i < 20; ++i) {
      CommunicationPlan plan;
      plan.kind = i % 2 ? CommunicationKind::kBarrier : CommunicationKind::kReceive;
      plan.process = 1;
      plan.channel = i % 2 ? -1 : 0;
      const auto communication = detail::MakeIntrusive<Communication>(plan, "a node");
      const auto event = detail::MakeIntrusive<EventState>();
      communication->Begin(event);
      try {
        communicator->Start(communication);
      } catch (const Error& error) {
        communication->Finish(std::current_exception());
      }
      if (i == 19) {
        breaker.join();
        CHECK(!communication->is_pending());
      }
    }
  }
}

}  // namespace
}  // namespace failure_test
