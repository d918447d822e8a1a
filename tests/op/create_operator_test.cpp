// From a definition to an operator: what is checked, which kernel gets the node, what a failure
// leaves behind.
#include "opkit/op/create_operator.hpp"

#include <doctest/doctest.h>

#include <map>

#include "opkit/op/registration.hpp"
#include "opkit/op/typed_operator.hpp"
#include "support/error_of.hpp"

namespace create_operator_test { namespace {

using opkit::CPUContext;
using opkit::CreateOperator;
using opkit::DeviceType;
using opkit::ErrorCode;
using opkit::Operator;
using opkit::OperatorDef;
using opkit::Tensor;
using opkit::Workspace;

// Writes the name of the kernel that ran into the workspace.
template <int kKernel>
class NamedOp : public Operator<CPUContext> {
 public:
  using Operator::Operator;
  bool RunOnDevice() override {
    *workspace()->CreateBlob("ran")->template GetMutable<int>() = kKernel;
    return true;
  }
};
enum { kPlain, kFast, kFaster, kPicky };

// Takes nodes with the argument "easy" only.
class PickyOp final : public NamedOp<kPicky> {
 public:
  PickyOp(const OperatorDef& def, Workspace* ws) : NamedOp(def, ws) {
    ws->CreateBlob("scratch of picky");
    if (!HasArgument("easy")) throw opkit::UnsupportedOperatorFeature("is not easy");
  }
};

OPERATOR_SCHEMA(CreateChoice).NumInputs(0, 1).NumOutputs(0, 1).Arg("easy", "");
REGISTER_CPU_OPERATOR(CreateChoice, NamedOp<kPlain>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(CreateChoice, FAST, NamedOp<kFast>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(CreateChoice, FASTER, NamedOp<kFaster>);
REGISTER_CPU_OPERATOR_WITH_ENGINE(CreateChoice, PICKY, PickyOp);

OPERATOR_SCHEMA(CreateEngineOnly).NumInputs(0).NumOutputs(0);
REGISTER_CPU_OPERATOR_WITH_ENGINE(CreateEngineOnly, FAST, NamedOp<kFast>);

OPERATOR_SCHEMA(CreatePickyOnly).NumInputs(0).NumOutputs(0).Arg("easy", "");
REGISTER_CPU_OPERATOR_WITH_ENGINE(CreatePickyOnly, PICKY, PickyOp);
REGISTER_CPU_OPERATOR_CREATOR(CreatePickyOnly, [](const OperatorDef&, Workspace*) {
  return std::unique_ptr<opkit::OperatorBase>();
});

// Keeps what its node, or else its schema, gives.
class DefaultsOp final : public Operator<CPUContext> {
 public:
  DefaultsOp(const OperatorDef& def, Workspace* ws)
      : Operator(def, ws),
        scale_(Arg<float>("scale")),
        name_(GetSingleArgument<std::string>("name")) {}
  bool RunOnDevice() override {
    *workspace()->CreateBlob("read")->GetMutable<std::string>() =
        opkit::StrCat(scale_, name_, Arg<float>("scale"));
    return true;
  }

 private:
  float scale_;
  std::string name_;
};
OPERATOR_SCHEMA(CreateDefaults)
    .NumInputs(0)
    .NumOutputs(0)
    .Arg<float>("scale", "", 2.5f)
    .Arg<std::string>("name", "", std::string(" x "));
REGISTER_CPU_OPERATOR(CreateDefaults, DefaultsOp);

OPERATOR_SCHEMA(CreateSchemaOnly).NumInputs(0).NumOutputs(0);

struct Surprise : opkit::Error {
  Surprise() : Error(ErrorCode::kOutOfRange, "surprise") {}
};
class ThrowingOp final : public NamedOp<kPlain> {
 public:
  ThrowingOp(const OperatorDef& def, Workspace* ws) : NamedOp(def, ws) {
    const auto what = GetSingleArgument<std::string>("throw", "");
    if (what == "error") throw Surprise();
    if (what == "std") throw std::runtime_error("plain surprise");
    if (what == "int") throw 3;
  }
};
OPERATOR_SCHEMA(CreateThrowing).NumInputs(0, 2).NumOutputs(0, 2).Arg<std::string>("throw", "");
REGISTER_CPU_OPERATOR(CreateThrowing, ThrowingOp);

class MisreadingOp : public NamedOp<kPlain> {
 public:
  MisreadingOp(const OperatorDef& def, Workspace* ws) : NamedOp(def, ws) {
    GetSingleArgument<float>("scael", 1.f);
  }
};
OPERATOR_SCHEMA(CreateMisreads).NumInputs(0).NumOutputs(0).Arg<float>("scale", "");
REGISTER_CPU_OPERATOR(CreateMisreads, MisreadingOp);
OPERATOR_SCHEMA(CreateDeclaresNone).NumInputs(0, 1).NumOutputs(0, 1);
REGISTER_CPU_OPERATOR(CreateDeclaresNone, MisreadingOp);
OPERATOR_SCHEMA(CreateUnchecked).NumInputs(0).NumOutputs(0).AllowUncheckedAttributes();
REGISTER_CPU_OPERATOR(CreateUnchecked, MisreadingOp);
class AroundOp final : public NamedOp<kPlain> {
 public:
  AroundOp(const OperatorDef& def, Workspace* ws)
      : NamedOp(def, ws), inner_(OperatorDef("Inner"), ws) {}

 private:
  MisreadingOp inner_;
};
OPERATOR_SCHEMA(CreateAround).NumInputs(0).NumOutputs(0);
REGISTER_CPU_OPERATOR(CreateAround, AroundOp);

template <class Context>
void CreateTypedPlain(Context&, opkit::In<"x", float>, opkit::Out<"y", float>) {}
OPKIT_OP(CreateTypedPlain).SameShape<"x", "y">().Kernel<CPUContext>();

int Ran(const OperatorDef& def) {
  Workspace ws;
  CreateOperator(def, &ws)->Run();
  return ws.GetBlob("ran")->Get<int>();
}
const OperatorDef kChoice("CreateChoice");

struct NoPreferences {
  ~NoPreferences() {
    opkit::OpRegistry::Global().SetPreference(DeviceType::kCPU, {});
    opkit::OpRegistry::Global().SetPreference("CreateChoice", DeviceType::kCPU, {});
  }
};

TEST_CASE("an operator that names no default gets the schema's, in its constructor and after") {
  const auto read = [](const OperatorDef& def) {
    Workspace ws;
    CreateOperator(def, &ws)->Run();
    return ws.GetBlob("read")->Get<std::string>();
  };
  CHECK(read(OperatorDef("CreateDefaults")) == "2.5 x 2.5");
  CHECK(read(OperatorDef("CreateDefaults").Arg("scale", 4.f).Arg("name", "-")) == "4-4");
}

TEST_CASE("engines: without a request the plain operator runs") {
  CHECK(Ran(kChoice) == kPlain);
  CHECK(Ran(OperatorDef(kChoice).Backends("FAST")) == kFast);
  CHECK(Ran(OperatorDef(kChoice).Backends("DEFAULT")) == kPlain);
  CHECK(Ran(OperatorDef(kChoice).Backends("DEFAULT,FAST")) == kPlain);
}

TEST_CASE("engines: several choices, in the order of the definition") {
  CHECK(Ran(OperatorDef(kChoice).Backends("FASTER,FAST")) == kFaster);
  CHECK(Ran(OperatorDef(kChoice).Backends(" PICKY , ,FAST")) == kFast);
  CHECK(Ran(OperatorDef(kChoice).Backends("PICKY,FAST").Arg("easy", 1)) == kPicky);
}

TEST_CASE("engines: if a constructor refuses the node, the next kernel gets it") {
  CHECK(Ran(OperatorDef(kChoice).Backends("PICKY")) == kPlain);
  CHECK(Ran(OperatorDef(kChoice).Backends("PICKY").Arg("easy", 1)) == kPicky);
}

TEST_CASE("engines: the definition beats the operator's preference, which beats the global one") {
  const NoPreferences reset;
  opkit::OpRegistry::Global().SetPreference(DeviceType::kCPU, {"FAST"});
  CHECK(Ran(kChoice) == kFast);
  opkit::OpRegistry::Global().SetPreference("CreateChoice", DeviceType::kCPU, {"FASTER"});
  CHECK(Ran(kChoice) == kFaster);
  CHECK(Ran(OperatorDef(kChoice).Backends("FAST")) == kFast);
  CHECK(Ran(OperatorDef(kChoice).Backends("DEFAULT")) == kPlain);
  opkit::OpRegistry::Global().SetPreference("CreateChoice", DeviceType::kCPU, {"DEFAULT"});
  CHECK(Ran(kChoice) == kPlain);
  opkit::OpRegistry::Global().SetPreference("CreateChoice", DeviceType::kCPU, {"PICKY"});
  CHECK(Ran(kChoice) == kFast);  // refused; the global preference is next
  opkit::OpRegistry::Global().SetPreference("CreateChoice", DeviceType::kCPU, {});
  opkit::OpRegistry::Global().SetPreference(DeviceType::kCPU, {"ABSENT", "FASTER"});
  CHECK(Ran(kChoice) == kFaster);  // a preference is a wish
}

TEST_CASE("engines: an operator that has only an engine's kernel runs with it") {
  CHECK(Ran(OperatorDef("CreateEngineOnly")) == kFast);
  CHECK(Ran(OperatorDef("CreateEngineOnly").Backends("DEFAULT")) == kFast);
  CHECK(Ran(OperatorDef("CreateEngineOnly").Backends("PICKY")) == kFast);
}

TEST_CASE("engines: one that is not in the program is passed over, unless it is required") {
  CHECK(Ran(OperatorDef(kChoice).Backends("FASTR")) == kPlain);
  CHECK(Ran(OperatorDef(kChoice).Backends("FASTR,FAST")) == kFast);
  CHECK(Ran(OperatorDef(kChoice).Backends("FASTR,FAST", opkit::kRequired)) == kFast);
  Workspace ws;
  const opkit::Error refused = ErrorOf(
      [&] { CreateOperator(OperatorDef(kChoice).Backends("PICKY", opkit::kRequired), &ws); });
  CHECK(refused.code() == ErrorCode::kUnsupported);  // and not the plain operator
  const opkit::Error error = ErrorOf(
      [&] { CreateOperator(OperatorDef(kChoice).Backends("FASTR", opkit::kRequired), &ws); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(),
                 "no backend 'FASTR' has a kernel in this program (did you mean "
                 "'FAST'?"));
}

TEST_CASE("a node that every kernel refuses: each reason is listed") {
  Workspace ws;
  const opkit::Error error =
      ErrorOf([&] { CreateOperator(OperatorDef("CreatePickyOnly").Name("n"), &ws); });
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(Contains(error.message(),
                 "no kernel of operator CreatePickyOnly 'n' () -> () on cpu accepts "
                 "this node:"));
  CHECK(Contains(error.message(), "\n  backend PICKY: is not easy"));
  CHECK(Contains(error.message(), "\n  backend reference: its creator returned null"));
}

TEST_CASE("a constructor that reads an attribute that its schema does not declare is an Error") {
  Workspace ws;
  const auto error = [&](const char* op) {
    return ErrorOf([&] { CreateOperator(OperatorDef(op), &ws); });
  };
  CHECK(error("CreateMisreads").code() == ErrorCode::kInvalidArgument);
  CHECK(error("CreateMisreads").message() ==
        "operator CreateMisreads reads the argument 'scael', which its schema does not declare "
        "(did you mean 'scale'? known: 'scale'); declare it with Arg, or say "
        "AllowUncheckedAttributes() in the schema");
  CHECK(Contains(error("CreateMisreads").what(), "in the constructor of operator CreateMisreads"));
  CHECK(Contains(error("CreateDeclaresNone").message(), "reads the argument 'scael', which its "));
  CHECK_NOTHROW(CreateOperator(OperatorDef("CreateUnchecked").Arg("bogus", 1), &ws));
  // An operator that another one's constructor makes without a schema reads what it wants.
  CHECK_NOTHROW(CreateOperator(OperatorDef("CreateAround"), &ws));
}

TEST_CASE("an undeclared attribute is an Error, for classes and for typed operators") {
  Workspace ws;
  for (const char* op : {"CreateDeclaresNone", "CreateTypedPlain"})
    CHECK(Contains(ErrorOf([&] {
                     CreateOperator(OperatorDef(op, {"X"}, {"Y"}, {{"bogus", 1}}), &ws);
                   }).message(),
                   opkit::StrCat(op, " has no argument 'bogus'")));
}

TEST_CASE("an unknown operator, a device without kernel, an operator without any") {
  Workspace ws;
  opkit::Error error = ErrorOf([&] { CreateOperator(OperatorDef("CreateChoise"), &ws); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(),
                 "no operator 'CreateChoise' is registered (did you mean "
                 "'CreateChoice'?"));
  error = ErrorOf(
      [&] { CreateOperator(OperatorDef("CreateEngineOnly").Device(DeviceType::kCUDA), &ws); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(),
                 "operator CreateEngineOnly () -> () has no kernel for cuda; it has "
                 "kernels for cpu (FAST, "));
  CHECK(Contains(error.message(), "create_operator_test.cpp:"));
  error = ErrorOf([&] { CreateOperator(OperatorDef("CreateSchemaOnly"), &ws); });
  CHECK(Contains(error.message(), "has no kernel for cpu; it has none at all"));
  CHECK(ws.Blobs().empty());
}

TEST_CASE("a node that breaks the schema is an error with the node and the reason") {
  Workspace ws;
  const opkit::Error error = ErrorOf([&] {
    CreateOperator(OperatorDef("CreateChoice", {"A", "B"}, {}).Name("n"), &ws);
  });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "CreateChoice has 2 inputs, expected 0 to 1; in CreateChoice 'n' (A, B) -> ()");
  CHECK(ErrorOf([&] { CreateOperator(OperatorDef(kChoice).Arg("eazy", 1), &ws); }).code() ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("inputs must exist, outputs are made, nothing is copied") {
  Workspace ws;
  const opkit::Error error =
      ErrorOf([&] { CreateOperator(OperatorDef("CreateChoice", {"weihgts"}, {"Y"}), &ws); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.what(),
                 "operator CreateChoice (weihgts) -> (Y) reads blob 'weihgts', which is "
                 "not in the workspace; create it before the operator"));
  CHECK_FALSE(ws.HasBlob("Y"));
  Tensor* weights = ws.CreateTensor("weights");
  *weights = Tensor::From<float>({2}, {1, 2});
  const void* data = weights->raw_data();
  CHECK(Contains(
      ErrorOf([&] { CreateOperator(OperatorDef("CreateChoice", {"weihgts"}, {"Y"}), &ws); }).what(),
      "did you mean 'weights'?"));
  auto op = CreateOperator(OperatorDef("CreateChoice", {"weights"}, {"Y"}), &ws);
  CHECK(op->Input(0).raw_data() == data);
  CHECK(&op->Input(0) == weights);
  CHECK(ws.HasBlob("Y"));
  CHECK(op->OutputBlob(0) == ws.GetBlob("Y"));
}

TEST_CASE("a failed construction leaves no blobs of the node behind and keeps those of others") {
  for (const char* what : {"error", "std", "int"}) {
    CAPTURE(what);
    Workspace ws;
    *ws.CreateTensor("old") = Tensor::From<float>({1}, {5});
    CHECK_THROWS(
        CreateOperator(OperatorDef("CreateThrowing", {}, {"new", "old"}).Arg("throw", what), &ws));
    CHECK_FALSE(ws.HasBlob("new"));
    CHECK(ws.GetTensor("old")->data<float>()[0] == 5);
  }
}

TEST_CASE("an exception of a constructor becomes an Error that names node and place") {
  Workspace ws;
  const OperatorDef def("CreateThrowing", {}, {"Y"});
  const char* place = "in the constructor of operator CreateThrowing () -> (Y), registered at ";
  try {
    CreateOperator(OperatorDef(def).Arg("throw", "error"), &ws);
    FAIL("nothing was thrown");
  } catch (const Surprise& error) {  // of its own type
    CHECK(error.code() == ErrorCode::kOutOfRange);
    CHECK(Contains(error.what(), place));
    CHECK(Contains(error.what(), "create_operator_test.cpp:"));
  }
  const opkit::Error error =
      ErrorOf([&] { CreateOperator(OperatorDef(def).Arg("throw", "std"), &ws); });
  CHECK(error.code() == ErrorCode::kOperatorFailed);
  CHECK(error.message() == "plain surprise");
  CHECK(Contains(error.what(), place));
  CHECK_THROWS_WITH_AS(std::rethrow_exception(error.cause()), "plain surprise", std::runtime_error);
  const opkit::Error number =
      ErrorOf([&] { CreateOperator(OperatorDef(def).Arg("throw", "int"), &ws); });
  CHECK(number.message() == "threw something that is not a std::exception");
  CHECK(Contains(number.what(), place));
  CHECK_THROWS_AS(std::rethrow_exception(number.cause()), int);
}

TEST_CASE("a failure records the position in the net, also position 0") {
  Workspace ws;
  const OperatorDef bad = OperatorDef("CreateThrowing").Arg("throw", "error");
  CHECK_THROWS(CreateOperator(bad, &ws));
  CHECK(ws.last_failed_op_net_position.load() == -1);  // outside a net
  CHECK_THROWS(CreateOperator(bad, &ws, 0));
  CHECK(ws.last_failed_op_net_position.load() == 0);
  CHECK_THROWS(CreateOperator(OperatorDef("Unknown"), &ws, 4));
  CHECK(ws.last_failed_op_net_position.load() == 4);
  auto op = CreateOperator(kChoice, &ws, 0);
  CHECK(op->net_position() == 0);
  CHECK(CreateOperator(kChoice, &ws)->net_position() == -1);
}

TEST_CASE("no workspace is an Error, not a crash") {
  const opkit::Error error = ErrorOf([&] { CreateOperator(kChoice, nullptr); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("a duplicate registration is reported by the first node that needs the operator") {
  auto& registry = opkit::OpRegistry::Global();
  registry.AddSchema("CreateTwice", "first.cc", 1);
  registry.AddSchema("CreateTwice", "second.cc", 2);
  Workspace ws;
  const opkit::Error error = ErrorOf([&] { CreateOperator(OperatorDef("CreateTwice"), &ws); });
  CHECK(error.code() == ErrorCode::kAlreadyExists);
  CHECK(Contains(error.message(), "at first.cc:1 and at second.cc:2"));
  CHECK_FALSE(opkit::CheckRegistrations().empty());
  registry.Remove("CreateTwice");
  CHECK(Ran(kChoice) == kPlain);  // the others work all the while
}

}  // namespace
}  // namespace create_operator_test
