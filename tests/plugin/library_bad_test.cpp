// Libraries that are wrong: each is refused with a sentence that says what, and leaves the program
// as it was.
#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "library_fixture.hpp"
#include "opkit/graph/subgraph.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/check.hpp"
#include "opkit/profile/profiler.hpp"
#include "support/temporary_folder.hpp"

namespace library_bad_test {
namespace {

using namespace opkit;
using namespace library_fixture;
namespace fs = std::filesystem;

// Refused, and nothing has changed.
Error Refusal(const std::string& path) {
  const std::string before = Registrations();
  const size_t loaded = Library::All().size();
  const Error error = ErrorOf([&] { Library::Load(path); });
  CHECK(Registrations() == before);
  CHECK(Library::All().size() == loaded);
  return error;
}

// ------------------------------------------------------------------- a description, made here

opkit_status ForwardOk(void*, const opkit_call* call) {
  for (uint64_t o = 0; o < call->num_outputs; ++o) {
    const opkit_tensor* out = opkit_output(call, o);
    if (out->dtype == OPKIT_FLOAT32)
      for (int64_t i = 0; i < opkit_numel(out); ++i) static_cast<float*>(out->data)[i] = 1;
  }
  return OPKIT_OK;
}

// A library with one operator, BadOp, that is right until a test changes it.
struct Description {
  Description() {
    kernel.size = sizeof kernel;
    kernel.device = "cpu";
    kernel.forward = ForwardOk;
    op.size = sizeof op;
    op.name = "BadOp";
    op.num_kernels = 1;
    op.kernels = kernels;
    other = op;
    other.name = "BadOther";
    library.size = sizeof library;
    library.abi_major = OPKIT_ABI_MAJOR;
    library.abi_minor = 0;  // which required no more than this
    library.num_ops = 2;
    library.ops = ops;
    parameter.size = sizeof parameter;
    parameter.name = "p";
    parameter.type = -1;
    attr.size = sizeof attr;
    attr.name = "p";
    attr.type = OPKIT_ATTR_INT;
    attr.count = 1;
    attr.ints = numbers;
    attr.text = "1";
  }
  opkit_kernel kernel{};
  opkit_kernel second_kernel{};
  const opkit_kernel* kernels[2] = {&kernel, &second_kernel};
  opkit_op op{}, other{};
  const opkit_op* ops[2] = {&op, &other};
  opkit_library library{};
  opkit_parameter parameter{};
  const opkit_parameter* parameters[2] = {&parameter, nullptr};
  opkit_attr attr{};
  int64_t numbers[2] = {1, 2};
  int32_t pairs[2] = {0, 0};
};
Description* g_description = nullptr;
const opkit_library* Describe(const opkit_host*) { return &g_description->library; }

// The Error for a description that `change` has changed.
template <class Change>
Error ErrorAfter(Change change) {
  Description description;
  change(description);
  g_description = &description;
  const std::string before = Registrations();
  const size_t loaded = Library::All().size();
  const Error error = ErrorOf([&] {
    Library library = Library::LoadEntry(&Describe, "made");
    library.Unload();
  });
  CHECK(Registrations() == before);
  CHECK(Library::All().size() == loaded);
  return error;
}
template <class Change>
std::string MessageAfter(Change change) {
  return ErrorAfter(change).message();
}
constexpr const char* kAccepted = "no Error was thrown";

// The Error of creating and running BadOp with a description that `change` has changed.
template <class Change>
Error RunErrorAfter(Change change, Arguments args = {}, int num_outputs = 1) {
  Description description;
  change(description);
  g_description = &description;
  const std::string before = Registrations();
  Library library = Library::LoadEntry(&Describe, "made");
  const Error error = ErrorOf([&] {
    InvokeOptions options;
    options.num_outputs = num_outputs;
    Invoke("BadOp", {Vector({1, 2})}, std::move(args), options);
  });
  library.Unload();
  CHECK(Registrations() == before);
  return error;
}
opkit_status SameShape(const opkit_op*, const opkit_node* node, opkit_value* inputs,
                       opkit_value* outputs) {
  for (uint64_t o = 0; o < node->num_outputs; ++o) {
    outputs[o].rank = inputs[0].rank;
    std::memcpy(outputs[o].dims, inputs[0].dims, sizeof inputs[0].dims);
  }
  return OPKIT_OK;
}

}  // namespace

TEST_CASE("a file that is no shared object is refused, with its kind") {
  const TemporaryFolder folder;
  Error error = Refusal(folder / "libnone.so");
  CHECK(error.code() == ErrorCode::kIo);
  CHECK(Contains(error.message(), "libnone.so' to be a shared object, but it does not exist"));
  CHECK(Contains(Refusal(folder / "").message(), "but it is a directory"));
  std::ofstream(folder / "text.so") << "not a library\n";
  CHECK(Contains(Refusal(folder / "text.so").message(), "but it is a text file"));
  CHECK(Contains(Refusal("").message(), "is not a path"));

  // Cut off at every length that may matter.
  std::ifstream file(PathOf("twice"), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(whole.size() > 8192);
  for (const size_t size : {size_t{0}, size_t{3}, size_t{20}, size_t{100}, size_t{4096},
                            whole.size() / 2, whole.size() - 1}) {
    CAPTURE(size);
    const std::string path = folder / StrCat("cut", size, ".so");
    std::ofstream(path, std::ios::binary) << whole.substr(0, size);
    error = Refusal(path);
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), path));
  }
  CHECK(Contains(Refusal(folder / "cut4096.so").message(), "is cut off"));
  std::string other = whole;
  other[18] = '\x28';  // e_machine: ARM
  other[19] = 0;
  std::ofstream(folder / "arm.so", std::ios::binary) << other;
  error = Refusal(folder / "arm.so");
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(), "is built for ARM"));
}

TEST_CASE("a shared object that is no library of operators is refused") {
  CHECK(Refusal(PathOf("no_entry")).message() ==
        PathOf("no_entry") +
            " is a shared object, but exports no opkit_library_entry: it is not a library of "
            "operators. Include opkit/op.hpp in it, or opkit/plugin/author.hpp beside "
            "opkit/opkit.hpp");
  CHECK(Contains(Refusal(PathOf("mangled_entry")).message(),
                 "exports no opkit_library_entry: it is not a library of operators. One is there "
                 "that is not extern \"C\""));
  CHECK_FALSE(IsInMap("libno_entry.so"));
  CHECK_FALSE(IsInMap("libmangled_entry.so"));
}

TEST_CASE("an author's mistakes are reported when the library is loaded") {
  const auto refusal = [](const char* wish) {
    ::setenv("OPKIT_TEST_WRONG", wish, 1);
    const Error error = Refusal(PathOf("wrong"));
    CHECK_FALSE(IsInMap("libwrong.so"));
    ::unsetenv("OPKIT_TEST_WRONG");
    return error;
  };
  const std::string lib = "library libwrong.so ";
  CHECK(refusal("initialize fails").message() == lib + "failed to initialize: no device 7");
  CHECK(refusal("initialize fails").code() == ErrorCode::kOperatorFailed);
  ::setenv("OPKIT_TEST_INITIALIZE_FAILS", "1", 1);
  CHECK(Refusal(PathOf("partitioner")).message() ==
        "library libpartitioner.so failed to initialize: version 10901 is told to fail");
  ::unsetenv("OPKIT_TEST_INITIALIZE_FAILS");
  CHECK(refusal("initialize fails in silence").message() ==
        lib +
            "failed to initialize: it returned FAIL, which is 0 (SUCCESS is 1); say why with "
            "OPKIT_ERROR_MSG << \"…\"");
  CHECK(refusal("initialize throws").message() == lib + "failed to initialize: no licence");
  CHECK(refusal("initialize throws an Error").code() == ErrorCode::kNotFound);
  CHECK(Contains(refusal("initialize throws an Error").message(), "no such file"));
  CHECK(refusal("initialize throws a number").message() ==
        lib + "failed to initialize: it threw something that is not a std::exception");
  const Error twice = refusal("two of a name");
  CHECK(twice.code() == ErrorCode::kAlreadyExists);
  CHECK(twice.message() == lib + "has two operators named LibRight; remove or rename one");
  CHECK(Contains(refusal("gradient twice").message(),
                 "has two operators named LibWithGradient_backward"));
  CHECK(Contains(refusal("empty name").message(), "gives operator 1 no name"));
  CHECK(Contains(refusal("long name").message(),
                 "has an operator's name of more than 255 bytes: aaaa"));
  CHECK(Contains(refusal("control character").message(),
                 "has an operator's name that holds the character 10; use letters"));
  CHECK(Contains(refusal("no forward").message(),
                 "has operator LibBackwardOnly without a forward function for cpu; "
                 "REGISTER_OP(LibBackwardOnly).setForward(f, \"cpu\")"));
  CHECK(
      Contains(refusal("nothing").message(), "has operator LibNothing without a kernel; give it"));
  CHECK(
      Contains(refusal("forward twice").message(), "refuses to be loaded: REGISTER_OP(LibTwice)"));
  CHECK(Contains(refusal("forward twice").message(), "setForward(f, \"cpu\") is called twice"));
  CHECK(Contains(refusal("device").message(),
                 "has a kernel of operator LibOnTpu for \"tpu\", which is no device type of this "
                 "program; \"cpu\", \"gpu\" and \"cpu_stream\" are"));
  CHECK(refusal("no parseAttrs").message() ==
        lib +
            "has operator LibBare without parseAttrs: nothing says how many inputs and outputs a "
            "node has; add .setParseAttrs(f), or declare them by .input(name) and "
            ".output(name)");
  CHECK(Contains(refusal("no inferShape").message(),
                 lib + "has operator LibBare without inferShape: nothing says the shapes of its "
                       "outputs; add .setInferShape(f)"));
  CHECK(Contains(refusal("no inferType").message(),
                 lib + "has operator LibBare without inferType: it has no input whose dtype its "
                       "outputs could have; add .setInferType(f)"));
  CHECK(Contains(refusal("attribute twice").message(), "attribute 'a' is declared twice"));
  Scoped right("wrong");  // with nothing wrong it loads
  CHECK(right->operators() == std::vector<std::string>{"LibRight"});
}

TEST_CASE("an entry that refuses, with and without a text, or throws") {
  const auto message = [](opkit_library_entry_function entry) {
    return ErrorOf([&] { Library::LoadEntry(entry, "made"); }).message();
  };
  CHECK(message([](const opkit_host* host) -> const opkit_library* {
          host->set_error(OPKIT_UNSUPPORTED, "this host is too old", 20);
          return nullptr;
        }) == "library made refuses to be loaded: this host is too old");
  CHECK(message([](const opkit_host*) -> const opkit_library* { return nullptr; }) ==
        "library made refuses to be loaded: its entry returned null and does not say why");
  CHECK(message([](const opkit_host*) -> const opkit_library* {
          throw std::runtime_error("in C++");
        }) == "library made refuses to be loaded: it threw across the ABI: in C++");
  CHECK(Contains(message([](const opkit_host*) -> const opkit_library* { throw 5; }),
                 "something that is not a std::exception"));
}

TEST_CASE("a description of another version, or that is cut off, is refused") {
  CHECK(MessageAfter([](Description&) {}) == kAccepted);
  Error error = ErrorAfter([](Description& d) { d.library.abi_major = 2; });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message() ==
        StrCat("library made was compiled for version 2.0 of the ABI, this program has 1.",
               OPKIT_ABI_MINOR, "; compile it with headers of ABI version 1"));
  CHECK(Contains(MessageAfter([](Description& d) { d.library.abi_minor = 1; }),
                 "library made has operator BadOp without parseAttrs"));
  CHECK(MessageAfter([](Description& d) {
          d.library.abi_minor = 99;
          for (opkit_op* op : {&d.op, &d.other}) {
            op->parse_attrs = [](const opkit_op*, const opkit_node*, int32_t*, int32_t*) {
              return opkit_status{OPKIT_OK};
            };
            op->infer_shape = SameShape;
          }
        }) == kAccepted);
  CHECK(MessageAfter([](Description& d) { d.library.size = 100; }) ==
        "library made describes itself in 100 bytes, where version 1.0 has 104; fill in "
        "opkit_library.size with sizeof(opkit_library)");
  CHECK(MessageAfter([](Description& d) { d.library.size = 0; }) != kAccepted);
  CHECK(MessageAfter([](Description& d) { d.op.size = 8; }) ==
        StrCat("library made describes operator 0 in 8 bytes, where version 1.0 has ",
               detail::kFirstBytes<opkit_op>, "; fill in opkit_op.size with sizeof(opkit_op)"));
  CHECK(Contains(MessageAfter([](Description& d) {
                   d.library.abi_minor = OPKIT_ABI_MINOR;
                   d.library.num_passes = 2;
                 }),
                 "has 2 descriptions of a pass, which are null"));
  // The passes are not read: their places were reserved in this version.
  CHECK(MessageAfter([](Description& d) { d.library.num_passes = 2; }) == kAccepted);
}

using D = Description&;

// Checks the message for a library with a description that `change` has changed.
template <class Change>
void CheckRefused(Change change, const char* text) {
  const std::string message = MessageAfter(change);
  CAPTURE(message);
  CHECK(Contains(message, text));
  CHECK(Contains(message, "library made "));
}

TEST_CASE("a library of wrong names, or with too few or too many operators, is refused") {
  CheckRefused([](D d) { d.library.ops = nullptr; },
               "has operators, but opkit_library.ops is null");
  CheckRefused([](D d) { d.ops[1] = nullptr; }, "has a null pointer for operator 1");
  CheckRefused([](D d) { d.library.num_ops = uint64_t{1} << 60; }, "operators; at most a million");
  CheckRefused([](D d) { d.library.name = "a\nb"; },
               "has opkit_library.name that holds the character 10");
  CheckRefused([](D d) { d.library.version = "1\t2"; },
               "has opkit_library.version that holds the character 9");
  const std::string long_name(300, 'x');
  CheckRefused([&](D d) { d.library.name = long_name.c_str(); }, "of more than 255 bytes: xxxx");
  CheckRefused([](D d) { d.op.name = nullptr; }, "gives operator 0 no name");
  CheckRefused([](D d) { d.op.name = ""; }, "gives operator 0 no name");
  CheckRefused([](D d) { d.op.name = "a b"; }, "name that holds the character 32");
  CheckRefused([](D d) { d.op.name = "\x7f"; }, "name that holds the character 127");
  CheckRefused([](D d) { d.other.name = "BadOp"; }, "has two operators named BadOp");
}

TEST_CASE("an operator without kernels, or with kernels that cannot be, is refused") {
  CheckRefused([](D d) { d.op.kernels = nullptr; }, "has operator BadOp without a kernel");
  CheckRefused([](D d) { d.op.num_kernels = 0; }, "has operator BadOp without a kernel");
  CheckRefused([](D d) { d.op.num_kernels = uint64_t{1} << 40; },
               "has operator BadOp with 1099511627776");
  CheckRefused([](D d) { d.kernels[0] = nullptr; }, "has kernel 0 of operator BadOp that is null");
  CheckRefused([](D d) { d.kernel.size = 40; }, "shorter than version 1.0's or without a device");
  CheckRefused([](D d) { d.kernel.device = nullptr; }, "or without a device");
  CheckRefused([](D d) { d.kernel.device = ""; },
               "has a kernel of operator BadOp for \"\", which is no");
  CheckRefused([](D d) { d.kernel.forward = nullptr; },
               "has operator BadOp without a forward function");
  CheckRefused(
      [](D d) {
        d.second_kernel = d.kernel;
        d.op.num_kernels = 2;
      },
      "has two kernels of operator BadOp for cpu");
}

TEST_CASE("in-place pairs that are null or outside the operator are refused") {
  CheckRefused([](D d) { d.op.num_inplace = 1; },
               "has operator BadOp whose in-place pairs are null");
  CheckRefused(
      [](D d) {
        d.op.num_inplace = 1;
        d.op.inplace = d.pairs;
        d.pairs[1] = -1;
      },
      "has operator BadOp that may run in place from input 0 to output -1");
}

void DeclareAttribute(D d) {
  d.op.num_attrs = 1;
  d.op.attrs = d.parameters;
}
void DeclareDefault(D d) {
  DeclareAttribute(d);
  d.parameter.default_value = &d.attr;
}

TEST_CASE("declared attributes without a name or a type that exists are refused") {
  CheckRefused([](D d) { d.op.num_attrs = 1; }, "has operator BadOp whose attributes are null");
  CheckRefused([](D d) { DeclareAttribute(d), d.parameters[0] = nullptr; },
               "attributes number 0 is null");
  CheckRefused([](D d) { DeclareAttribute(d), d.parameter.size = 8; },
               "attributes number 0 is null or");
  CheckRefused([](D d) { DeclareAttribute(d), d.parameter.name = nullptr; },
               "attributes number 0 has no");
  CheckRefused([](D d) { DeclareAttribute(d), d.parameter.type = 10; },
               "'p' has the type 10, which does");
  CheckRefused([](D d) { DeclareAttribute(d), d.parameter.name = "\033[2J"; },
               "holds the character 27");
  CheckRefused(
      [](D d) {
        DeclareAttribute(d);
        d.op.num_attrs = 2;
        d.parameters[1] = d.parameters[0];
      },
      "with two attributes named 'p'");
}

TEST_CASE("defaults that do not fit their attribute are refused") {
  CHECK(MessageAfter(DeclareDefault) == kAccepted);
  CheckRefused([](D d) { DeclareDefault(d), d.parameter.type = OPKIT_ATTR_STRING; },
               "has a default of the type 0, but the type 3");
  CheckRefused([](D d) { DeclareDefault(d), d.attr.size = 8; },
               "'p' has a default that is shorter");
  CheckRefused([](D d) { DeclareDefault(d), d.attr.type = -1; },
               "'p' has a default that has the type -1, which");
  CheckRefused([](D d) { DeclareDefault(d), d.attr.count = 2; },
               "that has 2 elements and is no list");
  CheckRefused([](D d) { DeclareDefault(d), d.attr.ints = nullptr; },
               "that has elements that are null");
  CheckRefused([](D d) { DeclareDefault(d), d.attr.type = OPKIT_ATTR_STRING; },
               "that has elements that are null");
  CheckRefused([](D d) { DeclareDefault(d), d.attr.count = uint64_t{1} << 50; },
               "has a default that has 112589");
}

// Checks the message of a run whose functions `change` has changed.
template <class Change>
void CheckRunFails(Change change, const char* text) {
  const std::string what = RunErrorAfter(change).what();
  CAPTURE(what);
  CHECK(Contains(what, text));
  CHECK(Contains(what, "of library made"));
}

TEST_CASE("an operator whose node carries a graph infers types and shapes, or neither") {
  const auto carries = [](D d) {
    d.library.abi_minor = OPKIT_ABI_MINOR;
    d.library.num_ops = 1;
    d.op.flags = OPKIT_OP_SUBGRAPH;
    d.op.parse_attrs = [](const opkit_op*, const opkit_node*, int32_t* inputs, int32_t* outputs) {
      *inputs = *outputs = 1;
      return opkit_status{OPKIT_OK};
    };
  };
  CHECK(MessageAfter(carries) == kAccepted);
  CheckRefused(
      [&](D d) {
        carries(d);
        d.op.infer_type = [](const opkit_op*, const opkit_node*, opkit_value*, opkit_value*) {
          return opkit_status{OPKIT_OK};
        };
      },
      "has operator BadOp without inferShape: nothing says the shapes of its outputs; add "
      ".setInferShape(f), or leave out .setInferType(f): then both follow from the graph");
}

TEST_CASE("a node has the values of its graph, unless parse_attrs computes another number") {
  Graph body;
  body.AddInput("a", DType::kFloat32, {2}).AddInput("b", DType::kFloat32, {2});
  body.AddNode(OperatorDef("Unknown", {"a", "b"}, {"c"}));
  body.AddOutput("c");
  Description d;
  d.library.abi_minor = OPKIT_ABI_MINOR;
  d.library.num_ops = 1;
  d.op.flags = OPKIT_OP_SUBGRAPH;
  const auto verify = [&](std::vector<std::string> inputs, std::vector<std::string> outputs) {
    g_description = &d;
    Library library = Library::LoadEntry(&Describe, "made");
    const std::string why = OpRegistry::Global().FindSchema("BadOp")->Verify(
        OperatorDef("BadOp", std::move(inputs), std::move(outputs))
            .Subgraph("body", MakeSubgraph(body)));
    library.Unload();
    return why;
  };
  CHECK(verify({"x", "y"}, {"z"}).empty());
  const std::string wrong =
      "BadOp has 3 inputs and 1 outputs, but the graph 'body' that it carries has 2 and 1";
  CHECK(verify({"x", "y", "w"}, {"z"}) == wrong);
  d.op.parse_attrs = [](const opkit_op*, const opkit_node*, int32_t*, int32_t*) {
    return opkit_status{OPKIT_OK};  // says nothing
  };
  CHECK(verify({"x", "y", "w"}, {"z"}) == wrong);
  CHECK(Contains(verify({"x", "y"}, {"z", "z2"}), "has 2 inputs and 2 outputs, but the graph"));
  d.op.parse_attrs = [](const opkit_op*, const opkit_node* node, int32_t* inputs, int32_t*) {
    if (node->num_graphs == 1) *inputs = static_cast<int32_t>(node->graphs[0]->num_inputs) + 1;
    return opkit_status{OPKIT_OK};
  };
  CHECK(verify({"x", "y", "w"}, {"z"}).empty());
  CHECK(verify({"x", "y"}, {"z"}) == "BadOp has 2 inputs, expected 3 with these attributes");
}

TEST_CASE("an attribute that the program's schema of the operator lacks is warned of") {
  static std::string log;
  const LogHook before = SetLogHook([](LogLevel level, std::string_view, std::string_view text) {
    log = StrCat(level, ": ", text);
  });
  FunctionOpBuilder("BadOp", __FILE__, __LINE__)
      .arg<int64_t>("other", "")
      .setForward(
          [](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {})
      .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out = in; });
  CHECK(MessageAfter([](D d) { DeclareAttribute(d); }) == kAccepted);
  CHECK(log ==
        "warning: its operator BadOp declares the attribute 'p', but the program has BadOp "
        "already, whose schema stays: nodes cannot give it; unload the other one first");
  log.clear();
  CHECK(MessageAfter([](D) {}) == kAccepted);
  CHECK(log.empty());
  OpRegistry::Global().Remove("BadOp");
  SetLogHook(before);
}

TEST_CASE("a status without a text is reported by its number or code") {
  CheckRunFails(
      [](D d) {
        d.kernel.forward = [](void*, const opkit_call*) -> opkit_status { return 77; },
        d.op.infer_shape = SameShape;
      },
      "it returned status 77 without a text");
  CheckRunFails(
      [](D d) {
        d.kernel.forward = [](void*, const opkit_call*) -> opkit_status { return -5; },
        d.op.infer_shape = SameShape;
      },
      "it returned status -5 without a text");
  CHECK(RunErrorAfter([](D d) {
          d.op.infer_shape = SameShape;
          d.kernel.forward = [](void*, const opkit_call*) -> opkit_status {
            return OPKIT_DEADLINE_EXCEEDED;
          };
        }).code() == ErrorCode::kDeadlineExceeded);
  CheckRunFails(
      [](D d) {
        d.op.infer_type = [](const opkit_op*, const opkit_node*, opkit_value*,
                             opkit_value*) -> opkit_status { return OPKIT_FAILED; };
      },
      "inferType of operator BadOp of library made failed: it returned FAIL, which is 0 (SUCCESS "
      "is 1); say why with");
}

TEST_CASE("an exception across the ABI is reported with the function that threw") {
  CheckRunFails(
      [](D d) {
        d.kernel.forward = [](void*, const opkit_call*) -> opkit_status {
          throw std::runtime_error("from C++");
        },
        d.op.infer_shape = SameShape;
      },
      "it threw across the ABI: from C++");
  CheckRunFails(
      [](D d) {
        d.kernel.create = [](const opkit_kernel*, const opkit_node*, void**) -> opkit_status {
          throw 5;
        };
      },
      "something that is not a std::exception");
  CheckRunFails(
      [](D d) {
        d.op.parse_attrs = [](const opkit_op*, const opkit_node*, int32_t*,
                              int32_t*) -> opkit_status { throw 5; };
      },
      "something that is not a std::exception");
  CheckRunFails(
      [](D d) {
        d.op.infer_shape = [](const opkit_op*, const opkit_node*, opkit_value*,
                              opkit_value*) -> opkit_status { throw 5; };
      },
      "inferShape of operator BadOp");
}

TEST_CASE("a destroy or finalize that throws does no harm") {
  CHECK(RunErrorAfter([](Description& d) {
          d.kernel.create = [](const opkit_kernel*, const opkit_node*, void**) -> opkit_status {
            return OPKIT_OK;
          };
          d.kernel.destroy = [](void*) { throw 5; };
          d.library.finalize = [] { throw 5; };
          d.op.infer_shape = SameShape;
        }).message() == kAccepted);
}

TEST_CASE("an exception of finalize is in the report of unloading") {
  Description description;
  description.library.finalize = [] { throw std::runtime_error("the log cannot be written"); };
  g_description = &description;
  const UnloadReport report = Library::LoadEntry(&Describe, "made").Unload();
  CHECK(report.finalize_failure == "it threw across the ABI: the log cannot be written");
  CHECK(Contains(ToString(report), "; its finalize failed: it threw across the ABI: the log"));
  description.library.finalize = [] {};
  CHECK(Library::LoadEntry(&Describe, "made").Unload().finalize_failure.empty());
}

TEST_CASE("a library that registers no operator is loaded, with a line in the log") {
  static std::string log;
  const LogHook before =
      SetLogHook([](LogLevel level, std::string_view from, std::string_view text) {
        log = StrCat(level, ": ", from, ": ", text);
        static_cast<void>(Library::All());  // a hook may ask for libraries
      });
  Description description;
  g_description = &description;
  Library::LoadEntry(&Describe, "made").Unload();
  CHECK(log == "");
  description.library.num_ops = 0;
  Library::LoadEntry(&Describe, "made").Unload();
  SetLogHook(before);
  CHECK(log ==
        "warning: made: registers no operator; write REGISTER_OP(name)… in it, or a class's "
        "registration in a unit that includes opkit/op.hpp");
}

TEST_CASE("an operator may have colons in its name, and is profiled under it") {
  Profiler::Start();
  const Error error = ErrorOf([] {
    Description description;
    description.op.name = "a::b";
    description.op.infer_shape = SameShape;
    g_description = &description;
    Library library = Library::LoadEntry(&Describe, "made");
    Invoke("a::b", {Vector({1, 2})}, {}, {.num_outputs = 1});
    library.Unload();
  });
  Profiler::Stop();
  CHECK(error.message() == kAccepted);
  const Profile profile = Profiler::Read();
  REQUIRE(profile.spans.size() == 1);
  CHECK(DisplayName(profile.spans[0]) == "a::b");
  CHECK(std::string(DomainOf(profile.spans[0])) == "Custom Operators");
}

TEST_CASE("the faults of several operators are reported at once") {
  CHECK(MessageAfter([](Description& d) {
          d.op.num_kernels = 0;
          d.other.name = "Bad Other";
        }) ==
        "library made has operator BadOp without a kernel; give it a forward function: "
        "REGISTER_OP(…).setForward(f), or setCreateOpState(f)\n"
        "library made has an operator's name that holds the character 32; use letters, digits, _ . "
        "-");
  CHECK(MessageAfter([](Description& d) { d.library.abi_minor = 1; }) ==
        "library made has operator BadOp without parseAttrs: nothing says how many inputs and "
        "outputs a node has; add .setParseAttrs(f), or declare them by .input(name) and "
        ".output(name)\n"
        "library made has operator BadOther without parseAttrs: nothing says how many inputs and "
        "outputs a node has; add .setParseAttrs(f), or declare them by .input(name) and "
        ".output(name)");
}

TEST_CASE("finalize is called once: when it is unloaded, or when it cannot be registered") {
  static int finalized;
  static int initialized;
  finalized = initialized = 0;
  const auto count = [](Description& d) {
    d.library.initialize = [](uint32_t, uint32_t) -> opkit_status {
      return ++initialized, OPKIT_OK;
    };
    d.library.finalize = [] { ++finalized; };
  };
  CHECK(MessageAfter(count) == kAccepted);
  CHECK(initialized == 1);
  CHECK(finalized == 1);
  // The operator of its gradient is the program's.
  FunctionOpBuilder("BadOp_backward", __FILE__, __LINE__)
      .setForward(
          [](const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {});
  const Error error = ErrorAfter([&](Description& d) {
    count(d);
    d.kernel.backward = ForwardOk;
    d.ops[0] = &d.other;  // one is registered before the other fails
    d.ops[1] = &d.op;
    d.other.kernels = d.kernels + 1;
    d.second_kernel = d.kernel;
    d.second_kernel.backward = nullptr;
  });
  OpRegistry::Global().Remove("BadOp_backward");
  CHECK(error.code() == ErrorCode::kAlreadyExists);
  CHECK(error.message() ==
        "library made brings operator BadOp with a backward function, whose operator "
        "BadOp_backward this program has already; rename it");
  CHECK(initialized == 2);
  CHECK(finalized == 2);
}

TEST_CASE("absurd shapes that a library infers are errors that show them") {
  static int64_t answer;
  static int32_t rank;
  const auto with = [](int64_t extent, int32_t axes) {
    answer = extent;
    rank = axes;
    return RunErrorAfter([](D d) {
      d.op.infer_shape = [](const opkit_op*, const opkit_node*, opkit_value*,
                            opkit_value* outputs) -> opkit_status {
        outputs[0].rank = rank;
        for (int64_t& extent_of_axis : outputs[0].dims) extent_of_axis = answer;
        return OPKIT_OK;
      };
    });
  };
  const std::string where = "in the result of inferShape of operator BadOp of library made";
  CHECK(with(2, 1).message() == kAccepted);
  CHECK(Contains(with(-2, 1).what(), "it says extent -2 on axis 0 of output 0; -1 is unknown"));
  CHECK(Contains(with(-2, 1).what(), where));
  CHECK(Contains(with(std::numeric_limits<int64_t>::min(), 1).what(), where));
  CHECK(Contains(with(1, 33).what(), "it says rank 33 for output 0"));
  CHECK(Contains(with(1, -2).what(), "it says rank -2 for output 0"));
  CHECK(Contains(with(1, -2).what(), where));
  CHECK(with(std::numeric_limits<int64_t>::max(), 1).message() != kAccepted);
  CHECK(with(std::numeric_limits<int64_t>::max(), 32).message() != kAccepted);
  CHECK(Contains(with(-1, 2).what(), "leaves output 0 unknown: [?, ?]"));
}

TEST_CASE("a dtype that does not exist is no answer of inferType") {
  static int32_t dtype;
  const auto of_type = [](int32_t number) {
    dtype = number;
    return RunErrorAfter([](D d) {
      d.op.infer_shape = SameShape;
      d.op.infer_type = [](const opkit_op*, const opkit_node*, opkit_value*,
                           opkit_value* outputs) -> opkit_status {
        outputs[0].dtype = dtype;
        return OPKIT_OK;
      };
    });
  };
  CHECK(Contains(of_type(16).what(), "it says dtype 16 for output 0, which does not exist"));
  CHECK(
      Contains(of_type(-2).what(), "in the result of inferType of operator BadOp of library made"));
  CHECK(of_type(OPKIT_FLOAT64).message() == kAccepted);
}

TEST_CASE("an arity below any number is no answer of parseAttrs") {
  static int32_t arity;
  const auto of_arity = [](int32_t number) {
    arity = number;
    return RunErrorAfter(
        [](D d) {
          d.op.infer_shape = SameShape;
          d.op.parse_attrs = [](const opkit_op*, const opkit_node*, int32_t* num_inputs,
                                int32_t* num_outputs) -> opkit_status {
            *num_inputs = 1;
            *num_outputs = arity;
            return OPKIT_OK;
          };
        },
        {}, arity < 0 ? 1 : -1);
  };
  CHECK(of_arity(3).message() == kAccepted);
  CHECK(of_arity(-1).message() == kAccepted);
  CHECK(Contains(of_arity(-2).what(),
                 "parseAttrs of operator BadOp of library made says 1 inputs "
                 "and -2 outputs; -1 is any number"));
  CHECK(Contains(of_arity(2147483647).what(), "and 2147483647 outputs"));
}

TEST_CASE("scratch of less than nothing, and of more than there is, is an Error") {
  static int64_t scratch;
  const auto of_scratch = [](int64_t bytes) {
    scratch = bytes;
    return RunErrorAfter([](D d) {
      d.op.infer_shape = SameShape;
      d.op.scratch_bytes = [](const opkit_op*, const opkit_node*, const opkit_value*,
                              int64_t* wanted) -> opkit_status {
        *wanted = scratch;
        return OPKIT_OK;
      };
    });
  };
  CHECK(of_scratch(64).message() == kAccepted);
  CHECK(Contains(of_scratch(-1).what(), "BadOp of library made asks for -1 bytes of scratch"));
  CHECK(of_scratch(std::numeric_limits<int64_t>::max()).code() == ErrorCode::kOutOfMemory);
}

}  // namespace library_bad_test
