// Hosts and libraries of different versions of the ABI: libraries compiled against the frozen
// header of version 1.0 (abi_v1.tar.xz), against the present one and against a later one that CMake
// makes of it. This file is compiled twice, the second time as a host of the later version.
#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include "abi_pins.hpp"
#include "library_fixture.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/boundary/host/host_table.hpp"
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

// The program's operators that the libraries' operators call.
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
    CHECK(Contains(ErrorOf([&] { op->Run(); }).what(), "expected one of [float32]"));
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

// Structs as version 1.0 has them, each at the end of a page that nothing may be read behind.
class EndOfPage {
 public:
  // Kept until the program ends, as what describes a library is.
  template <class Struct>
  static Struct* Copy(Struct from, uint64_t bytes) {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    auto* const memory = static_cast<char*>(
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(::mprotect(memory + page, page, PROT_NONE) == 0);
    from.size = bytes;
    void* const at = memory + page - bytes;
    std::memcpy(at, static_cast<const void*>(&from), bytes);
    return static_cast<Struct*>(at);
  }
};

// A library of version 1.0 with one operator, y = 2 * x.
struct OldLibrary;
OldLibrary* g_old = nullptr;
struct OldLibrary {
  OldLibrary() {
    g_old = this;
    opkit_kernel made{};
    made.device = "cpu";
    made.forward = [](void*, const opkit_call* call) -> opkit_status {
      for (int64_t i = 0; i < opkit_numel(opkit_input(call, 0)); ++i)
        static_cast<float*>(opkit_output(call, 0)->data)[i] =
            2 * static_cast<float*>(opkit_input(call, 0)->data)[i];
      return OPKIT_OK;
    };
    kernel = EndOfPage::Copy(made, detail::kFirstBytes<opkit_kernel>);
    opkit_attr number{};
    number.name = "factor";
    number.count = 1;
    number.ints = &three;
    number.text = "3";
    opkit_parameter declared{};
    declared.name = "factor";
    declared.type = OPKIT_ATTR_INT;
    declared.default_value = EndOfPage::Copy(number, detail::kFirstBytes<opkit_attr>);
    attribute = EndOfPage::Copy(declared, detail::kFirstBytes<opkit_parameter>);
    declared.name = "x";
    declared.default_value = nullptr;
    input = EndOfPage::Copy(declared, detail::kFirstBytes<opkit_parameter>);
    opkit_op described{};
    described.name = "OldTwice";
    described.num_kernels = 1;
    described.kernels = &kernel;
    described.num_attrs = described.num_inputs = 1;
    described.attrs = &attribute;
    described.inputs = &input;
    described.parse_attrs = [](const opkit_op*, const opkit_node*, int32_t* inputs,
                               int32_t* outputs) -> opkit_status {
      return *inputs = *outputs = 1, OPKIT_OK;
    };
    described.infer_shape = [](const opkit_op*, const opkit_node*, opkit_value* inputs,
                               opkit_value* outputs) -> opkit_status {
      outputs[0].rank = inputs[0].rank;
      std::memcpy(outputs[0].dims, inputs[0].dims, sizeof inputs[0].dims);
      return OPKIT_OK;
    };
    op = EndOfPage::Copy(described, detail::kFirstBytes<opkit_op>);
    opkit_library whole{};
    whole.abi_major = 1;
    whole.num_ops = 1;
    whole.ops = &op;
    library = EndOfPage::Copy(whole, detail::kFirstBytes<opkit_library>);
  }
  OldLibrary(const OldLibrary&) = delete;
  int64_t three = 3;
  const opkit_kernel* kernel;
  const opkit_parameter *attribute, *input;
  const opkit_op* op;
  const opkit_library* library;
};

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

TEST_CASE("a library of version 1.0 is not read past the end of its structs") {
  OldLibrary old;
  Library library = Library::LoadEntry([](const opkit_host*) { return g_old->library; }, "old");
  const OpSchema& schema = OpRegistry::Global().GetSchema("OldTwice");
  CHECK(schema.inputs()[0].name == "x");
  CHECK_FALSE(schema.has_cost());
  CHECK(schema.Cost(OperatorDef("OldTwice", {"x"}, {"y"}), {{DType::kFloat32, Shape{2}}}, {})
            .bytes_read == 8);
  CHECK(*schema.FindAttribute("factor")->default_value == Attribute(3));
  CHECK(OpRegistry::Global().KernelsOf("OldTwice")[0]->backend == kReferenceBackend);
  CHECK(Call("OldTwice", {1, 2}) == Floats{2, 4});
  library.Unload();
}

TEST_CASE("a host of version 1.0 is not read past the end of its structs") {
  opkit_host older = detail::HostTable::Global();
  older.abi_minor = 0;
  const opkit_host* const host = EndOfPage::Copy(older, detail::kFirstBytes<opkit_host>);
  auto object = detail::SharedObject::OpenCopy(PathOf("features"));
  const auto entry =
      reinterpret_cast<opkit_library_entry_function>(object->Find(OPKIT_LIBRARY_ENTRY));
  const opkit_library* library = entry(host);
  REQUIRE(library);
  const opkit_op* found = nullptr;
  for (uint64_t i = 0; i < library->num_ops; ++i)
    if (std::string_view(library->ops[i]->name) == "LibNonZero") found = library->ops[i];
  REQUIRE(found);
  const opkit_kernel& kernel = *found->kernels[0];
  opkit_node node{};
  node.size = sizeof node;
  node.op = "LibNonZero";
  void* instance = nullptr;
  REQUIRE(kernel.create(&kernel, &node, &instance) == OPKIT_OK);
  const int64_t extents[] = {1, 1};
  float x = 1;
  int64_t count = 0;
  const OpTensor input(&x, DType::kFloat32, extents, extents, 1);
  const OpTensor outputs[] = {OpTensor(nullptr, DType::kUndefined, {}, {}),
                              OpTensor(&count, DType::kInt64, extents, extents, 1)};
  opkit_call call{};
  call.size = detail::kFirstBytes<opkit_call>;
  call.host = host;
  call.op = "LibNonZero";
  call.num_inputs = 1;
  call.inputs = &input.view();
  call.num_outputs = 2;
  call.outputs = &outputs[0].view();
  const detail::HostErrorScope message;
  CHECK(kernel.forward(instance, EndOfPage::Copy(call, detail::kFirstBytes<opkit_call>)) ==
        OPKIT_UNSUPPORTED);
  CHECK(detail::CurrentHostError().text == "allocate_output needs ABI 1.1; this program has 1.0");
  CHECK(count == 1);
  kernel.destroy(instance);
  if (library->finalize) library->finalize();
}

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

TEST_CASE("a function that a later library needs and this host lacks is an error with its name") {
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
