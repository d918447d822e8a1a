// Models in files: weights are used where they lie, external data comes from the model's folder and
// from nowhere else.
#include <doctest/doctest.h>

#include <stdlib.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "opkit/interop/onnx.hpp"
#include "support/error_of.hpp"
#include "support/lists.hpp"
#include "support/onnx_bytes.hpp"
#include "support/temporary_folder.hpp"

namespace onnx_file_test {
using namespace opkit;
using onnx_bytes::ExternalTensor;
using onnx_bytes::FloatTensor;
using OnnxGraph = onnx_bytes::Graph;

namespace {

std::string BytesOfFloats(const Floats& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
// Initializers "a0", "a1", … at all four alignments of a float.
std::string ManyWeights() {
  OnnxGraph graph;
  for (int i = 0; i < 8; ++i)
    graph.Initializer(FloatTensor("a" + std::string(static_cast<size_t>(i), '_'), {2},
                                  {static_cast<float>(i), 0.5f}));
  return graph.Model();
}
std::string External(const std::string& tensor) {
  return OnnxGraph().Initializer(tensor).Output("w").Model();
}

}  // namespace

TEST_CASE("Aligned weights of a mapped file are used where they lie, others are copied") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("model.onnx", ManyWeights());
  const opkit::Graph graph = LoadOnnx(path);
  int mapped = 0;
  const Tensor* first = nullptr;
  for (const Graph::Constant& constant : graph.constants()) {
    const Tensor& tensor = constant.value;
    CHECK(reinterpret_cast<uintptr_t>(tensor.raw_data()) % alignof(float) == 0);
    CHECK(tensor.ToVector<float>() == Floats{static_cast<float>(constant.name.size() - 1), 0.5f});
    if (tensor.storage()->nbytes() == tensor.nbytes()) continue;  // a copy
    ++mapped;
    if (!first) first = &tensor;
    CHECK(tensor.storage() == first->storage());
    CHECK(tensor.storage()->nbytes() == static_cast<int64_t>(std::filesystem::file_size(path)));
  }
  CHECK(mapped == 2);
}

TEST_CASE("The mapping lives as long as a tensor of it") {
  const TemporaryFolder folder;
  Tensor kept;
  {
    const opkit::Graph graph = LoadOnnx(folder.Write("model.onnx", ManyWeights()));
    for (const Graph::Constant& constant : graph.constants())
      if (constant.value.storage()->nbytes() > 8) kept = constant.value;
  }
  REQUIRE(kept.initialized());
  CHECK(kept.storage()->data() != nullptr);
  CHECK(kept.data<float>()[1] == 0.5f);
}

TEST_CASE("A model parsed from memory keeps nothing of it") {
  std::string bytes = ManyWeights();
  const OnnxModel model = ParseOnnxModel(bytes);
  bytes.assign(bytes.size(), '\xff');
  for (const Graph::Constant& constant : model.graph.constants())
    CHECK(constant.value.data<float>()[1] == 0.5f);
}

TEST_CASE("External data is mapped, once for each file") {
  const TemporaryFolder folder;
  folder.Write("w.bin", BytesOfFloats({1, 2, 3, 4, 5}));
  const std::string model = OnnxGraph()
                                .Initializer(ExternalTensor("all", {5}, "w.bin"))
                                .Initializer(ExternalTensor("some", {2}, "w.bin", "8", "8"))
                                .Initializer(ExternalTensor("none", {0}, "w.bin", "20"))
                                .Initializer(ExternalTensor("odd", {1}, "w.bin", "5"))
                                .Output("all")
                                .Model();
  const opkit::Graph graph = LoadOnnx(folder.Write("model.onnx", model));
  CHECK(graph.FindConstant("all")->ToVector<float>() == Floats{1, 2, 3, 4, 5});
  CHECK(graph.FindConstant("some")->ToVector<float>() == Floats{3, 4});
  CHECK(graph.FindConstant("none")->numel() == 0);
  CHECK(graph.FindConstant("some")->storage() == graph.FindConstant("all")->storage());
  CHECK(graph.FindConstant("odd")->storage() != graph.FindConstant("all")->storage());

  CHECK(ParseOnnxModel(model, {}, folder.path()).graph.FindConstant("some")->data<float>()[0] == 3);
  const Error nowhere = ErrorOf([&] { ParseOnnxModel(model); });
  CHECK(nowhere.code() == ErrorCode::kFailedPrecondition);
  CHECK(nowhere.message() ==
        "tensor 'all': its data is in the file 'w.bin', and a model parsed from memory has no "
        "folder; load it by its path, or name the folder (external_dir)");
}

TEST_CASE("A model in the working folder finds its data") {
  const TemporaryFolder folder;
  folder.Write("w.bin", BytesOfFloats({7}));
  folder.Write("model.onnx", External(ExternalTensor("w", {1}, "w.bin")));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const opkit::Graph graph = LoadOnnx("model.onnx");
  std::filesystem::current_path(before);
  CHECK(graph.FindConstant("w")->data<float>()[0] == 7);
}

TEST_CASE("External data that is not all there is an Error that names tensor and file") {
  const TemporaryFolder folder;
  folder.Write("w.bin", BytesOfFloats({1, 2}));
  const auto what = [&](const std::string& tensor) {
    const std::string path = folder.Write("model.onnx", External(tensor));
    const std::string text = ErrorOf([&] { LoadOnnx(path); }).what();
    CHECK(text.substr(0, path.size() + 2) == path + ": ");
    return text.substr((std::min)(text.size(), path.size() + 2));
  };
  CHECK(what(ExternalTensor("w", {3}, "w.bin")) ==
        "tensor 'w': its external data is bytes 0 to 12 of 'w.bin', which has only 8; is the file "
        "complete?");
  CHECK(Contains(what(ExternalTensor("w", {1}, "w.bin", "9223372036854775807")), "has only 8"));
  CHECK(Contains(what(ExternalTensor("w", {1}, "w.bin", "8")), "bytes 8 to 12"));
  CHECK(what(ExternalTensor("w", {2}, "w.bin", "0", "4")) ==
        "tensor 'w': its external data in 'w.bin' has 4 bytes, but its type and shape need 8");
  CHECK(what(ExternalTensor("w", {2}, "w.bin", "-4")) ==
        "tensor 'w': the offset of its external data should be a number, found '-4'");
  CHECK(Contains(what(ExternalTensor("w", {2}, "w.bin", "4k")), "found '4k'"));
  CHECK(Contains(what(ExternalTensor("w", {2}, "other.bin")),
                 "tensor 'w': its external data 'other.bin' cannot be opened as '"));
  std::filesystem::create_directory(folder / "sub");
  CHECK(Contains(what(ExternalTensor("w", {2}, "sub")), "is not a regular file"));
  CHECK(Contains(what(ExternalTensor("w", {int64_t{1} << 40, int64_t{1} << 40}, "w.bin")),
                 "64-bit count"));
}

TEST_CASE("External data outside the model's folder is an Error") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model/sub");
  folder.Write("secret.bin", BytesOfFloats({1}));
  folder.Write("model/sub/w.bin", BytesOfFloats({2}));
  std::filesystem::create_directories(folder / "blobs");
  folder.Write("blobs/1234", BytesOfFloats({3}));
  std::filesystem::create_symlink("../blobs/1234", folder / "model/blob.bin");
  std::filesystem::create_symlink("../../blobs/1234", folder / "model/sub/blob.bin");
  std::filesystem::create_symlink("../blobs", folder / "model/link");
  std::filesystem::create_symlink(folder / "model/sub/w.bin", folder / "model/inside.bin");
  const auto load = [&](const std::string& location) {
    return LoadOnnx(folder.Write("model/m.onnx", External(ExternalTensor("w", {1}, location))));
  };
  CHECK(load("sub/w.bin").FindConstant("w")->data<float>()[0] == 2);
  CHECK(load("inside.bin").FindConstant("w")->data<float>()[0] == 2);
  CHECK(load("./sub/w.bin").FindConstant("w")->data<float>()[0] == 2);
  // A file may be a link to anywhere, as in the cache of a hub of models, where the model is one.
  CHECK(load("blob.bin").FindConstant("w")->data<float>()[0] == 3);
  CHECK(load("sub/blob.bin").FindConstant("w")->data<float>()[0] == 3);
  folder.Write("blobs/5678", External(ExternalTensor("w", {1}, "blob.bin")));
  std::filesystem::create_symlink("../blobs/5678", folder / "model/linked.onnx");
  CHECK(LoadOnnx(folder / "model/linked.onnx").FindConstant("w")->data<float>()[0] == 3);
  for (const std::string& location :
       {std::string("../secret.bin"), folder / "secret.bin", std::string("sub/../../secret.bin"),
        std::string("sub/.."), std::string("sub/w.bin\0x", 11)}) {
    CAPTURE(location);
    const Error error = ErrorOf([&] { load(location); });
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK(Contains(error.message(), "should be a file in the model's folder"));
  }
  for (const char* through : {"link/1234", "sub/../link/1234", "link/./1234"})
    CHECK(ErrorOf([&] { load(through); }).code() == ErrorCode::kInvalidArgument);
  CHECK(Contains(ErrorOf([&] { load("link/1234"); }).message(),
                 "tensor 'w': its external data 'link/1234' leads out of the model's folder by a "
                 "symbolic link to a folder"));
  for (const char* itself : {".", "./", "sub/.."})
    CHECK_FALSE(Contains(ErrorOf([&] { load(itself); }).message(), "symbolic link"));
  CHECK(Contains(ErrorOf([&] { load("."); }).message(),
                 "tensor 'w': its external data '.' is the model's folder, not a file in it"));
}

TEST_CASE("A missing or empty file is an Error that names it") {
  const TemporaryFolder folder;
  const Error missing = ErrorOf([&] { LoadOnnx(folder / "none.onnx"); });
  CHECK(missing.code() == ErrorCode::kIo);
  CHECK(missing.message() ==
        "cannot open '" + (folder / "none.onnx") + "': No such file or directory");
  CHECK(Contains(ErrorOf([&] { LoadOnnx(folder.path()); }).message(), "is not a regular file"));
  CHECK(Contains(ErrorOf([&] { LoadOnnx(folder.Write("empty.onnx", "")); }).message(),
                 "empty.onnx: the model has no graph; is it an ONNX file?"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(Contains(ErrorOf([&] { LoadOnnx(folder / "pipe"); }).message(), "is not a regular file"));
}

}  // namespace onnx_file_test
