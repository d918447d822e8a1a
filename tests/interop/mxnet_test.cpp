// Loading of libraries with MXNet's boundary: versions, refusals, copies, unloading.
#include "opkit/interop/mxnet.hpp"

#include "interop/mxnet/mxnet_fixture.hpp"

namespace mxnet_test {
using namespace mxnet_fixture;

namespace {

std::string Refusal(const std::string& name) {
  const std::string before = Registrations();
  const std::string failure = ErrorOf([&] { Library::Load(PathOf(name)); }).what();
  CHECK(Registrations() == before);
  CHECK_MESSAGE(Contains(failure, "lib" + name + ".so"), failure);
  return failure;
}
Floats Gemm(const std::string& backends = {}) {
  InvokeOptions options;
  options.backends = backends;
  return Invoke("my_gemm", GemmInputs(), {}, options).at(0).ToVector<float>();
}

}  // namespace

TEST_CASE("a library for MXNet is loaded like any other") {
  Scoped library("gemm");
  CHECK(library->name() == "libgemm.so");
  CHECK(library->operators() == Strings{"my_gemm", "state_gemm", "counters"});
  CHECK(library->partitioners().empty());
  CHECK(library->passes().empty());
  CHECK(Gemm() == Floats{50, 122});
  CHECK(Library::Load(PathOf("gemm")) == *library);  // it is loaded already
}

TEST_CASE("version 10 of the boundary loads without a function to destroy states") {
  Scoped library("gemm_v10");
  CHECK(Gemm() == Floats{50, 122});
  ResolvedOperator kept("state_gemm", 2, {{"test_kw", 5}});
  CHECK(kept(GemmInputs())[1].ToVector<int64_t>()[0] == 6);
}

TEST_CASE("other versions are refused with the reason") {
  const std::string seven = Refusal("gemm_v7");
  CHECK_MESSAGE(Contains(seven, "7"), seven);
  CHECK_MESSAGE(Contains(seven, "1.7"), seven);
  const std::string newer = Refusal("gemm_v42");
  for (const char* word : {"42", "10", "11"}) CHECK_MESSAGE(Contains(newer, word), newer);
}

TEST_CASE("a library that lacks a function, or refuses this version of MXNet, is refused") {
  const std::string lacks = Refusal("gemm_lacks");
  CHECK_MESSAGE(Contains(lacks, "_partRegSize"), lacks);
  const std::string refuses = Refusal("gemm_refuses");
  CHECK_MESSAGE(Contains(refuses, "MXNet version 10901 not supported"), refuses);
  CHECK_MESSAGE(Contains(refuses, "initialize"), refuses);
  const std::string typeless = Refusal("gemm_typeless");
  CHECK_MESSAGE(Contains(typeless, "my_gemm"), typeless);
  CHECK_MESSAGE(Contains(typeless, "setInferType"), typeless);
}

TEST_CASE("a library whose description cannot be is refused before its parts are read") {
  const std::string countless = Refusal("gemm_countless");
  CHECK_MESSAGE(Contains(countless, "it has 2147483647 operators"), countless);
  const std::string listless = Refusal("gemm_listless");
  CHECK_MESSAGE(Contains(listless, "my_gemm no list of its 1 devices"), listless);
}

TEST_CASE("a library leaves the process, unless a symbol keeps it") {
  Library library = Library::Load(PathOf("gemm"));
  CHECK(IsInMap("libgemm.so"));
  const UnloadReport report = library.Unload();
  CHECK_MESSAGE(report.unmapped, ToString(report));
  CHECK_FALSE(IsInMap("libgemm.so"));
  CHECK(OpRegistry::Global().FindSchema("my_gemm") == nullptr);
#if defined(__GNUC__) && !defined(__clang__)  // clang makes no such symbols
  Library pinned = Library::Load(PathOf("gemm_pinned"));
  CHECK(Gemm() == Floats{50, 122});
  const UnloadReport stays = pinned.Unload();
  CHECK_FALSE(stays.unmapped);
  CHECK_MESSAGE(Contains(StrCat(stays.pinned_by), "Unique<int>::number"), ToString(stays));
  CHECK(OpRegistry::Global().FindSchema("my_gemm") == nullptr);
#endif
}

TEST_CASE("two libraries with an operator of one name are two backends of it") {
  Scoped first("gemm");
  {
    Scoped second("gemm_too");
    CHECK(Gemm() == Floats{50, 122});
    CHECK(Gemm("gemm_too") == Floats{100, 244});
  }
  CHECK(Gemm() == Floats{50, 122});
  LoadOptions options;
  options.allow_override = true;
  {
    Scoped second("gemm_too", options);
    CHECK(Gemm() == Floats{100, 244});
  }
  CHECK(Gemm() == Floats{50, 122});
}

TEST_CASE("a second copy of a library has its own variables") {
  Scoped library("gemm");
  CHECK(ReadCounters().states_made == 0);
  LoadOptions options;
  options.own_copy = true;
  options.backend = "copy";
  InvokeOptions of_copy;
  of_copy.backends = "copy";
  {
    Library copy = Library::Load(PathOf("gemm"), options);
    Invoke("state_gemm", GemmInputs(), {}, of_copy);
    CHECK(ReadCounters().states_made == 0);
    CHECK(ReadCounters("copy").states_made == 1);
    CHECK(copy.Unload().unmapped);
  }
}

TEST_CASE("names of partitioners that the program has already are refused, and nothing is left") {
  Whole library;
  const std::string before = Registrations();
  LoadOptions options;
  options.own_copy = true;
  CheckFails([&] { Library::Load(PathOf("whole"), options); }, "which this program has already");
  CHECK(Registrations() == before);
}

TEST_CASE("a library can be loaded again after it was unloaded") {
  for (int i = 0; i < 3; ++i) {
    Whole library;
    CHECK(Gemm() == Floats{50, 122});
    CHECK(ReadCounters().initialized == 1);
  }
}

}  // namespace mxnet_test
