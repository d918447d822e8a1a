// The light operators of the "onednn" backend: the same as the plain ones, in blocks of channels.
#include "backends/onednn/images.hpp"

namespace light_test { namespace {

using namespace opkit;
using namespace onednn_test;

// The last block of 20 channels has pads, of 32 none.
const Shape kShapes[] = {{2, 20, 9, 7}, {1, 32, 13, 13}, {1, 3, 1, 1}, {2, 16, 300}};

TEST_CASE("Activations") {
  for (const Shape& shape : kShapes) {
    const Tensor x = Random(shape, 1);
    for (const char* op : {"Relu", "LeakyRelu", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh"})
      CheckInBlocks(op, x);
    CheckInBlocks("HardSigmoid", x, {{"alpha", 0.3f}, {"beta", -0.25f}});
    CheckInBlocks("Clip", x, {}, {Tensor::Scalar(-0.5f), Tensor::Scalar(0.25f)});
    CheckInBlocks("Clip", x, {}, {Tensor::Scalar(0.5f)});
    CheckInBlocks("Clip", x);
  }
}

TEST_CASE("Large images of few channels leave their blocks, most of which are pads") {
  const auto taken = [](const Shape& shape) {
    const Tensor x = InBlocks(Random(shape, 1), 16);
    const bool is_taken = IsTakenBy("onednn", "Sigmoid", {x}, {}, 1);
    CHECK(IsTakenBy("onednn", "Add", {x, Tensor::Scalar(1.f)}, {}, 1) == is_taken);
    return is_taken;
  };
  CHECK_FALSE(taken({1, 1, 128, 128}));
  CHECK_FALSE(taken({1, 4, 64, 64}));
  CHECK(taken({1, 5, 64, 64}));
  CHECK(taken({1, 1, 64, 64}));
}

TEST_CASE("A NaN stays a NaN") {
  Tensor x = Random({1, 20, 3, 3}, 1);
  x.mutable_data<float>()[4] = NAN;
  for (const char* op : {"Relu", "HardSwish", "Clip", "Sigmoid"}) {
    const Tensor y = Invoke(op, {InBlocks(x, 8)}, {}, {.backends = "onednn", .num_outputs = 1})[0];
    CAPTURE(op);
    CHECK(std::isnan(y.data<float>()[4]));
    CHECK_FALSE(std::isnan(y.data<float>()[5]));
  }
  for (const char* op : {"MaxPool", "AveragePool"}) {
    CAPTURE(op);
    const Tensor y = Invoke(op, {InBlocks(x, 8)}, {{"kernel_shape", Ints{2, 2}}},
                            {.backends = "onednn", .num_outputs = 1})[0];
    for (int64_t i = 0; i < 4; ++i) CHECK(std::isnan(y.data<float>()[i]));
    CHECK_FALSE(std::isnan(y.data<float>()[4]));
  }
}

TEST_CASE("Functions with f(0) != 0 leave the padding of blocks at 0") {
  const OperatorDef defs[] = {OperatorDef("Sigmoid", {"x"}, {"y"}),
                              OperatorDef("HardSigmoid", {"x"}, {"y"}),
                              OperatorDef("Add", {"x", "one"}, {"y"}),
                              OperatorDef("Concat", {"x", "wide"}, {"y"}, {{"axis", 1}})};
  for (const int64_t block : {8, 16})
    for (OperatorDef def : defs) {
      CAPTURE(def.type());
      Workspace ws;
      *ws.CreateTensor("x") = InBlocks(Random({2, 20, 5, 5}, 1), block);
      *ws.CreateTensor("wide") = InBlocks(Random({2, 31, 5, 5}, 2), block);
      *ws.CreateTensor("one") = Tensor::Scalar(1.f);
      std::vector<TensorInfo> infos;
      for (const std::string& name : def.inputs())
        infos.push_back(TensorInfo::Of(ws.GetBlob(name)->Get<Tensor>()));
      const int64_t channels = def.type() == "Concat" ? 51 : 20;
      const TensorInfo out(DType::kFloat32, Shape{2, channels, 5, 5});
      KernelCandidate chosen;
      const auto op = CreateSelected(def, &ws, infos, {&out, 1}, {.converts = true}, &chosen);
      REQUIRE(chosen.backend == "onednn");
      op->Run();
      Tensor& y = *ws.GetBlob("y")->GetMutable<Tensor>();
      const int64_t blocks = (channels + block - 1) / block;
      auto* floats = static_cast<float*>(y.raw_mutable_data());
      std::fill_n(floats, 2 * blocks * 25 * block, 7.f);
      op->Run();
      for (int64_t image = 0; image < 2; ++image)
        for (int64_t pixel = 0; pixel < 25; ++pixel)
          for (int64_t k = channels % block; k < block; ++k)
            CHECK(floats[((image * blocks + blocks - 1) * 25 + pixel) * block + k] == 0);
    }
}

TEST_CASE("Arithmetic with images, numbers and a number for each channel") {
  for (const Shape& shape : kShapes) {
    const Tensor x = Random(shape, 1), y = Random(shape, 2);
    Dims channel(shape.data(), static_cast<size_t>(shape.rank()));
    for (int axis = 2; axis < shape.rank(); ++axis) channel[axis] = 1;
    const Tensor each = Random(Shape(channel), 3);
    channel[0] = 1;
    const Tensor same = Random(Shape(channel), 4);
    for (const char* op : {"Add", "Sub", "Mul", "Div"}) {
      CAPTURE(op);
      const Tensor number = Tensor::Scalar(3.f), list = Tensor::From<float>({1}, {0.5f});
      for (const Tensor& other : {number, list, each, same}) CheckInBlocks(op, x, {}, {other});
      for (const int64_t block : {8, 16}) {
        CheckSameOn("onednn", op, {InBlocks(x, block), InBlocks(y, block)});
        CheckSameOn("onednn", op, {InBlocks(each, block), InBlocks(x, block)});
        CheckSameOn("onednn", op, {Tensor::Scalar(2.f), InBlocks(x, block)});
      }
    }
  }
  const Tensor x = InBlocks(Random({1, 8, 4, 4}, 1), 8);
  CHECK_FALSE(IsTakenBy("onednn", "Add", {x, Random({4, 4}, 2)}, {}, 1));
  CHECK_FALSE(IsTakenBy("onednn", "Add", {x, Random({1, 8, 4, 1}, 2)}, {}, 1));
}

TEST_CASE("Images in blocks of another size are converted, as cheap operators keep a chain") {
  const Tensor x = Random({2, 24, 20, 20}, 1), y = Random({2, 24, 20, 20}, 2);
  for (const int64_t block : {8, 16}) {
    const std::vector<Tensor> both{InBlocks(x, block), InBlocks(y, 24 - block)};
    for (const auto& [op, args] : {std::pair("Add", Arguments{}), {"Concat", {{"axis", 1}}}}) {
      CAPTURE(op);
      CHECK(IsTakenBy("onednn", op, both, args, 1));
      CheckSameOn("onednn", op, both, args);
      CHECK_FALSE(IsTakenBy("onednn", op, {both[0], y}, args, 1));
    }
  }
}

TEST_CASE("BatchNormalization by given statistics") {
  for (const Shape& shape : kShapes) {
    const Shape channels{shape[1]};
    Tensor variance = Random(channels, 5);
    for (int64_t c = 0; c < shape[1]; ++c)
      variance.mutable_data<float>()[c] = 0.1f + std::fabs(variance.data<float>()[c]);
    CheckInBlocks("BatchNormalization", Random(shape, 1), {{"epsilon", 1e-3f}},
                  {Random(channels, 2), Random(channels, 3), Random(channels, 4), variance});
  }
}

TEST_CASE("Pools") {
  const auto check = [](const Shape& shape, const Arguments& args) {
    const Tensor x = Random(shape, 1);
    CheckInBlocks("MaxPool", x, args);
    CheckInBlocks("AveragePool", x, args);
  };
  check({1, 20, 30, 41},
        {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
  check({2, 32, 28, 28}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  check({1, 9, 13, 13}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", 1}});
  check({1, 5, 14, 14}, {{"kernel_shape", Ints{3, 3}}, {"auto_pad", "SAME_UPPER"}});
  check({2, 3, 100}, {{"kernel_shape", Ints{5}}, {"strides", Ints{4}}});
  CheckInBlocks("AveragePool", Random({1, 20, 9, 9}, 2),
                {{"kernel_shape", Ints{3, 3}}, {"pads", Ints(4, 1)}, {"count_include_pad", 1}});
  for (const Shape& shape : kShapes) CheckInBlocks("GlobalAveragePool", Random(shape, 1));
  const Tensor flat = InBlocks(Random({1, 16, 1, 6}, 1), 8);  // less high than a dilation
  const Arguments dilated = {
      {"kernel_shape", Ints{2, 2}}, {"dilations", Ints{2, 2}}, {"auto_pad", "SAME_UPPER"}};
  CHECK(IsTakenBy("onednn", "MaxPool", {flat}, dilated, 1));
  CheckClose(Invoke("MaxPool", {flat}, dilated, {.backends = "onednn", .num_outputs = 1})[0],
             Invoke("MaxPool", {Random({1, 16, 1, 6}, 1)}, dilated,
                    {.backends = "reference", .num_outputs = 1})[0]);
  CHECK_FALSE(IsTakenBy("onednn", "AveragePool", {flat}, dilated, 1));
  const Tensor x = InBlocks(Random({1, 8, 9, 9}, 1), 8);
  CHECK_FALSE(IsTakenBy("onednn", "MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}}, 2));
  CHECK_FALSE(IsTakenBy("onednn", "MaxPool", {x},
                        {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{2, 2, 0, 0}}}, 1));
}

TEST_CASE("Resize to whole multiples") {
  const Arguments floor = {{"mode", "nearest"},
                           {"coordinate_transformation_mode", "asymmetric"},
                           {"nearest_mode", "floor"}};
  for (const Arguments& args : {floor, Arguments{{"mode", "nearest"}}})
    for (const auto& [high, wide] : {std::pair(2.f, 2.f), {1.f, 3.f}, {4.f, 1.f}}) {
      Graph graph;
      const Tensor x = Random({2, 3, 12, 10}, 1);
      graph.AddInput("x", DType::kFloat32, x.shape());
      graph.AddConstant("w", Random({20, 3, 3, 3}, 2));
      graph.AddConstant("scales", Tensor::From<float>({4}, {1.f, 1.f, high, wide}));
      graph.AddNode(OperatorDef("Conv", {"x", "w"}, {"h"}));
      graph.AddNode(OperatorDef("Resize", {"h", "", "scales"}, {"y"}, args));
      graph.AddOutput("y");
      CHECK(Compile(graph).choice(1).kernel->backend == "onednn");
      const Tensor expected = RunGraph(Plainly(graph), x);
      for (const int threads : {1, 3}) CheckClose(RunGraph(graph, x, threads), expected);
    }
}

TEST_CASE("Concat of channels that fill their blocks, and of others") {
  const auto images = [](int64_t channels) {
    return Random({2, channels, 5, 6}, static_cast<uint64_t>(channels));
  };
  for (const int64_t block : {8, 16}) {
    CAPTURE(block);
    for (const Ints& channels : {Ints{16, 32, 11},
                                 {24, 24, 24, 24},
                                 {8, 16},
                                 {3, 1, 20, 5, 40},
                                 {11, 5, 32},
                                 {7, 9},
                                 {1, 1}}) {
      std::vector<Tensor> all;
      for (const int64_t each : channels) all.push_back(InBlocks(images(each), block));
      CHECK(IsTakenBy("onednn", "Concat", all, {{"axis", 1}}, 1));
      CheckSameOn("onednn", "Concat", all, {{"axis", 1}});
    }
    const Tensor x = InBlocks(images(16), block);
    CHECK_FALSE(IsTakenBy("onednn", "Concat", {x, images(32)}, {{"axis", 1}}, 1));
    CHECK_FALSE(IsTakenBy("onednn", "Concat", {x, x}, {{"axis", 2}}, 1));
  }
}

}  // namespace
}  // namespace light_test
