// OperatorDef is plain data: what the builder sets is what comes back, and what messages print.
#include "opkit/op/operator_def.hpp"

#include <doctest/doctest.h>

namespace {

using opkit::Arguments;
using opkit::Device;
using opkit::DeviceType;
using opkit::OperatorDef;
using Names = std::vector<std::string>;

TEST_CASE("an OperatorDef is built fluently and read back") {
  const OperatorDef def = OperatorDef("Scale")
                              .Name("first")
                              .Input("X")
                              .Inputs({"A", "B"})
                              .Output("Y")
                              .Outputs({"Z"})
                              .ControlInput("before")
                              .Arg("scale", 2.f)
                              .Device(DeviceType::kCUDA, 1)
                              .Engine("CUDNN,DEFAULT")
                              .IsGradientOp(true);
  CHECK(def.type() == "Scale");
  CHECK(def.name() == "first");
  CHECK(def.inputs() == Names{"X", "A", "B"});
  CHECK(def.outputs() == Names{"Y", "Z"});
  CHECK(def.control_inputs() == Names{"before"});
  CHECK(def.args().Get<float>("scale") == 2.f);
  CHECK(def.device() == Device{DeviceType::kCUDA, 1});
  CHECK(def.engine() == "CUDNN,DEFAULT");
  CHECK(def.is_gradient_op());
}

TEST_CASE("a plain OperatorDef runs on the CPU and asks for no engine") {
  const OperatorDef def("Scale", {"X"}, {"Y"}, {{"scale", 2.f}});
  CHECK(def.device() == Device{});
  CHECK(def.engine().empty());
  CHECK_FALSE(def.is_gradient_op());
  CHECK(def == OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f));
}

TEST_CASE("OperatorDefs are regular values that compare by all they hold") {
  const OperatorDef def = OperatorDef("Scale").Input("X").Output("Y").Arg("scale", 2.f);
  OperatorDef copy = def;
  CHECK(copy == def);
  copy.Arg("scale", 3.f);
  CHECK(copy != def);
  CHECK(copy.args().size() == 1);  // set again, not added
  CHECK(def.args().Get<float>("scale") == 2.f);
  CHECK(OperatorDef(def).Engine("FAST") != def);
  CHECK(OperatorDef(def).Device(DeviceType::kCPUStream) != def);
  CHECK(OperatorDef(def).ControlInput("A") != def);
  CHECK(OperatorDef(def).IsGradientOp(true) != def);
}

TEST_CASE("names and arguments can be edited in place") {
  OperatorDef def("Scale", {"X"}, {"Y"});
  def.mutable_inputs()[0] = "A";
  def.mutable_outputs().push_back("Z");
  def.mutable_args().Set("scale", 1.f);
  def.Type("Shift");
  CHECK(def == OperatorDef("Shift", {"A"}, {"Y", "Z"}, {{"scale", 1.f}}));
}

TEST_CASE("messages name a node by type, name, inputs and outputs") {
  CHECK(ToString(OperatorDef("Scale", {"X", ""}, {"Y"})) == "Scale (X, ) -> (Y)");
  CHECK(ToString(OperatorDef("Scale", {"X"}, {"Y", "Z"}).Name("a")) == "Scale 'a' (X) -> (Y, Z)");
}

}  // namespace
