// Blobs of any type, found by name, and errors that name them.
#include "opkit/op/workspace.hpp"

#include <doctest/doctest.h>

#include <map>

#include "support/error_of.hpp"

namespace workspace_test { namespace {

using opkit::Blob;
using opkit::DType;
using opkit::ErrorCode;
using opkit::Tensor;
using opkit::Workspace;
using Names = std::vector<std::string>;

struct Counted {
  explicit Counted(int& count) : alive(&count) { ++*alive; }
  ~Counted() { --*alive; }
  int* alive;
};
struct Throws {
  Throws() { throw 1; }
};

TEST_CASE("a blob holds one object of any type and owns it") {
  int alive = 0;
  {
    Blob blob("B");
    CHECK(blob.empty());
    CHECK(blob.name() == "B");
    blob.Emplace<Counted>(alive);
    CHECK(blob.IsType<Counted>());
    CHECK_FALSE(blob.IsType<int>());
    CHECK(alive == 1);
    blob.Emplace<Counted>(alive);
    CHECK(alive == 1);
    *blob.GetMutable<std::string>() = "text";  // another type takes its place
    CHECK(alive == 0);
    CHECK(blob.Get<std::string>() == "text");
    CHECK(blob.GetMutable<std::string>() == &blob.Get<std::string>());
    blob.Emplace<Counted>(alive);
    blob.Reset();
    CHECK(blob.empty());
    CHECK(alive == 0);
    blob.Emplace<Counted>(alive);
  }
  CHECK(alive == 0);
}

TEST_CASE("a constructor that throws leaves the blob as it was") {
  Blob blob("B");
  *blob.GetMutable<std::string>() = "text";
  CHECK_THROWS_AS(blob.GetMutable<Throws>(), int);
  CHECK(blob.Get<std::string>() == "text");
}

TEST_CASE("reading an empty blob or another type is an Error that names the blob") {
  Blob blob("weights");
  opkit::Error error = ErrorOf([&] { blob.Get<Tensor>(); });
  CHECK(error.code() == ErrorCode::kUninitialized);
  CHECK(error.message() == "blob 'weights' is read before it is written");
  blob.Emplace<int>(3);
  error = ErrorOf([&] { blob.Get<Tensor>(); });
  CHECK(error.code() == ErrorCode::kTypeMismatch);
  CHECK(Contains(error.message(), "blob 'weights' holds type i, but is read as "));
  CHECK(Contains(error.message(), "Tensor"));
}

TEST_CASE("a blob keeps its address while others come and go") {
  Workspace ws;
  Blob* first = ws.CreateBlob("A");
  for (int i = 0; i < 100; ++i) ws.CreateBlob(opkit::StrCat("B", i));
  CHECK(ws.CreateBlob("A") == first);
  CHECK(ws.GetBlob("A") == first);
  CHECK(ws.RemoveBlob("B3"));
  CHECK_FALSE(ws.RemoveBlob("B3"));
  CHECK_FALSE(ws.HasBlob("B3"));
  CHECK(ws.FindBlob("B3") == nullptr);
  CHECK(ws.GetBlob("A") == first);
}

TEST_CASE("a missing blob is an Error that names the nearest") {
  Workspace ws;
  ws.CreateTensor("weights");
  ws.CreateTensor("bias");
  const opkit::Error error = ErrorOf([&] { ws.GetTensor("wieghts"); });
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK(Contains(error.message(), "no blob 'wieghts' in the workspace"));
  CHECK(Contains(error.message(), "did you mean 'weights'?"));
  CHECK(ws.Blobs() == Names{"bias", "weights"});
}

TEST_CASE("blobs agree with std::map over random additions and removals") {
  uint32_t state = 2463534242u;  // the seed
  const auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
  };
  Workspace ws;
  std::map<std::string, Blob*> blobs;
  for (int i = 0; i < 2000; ++i) {
    const std::string name = std::to_string(random() % 100);
    if (random() % 3 == 0) {
      CHECK(ws.RemoveBlob(name) == (blobs.erase(name) == 1));
    } else {
      Blob* blob = ws.CreateBlob(name);
      CHECK(blob->name() == name);
      CHECK(blobs.emplace(name, blob).first->second == blob);
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, blob] : blobs) {
    names.push_back(name);
    CHECK(ws.FindBlob(name) == blob);
  }
  CHECK(ws.Blobs() == names);
}

TEST_CASE("a tensor is created once and not replaced") {
  Workspace ws;
  Tensor* x = ws.CreateTensor("X");
  CHECK(x->dtype() == DType::kUndefined);
  *x = Tensor::From<float>({2}, {1, 2});
  CHECK(ws.CreateTensor("X") == x);
  CHECK(ws.GetTensor("X") == x);
  CHECK(x->ToVector<float>() == std::vector<float>{1, 2});
  ws.CreateBlob("empty");
  ws.CreateBlob("number")->Emplace<int>(1);
  CHECK(ws.HasTensor("X"));
  CHECK_FALSE(ws.HasTensor("empty"));
  CHECK_FALSE(ws.HasTensor("number"));
  CHECK_FALSE(ws.HasTensor("none"));
  CHECK(ErrorOf([&] { ws.GetTensor("empty"); }).code() == ErrorCode::kUninitialized);
  CHECK(ErrorOf([&] { ws.GetTensor("number"); }).code() == ErrorCode::kTypeMismatch);
}

TEST_CASE("no operator has failed in a new workspace") {
  CHECK(Workspace().last_failed_op_net_position.load() == -1);
}

}  // namespace
}  // namespace workspace_test
