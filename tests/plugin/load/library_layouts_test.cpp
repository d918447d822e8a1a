#include "opkit/plugin/load/library_layouts.hpp"

#include <algorithm>

#include "graph/plan/steps_of.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/graph/tune/tune.hpp"
#include "opkit/op/boundary/convert/abi_config.hpp"
#include "opkit/op/boundary/convert/abi_structs.hpp"
#include "plugin/library_fixture.hpp"
#include "support/check_fails.hpp"

namespace library_layouts_test {
using namespace library_fixture;

namespace {

OperatorDef InLayouts(const std::string& from, const std::string& to, const char* in,
                      const char* out) {
  return OperatorDef("LibInLayouts", {from}, {to}).Arg("in", in).Arg("out", out);
}
Graph GraphOf(std::initializer_list<OperatorDef> nodes) {
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  for (const OperatorDef& node : nodes) graph.AddNode(node);
  graph.AddOutput("Y");
  return graph;
}
Floats Run(const Plan& plan) {
  return Executor(plan).Run({{"X", Vector({1, 2, 3, 4})}}).Get("Y").ToVector<float>();
}
bool HasLayout(const std::string& name) {
  for (const detail::RegisteredLayout& one : detail::RegisteredLayouts())
    if (one.name == name) return true;
  return false;
}

const auto kNpu = static_cast<DeviceType>(101);

}  // namespace

TEST_CASE("a library's kernel runs in its layouts, alone and in a graph") {
  Scoped library("layouts");
  CHECK(Call("LibInLayouts", Floats{1, 2, 3}, {{"in", "lib_reversed"}, {"out", "lib_spread"}}) ==
        Floats{2, 4, 6});
  const Plan plan = Compile(GraphOf({InLayouts("X", "P", "lib_reversed", "lib_reversed"),
                                     InLayouts("P", "Q", "lib_reversed", "lib_reversed"),
                                     InLayouts("Q", "Y", "lib_spread", "standard")}));
  CHECK(Run(plan) == Floats{8, 16, 24, 32});
  CHECK(StepsOf(plan) == std::vector<std::string>{"standard to lib_reversed of X", "P", "Q",
                                                  "lib_reversed to lib_spread of Q", "Y"});
  CHECK(Contains(ToString(plan.Explain()), "lib_reversed"));
}

TEST_CASE("a configuration's cost, scratch and refusal cross") {
  Scoped library("layouts");
  const OperatorDef def = InLayouts("X", "Y", "lib_spread", "standard");
  const std::vector<TensorInfo> infos{TensorInfo(DType::kFloat32, {4})};
  const auto candidates = KernelCandidates(def, infos, infos);
  REQUIRE(candidates.size() == 1);
  CHECK(candidates[0].config.cost_ns == 5);
  CHECK(candidates[0].config.scratch_bytes == 256);
  CHECK(LayoutName(candidates[0].config.input_layout(0).id) == "lib_spread");
  CHECK(candidates[0].config.output_layout(0).is_standard());
  const auto refused = KernelCandidates(InLayouts("X", "Y", "none", "standard"), infos, infos);
  REQUIRE(refused.size() == 1);
  CHECK(Contains(refused[0].dropped, "it takes no node with in = none"));
  CheckFails(
      [&] { KernelCandidates(InLayouts("X", "Y", "unregistered", "standard"), infos, infos); },
      "a configuration has layout 77, which is not registered");
}

TEST_CASE("a variant that a library's kernel proposes runs when it is chosen") {
  Scoped library("layouts");
  const OperatorDef def("LibVaried", {"X"}, {"Y"});
  const std::vector<TensorInfo> infos{TensorInfo(DType::kFloat32, {4})};
  const auto candidates = KernelCandidates(def, infos, infos);
  REQUIRE(candidates.size() == 2);
  CHECK(candidates[0].name() == "reference");
  CHECK(candidates[1].name() == "reference negative");
  CHECK(Run(Compile(GraphOf({def}))) == Floats{1, 2, 3, 4});
  PlanOptions options;
  options.selection.forced.nodes = {{"Y", "reference", 1}};
  const Plan forced = Compile(GraphOf({def}), options);
  CHECK(forced.choice(0).config.variant == "negative");
  CHECK(Run(forced) == Floats{-1, -2, -3, -4});
  const TuneResult tuned = Tune(GraphOf({def}), {.plan = {.threads = 1}, .seconds = 0.05});
  REQUIRE(tuned.nodes.size() == 1);
  REQUIRE(tuned.nodes[0].ways.size() == 2);  // both were measured, whichever is faster
  for (const TuneResult::Node::Way& way : tuned.nodes[0].ways) {
    CAPTURE(way.way);
    CHECK(way.way.find(": reference on cpu, standard") != std::string::npos);
  }
  const auto is_negative = [](const TuneResult::Node::Way& way) {
    return way.way.ends_with(", negative");
  };
  CHECK(std::ranges::count_if(tuned.nodes[0].ways, is_negative) == 1);
  CheckFails([&] { KernelCandidates(OperatorDef(def).Arg("variant", "a\nb"), infos, infos); },
             "has a variant whose name contains a control character");
}

TEST_CASE("a configuration of a version without variants is read as one without") {
  KernelConfig config;
  config.variant = "winograd";
  const detail::AbiConfig abi(config, 1, 1);
  opkit_config view = abi.config();
  CHECK(detail::ConfigOfAbi(&view, 1, 1).variant == "winograd");
  view.size = detail::kFirstBytes<opkit_config>;  // what follows is not part of the struct
  CHECK(detail::ConfigOfAbi(&view, 1, 1).variant.empty());
  const opkit_config plain = detail::AbiConfig(KernelConfig(), 1, 1).config();
  CHECK(plain.variant == nullptr);
  CHECK(detail::ConfigOfAbi(&plain, 1, 1).variant.empty());
}

TEST_CASE("a library's layouts go when it is unloaded, and come again") {
  for (int round = 0; round < 2; ++round) {
    CHECK_FALSE(HasLayout("lib_reversed"));
    Scoped library("layouts");
    CHECK(HasLayout("lib_reversed"));
    const Layout spread{FindLayout("lib_spread"), {}};
    CHECK(LayoutBytes(spread, {3}, DType::kFloat32) == 24);
    const Tensor there = ConvertLayout(Vector({1, 2, 3}), spread);
    CHECK(ConvertLayout(there, {}).ToVector<float>() == Floats{1, 2, 3});
  }
  CHECK_FALSE(HasLayout("lib_spread"));
}

TEST_CASE("a layout that the program has already stays the program's") {
  static const LayoutId mine = RegisterLayout({.name = "lib_spread",
                                               .to_standard = [](const Tensor&, Tensor&) {},
                                               .from_standard = [](const Tensor&, Tensor&) {}});
  {
    Scoped library("layouts");
    CHECK(FindLayout("lib_spread") == mine);
  }
  CHECK(FindLayout("lib_spread") == mine);
  detail::RemoveLayout(mine);
}

TEST_CASE("a library brings a device: memory, copies, kernels, and placement of a graph's nodes") {
  Scoped library("layouts");
  const Device npu{kNpu, 0};
  CHECK(ToString(npu) == "lib_npu");
  CHECK(WhyNoDevice(npu).empty());
  CHECK(WhyNoDevice({kNpu, 1}) == "there is one card");
  {
    Tensor there(npu), back;
    Copy(Vector({1, 2, 3}), &there);
    CHECK(there.device() == npu);
    CHECK(static_cast<const float*>(there.raw_data())[0] != 1);
    Copy(there, &back);
    CHECK(back.ToVector<float>() == Floats{1, 2, 3});
    CHECK(Contains(ErrorOf([&] { library->Unload(); }).message(),
                   "12 bytes of memory of its device lib_npu are in use"));
    CheckFails([&] { Tensor({1 << 20}, DType::kFloat32, npu); }, "out of memory on lib_npu");
  }
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("LibNpuAddOne", {"X"}, {"P"}));
  graph.AddNode(OperatorDef("LibNpuAddOne", {"P"}, {"Q"}));
  graph.AddNode(InLayouts("Q", "Y", "lib_reversed", "standard"));
  graph.AddOutput("Y");
  const Plan plan = Compile(graph, {.devices = {npu, Device{}}});
  CHECK(Run(plan) == Floats{6, 8, 10, 12});
  CHECK(StepsOf(plan) == std::vector<std::string>{"cpu to lib_npu of X", "P", "Q",
                                                  "lib_npu to cpu of Q",
                                                  "standard to lib_reversed of Q", "Y"});
}

TEST_CASE("a library's device has a queue: operators return when it has their work") {
  Scoped library("layouts");
  Graph graph;
  graph.AddInput("X", DType::kFloat32, {4});
  graph.AddNode(OperatorDef("LibNpuQueued", {"X"}, {"P"}));
  graph.AddNode(OperatorDef("LibNpuQueued", {"P"}, {"Q"}));
  graph.AddNode(OperatorDef("LibNpuQueued", {"P"}, {"R"}));
  graph.AddNode(OperatorDef("LibNpuAddOne", {"R"}, {"Y"}));
  graph.AddOutput("Q");
  graph.AddOutput("Y");
  const auto let = [](int64_t works) { Invoke("LibNpuLet", {Vector({1})}, {{"works", works}}); };
  for (const int threads : {1, 4}) {
    const Plan plan = Compile(graph, {.threads = threads, .devices = {Device{kNpu, 0}, Device{}}});
    Executor executor(plan);
    Tensor back;
    for (int run = 0; run < 50; ++run) {
      executor.Bind("X", Vector({1, 2, 3, static_cast<float>(run)}));
      let(0);
      Event end = executor.RunAsync();
      CHECK_FALSE(end.IsFinished());
      let(1);
      end.Finish();
      Copy(executor.output("Q"), &back);
      CHECK(back.ToVector<float>() == Floats{3, 4, 5, static_cast<float>(run + 2)});
      Copy(executor.output("Y"), &back);
      CHECK(back.ToVector<float>() == Floats{4, 5, 6, static_cast<float>(run + 3)});
    }
  }
}

TEST_CASE("layouts and devices that cannot be are refused when the library is loaded") {
  static opkit_library library;
  static opkit_layout layout;
  static opkit_device device;
  static const opkit_layout* layouts[] = {&layout};
  static const opkit_device* devices[] = {&device};
  const auto refusal = [](auto spoil) {
    layout = {};
    layout.size = sizeof layout;
    layout.name = "bad_layout";
    layout.to_standard = layout.from_standard = [](const opkit_layout*, const opkit_tensor*,
                                                   const opkit_tensor*) { return 0; };
    device = {};
    device.size = sizeof device;
    device.name = "bad_device";
    device.type = 102;
    device.alloc = [](const opkit_device*, int32_t, int64_t, void**) { return 0; };
    device.free = [](const opkit_device*, void*, int64_t) {};
    device.copy = [](const opkit_device*, int32_t, int32_t, void*, const void*, int64_t) {
      return 0;
    };
    library = {};
    library.size = sizeof library;
    library.abi_major = OPKIT_ABI_MAJOR;
    library.abi_minor = OPKIT_ABI_MINOR;
    library.num_layouts = library.num_devices = 1;
    library.layouts = layouts;
    library.devices = devices;
    spoil();
    const std::string said =
        ErrorOf([] {
          Library::LoadEntry([](const opkit_host*) -> const opkit_library* { return &library; },
                             "bad");
        }).message();
    CHECK_FALSE(HasLayout("bad_layout"));  // all or nothing
    return said;
  };
  CHECK(Contains(refusal([] { layout.to_standard = nullptr; }),
                 "library bad has layout 'bad_layout' without to_standard or from_standard"));
  CHECK(Contains(refusal([] { layout.size = 24; }), "has a layout at 0 that is null or shorter"));
  CHECK(Contains(refusal([] { layout.name = ""; }), "gives a layout no name"));
  CHECK(Contains(refusal([] { library.num_layouts = uint64_t{1} << 40; }),
                 "has 1099511627776 descriptions of a layout"));
  CHECK(Contains(refusal([] { library.devices = nullptr; }),
                 "has 1 descriptions of a device, which are null"));
  CHECK(Contains(refusal([] { device.type = 3; }), "gives device 'bad_device' the number 3"));
  CHECK(Contains(refusal([] { device.copy = nullptr; }), "without alloc, free or copy"));
  CHECK(Contains(refusal([] { device.name = "cpu"; }), "clashes with 1 'cpu'"));
}

TEST_CASE("the error for a device of an unloaded library names the library") {
  { Scoped library("layouts"); }
  CHECK(WhyNoDevice({kNpu, 0}) == "the library that brings it is unloaded");
  CheckFails([&] { Tensor({4}, DType::kFloat32, Device{kNpu, 0}); }, "lib_npu");
}

}  // namespace library_layouts_test
