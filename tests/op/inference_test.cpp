// Shape and type inference: symbols, constants' data, contradictions.
#include "opkit/op/inference.hpp"

#include <doctest/doctest.h>

#include "support/error_of.hpp"

namespace inference_test { namespace {

using opkit::Dim;
using opkit::DType;
using opkit::ErrorCode;
using opkit::InferenceContext;
using opkit::OperatorDef;
using opkit::Shape;
using opkit::Sym;
using opkit::SymbolicShape;
using opkit::Tensor;
using opkit::TensorInfo;

const OperatorDef kDef =
    OperatorDef("MatMul").Inputs({"A", "B"}).Output("C").Arg("transpose", true);

TEST_CASE("TensorInfo of a tensor: dtype, shape, device and, for constants, its data") {
  const Tensor x = Tensor::From<int64_t>({2}, {3, 4});
  const TensorInfo info = TensorInfo::Of(x);
  CHECK(info.dtype == DType::kInt64);
  CHECK(info.shape == SymbolicShape(Shape{2}));
  CHECK(info.constant == nullptr);
  CHECK(TensorInfo::OfConstant(x).constant == &x);
  CHECK(ToString(info) == "int64[2]");
  CHECK(ToString(TensorInfo()) == "?[rank unknown]");
  CHECK(ToString(TensorInfo(DType::kFloat32, {Sym("N"), 3, Dim()})) == "float32[N, 3, ?]");
}

TEST_CASE("an inference function reads inputs, arguments and constants, and sets outputs") {
  const Tensor b = Tensor::From<float>({1}, {7});
  InferenceContext c(kDef, {TensorInfo(DType::kFloat32, {Sym("N"), 4}), TensorInfo::OfConstant(b)});
  CHECK(c.num_inputs() == 2);
  CHECK(c.num_outputs() == 1);
  CHECK(c.Arg<bool>("transpose", false));
  CHECK(c.Arg<float>("absent", 2.f) == 2.f);
  CHECK(c.input_dtype(0) == DType::kFloat32);
  CHECK(c.input_shape(0)[0] == Sym("N"));
  CHECK(c.input_constant(0) == nullptr);
  CHECK(c.input_constant(1)->data<float>()[0] == 7);
  CHECK(c.output(0).dtype == DType::kUndefined);
  CHECK_FALSE(c.output(0).shape.has_rank());

  c.SetOutput(0, DType::kUndefined, {Dim(), 5});
  c.SetOutput(0, DType::kFloat32, {Sym("N"), Dim()});
  CHECK(ToString(c.output(0)) == "float32[N, 5]");  // both sayings, merged
}

TEST_CASE("an inference function refines its inputs") {
  InferenceContext c(kDef, {TensorInfo(DType::kUndefined, SymbolicShape()), TensorInfo()});
  c.SetInput(0, DType::kFloat32, {Sym("N"), 4});
  CHECK(ToString(c.input(0)) == "float32[N, 4]");
}

TEST_CASE("a contradiction is an Error that shows both sides") {
  InferenceContext c(kDef, {TensorInfo(), TensorInfo()},
                     {TensorInfo(DType::kFloat32, {Sym("N"), 4})});
  opkit::Error error = ErrorOf([&] { c.SetOutput(0, DType::kFloat32, {Sym("N"), 5}); });
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK(error.message() ==
        "output 0 of MatMul (A, B) -> (C) is float32[N, 4], but inference finds float32[N, 5]");
  error = ErrorOf([&] { c.SetOutput(0, DType::kInt32, {Sym("N"), 4}); });
  CHECK(Contains(error.message(), "is float32[N, 4], expected dtype int32"));
  error = ErrorOf([&] { c.SetOutput(0, DType::kFloat32, Shape{4}); });
  CHECK(Contains(error.message(), "but inference finds float32[4]"));
  CHECK(ToString(c.output(0)) == "float32[N, 4]");  // as it was
  c.SetOutput(0, DType::kFloat32, {3, 4});          // N turns out to be 3
  CHECK(ToString(c.output(0)) == "float32[3, 4]");
}

TEST_CASE("an index that the node does not have is an Error") {
  InferenceContext c(kDef, {TensorInfo(), TensorInfo()});
  CHECK(ErrorOf([&] { c.input(2); }).message() == "input 2 of a node that has 2");
  CHECK(ErrorOf([&] { c.output(-1); }).code() == ErrorCode::kOutOfRange);
  CHECK(ErrorOf([&] { c.SetOutput(1, DType::kFloat32, Shape{}); }).code() ==
        ErrorCode::kOutOfRange);
}

TEST_CASE("an optional input that the node leaves out is not there") {
  const OperatorDef def("Norm", {"X", "", "B"}, {"Y"});
  InferenceContext c(def, {TensorInfo(), TensorInfo(), TensorInfo()});
  CHECK(c.HasInput(0));
  CHECK_FALSE(c.HasInput(1));
  CHECK(c.HasInput(2));
  CHECK_FALSE(c.HasInput(3));
  CHECK_FALSE(c.HasInput(-1));
}

}  // namespace
}  // namespace inference_test
