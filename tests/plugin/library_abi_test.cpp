// Hosts and libraries of different versions of the ABI: libraries compiled against the frozen
// header of version 1.0 (abi_v1/), against the present one and against a later one that CMake makes
// of it. This file is compiled twice, the second time as a host of the later version.
#include <doctest/doctest.h>

#include "abi_pins.hpp"
#include "library_fixture.hpp"
#include "opkit/op/check.hpp"

namespace library_abi_test {
namespace {

using namespace opkit;
using namespace library_fixture;

#ifdef OPKIT_TEST_NEWER_ABI
constexpr bool kIsNewerHost = true;
#else
constexpr bool kIsNewerHost = false;
#endif

// What the libraries' operators find in the program.
REGISTER_OP(AbiAdd)
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i)
        out[0].data<float>()[i] = in[0].data<float>()[i] + in[1].data<float>()[i];
    })
    .setParseAttrs([](const AttrMap&, int* num_in, int* num_out) {
      *num_in = 2;
      *num_out = 1;
    })
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; });

void CheckPlain(const char* library) {
  CAPTURE(library);
  Scoped plain(library);
  CHECK(plain->name() == "plain");  // as it calls itself
  CHECK(Call("PlainScale", {1, 2, 3}, {{"factor", 2.5f}}) == Floats{2.5f, 5, 7.5f});
  CHECK(Call("PlainScale", {Tensor::From<float>({2, 1, 2}, {1, 2, 3, 4})}, {{"factor", 2.f}})
            .shape() == Shape{2, 1, 2});
  CHECK(
      Call("PlainSum", {Vector({1, 2}), Vector({10, 20}), Vector({100, 200})}).ToVector<float>() ==
      Floats{111, 222});
  const Error error = ErrorOf([] { Call("PlainScale", Floats{1}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(error.what(),
                 "createOpState of operator PlainScale of library plain failed: "
                 "expected the attribute factor, a float"));
  Workspace ws;
  *ws.CreateTensor("x") = Vector({3});
  const float instances = Call("PlainInstances", Floats{0})[0];
  {
    auto op = CreateOperator(OperatorDef("PlainScale", {"x"}, {"x"}, {{"factor", 2.f}}), &ws);
    CHECK(Call("PlainInstances", Floats{0})[0] == instances + 1);
    op->Run();
    CHECK(ws.GetTensor("x")->ToVector<float>() == Floats{6});
    *ws.GetTensor("x") = Tensor({1}, DType::kInt32);
    CHECK(ErrorOf([&] { op->Run(); }).code() == ErrorCode::kTypeMismatch);
    CHECK(Contains(ErrorOf([&] { op->Run(); }).what(), "only float32 is scaled"));
  }
  CHECK(Call("PlainInstances", Floats{0})[0] == instances);

  const OpSchema& schema = OpRegistry::Global().GetSchema("PlainScale");
  CHECK(schema.origin() == "plain");
  CHECK(schema.doc() == "Multiplies by factor.");
  REQUIRE(schema.inputs().size() == 1);
  CHECK(schema.inputs()[0].name == "x");
  CHECK(schema.inputs()[0].dtypes == std::vector<DType>{DType::kFloat32});
  REQUIRE(schema.attributes().size() == 1);
  CHECK(schema.attributes()[0].name == "factor");
  CHECK(schema.attributes()[0].default_value->Get<float>() == 1);
  CheckOptions options;
  options.args = {{"factor", 3.f}};
  const CheckReport report = CheckOperator("PlainScale", options);
  CHECK_MESSAGE(report.ok(), ToString(report));
}

void CheckTyped(const char* library) {
  CAPTURE(library);
  Scoped typed(library);
  CHECK(Call("TypedScale", {1, 2, 3}, {{"factor", 11.f}}) == Floats{10, 20, 30});
  CheckOptions options;
  options.args = {{"factor", 3.f}};
  const CheckReport report = CheckOperator("TypedScale", options);
  CHECK_MESSAGE(report.ok(), ToString(report));
}

}  // namespace

TEST_CASE("a library of version 1.0 runs in this host") {
  CheckPlain("plain_v1");
  CheckTyped("typed_v1");
  Scoped plain("plain_v1");
  CHECK(plain->abi_version() == std::pair<uint32_t, uint32_t>(1, 0));
}

TEST_CASE("a library of a later version runs in this host") {
  CheckPlain("plain_newer");
  CheckTyped("typed_newer");
  Scoped plain("plain_newer");
  CHECK(plain->abi_version() ==
        std::pair<uint32_t, uint32_t>(1, OPKIT_ABI_MINOR + (kIsNewerHost ? 0 : 1)));
}

TEST_CASE("a library in C11 runs in this host") { CheckPlain("plain_now"); }

TEST_CASE("what a later library needs and this host has not is an error that names it") {
  Scoped plain("plain_newer");
  const Error error = ErrorOf([] { Call("PlainNewer", Floats{1}); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.what(),
                 StrCat("it needs newer_function of ABI 1.",
                        OPKIT_ABI_MINOR + (kIsNewerHost ? 0 : 1), ", which this program (1.",
                        OPKIT_ABI_MINOR, ") ", kIsNewerHost ? "does not offer" : "does not have")));
  CHECK(Contains(error.what(), "in forward of operator PlainNewer of library plain"));
}

}  // namespace library_abi_test
