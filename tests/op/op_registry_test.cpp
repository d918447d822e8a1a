// The registry: what is one registration and what are two, who wins, what lookups report.
#include "opkit/op/op_registry.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "opkit/op/operator_base.hpp"
#include "support/error_of.hpp"

namespace op_registry_test { namespace {

using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::Kernel;
using opkit::OpRegistry;
using opkit::detail::BackendPreference;
using Names = std::vector<std::string>;

Kernel MakeKernel(const char* op, const char* file, int line, const char* backend = "reference",
                  Kernel::Priority priority = Kernel::Priority::kDefault,
                  DeviceType device = DeviceType::kCPU) {
  Kernel kernel;
  kernel.op = op;
  kernel.file = file;
  kernel.line = line;
  kernel.backend = backend;
  kernel.priority = priority;
  kernel.device = device;
  return kernel;
}
Names Places(const std::vector<const Kernel*>& kernels) {
  Names places;
  for (const Kernel* kernel : kernels) places.push_back(kernel->Place());
  return places;
}

TEST_CASE("a schema and its kernels are found under the operator's name") {
  OpRegistry registry;
  CHECK(registry.Operators().empty());
  registry.AddSchema("Scale", "scale.cc", 3).NumInputs(1);
  registry.AddKernel(MakeKernel("Scale", "scale.cc", 9));
  registry.AddKernel(MakeKernel("Scale", "scale.cc", 10, "FAST"));
  registry.AddKernel(MakeKernel("Scale", "scale.cu", 4, "reference", Kernel::Priority::kDefault,
                                DeviceType::kCUDA));
  REQUIRE(registry.FindSchema("Scale"));
  CHECK(registry.FindSchema("Scale") == &registry.GetSchema("Scale"));
  CHECK(registry.GetSchema("Scale").max_inputs() == 1);
  CHECK(Places(registry.FindKernels("Scale", DeviceType::kCPU)) ==
        Names{"scale.cc:9", "scale.cc:10"});
  CHECK(Places(registry.FindKernels("Scale", DeviceType::kCUDA)) == Names{"scale.cu:4"});
  CHECK(registry.FindKernels("Scale", DeviceType::kMetal).empty());
  CHECK(registry.KernelsOf("Scale").size() == 3);
  CHECK(registry.Problems().empty());
  registry.AddSchema("Add", "add.cc", 1);
  CHECK(registry.Operators() == Names{"Add", "Scale"});
}

TEST_CASE("an operator that has only kernels of an engine exists") {
  OpRegistry registry;
  registry.AddSchema("Conv", "conv.cc", 3);
  registry.AddKernel(MakeKernel("Conv", "conv.cc", 9, "CUDNN"));
  CHECK(registry.Operators() == Names{"Conv"});
  CHECK(Places(registry.FindKernels("Conv", DeviceType::kCPU)) == Names{"conv.cc:9"});
  CHECK(registry.Problems().empty());
}

TEST_CASE("an unknown operator is an Error that names the nearest") {
  OpRegistry registry;
  opkit::Error error = ErrorOf([&] { registry.GetSchema("Scale"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() ==
        "no operator 'Scale' is registered; nothing is: no file with operators is linked, or, "
        "before main, none has registered its operators yet; a standard operator comes with "
        "opkit::ops or its header in opkit/ops, one of opkit.cluster with opkit::cluster or "
        "opkit/cluster/operators.hpp, one in a static archive is kept by "
        "opkit_link_operators (CMake) or OPKIT_USE_REGISTRATIONS, one of a shared library comes "
        "with Library::Load");
  registry.AddSchema("Scale", "scale.cc", 3);
  registry.AddSchema("Add", "add.cc", 3);
  error = ErrorOf([&] { registry.GetSchema("Scael"); });
  CHECK(error.message() ==
        "no operator 'Scael' is registered (did you mean 'Scale'? known: 'Add', 'Scale')");
  CHECK(registry.FindSchema("Scael") == nullptr);
}

TEST_CASE("an unknown operator that no name is near may be in an archive that was not kept") {
  OpRegistry registry;
  registry.AddSchema("Scale", "scale.cc", 3);
  CHECK(ErrorOf([&] { registry.GetSchema("MyConv"); }).message() ==
        "no operator 'MyConv' is registered (known: 'Scale'); a standard operator comes with "
        "opkit::ops or its header in opkit/ops, one of opkit.cluster with opkit::cluster or "
        "opkit/cluster/operators.hpp, one in a static archive is kept by "
        "opkit_link_operators (CMake) or OPKIT_USE_REGISTRATIONS, one of a shared library comes "
        "with Library::Load");
}

TEST_CASE("the same registration seen by two translation units is one") {
  OpRegistry registry;
  registry.AddSchema("Scale", "./include/scale.hpp", 3).NumInputs(1);
  registry.AddSchema("Scale", "include/scale.hpp", 3).NumInputs(1);
  registry.AddKernel(MakeKernel("Scale", "include/scale.hpp", 9));
  registry.AddKernel(MakeKernel("Scale", "./include/scale.hpp", 9));
  // A library that was built with the header of one folder, in a unit with that of another.
  registry.AddKernel(MakeKernel("Scale", "/usr/include/scale.hpp", 9));
  CHECK(registry.KernelsOf("Scale").size() == 1);
  CHECK(registry.GetSchema("Scale").max_inputs() == 1);
  CHECK(registry.Problems().empty());
}

TEST_CASE("two schemas from two places are reported with both at the first lookup") {
  OpRegistry registry;
  registry.AddSchema("Scale", "a.cc", 3).NumInputs(1);
  registry.AddSchema("Scale", "b.cc", 4).NumInputs(2);
  registry.AddSchema("Scale", "b.cc", 4).NumInputs(2);  // the header's second unit
  registry.AddKernel(MakeKernel("Scale", "a.cc", 9));
  const std::string text =
      "two schemas of operator Scale: at a.cc:3 and at b.cc:4; remove one of them";
  const opkit::Error error = ErrorOf([&] { registry.GetSchema("Scale"); });
  CHECK(error.code() == ErrorCode::kAlreadyExists);
  CHECK(error.message() == text);
  CHECK(registry.Problems() == Names{text});
  CHECK(registry.FindSchema("Scale")->max_inputs() == 1);  // the first one stands
}

TEST_CASE("two equal kernels from two places are reported with both; the first one stands") {
  OpRegistry registry;
  registry.AddSchema("Scale", "a.cc", 1);
  registry.AddSchema("Add", "a.cc", 2);
  registry.AddKernel(MakeKernel("Add", "a.cc", 9));
  registry.AddKernel(MakeKernel("Scale", "a.cc", 3, "FAST"));
  registry.AddKernel(MakeKernel("Scale", "b.cc", 4, "FAST"));
  registry.AddKernel(MakeKernel("Scale", "b.cc", 4, "FAST"));
  const std::string text =
      "two kernels of operator Scale for cpu, backend FAST: at a.cc:3 and at b.cc:4; remove one, "
      "or "
      "register it with another priority or backend";
  CHECK(ErrorOf([&] { registry.GetSchema("Scale"); }).message() == text);
  CHECK(registry.Problems() == Names{text});
  CHECK(Places(registry.KernelsOf("Scale")) == Names{"a.cc:3"});
  CHECK(registry.GetSchema("Add").name() == "Add");  // others are not affected
}

TEST_CASE("the higher priority wins in either order, and nothing is reported") {
  for (const bool higher_first : {false, true}) {
    OpRegistry registry;
    registry.AddSchema("Scale", "a.cc", 1).Doc("the doc");
    const auto low = Kernel::Priority::kFallback, high = Kernel::Priority::kPreferred;
    if (higher_first) registry.AddKernel(MakeKernel("Scale", "b.cc", 4, "reference", high));
    registry.AddKernel(MakeKernel("Scale", "a.cc", 3, "reference", low));
    registry.AddKernel(MakeKernel("Scale", "a.cc", 2));
    if (!higher_first) registry.AddKernel(MakeKernel("Scale", "b.cc", 4, "reference", high));
    CHECK(Places(registry.KernelsOf("Scale")) == Names{"b.cc:4"});
    CHECK(registry.Problems().empty());
    CHECK(registry.GetSchema("Scale").doc() == "the doc");
  }
}

TEST_CASE("a kernel that was looked up stays valid when a higher one takes its place") {
  OpRegistry registry;
  registry.AddSchema("Scale", "a.cc", 1);
  registry.AddKernel(MakeKernel("Scale", "a.cc", 3));
  const Kernel* before = registry.KernelsOf("Scale")[0];
  registry.AddKernel(MakeKernel("Scale", "b.cc", 4, "reference", Kernel::Priority::kPreferred));
  CHECK(before->Place() == "a.cc:3");
}

TEST_CASE("a kernel without a schema is reported at the lookup and by Problems") {
  OpRegistry registry;
  registry.AddKernel(MakeKernel("Scale", "a.cc", 3));
  const std::string text =
      "operator Scale has a kernel (at a.cc:3) but no schema; add "
      "OPERATOR_SCHEMA(Scale) to this program";
  const opkit::Error error = ErrorOf([&] { registry.GetSchema("Scale"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() == text);
  CHECK(registry.Problems() == Names{text});
  registry.AddSchema("Scale", "b.cc", 4);  // it may come later
  CHECK(registry.Problems().empty());
  CHECK(registry.GetSchema("Scale").name() == "Scale");
}

TEST_CASE("a schema without a kernel is listed until one comes") {
  OpRegistry registry;
  registry.AddSchema("Scale", "a.cc", 1);
  CHECK(registry.Problems() ==
        Names{"operator Scale has a schema (at a.cc:1) but no kernel; add "
              "REGISTER_CPU_OPERATOR(Scale, …), or link the file that registers it"});
  registry.AddKernel(MakeKernel("Scale", "a.cc", 9));
  CHECK(registry.Problems().empty());
}

TEST_CASE("other problems are listed and go with their operator") {
  OpRegistry registry;
  registry.AddSchema("Scale", "a.cc", 1);
  registry.AddKernel(MakeKernel("Scale", "a.cc", 9));
  registry.AddProblem("Scale", "two gradients");
  CHECK(registry.Problems() == Names{"two gradients"});
  registry.Remove("Scale");
  CHECK(registry.Problems().empty());
  CHECK(registry.Operators().empty());
}

TEST_CASE("engine preferences: an operator's own before the global ones") {
  OpRegistry registry;
  registry.AddSchema("Scale", "a.cc", 1);
  registry.AddSchema("Add", "a.cc", 2);
  registry.AddKernel(MakeKernel("Scale", "a.cc", 3));
  registry.AddKernel(MakeKernel("Add", "a.cc", 4));
  CHECK(registry.PreferenceOf("Scale", DeviceType::kCPU).empty());
  registry.SetPreference(DeviceType::kCPU, {"G1", "G2"});
  registry.SetPreference("Scale", DeviceType::kCPU, {"P"});
  CHECK(registry.PreferenceOf("Scale", DeviceType::kCPU) == BackendPreference{"P", "G1", "G2"});
  CHECK(registry.PreferenceOf("Add", DeviceType::kCPU) == BackendPreference{"G1", "G2"});
  CHECK(registry.PreferenceOf("Scale", DeviceType::kCUDA).empty());
  registry.SetPreference("Add", DeviceType::kCPU, {"Q", "R"});
  CHECK(registry.PreferenceOf("Add", DeviceType::kCPU) == BackendPreference{"Q", "R", "G1", "G2"});
  CHECK(registry.PreferenceOf("Scale", DeviceType::kCPU) == BackendPreference{"P", "G1", "G2"});
  registry.SetPreference("Add", DeviceType::kCPU, {});  // an empty list clears
  registry.SetPreference(DeviceType::kCPU, {});
  CHECK(registry.PreferenceOf("Add", DeviceType::kCPU).empty());
  CHECK(registry.PreferenceOf("Scale", DeviceType::kCPU) == BackendPreference{"P"});
}

TEST_CASE("engine preferences: the setters refuse what is not registered and change nothing") {
  OpRegistry registry;
  registry.AddSchema("Scale", "a.cc", 1);
  registry.AddKernel(MakeKernel("Scale", "a.cc", 3));
  registry.SetPreference("Scale", DeviceType::kCPU, {"P"});
  opkit::Error error = ErrorOf([&] { registry.SetPreference("Sacle", DeviceType::kCPU, {"Q"}); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "no operator 'Sacle' is registered (did you mean 'Scale'?"));
  error = ErrorOf([&] { registry.SetPreference("Scale", DeviceType::kCUDA, {"Q"}); });
  CHECK(error.message() ==
        "a backend preference is set for operator Scale on cuda, where it has no kernel");
  error = ErrorOf([&] { registry.SetPreference(DeviceType::kCUDA, {"CUDNN"}); });
  CHECK(error.message() ==
        "a backend preference is set for cuda, for which no operator of this program has a kernel");
  CHECK(registry.PreferenceOf("Scale", DeviceType::kCPU) == BackendPreference{"P"});
  CHECK(registry.PreferenceOf("Scale", DeviceType::kCUDA).empty());
}

TEST_CASE("a backend is known when some kernel has it") {
  OpRegistry registry;
  registry.AddKernel(MakeKernel("Scale", "a.cc", 3, "eigen"));
  registry.AddKernel(MakeKernel("Scale", "a.cc", 4));
  registry.CheckBackend("eigen");
  registry.CheckBackend("reference");
  const opkit::Error error = ErrorOf([&] { registry.CheckBackend("eigne"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(error.message() ==
        "no backend 'eigne' has a kernel in this program (did you mean 'eigen'? "
        "known: 'eigen', 'reference')");
}

TEST_CASE("lookups and registrations may race") {
  OpRegistry registry;
  registry.AddSchema("Op0", "a.cc", 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&registry, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string name = opkit::StrCat("Op", i % 10);
        registry.AddSchema(name.c_str(), "a.cc", 1);
        Kernel kernel = MakeKernel(name.c_str(), "a.cc", 2);
        kernel.backend = opkit::StrCat("backend", t);
        registry.AddKernel(std::move(kernel));
        static_cast<void>(registry.GetSchema("Op0").name());
        static_cast<void>(registry.FindKernels(name, DeviceType::kCPU).size());
        static_cast<void>(registry.Problems());
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(registry.Operators().size() == 10);
  CHECK(registry.KernelsOf("Op3").size() == 4);
  CHECK(registry.Problems().empty());
}

}  // namespace
}  // namespace op_registry_test
