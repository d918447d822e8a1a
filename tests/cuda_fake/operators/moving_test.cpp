// The operators on CUDA that move elements, against the reference kernels of the CPU.
#include <doctest/doctest.h>

#include "fake_runtime.hpp"
#include "on_cuda.hpp"
#include "opkit/backends/cuda/ops/cuda_operator.hpp"
#include "opkit/op/check/check_data.hpp"

namespace moving_test {
using namespace opkit;

namespace {

using Ints = std::vector<int64_t>;

Tensor Numbers(const Shape& shape, DType dtype = DType::kFloat32) {
  Tensor out(shape, dtype);
  for (int64_t i = 0; i < out.numel(); ++i)
    detail::SetNumber(out, i, static_cast<double>(i % 101 + 1));
  return out;
}
Tensor List(const Ints& values) {
  return Tensor::From<int64_t>({static_cast<int64_t>(values.size())}, values);
}
void Compare(const std::string& op, const std::vector<Tensor>& inputs, const Arguments& args = {},
             int outputs = -1) {
  CheckOnCuda(kCUDABackend, op, inputs, args, outputs);
}
std::vector<Tensor> OnCudaOnly(const std::string& op, const std::vector<Tensor>& inputs,
                               const Arguments& args = {}) {
  std::vector<Tensor> out;
  for (const Tensor& made :
       Invoke(op, inputs, args,
              {.device = kCuda0, .backends = kCUDABackend, .backend_need = kRequired}))
    out.push_back(OnHost(made));
  return out;
}

constexpr DType kOfEachSize[] = {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kInt64};

}  // namespace

TEST_CASE("every size of elements and order of axes is transposed") {
  for (const DType dtype : kOfEachSize) {
    Compare("Transpose", {Numbers({3, 5, 4}, dtype)}, {{"perm", Ints{2, 0, 1}}});
    Compare("Transpose", {Numbers({3, 5, 16}, dtype)}, {{"perm", Ints{1, 0, 2}}});
    Compare("Transpose", {Numbers({3, 16, 1, 17}, dtype)});
  }
  // Extents that squares of elements divide, with one, two and four squares beside each other.
  for (const DType dtype : kOfEachSize)
    for (const Shape& shape : {Shape{4, 8}, Shape{16, 12}, Shape{3, 8, 20}, Shape{2, 24, 3, 16}}) {
      Compare("Transpose", {Numbers(shape, dtype)});
      if (shape.rank() == 4)
        for (const Ints& perm : {Ints{0, 3, 2, 1}, Ints{3, 0, 1, 2}, Ints{0, 2, 3, 1}})
          Compare("Transpose", {Numbers(shape, dtype)}, {{"perm", perm}});
    }
  Compare("Transpose", {Numbers({})});
  Compare("Transpose", {Numbers({0, 3})});
  Compare("Transpose", {Numbers({1, 8})});
}

TEST_CASE("operators follow the strides of an input") {
  const Tensor x = Numbers({4, 6});
  const Tensor turned = OnCuda(x).Permute({1, 0}), host = x.Permute({1, 0});
  const auto same = [&](const std::string& op, std::vector<Tensor> others, const Arguments& args) {
    std::vector<Tensor> on_host{host}, there{turned};
    on_host.insert(on_host.end(), others.begin(), others.end());
    there.insert(there.end(), others.begin(), others.end());
    const auto expected = Invoke(op, on_host, args, {.backends = kReferenceBackend});
    CHECK(detail::SameBytes(OnCudaOnly(op, there, args)[0], expected[0]));
  };
  same("Transpose", {}, {});
  same("Slice", {List({5, 3}), List({-10, 0}), List({0, 1}), List({-2, -1})}, {});
  same("Reshape", {List({3, 8})}, {});
  same("Flatten", {}, {});
  same("Tile", {List({2, 1})}, {});
  same("Pad", {List({1, 0, 0, 2})}, {});
}

TEST_CASE("parts are cut out, joined, repeated and padded") {
  for (const DType dtype : kOfEachSize) {
    const Tensor x = Numbers({3, 4, 8}, dtype);
    Compare("Slice", {x, List({1, 0}), List({3, 8}), List({0, 2}), List({1, 3})});
    Compare("Slice", {x, List({-1, 2}), List({-100, 6}), List({1, 2}), List({-1, 2})});
    Compare("Slice", {x, List({2}), List({2})});
    Compare("Concat", {x, Numbers({3, 1, 8}, dtype), Numbers({3, 0, 8}, dtype), x}, {{"axis", 1}});
    Compare("Split", {x, List({3, 1, 4})}, {{"axis", -1}}, 3);
    Compare("Split", {x}, {{"axis", 0}, {"num_outputs", 2}}, 2);
    Compare("Expand", {Numbers({3, 1, 8}, dtype), List({2, 1, 5, 1})});
    Compare("Tile", {x, List({2, 1, 3})});
    Compare("Tile", {x, List({0, 1, 1})});
    Compare("DepthToSpace", {Numbers({2, 8, 3, 4}, dtype)}, {{"blocksize", 2}, {"mode", "CRD"}});
    Compare("DepthToSpace", {Numbers({2, 8, 3, 4}, dtype)}, {{"blocksize", 2}});
    Compare("SpaceToDepth", {Numbers({2, 3, 4, 6}, dtype)}, {{"blocksize", 2}});
  }
}

TEST_CASE("pads: every mode, negative pads, a constant, chosen axes") {
  for (const DType dtype : kOfEachSize)
    for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
      CAPTURE(mode);
      const Tensor x = Numbers({2, 3, 4, 5}, dtype);
      const Arguments args{{"mode", mode}};
      Compare("Pad", {x, List({0, 0, 2, 1, 0, 0, 3, 7})}, args);
      Compare("Pad", {x, List({0, 0, -1, 3, 0, 0, 3, -2})}, args);
      Compare("Pad", {x, List({0, -1, 0, 0, 0, -1, 0, 0})}, args);
      Compare("Pad", {x, List({1, 2}), Numbers({}, dtype), List({-3})}, args);
    }
  Compare("Pad", {Numbers({0}), List({2, 1})});
  CHECK_THROWS_WITH(OnCudaOnly("Pad", {OnCuda(Numbers({2})), List({-2, 1})}, {{"mode", "edge"}}),
                    doctest::Contains("nothing to repeat"));
}

TEST_CASE("triangles and reversed sequences") {
  for (const DType dtype : kOfEachSize)
    for (const int64_t k : {-9, -1, 0, 2, 9})
      for (const int64_t upper : {0, 1})
        Compare("Trilu", {Numbers({2, 3, 4}, dtype), Tensor::Scalar(k)}, {{"upper", upper}});
  Compare("Trilu", {Numbers({2, 0, 4})});
  const Arguments batch_first{{"batch_axis", 0}, {"time_axis", 1}};
  Compare("ReverseSequence", {Numbers({3, 4, 2}), List({0, 3, 4})}, batch_first);
  Compare("ReverseSequence", {Numbers({4, 3}), List({1, 2, 4})});
}

TEST_CASE("elements are gathered by indices of both types") {
  for (const DType dtype : kOfEachSize) {
    const Tensor x = Numbers({3, 4, 6}, dtype);
    for (const Tensor& indices :
         {Tensor::From<int64_t>({2, 2}, {0, -1, 2, -3}), Tensor::Scalar(int64_t{1}),
          Tensor::From<int32_t>({3}, {2, 2, -2})})
      for (const int64_t axis : {0, 1, -1}) Compare("Gather", {x, indices}, {{"axis", axis}});
    Compare("GatherElements",
            {x, Tensor::From<int32_t>({2, 3, 2}, {0, 1, 2, 3, -1, -2, 1, 1, 0, 3, 2, -4})},
            {{"axis", 1}});
    Compare("GatherND", {x, Tensor::From<int64_t>({2, 2}, {0, -1, 2, 3})});
    Compare("GatherND", {x, Tensor::From<int64_t>({3, 1, 2}, {0, -1, 2, 3, 1, 1})},
            {{"batch_dims", 1}});
    Compare("ScatterND", {x, Tensor::From<int64_t>({2, 1}, {2, -3}), Numbers({2, 4, 6}, dtype)});
    Compare("ScatterND",
            {x, Tensor::From<int64_t>({2, 3}, {2, 3, 5, 0, 0, -1}), Numbers({2}, dtype)});
    Compare("ScatterElements",
            {x, Tensor::From<int64_t>({1, 2, 3}, {0, 5, -3, 1, 2, 0}), Numbers({1, 2, 3}, dtype)},
            {{"axis", -1}});
  }
  Compare("Gather", {Numbers({3, 0}), List({1})});
  Compare("Gather", {Numbers({3}), List({})});
  Compare("ScatterND", {Numbers({3}), Tensor(Shape{0, 1}, DType::kInt64), Numbers({0})});
}

TEST_CASE("an index outside its axis touches no memory, and a later run reports it") {
  const Tensor x = OnCuda(Numbers({3, 2}));
  const auto report = [&](const std::string& op, const std::vector<Tensor>& wrong,
                          const std::vector<Tensor>& right, const std::vector<float>& expected,
                          const char* index) {
    CAPTURE(op);
    ResolvedOperator run(op, static_cast<int>(wrong.size()), {},
                         {.device = kCuda0, .backends = kCUDABackend});
    CHECK(OnHost(run(wrong)[0]).ToVector<float>() == expected);
    CHECK_THROWS_WITH(run(right), doctest::Contains(index));
    CHECK_NOTHROW(run(right));  // reported once
  };
  report("Gather", {x, OnCuda(List({2, 3}))}, {x, OnCuda(List({0, 1}))}, {5, 6, 0, 0},
         "had the index 3, which is outside its axis");
  report("GatherND", {x, OnCuda(Tensor::From<int64_t>({1, 2}, {0, -3}))},
         {x, OnCuda(Tensor::From<int64_t>({1, 2}, {0, 1}))}, {0}, "had the index -3");
  report("GatherElements", {x, OnCuda(Tensor::From<int64_t>({1, 2}, {7, 1}))},
         {x, OnCuda(Tensor::From<int64_t>({1, 2}, {0, 1}))}, {0, 4}, "had the index 7");
  report("ScatterND", {x, OnCuda(Tensor::From<int64_t>({1, 1}, {3})), OnCuda(Numbers({1, 2}))},
         {x, OnCuda(Tensor::From<int64_t>({1, 1}, {2})), OnCuda(Numbers({1, 2}))},
         {1, 2, 3, 4, 5, 6}, "had the index 3");
  report("ScatterElements",
         {x, OnCuda(Tensor::From<int64_t>({1, 1}, {-4})), OnCuda(Numbers({1, 1}))},
         {x, OnCuda(Tensor::From<int64_t>({1, 1}, {2})), OnCuda(Numbers({1, 1}))},
         {1, 2, 3, 4, 5, 6}, "had the index -4");
  report("ReverseSequence", {x, OnCuda(List({4, 1}))}, {x, OnCuda(List({1, 1}))},
         {0, 2, 0, 4, 0, 6}, "had the index 4");
}

TEST_CASE("tensors are made of a few numbers") {
  CHECK(OnCudaOnly("Constant", {}, {{"value_ints", Ints{3, 4}}})[0].ToVector<int64_t>() ==
        Ints{3, 4});
  Compare("ConstantOfShape", {List({2, 3})});
  Compare("ConstantOfShape", {List({})}, {{"value", Tensor::From<int64_t>({1}, {-7})}});
  Compare("EyeLike", {Numbers({3, 4})}, {{"k", 1}});
  Compare("EyeLike", {Numbers({3, 2}, DType::kInt64)}, {{"k", -1}, {"dtype", 10}});
  Compare("Range", {Tensor::Scalar(5.f), Tensor::Scalar(-1.f), Tensor::Scalar(-0.75f)});
  Compare("Range",
          {Tensor::Scalar(int64_t{1}), Tensor::Scalar(int64_t{9}), Tensor::Scalar(int64_t{3})});
  for (const Tensor& indices :
       {Tensor::From<int64_t>({2, 2}, {0, -1, 3, 9}), Tensor::From<float>({3}, {1, -2, 7.5f})})
    for (const int64_t axis : {0, 1, -1})
      Compare("OneHot", {indices, Tensor::Scalar(int64_t{4}), Numbers({2}, DType::kInt64)},
              {{"axis", axis}});
}

TEST_CASE("images are resized by the weights of the CPU's kernel") {
  for (const DType dtype : kOfEachSize) {
    if (dtype == DType::kInt64) continue;
    const Tensor x = Numbers({2, 2, 3, 4}, dtype), none;
    for (const char* coordinates : {"half_pixel", "asymmetric", "align_corners"})
      Compare("Resize", {x, none, none, List({2, 2, 7, 3})},
              {{"mode", "nearest"}, {"coordinate_transformation_mode", coordinates}});
    Compare(
        "Resize",
        {x, Tensor::From<float>({8}, {0, 0, -0.5f, 0.2f, 1, 1, 1.5f, 0.9f}),
         Tensor::From<float>({4}, {1, 1, 2, 2})},
        {{"coordinate_transformation_mode", "tf_crop_and_resize"}, {"extrapolation_value", 9.f}});
  }
  const auto near = [](const std::vector<Tensor>& inputs, const Arguments& args) {
    const Tensor expected = Invoke("Resize", inputs, args, {.backends = kReferenceBackend})[0];
    std::vector<Tensor> there = inputs;
    there[0] = OnCuda(inputs[0]);
    const auto found = OnCudaOnly("Resize", there, args)[0].ToVector<float>();
    const auto values = expected.ToVector<float>();
    REQUIRE(found.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i) CHECK(found[i] == doctest::Approx(values[i]));
  };
  const Tensor x = Numbers({2, 3, 8, 9}), none;
  for (const char* mode : {"linear", "cubic"})
    for (const int64_t antialias : {0, 1}) {
      near({x, none, none, List({2, 3, 5, 20})}, {{"mode", mode}, {"antialias", antialias}});
      near({x, none, Tensor::From<float>({1}, {0.4f})},
           {{"mode", mode}, {"antialias", antialias}, {"axes", Ints{1}}});
      near({x, none, none, List({2, 3, 8, 9})}, {{"mode", mode}});
    }
  near({x, Tensor::From<float>({4}, {-0.5f, 0.2f, 1.5f, 0.9f}), none, List({9, 9})},
       {{"mode", "linear"},
        {"axes", Ints{2, 3}},
        {"coordinate_transformation_mode", "tf_crop_and_resize"},
        {"extrapolation_value", 9.f}});
}

TEST_CASE("copies of strided tensors on a device") {
  const Tensor x = Numbers({3, 4, 5}, DType::kFloat16), there = OnCuda(x);
  const auto same = [](const Tensor& found, const Tensor& expected) {
    return detail::SameBytes(OnHost(found), expected.Contiguous());
  };
  const Tensor turned = there.Permute({2, 0, 1}), cut = there.Slice(1, 1, 3).Slice(2, 2, 4);
  CHECK(same(turned, x.Permute({2, 0, 1})));
  CHECK(same(cut, x.Slice(1, 1, 3).Slice(2, 2, 4)));
  const Tensor dense = turned.Contiguous();
  CHECK(dense.device() == kCuda0);
  CHECK(dense.is_dense());
  CHECK(same(dense, x.Permute({2, 0, 1})));
  Tensor other(Device{DeviceType::kCUDA, 1});
  Copy(turned, &other);
  CHECK(same(other, x.Permute({2, 0, 1})));

  CUDAContext context(kCuda0);
  Tensor target(kCuda0), host(Device{DeviceType::kCUDAHost, 0});
  fake::Gate gate(context.cuda_stream());
  CopyAsync(context, turned, &target);
  CopyAsync(context, target.Slice(2, 0, 2), &host);
  gate.Open();
  context.FinishDeviceComputation();
  CHECK(same(target, x.Permute({2, 0, 1})));
  CHECK(detail::SameBytes(host, x.Permute({2, 0, 1}).Slice(2, 0, 2).Contiguous()));
}

TEST_CASE("a copy with more than 2^31 elements between its ends computes in 64 bits") {
  // A tensor of one byte an element, whose two rows lie 3 GiB apart.
  constexpr int64_t kFar = int64_t{3} << 30;
  Tensor memory({kFar + 4}, DType::kUInt8, kCuda0);
  auto* bytes = static_cast<uint8_t*>(memory.raw_mutable_data());
  for (int64_t i = 0; i < 4; ++i) {
    bytes[i] = static_cast<uint8_t>(i);
    bytes[kFar + i] = static_cast<uint8_t>(10 + i);
  }
  const Tensor rows(memory.storage(), 0, {2, 3}, DType::kUInt8, {kFar, 1});
  CHECK(OnHost(rows).ToVector<uint8_t>() == std::vector<uint8_t>{0, 1, 2, 10, 11, 12});
}

TEST_CASE("kernels decline what they do not move, with the reason") {
  const auto why = [](const std::string& op, const Tensor& x, const Arguments& args = {}) {
    try {
      OnCudaOnly(op, {x}, args);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CHECK(why("Transpose", Tensor({2, 2}, DType::kInt4, kCuda0)) != "");
  CHECK_THROWS_WITH(OnCudaOnly("ScatterND",
                               {OnCuda(Numbers({3})), OnCuda(Tensor::From<int64_t>({1, 1}, {0})),
                                OnCuda(Numbers({1}))},
                               {{"reduction", "add"}}),
                    doctest::Contains("it has no reduction, and the node has reduction=add"));
}

}  // namespace moving_test
