// Libraries in a program: load, use their operators, unload, reload.

#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "library_fixture.hpp"
#include "opkit/graph.hpp"
#include "opkit/plugin.hpp"
#include "support/emulator.hpp"
#include "support/temporary_folder.hpp"

namespace library_test {
namespace {

using namespace opkit;
using namespace library_fixture;
namespace fs = std::filesystem;
constexpr DType kFloat = DType::kFloat32;

// The program's own operator, while it lives: y = 1 * x.
class OwnShared {
 public:
  OwnShared() {
    FunctionOpBuilder("LibShared", __FILE__, __LINE__)
        .setForward(
            [](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource&) {
              for (int64_t i = 0; i < in[0].size(); ++i)
                out[0].data<float>()[i] = in[0].data<float>()[i];
            })
        .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = in; });
  }
  OwnShared(const OwnShared&) = delete;
  OwnShared& operator=(const OwnShared&) = delete;
  ~OwnShared() { OpRegistry::Global().Remove("LibShared"); }
};

// The factor of the LibShared that is selected now.
float Factor(const std::string& engine = {}) {
  InvokeOptions options;
  options.backends = engine;
  options.num_outputs = 1;
  return Invoke("LibShared", {Vector({1})}, {}, options)[0].data<float>()[0];
}
LoadOptions Overriding() {
  LoadOptions options;
  options.allow_override = true;
  return options;
}
std::string UnloadError(Library& library) {
  const Error error = ErrorOf([&] { library.Unload(); });
  CHECK(error.code() == ErrorCode::kFailedPrecondition);
  return error.message();
}
Graph SharedGraph() {
  Graph g;
  g.AddInput("x", kFloat, {2});
  g.AddNode(OperatorDef("LibShared", {"x"}, {"a"}));
  g.AddNode(OperatorDef("LibShared", {"a"}, {"y"}));
  g.AddOutput("y");
  return g;
}

}  // namespace

TEST_CASE("a library lists its parts, and each operator has its library's name") {
  const std::string before = Registrations();
  Library library = Library::Load(PathOf("twice"));
  CHECK(library.name() == "libtwice.so");
  CHECK(library.path() == PathOf("twice"));
  CHECK(library.backend() == "twice");
  CHECK(library.version() == OPKIT_VERSION_STRING);
  CHECK(library.own_version().empty());
  CHECK(library.abi_version() == std::pair<uint32_t, uint32_t>(OPKIT_ABI_MAJOR, OPKIT_ABI_MINOR));
  CHECK(library.operators() == Strings{"LibShared", "LibRuns"});
  CHECK(library.is_loaded());
  CHECK(Library::All() == std::vector<Library>{library});
  const OpSchema& schema = OpRegistry::Global().GetSchema("LibShared");
  CHECK(schema.origin() == "libtwice.so");
  CHECK(schema.library_name() == "libtwice.so");
  CHECK(schema.library_version() == OPKIT_VERSION_STRING);
  CHECK(schema.doc() == "Multiplies.");
  CHECK(Contains(schema.file(), "shared_op.cc"));
  const auto kernels = OpRegistry::Global().KernelsOf("LibShared");
  REQUIRE(kernels.size() == 1);
  CHECK(kernels[0]->origin == "libtwice.so");
  CHECK(kernels[0]->backend == kReferenceBackend);
  CHECK(CheckRegistrations().empty());
  CHECK(IsInMap("libtwice.so"));

  const UnloadReport report = library.Unload();
  CHECK(report.unmapped);
  CHECK(ToString(report) == "unmapped");
  CHECK_FALSE(IsInMap("libtwice.so"));
  CHECK_FALSE(library.is_loaded());
  CHECK(library.path() == PathOf("twice"));
  CHECK(Registrations() == before);
  CHECK(Library::All().empty());
  for (const Error& error :
       {ErrorOf([&] { library.name(); }), ErrorOf([&] { library.operators(); }),
        ErrorOf([&] { library.Unload(); })}) {
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(error.message(), "is unloaded"));
  }
  CHECK(ErrorOf([] { Factor(); }).message() ==
        "no operator 'LibShared' is registered: it was library libtwice.so's, which is loaded no "
        "more");
}

TEST_CASE("a Library that was not loaded is none") {
  Library library;
  CHECK_FALSE(library.is_loaded());
  CHECK(library == Library());
  for (const Error& error :
       {ErrorOf([&] { library.name(); }), ErrorOf([&] { library.path(); }),
        ErrorOf([&] { library.operators(); }), ErrorOf([&] { library.Unload(); })}) {
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(error.message() == "this Library holds no library; Library::Load returns one that does");
  }
  library = Library::Load(PathOf("twice"));
  CHECK(library.is_loaded());
  library.Unload();
}

TEST_CASE("a graph mixes a library's operators with the program's, forward and backward") {
  Scoped library("five_times");
  Graph g;
  g.AddInput("x", kFloat, {2});
  g.AddNode(OperatorDef("LibShared", {"x"}, {"a"}));
  g.AddNode(OperatorDef("LibShared", {"a"}, {"b"}));
  g.AddNode(OperatorDef("LibRuns", {"b"}, {"unused"}));
  g.AddOutput("b");
  PlanOptions options;
  options.memory.verify = true;
  options.threads = 2;
  const Plan plan = Compile(g, options);
  CHECK(plan.choice(0).kernel->origin == "libfive_times.so");
  Executor exec(plan);
  CHECK(exec.Run({{"x", Vector({1, 2})}}).Get("b").ToVector<float>() == Floats{25, 50});
  // An observer sees its operators like any other.
  CHECK(exec.op(0).type() == "LibShared");
}

TEST_CASE("for an operator that exists a library is another backend") {
  OwnShared own;
  const std::string before = Registrations();
  {
    Scoped library("twice");
    CHECK(Factor() == 1);
    CHECK(Factor("twice") == 2);
    CHECK(OpRegistry::Global().GetSchema("LibShared").origin().empty());
    CHECK(CheckRegistrations().empty());
    LoadOptions options;
    options.backend = "fast";
    Scoped named("thrice", options);
    CHECK(named->backend() == "fast");
    CHECK(Factor("fast") == 3);
    CHECK(Factor() == 1);
    // The same name for two becomes two names.
    Scoped again("five_times", options);
    CHECK(again->backend() == "fast.2");
    CHECK(Factor("fast.2") == 5);
    CHECK(CheckRegistrations().empty());
  }
  // Nor does it take that of a kernel that the operator has.
  LoadOptions options;
  options.backend = kReferenceBackend;
  {
    Scoped library("twice", options);
    CHECK(library->backend() == "reference.2");
    CHECK(Factor() == 1);
    CHECK(Factor("reference.2") == 2);
    CHECK(CheckRegistrations().empty());
  }
  CHECK(Registrations() == before);
  CHECK(Factor() == 1);
}

TEST_CASE("overrides come first, any number of them, and go in any order") {
  OwnShared own;
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, std::vector<int>{2, 1, 0}, std::vector<int>{1, 0, 2}}) {
    CAPTURE(order[0]);
    const std::string before = Registrations();
    std::vector<Library> libraries;
    std::vector<float> factors;
    for (const auto& [name, factor] :
         {std::pair("twice", 2.f), std::pair("thrice", 3.f), std::pair("five_times", 5.f)}) {
      libraries.push_back(Library::Load(PathOf(name), Overriding()));
      factors.push_back(factor);
      CHECK(Factor() == factor);
      CHECK(Factor("reference") == 1);  // what a node asks for comes before it
    }
    {  // in a graph, too
      Executor exec(Compile(SharedGraph()));
      CHECK(exec.Run({{"x", Vector({1, 2})}}).Get("y").ToVector<float>() == Floats{25, 50});
    }
    std::vector<bool> loaded(3, true);
    for (int gone : order) {
      libraries[static_cast<size_t>(gone)].Unload();
      loaded[static_cast<size_t>(gone)] = false;
      float expected = 1;
      for (size_t i = 0; i < 3; ++i)
        if (loaded[i]) expected = factors[i];
      CHECK(Factor() == expected);
    }
    CHECK(Registrations() == before);
  }
}

TEST_CASE("a gradient that two backends of an operator bring stays while one of them is loaded") {
  OwnShared own;
  const std::string before = Registrations();
  LoadOptions another;
  another.own_copy = true;
  const auto gradient = [](const std::string& backend) {
    InvokeOptions options;
    options.num_outputs = 1;
    options.backends = backend;
    const Tensor one = Vector({1});
    return Invoke("LibShared_backward", {one, one, one}, {}, options)[0].data<float>()[0];
  };
  for (const bool first_goes_first : {true, false}) {
    CAPTURE(first_goes_first);
    Library first = Library::Load(PathOf("five_times"));
    Library second = Library::Load(PathOf("five_times"), another);
    CHECK(second.backend() == "five_times.2");
    Library& left = first_goes_first ? second : first;
    (first_goes_first ? first : second).Unload();
    CHECK(HasGradient("LibShared"));
    CHECK(gradient(left.backend()) == 5);
    CHECK(CheckRegistrations().empty());
    left.Unload();
    CHECK_FALSE(HasGradient("LibShared"));
    CHECK(Registrations() == before);
  }
}

TEST_CASE("a library with the gradient of an operator whose gradient the program has is refused") {
  const std::string before = Registrations();
  GradientRegistration gradient;
  gradient.kind = GradientKind::kNone;
  GradientRegistry::Global().Add("LibShared", std::move(gradient));
  const Error error = ErrorOf([&] { Library::Load(PathOf("five_times")); });
  CHECK(error.code() == ErrorCode::kAlreadyExists);
  CHECK(Contains(error.message(),
                 "library libfive_times.so brings operator LibShared with a gradient, which this "
                 "program has already"));
  {
    Library library = Library::Load(PathOf("twice"));  // which brings none
    CHECK(CheckRegistrations().empty());
    library.Unload();
  }
  GradientRegistry::Global().Remove("LibShared");
  CHECK(Registrations() == before);
}

TEST_CASE("an operator of the program that happens to be named <op>_backward is left alone") {
  OwnShared own;
  FunctionOpBuilder("LibShared_backward", __FILE__, __LINE__)
      .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                     OpResource&) { out[0].data<float>()[0] = in[0].data<float>()[0] + 100; })
      .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) { *num_in = *num_out = 1; })
      .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = in; });
  const std::string before = Registrations();
  for (const LoadOptions& options : {LoadOptions(), Overriding()}) {
    const Error error = ErrorOf([&] { Library::Load(PathOf("five_times"), options); });
    CHECK(error.code() == ErrorCode::kAlreadyExists);
    CHECK(Contains(error.message(), "whose operator LibShared_backward this program has already"));
  }
  CHECK(Registrations() == before);
  CHECK(Call("LibShared_backward", Floats{1}) == Floats{101});
  OpRegistry::Global().Remove("LibShared_backward");
}

TEST_CASE("an override's gradient comes with it") {
  OwnShared own;
  FunctionOpBuilder("LibShared_backward", __FILE__, __LINE__)
      .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                     OpResource&) { out[0].data<float>()[0] = in[0].data<float>()[0]; })
      .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = {in[0]}; });
  const auto gradient = [] {
    InvokeOptions options;
    options.num_outputs = 1;
    const Tensor one = Vector({1});
    return Invoke("LibShared_backward", {one, one, one}, {}, options)[0].data<float>()[0];
  };
  {
    Scoped library("five_times", Overriding());
    CHECK(gradient() == 5);
  }
  CHECK(gradient() == 1);
  OpRegistry::Global().Remove("LibShared_backward");
}

TEST_CASE("a library is not unloaded while an operator or a plan of it lives") {
  Library library = Library::Load(PathOf("twice"));
  const std::string loaded = Registrations();
  Workspace ws;
  *ws.CreateTensor("x") = Vector({1});
  auto op = CreateOperator(OperatorDef("LibShared", {"x"}, {"y"}), &ws);
  CHECK(UnloadError(library) ==
        "library libtwice.so cannot be unloaded: 1 operator of it is alive, alone or in a plan; "
        "destroy it first");
  CHECK(Registrations() == loaded);
  op->Run();
  CHECK(ws.GetTensor("y")->ToVector<float>() == Floats{2});
  op.reset();

  auto resolved = std::make_unique<ResolvedOperator>("LibShared", 1);
  CHECK(Contains(UnloadError(library), "1 operator of it is alive"));
  CHECK((*resolved)({Vector({3})})[0].ToVector<float>() == Floats{6});
  resolved.reset();

  auto plan = std::make_unique<Plan>(Compile(SharedGraph()));
  CHECK(Contains(UnloadError(library), "cannot be unloaded"));
  auto exec = std::make_unique<Executor>(*plan);
  CHECK(exec->Run({{"x", Vector({1, 2})}}).Get("y").ToVector<float>() == Floats{4, 8});
  exec.reset();
  // The plan alone: it would make operators of it again.
  CHECK(UnloadError(library) ==
        "library libtwice.so cannot be unloaded: a plan of it is alive, or work of it waits on a "
        "stream; destroy the plan, and wait for the stream");
  exec = std::make_unique<Executor>(*plan);
  plan.reset();
  CHECK(Contains(UnloadError(library), "cannot be unloaded"));
  exec.reset();
  CHECK(library.Unload().unmapped);
  CHECK_FALSE(IsInMap("libtwice.so"));
}

// --------------------------------------------------------- unloading while something is in
// progress

namespace {

// A library made here, whose functions unload it, or whatever g_attempt does.
const Error kNothing(ErrorCode::kCancelled, "nothing was attempted");
Error g_attempted = kNothing;
void (*g_attempt)() = nullptr;
void Attempt() {
  if (g_attempt) g_attempted = ErrorOf(g_attempt);
}
struct Attempting {
  explicit Attempting(void (*attempt)()) { g_attempt = attempt; }
  ~Attempting() { g_attempt = nullptr; }
};
void UnloadAll() {
  for (Library library : Library::All()) library.Unload();
}
opkit_status ForwardAttempt(void*, const opkit_call*) { return Attempt(), OPKIT_OK; }
const opkit_library* DescribeAttempts(const opkit_host*) {
  static const opkit_kernel kernel = [] {
    opkit_kernel made{};
    made.size = sizeof made;
    made.device = "cpu";
    made.create = [](const opkit_kernel*, const opkit_node*, void**) -> opkit_status {
      return Attempt(), OPKIT_OK;
    };
    made.forward = made.backward = ForwardAttempt;
    return made;
  }();
  static const opkit_kernel* const kernels[] = {&kernel};
  static const opkit_op op = [] {
    opkit_op made{};
    made.size = sizeof made;
    made.name = "LibAttempts";
    made.num_kernels = 1;
    made.kernels = kernels;
    made.parse_attrs = [](const opkit_op*, const opkit_node*, int32_t* inputs,
                          int32_t* outputs) -> opkit_status {
      *inputs = *outputs = 1;
      return Attempt(), OPKIT_OK;
    };
    made.infer_shape = [](const opkit_op*, const opkit_node*, opkit_value* inputs,
                          opkit_value* outputs) -> opkit_status {
      outputs[0].rank = inputs[0].rank;
      std::memcpy(outputs[0].dims, inputs[0].dims, sizeof inputs[0].dims);
      return Attempt(), OPKIT_OK;
    };
    made.mutated_inputs = [](const opkit_op*, const opkit_node*, uint8_t*) -> opkit_status {
      return Attempt(), OPKIT_OK;
    };
    made.scratch_bytes = [](const opkit_op*, const opkit_node*, const opkit_value*,
                            int64_t*) -> opkit_status { return Attempt(), OPKIT_OK; };
    return made;
  }();
  static const opkit_op* const ops[] = {&op};
  static const opkit_library library = [] {
    opkit_library made{};
    made.size = sizeof made;
    made.abi_major = OPKIT_ABI_MAJOR;
    made.abi_minor = OPKIT_ABI_MINOR;
    made.initialize = [](uint32_t, uint32_t) -> opkit_status { return Attempt(), OPKIT_OK; };
    made.finalize = [] { Attempt(); };
    made.num_ops = 1;
    made.ops = ops;
    return made;
  }();
  return &library;
}
Graph AttemptGraph() {
  Graph g;
  g.AddInput("x", kFloat, {2});
  g.AddNode(OperatorDef("LibAttempts", {"x"}, {"y"}));
  g.AddOutput("y");
  return g;
}

}  // namespace

TEST_CASE("unloading a library from inside one of its functions is an Error, and nothing is lost") {
  Library library = Library::LoadEntry(&DescribeAttempts, "attempts");
  const std::string loaded = Registrations();
  const Attempting unloads(&UnloadAll);
  const auto refused = [&](const char* why) {
    CHECK(g_attempted.code() == ErrorCode::kFailedPrecondition);
    CHECK_MESSAGE(Contains(g_attempted.message(), why), g_attempted.message());
    g_attempted = kNothing;
    CHECK(library.is_loaded());
    CHECK(Registrations() == loaded);
  };
  const char* const inside = "cannot be unloaded from inside a call that uses operators";
  const OpSchema& schema = OpRegistry::Global().GetSchema("LibAttempts");
  const OperatorDef def("LibAttempts", {"x"}, {"y"});
  schema.Arity({});
  refused(inside);
  schema.InferOutputs(def, {TensorInfo(kFloat, Shape{2})});
  refused(inside);
  schema.MutatedInputs(def);
  refused(inside);
  Workspace ws;
  *ws.CreateTensor("x") = Vector({1});
  auto op = CreateOperator(def, &ws);
  refused(inside);
  op->Run();
  refused("1 operator of it is alive");
  op.reset();
  Invoke("LibAttempts", {Vector({1})});
  refused("1 operator of it is alive");
  GetGradientForOp(def, {"dy"});
  refused(inside);
  { const Plan plan = Compile(AttemptGraph()); }
  refused(inside);
  g_attempt = nullptr;
  library.Unload();
  CHECK_FALSE(library.is_loaded());
}

TEST_CASE("unloading a library while another operator is inferred for the same plan is an Error") {
  Library library = Library::LoadEntry(&DescribeAttempts, "attempts");
  FunctionOpBuilder("HostAttempts", __FILE__, __LINE__)
      .setForward(
          [](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {})
      .input("x")
      .output("y")
      .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) {
        out = in;
        Attempt();
      });
  Graph g = AttemptGraph();
  g.AddNode(OperatorDef("HostAttempts", {"y"}, {"z"}));
  g.AddOutput("z");
  {
    Attempting unloads(&UnloadAll);
    g_attempted = kNothing;
    const Plan plan = Compile(g);
    CHECK(
        Contains(g_attempted.message(), "library attempts cannot be unloaded from inside a call"));
  }
  OpRegistry::Global().Remove("HostAttempts");
  library.Unload();
}

TEST_CASE("loading, unloading and listing from initialize and finalize are Errors") {
  const std::string before = Registrations();
  for (void (*attempt)() : {&UnloadAll, +[] { Library::Load(PathOf("twice")); }}) {
    const Attempting attempts(attempt);
    g_attempted = kNothing;
    Library library = Library::LoadEntry(&DescribeAttempts, "attempts");
    CHECK(Contains(g_attempted.message(), "while one is being loaded or unloaded"));
    g_attempted = kNothing;
    library.Unload();
    CHECK(Contains(g_attempted.message(), "while one is being loaded or unloaded"));
  }
  CHECK(Registrations() == before);
}

TEST_CASE("unloading waits for threads that make operators") {
  Library library = Library::LoadEntry(&DescribeAttempts, "attempts");
  std::thread unloads;
  {
    const detail::RegistryUse use;
    unloads = std::thread([&] { library.Unload(); });
    CHECK(Invoke("LibAttempts", {Vector({1})}).size() == 1);
  }
  unloads.join();
  CHECK_FALSE(library.is_loaded());
}

TEST_CASE("threads load, invoke and unload a library at once") {
  const std::string before = Registrations();
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!done) try {
          if (Factor() != 2) ++wrong;
        } catch (const Error& error) {  // it is not loaded now
          if (error.code() != ErrorCode::kNotFound) ++wrong;
        }
    });
  for (int i = 0; i < 30; ++i) {
    Library library = Library::Load(PathOf("twice"));
    for (bool unloaded = false; !unloaded;) try {
        library.Unload();
        unloaded = true;
      } catch (const Error& error) {  // an operator of it is alive
        if (error.code() != ErrorCode::kFailedPrecondition) throw;
      }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(Registrations() == before);
}

TEST_CASE("the same file by different paths is one library") {
  const std::string before = Registrations();
  Library first = Library::Load(PathOf("twice"));
  CHECK(Library::Load(PathOf("twice")) == first);
  CHECK(Library::Load(fs::relative(PathOf("twice")).string()) == first);
  CHECK(Library::All().size() == 1);
  first.Unload();
  CHECK(Registrations() == before);
}

TEST_CASE("a loaded library cannot have other options any more") {
  Library first = Library::Load(PathOf("twice"));
  LoadOptions named;
  named.backend = "twice";
  CHECK(Library::Load(PathOf("twice"), named) == first);
  named.backend = "other";
  for (const LoadOptions& options : {named, Overriding()}) {
    const Error error = ErrorOf([&] { Library::Load(PathOf("twice"), options); });
    CHECK(error.code() == ErrorCode::kFailedPrecondition);
    CHECK(Contains(error.message(),
                   "library libtwice.so is loaded already, as backend twice and without "
                   "allow_override; unload it first, or ask for its own_copy"));
  }
  first.Unload();
}

TEST_CASE("threads that load a file at once get one library, and one of them unloads it") {
  const std::string before = Registrations();
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> ready{0};
    std::vector<Library> found;
    detail::Mutex mutex;
    const auto load = [&] {
      ++ready;
      while (ready < 4) std::this_thread::yield();
      Library library = Library::Load(PathOf("twice"));
      const float factor = Factor();
      detail::MutexLock lock(mutex);
      CHECK(factor == 2);
      found.push_back(library);
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(load);
    for (std::thread& thread : threads) thread.join();
    for (const Library& library : found) CHECK(library == found[0]);
    // One of the threads unloads it; the others get an Error.
    ready = 0;
    std::atomic<int> unloaded{0}, refused{0};
    threads.clear();
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, library = found[static_cast<size_t>(i)]]() mutable {
        ++ready;
        while (ready < 4) std::this_thread::yield();
        try {
          unloaded += library.Unload().unmapped;
        } catch (const Error&) {
          ++refused;
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(unloaded == 1);
    CHECK(refused == 3);
    CHECK(Registrations() == before);
  }
}

TEST_CASE("two libraries are loaded at once from two threads") {
  const std::string before = Registrations();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (const char* name : {"twice", "plain_now", "thrice", "five_times"})
    threads.emplace_back([name, &wrong] {
      for (int i = 0; i < 5; ++i) {
        Library library = Library::Load(PathOf(name));
        wrong += library.operators().empty();
        wrong += !library.Unload().unmapped;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(Registrations() == before);
}

TEST_CASE("an operator of two libraries stays while one of them is loaded") {
  const std::string before = Registrations();
  for (const bool first_goes_first : {true, false}) {
    CAPTURE(first_goes_first);
    Library first = Library::Load(PathOf("twice"));
    Library second = Library::Load(PathOf("thrice"));
    CHECK(OpRegistry::Global().GetSchema("LibShared").origin() == "libtwice.so");
    CHECK(Factor() == 2);
    CHECK(Factor("thrice") == 3);
    (first_goes_first ? first : second).Unload();
    CHECK(Factor() == (first_goes_first ? 3 : 2));
    CHECK(OpRegistry::Global().GetSchema("LibShared").origin() ==
          (first_goes_first ? "libthrice.so" : "libtwice.so"));
    CHECK(OpRegistry::Global().GetSchema("LibShared").doc() == "Multiplies.");
    CHECK(CheckRegistrations().empty());
    if (first_goes_first) CHECK(Factor("thrice") == 3);
    // An operator of LibShared also holds the library that has taken LibShared over.
    Library& left = first_goes_first ? second : first;
    {
      ResolvedOperator op("LibShared", 1);
      CHECK(Contains(UnloadError(left), "1 operator of it is alive"));
    }
    CHECK(left.Unload().unmapped);
    CHECK(Registrations() == before);
  }
}

TEST_CASE("an operator that one of two libraries differentiates keeps or loses its gradient") {
  const std::string before = Registrations();
  for (const bool first_goes_first : {true, false}) {
    CAPTURE(first_goes_first);
    Library first = Library::Load(PathOf("twice"));
    CHECK_FALSE(HasGradient("LibShared"));
    Library second = Library::Load(PathOf("five_times"));
    CHECK(HasGradient("LibShared"));
    (first_goes_first ? first : second).Unload();
    CHECK(HasGradient("LibShared") == first_goes_first);
    CHECK(CheckRegistrations().empty());
    if (first_goes_first) {
      InvokeOptions options;
      options.num_outputs = 1;
      const Tensor one = Vector({1});
      CHECK(Invoke("LibShared_backward", {one, one, one}, {}, options)[0].data<float>()[0] == 5);
    }
    CHECK((first_goes_first ? second : first).Unload().unmapped);
    CHECK(Registrations() == before);
  }
  // The other way round: the operator and its gradient are the first one's.
  Library first = Library::Load(PathOf("five_times"));
  Library second = Library::Load(PathOf("twice"));
  first.Unload();
  CHECK_FALSE(HasGradient("LibShared"));
  CHECK(Factor() == 2);
  CHECK(CheckRegistrations().empty());
  second.Unload();
  CHECK(Registrations() == before);
}

TEST_CASE("a file that was rebuilt is loaded afresh, beside the old one or after it") {
  const TemporaryFolder folder;
  const std::string before = Registrations();
  Library old = Library::Load(folder.Put(PathOf("twice"), "libops.so"));
  CHECK(Factor() == 2);
  const std::string path = folder.Put(PathOf("thrice"), "libops.so");
  Library fresh = Library::Load(path);
  CHECK_FALSE(fresh == old);
  CHECK(old.name() == "libops.so");
  CHECK(fresh.name() == "libops.so (2)");
  CHECK(old.backend() == "ops");
  CHECK(fresh.backend() == "ops.2");
  CHECK(Factor("ops.2") == 3);
  CHECK(Factor() == 2);
  CHECK(old.Unload().unmapped);
  CHECK(Factor() == 3);
  Library again = Library::Load(path);
  CHECK(again == fresh);
  CHECK(fresh.Unload().unmapped);
  CHECK(Registrations() == before);
  Library last = Library::Load(folder.Put(PathOf("five_times"), "libops.so"));
  CHECK(last.name() == "libops.so");
  CHECK(Factor() == 5);
  last.Unload();
}

TEST_CASE("a copy of its own has its own variables") {
  LoadOptions options;
  options.own_copy = true;
  const std::string before = Registrations();
  Library first = Library::Load(PathOf("twice"));
  Library second = Library::Load(PathOf("twice"), options);
  CHECK_FALSE(first == second);
  CHECK(second.name() == "libtwice.so (2)");
  CHECK(second.backend() == "twice.2");
  const auto runs = [](const char* engine) {
    InvokeOptions invoke;
    invoke.backends = engine;
    return Invoke("LibRuns", {Vector({0})}, {}, invoke)[0].data<float>()[0];
  };
  CHECK(runs("") == 2);
  CHECK(runs("") == 4);
  CHECK(runs("twice.2") == 2);
  CHECK(second.Unload().unmapped);
  CHECK(runs("") == 6);
  CHECK(first.Unload().unmapped);
  CHECK(Registrations() == before);
  // Once it is unloaded its variables begin anew.
  Scoped again("twice");
  CHECK(runs("") == 2);
}

TEST_CASE("a library that stays in the process is reported, and loads again as if it were new") {
  // In a thread, with whose end it goes.
  std::thread([] {
    const std::string before = Registrations();
    static std::string log;
    const LogHook log_hook =
        SetLogHook([](LogLevel level, std::string_view, std::string_view text) {
          log = StrCat(level, ": ", text);
        });
    for (int round = 0; round < 3; ++round) {
      Library library = Library::Load(PathOf("pinned"));
      CHECK(Contains(log,
                     "warning: has a function initialize(int), as MXNet's libraries have, and "
                     "it is not called; write OPKIT_LIBRARY_INITIALIZE(initialize);"));
      CHECK(library.name() == "libpinned.so");
      CHECK(Call("LibPinned", Floats{0}) == Floats{1});
      CHECK(Call("LibPinned", Floats{0}) == Floats{2});
      const UnloadReport report = library.Unload();
      CHECK(Registrations() == before);
      CHECK_FALSE(report.unmapped);
      REQUIRE_FALSE(report.pinned_by.empty());
      CHECK(Contains(StrCat(report.pinned_by), "t_scratchpad (thread_local)"));
      CHECK(Contains(ToString(report), "still mapped, pinned by its symbols ["));
      CHECK(Contains(ToString(report), "compile it with -fno-gnu-unique"));
    }
    SetLogHook(log_hook);
  }).join();
}

constexpr const char* kEndsLoaded = "OPKIT_TEST_ENDS_WITH_LIBRARY";

// Leaves nothing behind unless the test below runs it, in a process of its own.
TEST_CASE("child: ends with a library in use") {
  if (!std::getenv(kEndsLoaded)) return;
  struct Holder {
    Workspace ws;
    std::unique_ptr<OperatorBase> op;
  };
  static Holder holder;
  static_cast<void>(Library::Load(PathOf("features")));
  *holder.ws.CreateTensor("x") = Vector({1});
  holder.op = CreateOperator(OperatorDef("LibCounter", {"x"}, {"y"}), &holder.ws);
  holder.op->Run();
}
TEST_CASE("a program may end with a library loaded and its operators in static objects") {
  // The library's own static objects are destroyed before those that the program made earlier.
  CHECK(std::system(StrCat(kEndsLoaded, "=1 ", CommandOfThisProgram(),
                           " -m -tc='child: ends with a library in use' >&2")
                        .c_str()) == 0);
}

TEST_CASE("programs depend on names of operators, not of files") {
  const TemporaryFolder folder;
  Library library = Library::Load(folder.Put(PathOf("twice"), "plugin.so.1.2"));
  CHECK(library.name() == "plugin.so.1.2");
  CHECK(library.backend() == "plugin");
  CHECK(Factor() == 2);
  library.Unload();
}

}  // namespace library_test
